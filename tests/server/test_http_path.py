"""The main path of a user, through a real server and a worker, on both databases."""

import csv
import gzip
import io
import itertools
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from safetensors.numpy import load
from sqlalchemy import text

from app.core.errors import Unavailable
from app.db.base import Base
from tests.support.columnar import stream_of
from tests.support.databases import on_one_database, on_one_server
from tests.support.server import (
    CSV,
    Server,
    csv_rows,
    events_of,
    new_idempotency_key,
    running_server,
    training,
    worker,
)
from tests.support.waiting import wait_for

pytestmark = pytest.mark.in_turn("server")

ROWS = {
    "rows": [
        {"age": 20, "height": 1.5, "sex": "Female"},
        {"age": 90, "height": None, "sex": "other"},
    ]
}
COLUMNS = {
    "columns": {"age": [20, 90], "height": [1.5, None], "sex": ["Female", "other"]}
}


def test_a_declaration_is_answered_with_its_public_facts_and_a_fresh_account(
    server: Server,
) -> None:
    partitions = [{"name": "shard", "kind": "hash", "cells": 4}]
    dataset = server.declared(
        public_size=30_123, partitions=partitions, population="citizens"
    )
    assert dataset["account"] == {
        "accountant": "pure", "unit": "epsilon", "cap": "100", "charged": "0", "reserved": "0", "remaining": "100",
        "available": "100", "limited_by": "cap",
    }  # fmt: skip
    assert dataset["public_size"] == 30_000, (
        "two significant digits of what was declared"
    )
    assert dataset["partitions"] == partitions
    assert (dataset["adjacency"], dataset["protects"]) == ("add_remove", "row")
    assert (dataset["epochs"], dataset["deleted_at"], dataset["population"]) == (
        [],
        None,
        "citizens",
    )
    by_name = server.admin.http.get(f"/datasets/{dataset['name']}").json()
    assert by_name == server.admin.http.get(f"/datasets/{dataset['id']}").json()
    # Only the answer to the declaration names other datasets of the same columns.
    assert by_name == {**dataset, "warnings": by_name["warnings"]}
    assert set(by_name["warnings"]) <= set(dataset["warnings"])


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_an_upload_becomes_an_epoch_and_the_owner_sees_what_was_mapped(
    server: Server, packed: bool
) -> None:
    dataset = server.declared()
    body = b"sex,income,age,height\nMale,>50K,200,1.5\nother,rich,20,\n,<=50K,-3,9.5\n"
    headers = CSV | ({"Content-Encoding": "gzip"} if packed else {})
    rows, content = (
        f"/datasets/{dataset['name']}/rows",
        gzip.compress(body) if packed else body,
    )
    refused = server.admin.http.post(rows, content=content, headers=headers)
    assert (refused.status_code, refused.json()["type"]) == (422, "cells-unread")
    assert refused.json()["columns"] == [
        {"name": "age", "problem": "clamped", "count": 2, "percent": 66.7, "row": 1},
        {"name": "height", "problem": "clamped", "count": 1, "percent": 33.3, "row": 3},
        {"name": "sex", "problem": "unknown", "count": 1, "percent": 33.3, "row": 2},
        {"name": "income", "problem": "unknown", "count": 1, "percent": 33.3, "row": 2},
    ]
    answer = server.admin.http.post(
        f"{rows}?accept_unknown=true", content=content, headers=headers
    )
    assert answer.status_code == 201
    assert answer.json()["columns"] == [
        {"name": "age", "clamped": 2, "missing": 0, "unknown": 0},
        {"name": "height", "clamped": 1, "missing": 1, "unknown": 0},
        {"name": "sex", "clamped": 0, "missing": 1, "unknown": 1},
        {"name": "income", "clamped": 0, "missing": 0, "unknown": 1},
    ]
    shown = server.admin.http.get(f"/datasets/{dataset['id']}").json()
    assert [epoch["epoch"] for epoch in shown["epochs"]] == [answer.json()["epoch"]]


def test_a_quote_costs_nothing_and_the_job_costs_what_was_quoted(
    server: Server,
) -> None:
    dataset = server.uploaded()
    before = server.footprint()
    body = training(dataset["id"], algorithm="mrf", epsilon="0.75", parameters={})
    quote = server.admin.http.post("/plans", json=body).json()
    assert server.footprint() == before, "a quote changes nothing"
    assert quote["price"] == {
        "accountant": "pure", "unit": "epsilon", "amount": "0.75", "epsilon": "0.75", "delta": None,
    }  # fmt: skip
    assert (quote["fits"], quote["largest_that_fits"]) == (True, "100")
    assert quote["receipt"]
    assert quote["event"]
    accepted = server.admin.http.post(
        "/train", json=body | {"name": "first"}, headers=new_idempotency_key()
    )
    assert (accepted.status_code, accepted.json()["price"]) == (202, quote["price"])
    assert accepted.headers["Location"] == f"/jobs/{accepted.json()['job_id']}"
    job = server.ended(accepted.json()["job_id"])
    card = server.admin.http.get(f"/models/{job['model_id']}").json()
    assert (card["parameters"], card["event"], card["receipt"]) == (
        quote["parameters"], quote["event"], quote["receipt"],
    )  # fmt: skip
    balance = server.admin.http.get(f"/ledger/{dataset['id']}").json()
    assert (balance["cap"], balance["charged"], balance["reserved"], balance["remaining"]) == (
        "100", "0.75", "0", "99.25",
    )  # fmt: skip


@on_one_server
@pytest.mark.parametrize(
    "algorithm", ["rdt-mv", "rdt-ta", "rdt-pa", "mrf", "spe", "srt"]
)
def test_a_job_runs_to_a_model_that_predicts(server: Server, algorithm: str) -> None:
    dataset = server.uploaded(400)
    parameters = {"n_estimators": 3, "max_depth": 3}
    job = server.trained(
        dataset["id"],
        algorithm=algorithm,
        epsilon="50",
        parameters=parameters,
        name="forest",
    )
    assert (job["progress"], job["trees_done"], job["n_trees"], job["reason"]) == (
        1.0,
        3,
        3,
        None,
    )
    model = f"/models/{job['model_id']}"
    card = server.admin.http.get(model).json()
    assert (card["name"], card["algorithm"], card["job_id"]) == (
        "forest",
        algorithm,
        job["id"],
    )
    assert card["parameters"].items() >= parameters.items()
    assert card["schema"]["label"] == {"name": "income", "classes": ["<=50K", ">50K"]}
    assert set(card["guarantee"]) >= {"adds", "add_remove", "replace_one", "text"}
    assert card["ledger"]["reservation_id"] == job["reservation_id"]
    by_rows = server.admin.http.post(f"{model}/predict", json=ROWS).json()
    by_columns = server.admin.http.post(f"{model}/predict", json=COLUMNS).json()
    by_table = server.admin.http.post(
        f"{model}/predict",
        content=stream_of(pa.table(COLUMNS["columns"])),
        headers={
            "Content-Type": "application/vnd.apache.arrow.stream",
            "Accept": "application/json",
        },
    ).json()
    assert by_rows["classes"] == ["<=50K", ">50K"]
    assert (
        by_rows["probabilities"]
        == by_columns["probabilities"]
        == by_table["probabilities"]
    )
    assert all(abs(sum(row) - 1) < 1e-9 for row in by_rows["probabilities"])
    if algorithm != "rdt-pa":
        assert by_rows["labels"] == by_columns["labels"] == by_table["labels"]
    for read_out in card["read_outs"]:
        answer = server.admin.http.post(
            f"{model}/predict", json=ROWS | {"read_out": read_out}
        )
        assert answer.status_code == 200
        assert set(answer.json()["labels"]) <= {"<=50K", ">50K"}
    assert set(card["read_outs"]) >= {"mrf": {"ta"}, "spe": {"sum"}, "srt": {"mv"}}.get(
        algorithm, {"mv", "ta", "pa"}
    )
    none = server.admin.http.post(f"{model}/predict", json={"rows": []}).json()
    assert (none["labels"], none["probabilities"]) == ([], [])


@on_one_server
def test_a_separable_class_is_learnt_at_a_generous_price(server: Server) -> None:
    dataset = server.uploaded(2_000, public_size=2_000)
    job = server.trained(
        dataset["id"],
        algorithm="mrf",
        epsilon="50",
        parameters={"n_estimators": 1, "max_depth": 3},
    )
    ages = {
        "columns": {
            "age": [5, 20, 80, 95],
            "height": [1.04, 1.16, 1.66, 1.79],
            "sex": ["Male"] * 4,
        }
    }
    answer = server.admin.http.post(
        f"/models/{job['model_id']}/predict", json=ages
    ).json()
    assert answer["labels"] == ["<=50K", "<=50K", ">50K", ">50K"]


def test_events_of_a_job_end_with_its_end(server: Server) -> None:
    dataset = server.uploaded()
    accepted = server.submitted(
        dataset["id"], parameters={"n_estimators": 8, "max_depth": 2}
    )
    path = accepted.headers["Location"]
    followed = server.admin.http.get(f"{path}/events")
    assert followed.headers["content-type"].startswith("text/event-stream")
    assert followed.headers["X-Accel-Buffering"] == "no"
    seen = events_of(followed)
    assert seen[-1] == server.admin.http.get(path).json()
    assert seen[-1]["state"] == "succeeded"
    progress = [event["progress"] for event in seen]
    assert progress == sorted(progress)
    assert all(earlier != later for earlier, later in itertools.pairwise(seen)), (
        "one event per change"
    )
    again = server.admin.http.get(f"{path}/events")
    assert events_of(again) == seen[-1:], "an ended job has one event"


def test_a_refusal_says_what_fits_and_the_largest_that_fits_fits(
    server: Server,
) -> None:
    dataset = server.uploaded(budget={"accountant": "pure", "epsilon": "1.5"})
    server.trained(dataset["id"], epsilon="0.8")
    before = server.footprint()
    refused = server.submitted(dataset["id"], epsilon="0.700000001")
    assert refused.status_code == 409
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json() == {
        "type": "budget-exceeded",
        "title": "The budget does not cover this job",
        "status": 409,
        "detail": f"0.700000001 ε requested, 0.7 ε left for dataset {dataset['name']}",
        "dataset": dataset["id"],
        "dataset_name": dataset["name"],
        "accountant": "pure",
        "unit": "epsilon",
        "cap": "1.5",
        "charged": "0.8",
        "reserved": "0",
        "remaining": "0.7",
        "requested": "0.700000001",
        "tightest_cell": {},
        "largest_that_fits": "0.7",
        "population": None,
        "exact": True,
    }
    quote = server.admin.http.post(
        "/plans", json=training(dataset["id"], epsilon="0.700000001")
    ).json()
    assert (quote["fits"], quote["largest_that_fits"]) == (False, "0.7")
    assert server.footprint() == before, "a refusal leaves nothing"
    assert (
        server.trained(dataset["id"], epsilon=refused.json()["largest_that_fits"])[
            "state"
        ]
        == "succeeded"
    )
    assert server.admin.http.get(f"/ledger/{dataset['id']}").json()["remaining"] == "0"


def test_disjoint_cells_are_charged_apart(server: Server) -> None:
    dataset = server.uploaded(
        budget={"accountant": "pure", "epsilon": "1"},
        partitions=[{"name": "shard", "kind": "hash", "cells": 3}],
    )
    server.trained(dataset["id"], epsilon="1", scope={"shard": [0]})
    server.trained(dataset["id"], epsilon="0.25", scope={"shard": [2, 1, 1]})
    ledger = f"/ledger/{dataset['id']}"
    tightest = server.admin.http.get(ledger).json()
    assert (tightest["charged"], tightest["tightest_cell"]) == ("1", {"shard": 0})
    assert [cell["charged"] for cell in tightest["partitions"][0]["cells"]] == [
        "1",
        "0.25",
        "0.25",
    ]
    box = server.admin.http.get(ledger, params={"scope": '{"shard": [1, 2]}'}).json()
    assert (box["charged"], box["remaining"], box["tightest_cell"]) == (
        "0.25",
        "0.75",
        {"shard": 1},
    )
    refused = server.submitted(dataset["id"], epsilon="0.5")
    assert (refused.status_code, refused.json()["tightest_cell"]) == (409, {"shard": 0})
    assert refused.json()["largest_that_fits"] == "0"


@on_one_server
def test_the_history_is_paged_exported_and_verified(
    server: Server, tmp_path: Path
) -> None:
    dataset = server.uploaded()
    for _ in range(2):
        server.trained(dataset["id"])
    cancelled = server.submitted(dataset["id"], epsilon="1000000")
    assert cancelled.status_code == 409
    ledger = f"/ledger/{dataset['id']}"
    whole = server.admin.http.get(f"{ledger}/entries").json()
    assert [entry["kind"] for entry in whole["entries"]] == [
        "open",
        "reserve",
        "charge",
        "reserve",
        "charge",
    ]
    assert [entry["sequence"] for entry in whole["entries"]] == [1, 2, 3, 4, 5]
    assert whole["next"] is None
    assert whole["actors"][server.admin.id]
    assert set(whole["actors"]) == {entry["actor"] for entry in whole["entries"]} - {
        "worker"
    }
    paged, cursor = [], ""
    while cursor is not None:
        page = server.admin.http.get(
            f"{ledger}/entries",
            params={"limit": 2} | ({"cursor": cursor} if cursor else {}),
        )
        paged += page.json()["entries"]
        cursor = page.json()["next"]
    assert paged == whole["entries"]
    exported = server.admin.http.get(f"{ledger}/export")
    assert exported.headers["content-type"] == "application/x-ndjson"
    header, *lines = (json.loads(line) for line in exported.text.splitlines())
    assert (header["dataset"], header["cap"], lines) == (
        dataset["id"],
        "100",
        whole["entries"],
    )
    table = server.admin.http.get(f"{ledger}/export", params={"format": "csv"})
    assert table.headers["content-type"].startswith("text/csv")
    assert [row["hash"] for row in csv.DictReader(io.StringIO(table.text))] == [
        it["hash"] for it in whole["entries"]
    ]
    file = tmp_path / "export.jsonl"
    file.write_bytes(exported.content)
    assert _verify(file) == 0
    file.write_text(exported.text.replace('"amount":"1"', '"amount":"0.5"', 1))
    assert _verify(file) == 1


def _verify(file: Path) -> int:
    command = [sys.executable, "-m", "grovekeeper_verifier", str(file)]
    return subprocess.run(command, capture_output=True, check=False).returncode


@on_one_server
def test_lists_are_paged_newest_jobs_first(server: Server) -> None:
    dataset = server.uploaded()
    analyst = server.granted(dataset["id"], "analyst")
    jobs = [server.trained(dataset["id"]) for _ in range(3)]
    for path, member, name in (
        ("/jobs", "jobs", "id"),
        ("/models", "models", "model_id"),
    ):
        pages = [analyst.http.get(path, params={"limit": 2}).json()]
        pages.append(
            analyst.http.get(
                path, params={"limit": 2, "cursor": pages[0]["next"]}
            ).json()
        )
        listed = [item["id"] for page in pages for item in page[member]]
        assert listed == [job[name] for job in reversed(jobs)]
        assert pages[1]["next"] is None
    assert [
        item["id"] for item in analyst.http.get("/datasets").json()["datasets"]
    ] == [dataset["id"]]


def test_a_queued_job_is_cancelled_and_its_reservation_voided(
    idle_server: Server,
) -> None:
    dataset = idle_server.uploaded()
    path = idle_server.submitted(dataset["id"]).headers["Location"]
    assert (
        idle_server.admin.http.get(f"/ledger/{dataset['id']}").json()["reserved"] == "1"
    )
    cancelled = idle_server.admin.http.delete(path)
    assert (cancelled.status_code, cancelled.json()["state"], cancelled.json()["reason"]) == (
        200, "cancelled", "cancelled",
    )  # fmt: skip
    balance = idle_server.admin.http.get(f"/ledger/{dataset['id']}").json()
    assert (balance["reserved"], balance["charged"]) == ("0", "0")
    again = idle_server.admin.http.delete(path)
    assert (again.status_code, again.json()["type"]) == (409, "job-finished")


def test_a_deleted_dataset_leaves_its_tombstone_its_ledger_and_its_models(
    server: Server,
) -> None:
    dataset = server.uploaded()
    job = server.trained(dataset["id"])
    assert server.admin.http.delete(f"/datasets/{dataset['id']}").status_code == 204
    assert server.admin.http.delete(f"/datasets/{dataset['id']}").status_code == 204, (
        "repeating it is legal"
    )
    tombstone = server.admin.http.get(f"/datasets/{dataset['id']}").json()
    assert tombstone["deleted_at"] is not None
    assert tombstone["account"]["charged"] == "1"
    for answer in (
        server.submitted(dataset["id"]),
        server.admin.http.post("/plans", json=training(dataset["id"])),
        server.admin.http.post(
            f"/datasets/{dataset['id']}/rows", content=csv_rows(1), headers=CSV
        ),
    ):
        assert (answer.status_code, answer.json()["type"]) == (409, "dataset-deleted")
    assert not list((server.settings.home / "rows").glob(f"{dataset['id']}/*"))
    assert (
        len(server.admin.http.get(f"/ledger/{dataset['id']}/entries").json()["entries"])
        == 3
    )
    assert (
        server.admin.http.post(
            f"/models/{job['model_id']}/predict", json=ROWS
        ).status_code
        == 200
    )
    renewed = server.declared(name=dataset["name"])
    assert (
        server.admin.http.get(f"/datasets/{dataset['name']}").json()["id"]
        == renewed["id"]
    )


def test_a_deleted_model_is_gone_and_its_spend_stays(server: Server) -> None:
    dataset = server.uploaded()
    job = server.trained(dataset["id"])
    model = f"/models/{job['model_id']}"
    assert server.admin.http.post(f"{model}/predict", json=ROWS).status_code == 200
    assert server.admin.http.delete(model).status_code == 204
    for answer in (
        server.admin.http.get(model),
        server.admin.http.get(f"{model}/artifact"),
        server.admin.http.post(f"{model}/predict", json=ROWS),
        server.admin.http.delete(model),
    ):
        assert (answer.status_code, answer.json()["type"]) == (404, "not-found")
    assert server.admin.http.get(f"/ledger/{dataset['id']}").json()["charged"] == "1"


@on_one_server
def test_an_artifact_is_taken_away_whole(server: Server) -> None:
    job = server.trained(server.uploaded()["id"])
    taken = server.admin.http.get(f"/models/{job['model_id']}/artifact")
    assert taken.status_code == 200
    assert (
        len(taken.content)
        == server.admin.http.get(f"/models/{job['model_id']}").json()["size_bytes"]
    )
    assert {tensor.shape[0] for tensor in load(taken.content).values()} == {2}, (
        "one first axis: the trees"
    )


def test_a_revoked_key_is_refused_at_once(server: Server) -> None:
    caller = server.caller("auditor")
    assert caller.http.get("/ledger").status_code == 200
    assert server.admin.http.delete(f"/keys/{caller.id}").status_code == 204
    assert caller.http.get("/ledger").status_code == 401
    listed = {
        key["id"]: key
        for key in server.admin.http.get("/keys", params={"limit": 500}).json()["keys"]
    }
    assert listed[caller.id]["revoked_at"] is not None
    assert "key" not in listed[caller.id]
    assert caller.key.partition(".")[2] not in server.log()


@on_one_database
def test_models_answer_when_every_table_of_datasets_ledger_and_jobs_is_gone(
    database_url: str, tmp_path: Path
) -> None:
    with running_server(database_url, tmp_path / "home", n_workers=0) as server:
        with worker(server.settings, log=tmp_path / "worker.log"):
            job = server.trained(server.uploaded()["id"])
        model = f"/models/{job['model_id']}"
        card = server.admin.http.get(model).json()
        predictor = server.granted(job["dataset"], "predictor")
    needed = {
        "keys", "grants", "releases", "alias_moves", "dataset_guarantees", "dataset_populations", "idempotent_answers",
    }  # fmt: skip
    # ready, with an empty cache
    with running_server(database_url, tmp_path / "home", n_workers=0) as server:
        # a task of the service that reads several of them may be in a deadlock with it
        wait_for("tables are dropped", lambda: _are_dropped(server, keep=needed))
        http = server.client(predictor.key)
        assert http.get(model).json() == card
        assert http.post(f"{model}/predict", json=ROWS).status_code == 200
        assert server.admin.http.get(f"{model}/artifact").status_code == 200


def _are_dropped(server: Server, *, keep: set[str]) -> bool:
    with suppress(Unavailable), server.database.write() as session:
        for table in reversed(Base.metadata.sorted_tables):
            if table.name not in keep:
                session.execute(text(f"DROP TABLE {table.name}"))
        return True
    return False
