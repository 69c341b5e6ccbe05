"""Stores a real installation for the tests of upgrades: ``python -m
tests.support.snapshot``.

The command starts a server and a worker on an empty SQLite database, makes at least one
row of every table with requests over HTTP, and packs the home into
``tests/support/installations/VERSION.tar.xz``, with what the server answered in the end
(``answers.json``). :func:`rows_of` reads the rows of any database.
"""

import hashlib
import io
import json
import tarfile
import tempfile
import tomllib
from collections.abc import Collection, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import httpx
from sqlalchemy import Connection, MetaData, Table, inspect, select, text, update

from app.core import stamps
from app.db import migrate
from app.db.database import Database, transaction_time
from app.db.revisions import head_revision
from app.jobs import queue
from app.jobs.states import JobState
from app.jobs.tables import JobRow
from grovekeeper_common.json_types import JsonMapping
from tests.support.server import (
    CSV,
    SCHEMA,
    Server,
    csv_rows,
    new_idempotency_key,
    running_server,
    training,
    worker,
)

FOLDER = Path(__file__).parent / "installations"
ANSWERS = "answers.json"
NOUNS = (
    "rules",
    "uploads",
    "webhooks",
    "aliases",
    "grants",
    "profiles",
    "statistics",
)
"""Lists of a dataset."""
PREDICTED: list[dict[str, Any]] = [
    {"age": 39, "height": 1.7, "sex": "Male"},
    {"age": 70, "height": None, "sex": "Female"},
]
"""The rows of the stored predictions."""
STATED_ANEW = {"warnings", "available", "deliveries", "failures", "waiting"}
"""Members of answers that a later version states in other words or by all rules, or
that deliveries change meanwhile.
"""
_DELTA = "0.000001"
_HEIGHT = {"name": "height", "type": "number", "lower": 0.5, "upper": 2.5}
_SHARDS = [{"name": "shard", "kind": "hash", "cells": 2}]
_N_CAP_CHANGES = 260
"""One account needs more than 256 entries, so that a subtree hash of its log is stored."""

Rows: TypeAlias = dict[str, list[dict[str, Any]]]
"""Rows by table, as JSON values in the order of their primary key."""


def rows_of(connection: Connection) -> Rows:
    """All rows of a database."""
    rows: Rows = {}
    for name in sorted(
        set(inspect(connection).get_table_names()) - {"alembic_version"}
    ):
        table = Table(name, MetaData(), autoload_with=connection)
        found = connection.execute(
            select(table).order_by(*table.primary_key)
        ).mappings()
        rows[name] = [
            {column: _to_json(value) for column, value in row.items()} for row in found
        ]
    return rows


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return stamps.to_text(value) if isinstance(value, datetime) else value


def version() -> str:
    """The version of the program."""
    text = (FOLDER.parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text)["project"]["version"])


def unpacked(name: str, folder: Path) -> Path:
    """Unpacks a stored installation into a folder and returns its home."""
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "home"


def stated_answers(home: Path) -> dict[str, Any]:
    """What the server of an unpacked installation answered in the end."""
    file = home.parent / ANSWERS
    stated: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return stated


def let_jobs_wait_since_now(database: Database) -> None:
    """The server ends a job that nobody claims within a day, and a stored installation
    is older.
    """
    waits = update(JobRow).where(JobRow.state == JobState.QUEUED.value)
    with database.write() as session:
        session.execute(waits.values(waits_since=stamps.now()))


def answers_of(http: httpx.Client, database: Database) -> dict[str, Any]:
    """What a server answers an admin about everything that is kept.

    Of exports and artifacts: their size and digest, since exports grow at their end.
    """
    with database.read() as session:
        accounts = (
            session.execute(
                text("SELECT id FROM accounts WHERE id <> 'control' ORDER BY id")
            )
            .scalars()
            .all()
        )
    datasets = [dataset["id"] for dataset in http.get("/datasets").json()["datasets"]]
    models = [model["id"] for model in http.get("/models").json()["models"]]
    files = [f"/ledger/{account}/export" for account in accounts] + ["/audit/export"]
    files += [f"/models/{model}/artifact" for model in models]
    lists = ["/datasets", "/models", "/populations", "/jobs?limit=100"]
    for dataset in datasets:
        lists += [f"/datasets/{dataset}/{noun}" for noun in NOUNS]
    predicted = {model: _predicted(http, model) for model in models}
    return {
        "files": {
            path: digest(http.get(path).raise_for_status().content) for path in files
        },
        "lists": {path: http.get(path).raise_for_status().json() for path in lists},
        "predictions": {
            model: answer.raise_for_status().json()
            for model, answer in predicted.items()
        },
    }


def _predicted(http: httpx.Client, model: str) -> httpx.Response:
    schema = http.get(f"/models/{model}").json()["schema"]
    features = [feature["name"] for feature in schema["features"]]
    rows = [{name: row[name] for name in features} for row in PREDICTED]
    return http.post(f"/models/{model}/predict", json={"rows": rows})


def deletions(lists: JsonMapping) -> set[str]:
    """When datasets were deleted, by the answers to lists."""
    times = {dataset["deleted_at"] for dataset in lists["/datasets"]["datasets"]}
    return times - {None}


def lost(
    now: Any, before: Any, at: str = "", *, deleted_at: Collection[str] = ()
) -> Iterator[str]:
    """What an answer lacks that the server of an earlier version answered; lists may
    have got longer.

    Args:
        deleted_at: the times at which datasets were deleted, and with them their
            uploads, of which earlier versions said no such time.
    """
    if isinstance(before, dict) and isinstance(now, dict):
        for name in before.keys() - STATED_ANEW:
            place = f"{at}/{name}"
            is_said_now = name == "erased_at" and now.get(name) in deleted_at
            if before[name] is None and is_said_now:
                continue
            yield from lost(now.get(name), before[name], place, deleted_at=deleted_at)
    elif isinstance(before, list) and isinstance(now, list) and len(now) >= len(before):
        for index, value in enumerate(before):
            place = f"{at}/{index}"
            yield from lost(now[index], value, place, deleted_at=deleted_at)
    elif now != before:
        yield f"{at}: {before} became {now}"


def digest(content: bytes) -> list[Any]:
    """The size and the SHA-256 of a file."""
    return [len(content), hashlib.sha256(content).hexdigest()]


def _use(server: Server, log: Path) -> None:
    """Makes every kind of request that leaves a row."""
    opened = _post(
        server,
        "/populations",
        name="patients",
        budget={"accountant": "pure", "epsilon": "300"},
    )
    assert opened["name"] == "patients"
    labs = server.uploaded(name="labs", partitions=_SHARDS, population="patients")["id"]
    visits = server.uploaded(name="visits")["id"]
    with worker(server.settings, log=log):
        _release(server, labs, visits)
        _spend_rho(server)
        _predict_a_number(server)
    _watch(server, labs)
    joined = server.admin.http.put(
        f"/datasets/{visits}/population", json={"population": "patients"}
    )
    assert joined.is_success, joined.text
    _charge_outside(server, labs, epsilon="0.5")
    server.granted(labs, "analyst")
    _change_caps(server)
    _reject_a_job(server)
    _verify(server, labs)
    _erase(server)
    with server.database.write() as session:
        queue.see_worker(
            session, "pr_of_a_worker_that_died", at=transaction_time(session)
        )
    cancelled = server.submitted(labs).json()["job_id"]
    assert server.admin.http.delete(f"/jobs/{cancelled}").is_success
    assert server.submitted(labs, scope={"shard": [1]}).is_success, (
        "a queued job with its reservation"
    )


def _release(server: Server, labs: str, visits: str) -> None:
    """Releases a profile, an evaluation and two models, one of them from two datasets."""
    _ended(server, _post(server, f"/datasets/{labs}/profiles", epsilon="10"))
    model = server.trained(labs, scope={"shard": [0]})["model_id"]
    for alias in ("production", "removed"):
        assert server.admin.http.put(
            f"/datasets/{labs}/aliases/{alias}", json={"model": model}
        ).is_success
    assert server.admin.http.delete(f"/datasets/{labs}/aliases/removed").is_success
    evaluation = {"epsilon": "20", "metrics": ["accuracy"], "scope": {"shard": [1]}}
    _ended(server, _post(server, f"/models/{model}/evaluations", **evaluation))
    from_both = training(labs, algorithm="sspe-1") | {
        "unlabelled": {"dataset": visits, "epsilon": "2"}
    }
    _ended(server, _post(server, "/train", **from_both))


def _predict_a_number(server: Server) -> None:
    """Trains a model of a number and one of classes on a dataset of two labels, and
    counts its rows.
    """
    features = [each for each in SCHEMA["features"] if each["name"] != "height"]
    schema = {"features": features, "labels": [SCHEMA["label"], _HEIGHT]}
    stays = server.declared(name="stays", schema=schema)["id"]
    rows = f"/datasets/{stays}/rows?accept_unknown=true"
    uploaded = server.admin.http.post(rows, content=csv_rows(200), headers=CSV)
    assert uploaded.status_code == 201, uploaded.text
    for label in ("income", "height"):
        server.trained(stays, algorithm="rpf", parameters={}, label=label)
    tables = [
        {"statistic": "histogram", "column": "sex"},
        {"statistic": "mean", "column": "age"},
    ]
    path = f"/datasets/{stays}/statistics"
    _ended(server, _post(server, path, epsilon="2", tables=tables))


def _spend_rho(server: Server) -> None:
    """Spends on an account with a δ: a model, an external charge with δ, and a cap that
    changes the guarantee.
    """
    budget = {
        "accountant": "zcdp",
        "epsilon": "3",
        "delta": _DELTA,
        "delta_set_aside": "0.0000005",
    }
    dataset = server.uploaded(name="scans", budget=budget)["id"]
    server.trained(dataset, delta=_DELTA)
    _charge_outside(server, dataset, epsilon="0.1", delta="0.0000001")
    _post(server, f"/ledger/{dataset}/cap", cap="2.5", reason="lower")


def _watch(server: Server, dataset: str) -> None:
    """Makes a webhook and rotates its secret; an event waits for its receiver."""
    told = {
        "url": "https://hooks.invalid/a",
        "events": ["job.queued", "budget.low"],
        "threshold": "0.1",
    }
    # without an idempotency key
    webhook = server.admin.http.post(f"/datasets/{dataset}/webhooks", json=told)
    assert webhook.is_success, webhook.text
    rotated = server.admin.http.post(
        f"/datasets/{dataset}/webhooks/{webhook.json()['id']}/secret", json={}
    )
    assert rotated.is_success, rotated.text


def _charge_outside(server: Server, dataset: str, **loss: str) -> None:
    declared = {"adjacency": "add_remove", **loss}
    _post(
        server,
        f"/ledger/{dataset}/reservations",
        description="a mean",
        per="row",
        declared=declared,
    )


def _change_caps(server: Server) -> None:
    dataset = server.declared(name="many-caps")["id"]
    for number in range(_N_CAP_CHANGES):
        answer = server.admin.http.post(
            f"/ledger/{dataset}/cap", json={"cap": str(101 + number), "reason": "r"}
        )
        assert answer.is_success, answer.text


def _reject_a_job(server: Server) -> None:
    """Sets rules and rejects a job that waits for an approval."""
    dataset = server.uploaded(name="ruled")["id"]
    analyst = server.granted(dataset, "analyst")
    quotas = [{"keys": [analyst.id], "cap": "2"}]
    rules = {
        "largest_job": "2",
        "approval_above": "0.1",
        "quotas": quotas,
        "frozen": False,
        "erase_rows_at": None,
    }
    assert server.admin.http.put(f"/datasets/{dataset}/rules", json=rules).is_success
    waiting = analyst.http.post(
        "/train", json=training(dataset), headers=new_idempotency_key()
    ).json()
    _post(
        server,
        f"/approvals/{waiting['job_id']}",
        decision="reject",
        reason="not needed",
    )


def _verify(server: Server, dataset: str) -> None:
    """States a verification of an account."""
    note = server.admin.http.get(f"/ledger/{dataset}/checkpoint").text
    stated = server.admin.http.put(
        f"/ledger/{dataset}/verification",
        json={"verdict": "VERIFIED", "checkpoint": note},
    )
    assert stated.is_success, stated.text


def _erase(server: Server) -> None:
    """Erases a dataset; and of a dataset whose unit is a column, the rows of a person
    and an upload.
    """
    erased = server.uploaded(name="erased")["id"]
    assert server.admin.http.delete(f"/datasets/{erased}").is_success
    unit = {"column": "patient", "max_rows": 2}
    people = server.declared(name="people", privacy_unit=unit)["id"]
    header, *rows = csv_rows(20).split()
    for first in (100, 200):
        body = "\n".join(
            (
                f"patient,{header}",
                *(f"{first + number},{row}" for number, row in enumerate(rows)),
                "",
            )
        )
        upload = server.admin.http.post(
            f"/datasets/{people}/rows", content=body, headers=CSV
        )
        assert upload.status_code == 201, upload.text
    assert server.admin.http.post(
        f"/datasets/{people}/erasures", json={"unit": "107"}
    ).is_success
    assert server.admin.http.delete(
        f"/datasets/{people}/uploads/{upload.json()['epoch']}"
    ).is_success


def _post(server: Server, path: str, **body: object) -> dict[str, Any]:
    answer = server.admin.http.post(path, json=body, headers=new_idempotency_key())
    assert answer.is_success, answer.text
    return dict(answer.json())


def _ended(server: Server, accepted: dict[str, Any]) -> None:
    job = server.ended(accepted["job_id"])
    assert job["state"] == "succeeded", job


def _main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home = folder / "home"
        home.mkdir()
        url = f"sqlite:///{home / 'grovekeeper.sqlite3'}"
        migrate.upgrade(url)
        with running_server(url, home, n_workers=0) as server:
            _use(server, folder / "worker.log")
            answers = answers_of(server.admin.http, server.database) | {
                "key": server.admin.key,
                "revision": head_revision(),
            }
        stated = json.dumps(answers).encode("utf-8")
        file = FOLDER / f"{version()}.tar.xz"
        with tarfile.open(file, "w:xz") as archive:
            member = tarfile.TarInfo(ANSWERS)
            member.size = len(stated)
            archive.addfile(member, io.BytesIO(stated))
            archive.add(home, "home")
    print(f"{file}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    _main()
