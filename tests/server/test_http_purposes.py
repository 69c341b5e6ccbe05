"""Spent on what, by whom: what auditors read beside each charge, in entries, tables,
reports and the dashboard.
"""

import csv
import io

import pytest

from tests.support.databases import on_one_server
from tests.support.pages import signed_in, text_of
from tests.support.server import Caller, Server, new_idempotency_key

pytestmark = on_one_server

PURPOSE = "=quarterly report of the board"


def _spend(
    server: Server, dataset: str, analyst: Caller
) -> dict[str, dict[str, object]]:
    """Trains a model, and evaluates it: the finished jobs, by kind."""
    training = {
        "dataset": dataset,
        "algorithm": "rdt-ta",
        "epsilon": "1",
        "name": "first",
        "purpose": PURPOSE,
    }
    model = {"parameters": {"n_estimators": 2, "max_depth": 2}}
    trained = analyst.http.post(
        "/train", json=training | model, headers=new_idempotency_key()
    )
    assert trained.status_code == 202, trained.text
    job = server.ended(trained.json()["job_id"])
    path = f"/models/{job['model_id']}/evaluations"
    asked = analyst.http.post(
        path,
        json={"epsilon": "0.5", "purpose": "a check"},
        headers=new_idempotency_key(),
    )
    assert asked.status_code == 202, asked.text
    return {"train": job, "evaluation": server.ended(asked.json()["job_id"])}


def test_an_auditor_reads_what_was_charged_for_whom_and_why(server: Server) -> None:
    dataset = server.uploaded()["id"]
    analyst, auditor = (
        server.granted(dataset, "analyst"),
        server.granted(dataset, "auditor"),
    )
    jobs = _spend(server, dataset, analyst)
    listed = auditor.http.get(
        f"/ledger/{dataset}/entries", params={"kind": "charge"}
    ).json()
    model = jobs["train"]["model_id"]
    facts = {
        jobs["train"]["id"]: (
            "train",
            "rdt-ta",
            "rdt-ta",
            "first",
            [model],
            analyst.id,
        ),
        jobs["evaluation"]["id"]: (
            "evaluation",
            None,
            "evaluation",
            None,
            [model],
            analyst.id,
        ),
    }
    assert {
        job: tuple(shown.values()) for job, shown in listed["jobs"].items()
    } == facts
    assert [entry["details"] for entry in listed["entries"]] == [
        {"purpose": PURPOSE},
        {"purpose": "a check"},
    ]
    assert listed["actors"][analyst.id]

    table = auditor.http.get(f"/ledger/{dataset}/export", params={"format": "csv"}).text
    rows = [
        row
        for row in csv.DictReader(io.StringIO(table))
        if row["kind"] in ("reserve", "charge")
    ]
    assert [row["purpose"] for row in rows] == [f"'{PURPOSE}"] * 2 + ["a check"] * 2, (
        "no cell is a formula"
    )
    assert {(row["job_kind"], row["algorithm"], row["job_name"], row["models"]) for row in rows} == {
        ("train", "rdt-ta", "first", model), ("evaluation", "", "", model),
    }  # fmt: skip
    assert {row["submitted_by"] for row in rows} == {analyst.id}
    assert all(row["submitted_by_name"] for row in rows)


def test_an_auditor_reads_public_facts_of_jobs_and_acts_on_none(server: Server) -> None:
    dataset = server.uploaded()["id"]
    analyst, auditor = (
        server.granted(dataset, "analyst"),
        server.granted(dataset, "auditor"),
    )
    job = _spend(server, dataset, analyst)["train"]
    shown = auditor.http.get(f"/jobs/{job['id']}").json()
    assert shown == job
    assert (shown["purpose"], shown["submitted_by"]) == (PURPOSE, analyst.id)
    assert job["id"] in [
        each["id"] for each in auditor.http.get("/jobs").json()["jobs"]
    ]
    assert auditor.http.delete(f"/jobs/{job['id']}").status_code == 403
    assert (
        server.granted(server.uploaded()["id"], "auditor")
        .http.get(f"/jobs/{job['id']}")
        .status_code
        == 404
    )
    assert (
        server.granted(dataset, "predictor").http.get(f"/jobs/{job['id']}").status_code
        == 403
    )


def test_the_pages_of_an_auditor_say_what_was_charged_for_whom_and_why(
    server: Server,
) -> None:
    dataset = server.uploaded()["id"]
    analyst, auditor = (
        server.granted(dataset, "analyst"),
        server.granted(dataset, "auditor"),
    )
    job = _spend(server, dataset, analyst)["train"]
    pages = signed_in(server, auditor)
    for path in ("", "/report", "/entries/3"):
        page = pages.get(f"/ui/ledger/{dataset}{path}")
        text = text_of(page)
        for fact in (
            "rdt-ta, first",
            str(job["model_id"]),
            f"Purpose{':' if path != '/entries/3' else ''} {PURPOSE}",
        ):
            assert fact in text, (path, fact)
        # the table of entries has the id of a named key in its title
        assert analyst.id in page.text, path
    assert f"Purpose {PURPOSE}" in text_of(pages.get(f"/ui/jobs/{job['id']}"))
    assert "rdt-ta, first" in text_of(pages.get(f"/ui/datasets/{dataset}"))


@pytest.mark.parametrize("purpose", ["", "  ", "a" * 501, "two\nlines", 7])
def test_a_purpose_is_one_readable_line(server: Server, purpose: object) -> None:
    dataset = server.uploaded()["id"]
    refused = server.submitted(dataset, purpose=purpose)
    assert refused.status_code == 422
    assert [error["at"] for error in refused.json()["errors"]] == ["/purpose"]


def test_the_card_of_a_model_says_for_whom_and_why_it_was_paid(server: Server) -> None:
    dataset = server.uploaded()["id"]
    analyst, predictor = (
        server.granted(dataset, role) for role in ("analyst", "predictor")
    )
    job = _spend(server, dataset, analyst)["train"]
    card = f"/ui/models/{job['model_id']}"
    page = text_of(signed_in(server, analyst).get(card))
    assert f"Submitted by test {analyst.id} Purpose {PURPOSE}" in page
    # whoever may only predict sees no job
    seen = text_of(signed_in(server, predictor).get(card))
    assert PURPOSE not in seen
    assert "Submitted by" not in seen
    shown = text_of(signed_in(server, analyst).get(f"/ui/jobs/{job['id']}"))
    assert "Cells the whole dataset" in shown


def test_a_form_states_the_purpose_of_its_job(server: Server) -> None:
    dataset = server.uploaded()["id"]
    analyst = server.granted(dataset, "analyst")
    pages = signed_in(server, analyst)
    path = f"/ui/datasets/{dataset}/train"
    assert 'name="purpose"' in pages.get(path, params={"epsilon": "1"}).text
    form = {
        "epsilon": "1",
        "algorithm": "rdt-ta",
        "purpose": " a pilot ",
        "once": "a-form-that-is-sent-once",
    }
    sent = pages.post(path, data=form)
    assert sent.status_code == 303, sent.text
    job = analyst.http.get(sent.headers["Location"].removeprefix("/ui")).json()
    assert job["purpose"] == "a pilot"
