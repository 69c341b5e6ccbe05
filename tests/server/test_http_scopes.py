"""Several partitions over HTTP on both databases: boxes are charged, read and refused
by their joint cells.
"""

import json
from typing import Any

import httpx
import pytest

from grovekeeper_verifier.dataset_replay import verify
from tests.support.server import CSV, Server, training

pytestmark = pytest.mark.in_turn("server")

PARTITIONS: list[dict[str, Any]] = [
    {"name": "shard", "kind": "hash", "cells": 2},
    {"name": "region", "kind": "column", "column": "land", "categories": ["EU", "US"]},
    {"name": "sex", "kind": "column", "column": "sex"},
    {
        "name": "batch",
        "kind": "epoch",
        "how": "one file per month, cut by the calendar",
    },
]
_LANDS = ["EU", "US", "XX", ""]


def _rows(n_rows: int = 80) -> bytes:
    lines = [f"{n % 100},{1 + n % 2},Male,>50K,{_LANDS[n % 4]}" for n in range(n_rows)]
    return "\n".join(["age,height,sex,income,land", *lines, ""]).encode()


def _declared(
    server: Server, *, epsilon: str = "1", n_uploads: int = 2, **changes: object
) -> tuple[str, list[str]]:
    dataset = server.declared(
        budget={"accountant": "pure", "epsilon": epsilon},
        partitions=PARTITIONS,
        **changes,
    )
    return dataset["id"], [_uploaded(server, dataset["id"]) for _ in range(n_uploads)]


def _uploaded(server: Server, dataset: str) -> str:
    answer = server.admin.http.post(
        f"/datasets/{dataset}/rows?again=true&accept_unknown=true",
        content=_rows(),
        headers=CSV,
    )
    assert answer.status_code == 201, answer.text
    return str(answer.json()["epoch"])


def _balance(server: Server, dataset: str, **scope: object) -> dict[str, Any]:
    answer = server.admin.http.get(
        f"/ledger/{dataset}", params={"scope": json.dumps(scope)} if scope else {}
    )
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def _reserved(
    server: Server, dataset: str, epsilon: str, **scope: object
) -> httpx.Response:
    return server.submitted(dataset, epsilon=epsilon, scope=scope)


def _entry_of(server: Server, dataset: str, job_id: str) -> dict[str, Any]:
    entries = server.admin.http.get(f"/ledger/{dataset}/entries").json()["entries"]
    return next(entry for entry in entries if entry["job_id"] == job_id)


def test_a_declaration_says_every_cell_that_can_be_named_beforehand(
    server: Server,
) -> None:
    dataset, _ = _declared(server, n_uploads=0)
    shown = server.admin.http.get(f"/datasets/{dataset}").json()["partitions"]
    assert shown == [
        {"name": "shard", "kind": "hash", "cells": 2},
        {"name": "region", "kind": "column", "column": "land", "feature": False, "sizes": None,
         "cells": ["EU", "US", "OTHER", "MISSING"]},
        {"name": "sex", "kind": "column", "column": "sex", "feature": True, "sizes": None,
         "cells": ["Female", "Male", "OTHER", "MISSING"]},
        {"name": "batch", "kind": "epoch", "how": "one file per month, cut by the calendar"},
    ]  # fmt: skip


def test_jobs_on_different_partitions_add_up_and_disjoint_ones_do_not(
    idle_server: Server,
) -> None:
    dataset, epochs = _declared(idle_server)
    for epsilon, scope in [
        ("0.4", {"shard": [0]}), ("0.3", {"shard": [1]}), ("0.2", {"region": ["EU"]}), ("0.25", {"region": ["OTHER"]}),
    ]:  # fmt: skip
        assert _reserved(idle_server, dataset, epsilon, **scope).status_code == 202
    whole = _balance(idle_server, dataset)
    first = min(epochs)
    assert (whole["reserved"], whole["remaining"], whole["exact"]) == (
        "0.65",
        "0.35",
        True,
    )
    assert whole["tightest_cell"] == {
        "batch": first,
        "region": "OTHER",
        "sex": "Female",
        "shard": 0,
    }
    assert whole["largest_that_fits"] == "0.35"
    assert whole["scope"] == {"batch": sorted(epochs)}
    shown = {
        item["name"]: {cell["cell"]: cell["reserved"] for cell in item["cells"]}
        for item in whole["partitions"]
    }
    assert shown["shard"] == {0: "0.65", 1: "0.55"}
    assert shown["region"] == {
        "EU": "0.6",
        "MISSING": "0.4",
        "OTHER": "0.65",
        "US": "0.4",
    }
    assert shown["batch"] == dict.fromkeys(sorted(epochs), "0.65")
    box = _balance(idle_server, dataset, shard=[1], region=["US", "EU"])
    assert (box["reserved"], box["largest_that_fits"]) == ("0.5", "0.5")
    assert box["tightest_cell"] == {
        "batch": first,
        "region": "EU",
        "sex": "Female",
        "shard": 1,
    }


def test_a_refusal_names_the_tightest_joint_cell_and_what_fits_there(
    idle_server: Server,
) -> None:
    dataset, epochs = _declared(idle_server)
    assert _reserved(idle_server, dataset, "0.6", shard=[0]).status_code == 202
    assert (
        _reserved(idle_server, dataset, "0.3", region=["US"], sex=["Male"]).status_code
        == 202
    )
    before = idle_server.footprint()
    refused = _reserved(idle_server, dataset, "0.2", region=["US"])
    assert refused.status_code == 409
    problem = refused.json()
    cell = {"batch": min(epochs), "region": "US", "sex": "Male", "shard": 0}
    assert (problem["tightest_cell"], problem["largest_that_fits"]) == (cell, "0.1")
    assert "region=US" in problem["detail"]
    assert idle_server.footprint() == before
    assert (
        _reserved(
            idle_server, dataset, problem["largest_that_fits"], region=["US"]
        ).status_code
        == 202
    )
    assert _reserved(idle_server, dataset, "0.4", region=["EU"]).status_code == 202, (
        "another joint cell"
    )


def test_an_upload_is_a_new_cell_that_starts_at_nothing(idle_server: Server) -> None:
    dataset, (first,) = _declared(idle_server, n_uploads=1)
    accepted = _reserved(idle_server, dataset, "1")
    assert accepted.status_code == 202
    assert _entry_of(idle_server, dataset, accepted.json()["job_id"])["scope"] == {
        "batch": [first]
    }
    assert (
        _reserved(idle_server, dataset, "0.1").json()["tightest_cell"]["batch"] == first
    )
    second = _uploaded(idle_server, dataset)
    assert _balance(idle_server, dataset, batch=[second])["remaining"] == "1"
    assert _balance(idle_server, dataset)["remaining"] == "0"
    assert _reserved(idle_server, dataset, "0.1").status_code == 409, (
        "the whole dataset holds the first upload"
    )
    fresh = _reserved(idle_server, dataset, "0.7", batch=[second])
    assert fresh.status_code == 202
    assert _entry_of(idle_server, dataset, fresh.json()["job_id"])["scope"] == {
        "batch": [second]
    }
    assert _balance(idle_server, dataset, batch=[second])["largest_that_fits"] == "0.3"
    text = _reserved(idle_server, dataset, "0.1", shard=["0"])
    [error] = text.json()["errors"]
    assert error["accepted"] == ["numbers from 0 to 1, without quotes"]
    unknown = _reserved(idle_server, dataset, "0.1", batch=["ep_unknown"])
    assert (unknown.status_code, unknown.json()["errors"]) == (
        422,
        [{"at": "/scope/batch", "problem": "unknown-cell"}],
    )


def test_a_job_that_waits_while_rows_arrive_reads_the_uploads_it_paid_for(
    idle_server: Server,
) -> None:
    dataset, (first,) = _declared(idle_server, n_uploads=1)
    job = _reserved(idle_server, dataset, "0.5", region=["EU"]).json()["job_id"]
    _uploaded(idle_server, dataset)
    entry = _entry_of(idle_server, dataset, job)
    assert entry["scope"] == {"batch": [first], "region": ["EU"]}


def test_boxes_are_trained_on_and_charged(server: Server) -> None:
    dataset, (first, _) = _declared(server)
    empty = server.trained(
        dataset, epsilon="0.5", scope={"sex": ["Female"], "batch": [first]}
    )
    assert empty["state"] == "succeeded", "an empty cell behaves like any other"
    server.trained(dataset, epsilon="0.25", scope={"region": ["MISSING", "EU"]})
    balance = _balance(server, dataset)
    assert (balance["charged"], balance["reserved"]) == ("0.75", "0")
    exported = server.admin.http.get(f"/ledger/{dataset}/export")
    summary = verify(exported.content.splitlines(keepends=True))
    assert summary.tightest.load == 750_000_000
    assert balance["tightest_cell"] == {
        "batch": first,
        "region": "EU",
        "sex": "Female",
        "shard": 0,
    }


def test_a_plan_expects_the_declared_share_of_the_rows(idle_server: Server) -> None:
    """The depth of a forest grows with the expected number of rows of its box, which is
    public.
    """
    sizes = [
        {"cell": cell, "rows": rows}
        for cell, rows in {"EU": 9_000, "US": 90, "OTHER": 0, "MISSING": 0}.items()
    ]
    partitions = [PARTITIONS[1] | {"sizes": sizes}, PARTITIONS[3]]
    dataset = idle_server.declared(partitions=partitions, public_size=100_000)["id"]

    def depth(**scope: object) -> int:
        body = training(
            dataset, algorithm="rpf", epsilon="1", parameters={}, scope=scope
        )
        answer = idle_server.admin.http.post("/plans", json=body)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["parameters"]["max_depth"])

    assert (
        depth()
        >= depth(region=["EU"])
        > depth(region=["US"])
        >= depth(region=["OTHER"])
    )
