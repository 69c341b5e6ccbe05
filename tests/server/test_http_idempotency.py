"""Repeated requests: identical bytes for ever, one effect, and a key that a refusal
leaves free.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from app.access.tables import AnswerRow
from tests.support.databases import on_one_idle_server, on_one_server
from tests.support.openapi import COMMITTED
from tests.support.server import (
    CSV,
    Server,
    csv_rows,
    declaration,
    new_idempotency_key,
    running_server,
    training,
    worker,
)

AS_JSON = {"Content-Type": "application/json"}
BY_REFERENCE: dict[str, dict[str, Any]] = {
    "/datasets/{dataset}/profiles": {"epsilon": "1"},
    "/datasets/{dataset}/statistics": {
        "epsilon": "1",
        "tables": [{"statistic": "count", "by": ["income"]}],
    },
    "/ledger/{dataset}/reservations": {
        "description": "a mean",
        "per": "row",
        "declared": {"adjacency": "add_remove", "epsilon": "1"},
    },
    "/ledger/{account}/cap": {"cap": "2", "reason": "a test"},
}
"""Bodies of requests whose path names a dataset, by its id or its name; but uploads."""


def _same(first: httpx.Response, again: httpx.Response) -> bool:
    names = ("Location", "Content-Type")
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert [again.headers.get(name) for name in names] == [
        first.headers.get(name) for name in names
    ]
    return True


def test_a_replay_gets_the_same_bytes_for_ever(server: Server) -> None:
    dataset = server.uploaded()["id"]
    headers, body = new_idempotency_key(), training(dataset)
    first = server.admin.http.post("/train", json=body, headers=headers)
    assert first.status_code == 202
    server.ended(first.json()["job_id"])
    before = server.footprint()
    assert _same(first, server.admin.http.post("/train", json=body, headers=headers)), (
        "after the job has ended"
    )
    assert server.footprint()["entries"] == before["entries"]
    server.admin.http.delete(f"/datasets/{dataset}")
    before = server.footprint()
    assert _same(first, server.admin.http.post("/train", json=body, headers=headers)), (
        "after the dataset was deleted"
    )
    assert server.admin.http.get(f"/ledger/{dataset}").json()["charged"] == "1"
    assert server.footprint()["entries"] == before["entries"]
    assert server.footprint()["jobs"] == before["jobs"]


def test_an_answer_that_an_earlier_version_stored_is_repeated(server: Server) -> None:
    headers, body = new_idempotency_key(), declaration()
    first = server.admin.http.post("/datasets", json=body, headers=headers)
    assert first.status_code == 201
    facts = first.json()
    earlier = {name: fact for name, fact in facts.items() if name != "role"}
    stored = json.dumps(earlier).encode()
    with server.database.write() as session:
        changed = update(AnswerRow).where(
            AnswerRow.idempotency_key == headers["Idempotency-Key"]
        )
        session.execute(changed.values(body=stored))
    again = server.admin.http.post("/datasets", json=body, headers=headers)
    assert (again.status_code, again.content) == (201, stored)
    columns, _, _ = again.headers["ETag"].partition("-")
    assert columns == first.headers["ETag"].partition("-")[0]


@on_one_server
@pytest.mark.parametrize(
    "spelling",
    [
        '{{"scope":{{}},"parameters":{{"max_depth":2,"n_estimators":2}},"epsilon":0.5,"algorithm":"rdt-ta","dataset":"{}"}}',
        '  {{ "dataset": "{}", "algorithm": "rdt\\u002dta", "epsilon": 5e-1,\n"parameters": '
        '{{"n_estimators": 2, "max_depth": 2}}, "scope": {{}} }}',
        '{{"dataset":"{}","algorithm":"rdt-ta","epsilon":0.500,"parameters":{{"n_estimators":2,"max_depth":2}},"scope":{{}}}}',
    ],
    ids=["order", "spaces and escapes", "zeros"],
)
def test_an_equal_body_may_be_spelled_in_another_way(
    server: Server, spelling: str
) -> None:
    dataset = server.uploaded()["id"]
    headers = AS_JSON | new_idempotency_key()
    plain = json.dumps(training(dataset, epsilon=0.5, scope={}))
    first = server.admin.http.post("/train", content=plain, headers=headers)
    assert first.status_code == 202
    assert _same(
        first,
        server.admin.http.post(
            "/train", content=spelling.format(dataset), headers=headers
        ),
    )


def test_another_body_under_the_same_key_is_refused(server: Server) -> None:
    dataset = server.uploaded()["id"]
    headers = new_idempotency_key()
    first = server.admin.http.post("/train", json=training(dataset), headers=headers)
    server.ended(first.json()["job_id"])
    before = server.footprint()
    others: list[dict[str, Any]] = [
        {"epsilon": "1.0"}, {"epsilon": 1}, {"epsilon": "2"}, {"name": "x"}, {"scope": {}}, {"delta": None},
    ]  # fmt: skip
    for changes in others:
        answer = server.admin.http.post(
            "/train", json=training(dataset, **changes), headers=headers
        )
        assert (answer.status_code, answer.json()["type"]) == (
            422,
            "idempotency-key-reused",
        )
    assert server.footprint() == before


def test_a_refusal_leaves_the_key_free(server: Server) -> None:
    dataset = server.declared(budget={"accountant": "pure", "epsilon": "1"})["id"]
    headers = new_idempotency_key()
    no_rows = server.admin.http.post("/train", json=training(dataset), headers=headers)
    assert no_rows.json()["type"] == "no-rows-yet"
    server.admin.http.post(
        f"/datasets/{dataset}/rows", content=csv_rows(10), headers=CSV
    )
    too_much = server.admin.http.post(
        "/train", json=training(dataset, epsilon="2"), headers=headers
    )
    assert too_much.json()["type"] == "budget-exceeded"
    invalid = server.admin.http.post(
        "/train", json=training(dataset, epsilon="none"), headers=headers
    )
    assert invalid.json()["type"] == "invalid-request"
    accepted = server.admin.http.post("/train", json=training(dataset), headers=headers)
    assert accepted.status_code == 202


@on_one_server
def test_a_spending_request_needs_a_key(server: Server) -> None:
    dataset = server.uploaded()["id"]
    before = server.footprint()
    answer = server.admin.http.post("/train", json=training(dataset))
    assert (answer.status_code, answer.json()["type"]) == (
        400,
        "idempotency-key-missing",
    )
    assert server.footprint() == before


def test_two_principals_and_two_routes_do_not_share_keys(server: Server) -> None:
    dataset = server.uploaded()["id"]
    headers, body = new_idempotency_key(), training(dataset)
    first = server.admin.http.post("/train", json=body, headers=headers)
    second = server.granted(dataset, "analyst").http.post(
        "/train", json=body, headers=headers
    )
    assert second.status_code == 202
    assert second.json()["job_id"] != first.json()["job_id"]
    upload = server.admin.http.post(
        f"/datasets/{dataset}/rows", content=csv_rows(1), headers=CSV | headers
    )
    assert upload.status_code == 201


def test_a_key_whose_grant_was_taken_back_gets_no_replay(server: Server) -> None:
    dataset = server.uploaded()["id"]
    analyst = server.granted(dataset, "analyst")
    headers, body = new_idempotency_key(), training(dataset)
    assert analyst.http.post("/train", json=body, headers=headers).status_code == 202
    server.admin.http.delete(f"/datasets/{dataset}/grants/{analyst.id}")
    assert analyst.http.post("/train", json=body, headers=headers).status_code == 404


@pytest.mark.parametrize(
    ("role", "lesser", "path", "sent"),
    [
        ("analyst", "predictor", "/train", lambda name: {"json": training(name)}),
        ("owner", "analyst", None, lambda _: {"content": csv_rows(5)}),
    ],
    ids=["training", "upload"],
)
def test_a_key_whose_grant_became_a_lesser_one_gets_no_replay(
    server: Server, role: str, lesser: str, path: str | None, sent: Any
) -> None:
    """The report on an upload counts its rows, for owners alone."""
    dataset = server.uploaded()["id"]
    caller = server.granted(dataset, role)
    headers = new_idempotency_key() | ({} if path else CSV)
    post = path or f"/datasets/{dataset}/rows"
    first = caller.http.post(post, headers=headers, **sent(dataset))
    assert first.is_success, first.text
    grant = f"/datasets/{dataset}/grants/{caller.id}"
    assert server.admin.http.put(grant, json={"role": lesser}).is_success
    again = caller.http.post(post, headers=headers, **sent(dataset))
    assert (again.status_code, again.json()["type"]) == (403, "role-missing")


def test_an_upload_that_is_sent_again_does_not_double_its_rows(server: Server) -> None:
    dataset = server.declared()["id"]
    rows, headers = f"/datasets/{dataset}/rows", CSV | new_idempotency_key()
    first = server.admin.http.post(rows, content=csv_rows(5), headers=headers)
    before = server.footprint()
    assert _same(
        first, server.admin.http.post(rows, content=csv_rows(5), headers=headers)
    )
    other = server.admin.http.post(rows, content=csv_rows(6), headers=headers)
    assert (other.status_code, other.json()["type"]) == (422, "idempotency-key-reused")
    assert server.footprint() == before
    without = server.admin.http.post(rows, content=csv_rows(5), headers=CSV)
    assert (without.status_code, without.json()["type"]) == (409, "upload-repeated")
    assert without.json()["upload"] == first.json()["epoch"]
    assert server.footprint() == before, "without a key the same bytes are refused"
    again = server.admin.http.post(
        f"{rows}?again=true", content=csv_rows(5), headers=CSV
    )
    assert again.json()["epoch"] != first.json()["epoch"], "unless the caller insists"
    server.admin.http.delete(f"/datasets/{dataset}")
    erased = server.admin.http.post(rows, content=csv_rows(5), headers=headers)
    assert (erased.status_code, erased.json()["type"]) == (409, "dataset-deleted"), (
        "the stored report ended, too"
    )


def test_a_declaration_that_is_sent_again_is_one_dataset(server: Server) -> None:
    headers, body = new_idempotency_key(), declaration()
    first = server.admin.http.post("/datasets", json=body, headers=headers)
    assert first.headers["Location"] == f"/datasets/{first.json()['id']}"
    assert _same(first, server.admin.http.post("/datasets", json=body, headers=headers))
    without = server.admin.http.post("/datasets", json=body)
    assert (without.status_code, without.json()["type"]) == (409, "name-taken")


def test_racing_twins_get_one_job(server: Server) -> None:
    dataset = server.uploaded()["id"]
    headers, body = new_idempotency_key(), training(dataset)
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda _: server.admin.http.post("/train", json=body, headers=headers),
                range(8),
            )
        )
    assert {(it.status_code, it.content) for it in answers} == {
        (202, answers[0].content)
    }
    server.ended(answers[0].json()["job_id"])
    assert server.admin.http.get(f"/ledger/{dataset}").json()["charged"] == "1"


def test_racing_uploads_with_one_key_are_one_epoch(server: Server) -> None:
    dataset = server.declared()["id"]
    headers = CSV | new_idempotency_key()
    rows = f"/datasets/{dataset}/rows"
    with ThreadPoolExecutor(6) as pool:
        answers = list(
            pool.map(
                lambda _: server.admin.http.post(
                    rows, content=csv_rows(50), headers=headers
                ),
                range(6),
            )
        )
    assert {(it.status_code, it.content) for it in answers} == {
        (201, answers[0].content)
    }
    assert len(server.admin.http.get(f"/datasets/{dataset}").json()["epochs"]) == 1
    assert len(list((server.settings.home / "rows" / dataset).iterdir())) == 1, (
        "the losers' files are gone"
    )


def test_a_replay_outlives_the_server(database_url: str, tmp_path: Path) -> None:
    headers = new_idempotency_key()
    with running_server(database_url, tmp_path / "home", n_workers=0) as server:
        body = training(server.uploaded()["id"])
        first = server.admin.http.post("/train", json=body, headers=headers)
        admin = server.admin.key
        with worker(server.settings, log=tmp_path / "worker.log"):
            server.ended(first.json()["job_id"])
    with running_server(database_url, tmp_path / "home", n_workers=0) as server:
        assert _same(
            first, server.client(admin).post("/train", json=body, headers=headers)
        )


def test_every_route_that_names_a_dataset_and_takes_a_key_is_known() -> None:
    paths = json.loads(COMMITTED.read_text(encoding="utf-8"))["paths"]
    taking = {
        path
        for path, operations in paths.items()
        for parameter in operations.get("post", {}).get("parameters", ())
        if parameter["name"] == "Idempotency-Key"
    }
    named = {path for path in taking if "{dataset}" in path or "{account}" in path}
    assert named == BY_REFERENCE.keys() | {"/datasets/{dataset}/rows"}


@on_one_idle_server
@pytest.mark.parametrize("route", BY_REFERENCE)
def test_a_key_belongs_to_the_dataset_under_its_name_and_under_its_id(
    idle_server: Server, route: str
) -> None:
    dataset, headers = idle_server.uploaded(), new_idempotency_key()
    answers = [
        idle_server.admin.http.post(
            route.format(dataset=reference, account=reference),
            json=BY_REFERENCE[route],
            headers=headers,
        )
        for reference in (dataset["id"], dataset["name"], dataset["id"])
    ]
    assert answers[0].is_success, answers[0].text
    for again in answers[1:]:
        assert _same(answers[0], again)


@on_one_server
def test_an_upload_key_belongs_to_the_dataset_under_its_name_and_under_its_id(
    server: Server,
) -> None:
    dataset = server.uploaded()
    headers, rows = new_idempotency_key() | CSV, csv_rows(7)
    first = server.admin.http.post(
        f"/datasets/{dataset['name']}/rows", content=rows, headers=headers
    )
    assert first.status_code == 201
    before = server.footprint()
    assert _same(
        first,
        server.admin.http.post(
            f"/datasets/{dataset['id']}/rows", content=rows, headers=headers
        ),
    )
    assert server.footprint() == before
    server.admin.http.delete(f"/datasets/{dataset['id']}")
    again = server.admin.http.post("/datasets", json=declaration(name=dataset["name"]))
    assert again.status_code == 201
    fresh = server.admin.http.post(
        f"/datasets/{dataset['name']}/rows", content=rows, headers=headers
    )
    assert fresh.status_code == 201
    assert fresh.json()["epoch"] != first.json()["epoch"], (
        "another dataset of that name gets its own rows"
    )


@on_one_idle_server
@pytest.mark.parametrize("keys", [("one", "two"), ("two", "one"), ("one", "one")])
def test_of_several_keys_none_counts(
    idle_server: Server, keys: tuple[str, str]
) -> None:
    """A retry through another proxy may carry another of the keys first, and would
    spend budget again.
    """
    dataset = idle_server.uploaded()["id"]
    several = [("Idempotency-Key", key) for key in keys]
    before = idle_server.footprint()
    for path, body in (
        ("/train", {"json": training(dataset)}),
        (f"/datasets/{dataset}/rows", {"content": csv_rows(2)}),
        ("/datasets", {"json": declaration()}),
    ):
        kind = [("Content-Type", "text/csv")] if "content" in body else []
        answer = idle_server.admin.http.post(path, headers=[*several, *kind], **body)
        assert (answer.status_code, answer.json()["type"]) == (
            422,
            "invalid-request",
        ), path
        (error,) = answer.json()["errors"]
        assert (error["at"], error["problem"]) == ("/Idempotency-Key", "malformed")
        assert "visible characters of ASCII" in error["accepted"][0]
    assert idle_server.footprint() == before


def test_another_reading_of_a_body_is_another_request(server: Server) -> None:
    """With other options the same bytes are other rows."""
    dataset = server.declared()["id"]
    rows, headers = f"/datasets/{dataset}/rows", CSV | new_idempotency_key()
    marked = {"missing": "NA"}

    def send(params: dict[str, str]) -> httpx.Response:
        return server.admin.http.post(
            rows, content=csv_rows(5), headers=headers, params=params
        )

    first = send(marked)
    assert first.status_code == 201
    assert _same(first, send(marked))
    for params in ({}, {"missing": "."}, {"separator": ";", "missing": "NA"}):
        other = send(params)
        assert (other.status_code, other.json()["type"]) == (
            422,
            "idempotency-key-reused",
        )
