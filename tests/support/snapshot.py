"""Stores the rows of a real database for the migration tests: ``python -m tests.support.snapshot``.

The command starts a server and a worker on an empty SQLite database, makes at least one row of every table with
requests over HTTP, and writes ``tests/migration/data/REVISION.jsonl`` for the newest revision. The other functions read
and load such files on both databases.

A line with ``table`` and ``columns`` precedes the rows of a table. A row is a list; bytes are hexadecimal, times are
text.
"""

import io
import json
import tempfile
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from sqlalchemy import Connection, LargeBinary, MetaData, Table, create_engine, insert, inspect, select

from app.core import stamps
from app.db import migrate
from app.db.database import parse_url
from app.db.revisions import head_revision
from app.jobs import queue
from tests.support.server import Server, new_idempotency_key, running_server, training, worker

_FOLDER = Path(__file__).parents[1] / "migration" / "data"
_DELTA = "0.000001"
_SHARDS = [{"name": "shard", "kind": "hash", "cells": 2}]
_N_CAP_CHANGES = 260
"""One account needs more than 256 entries, so that a subtree hash of its log is stored."""

Rows: TypeAlias = dict[str, list[dict[str, Any]]]
"""Rows by table, as JSON values in the order of their primary key."""


def revisions() -> list[str]:
    """The revisions that have a snapshot."""
    return sorted(file.stem for file in _FOLDER.iterdir())


def stored(revision: str) -> Rows:
    """The snapshot of a revision."""
    with _file(revision).open(encoding="utf-8") as lines:
        return _parsed(lines)


def rows_of(connection: Connection) -> Rows:
    """All rows of a database."""
    text = io.StringIO()
    _write_rows(connection, text)
    text.seek(0)
    return _parsed(text)


def load(connection: Connection, revision: str) -> None:
    """Inserts the snapshot of a revision into the empty tables of a database at that revision."""
    tables = _tables(connection)
    for name, rows in stored(revision).items():
        binary = [column.name for column in tables[name].columns if isinstance(column.type, LargeBinary)]
        for row in rows:
            row.update({column: bytes.fromhex(row[column]) for column in binary if row[column] is not None})
        if rows:
            connection.execute(insert(tables[name]), rows)


def _write_rows(connection: Connection, file: TextIO) -> None:
    for table in _tables(connection).values():
        _write_line(file, {"table": table.name, "columns": table.columns.keys()})
        for row in connection.execute(select(table).order_by(*table.primary_key)):
            _write_line(file, [_to_json(value) for value in row])


def _tables(connection: Connection) -> dict[str, Table]:
    names = sorted(set(inspect(connection).get_table_names()) - {"alembic_version"})
    return {name: Table(name, MetaData(), autoload_with=connection) for name in names}


def _write_line(file: TextIO, value: Any) -> None:
    file.write(json.dumps(value, separators=(",", ":"), ensure_ascii=False) + "\n")


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return stamps.to_text(value) if isinstance(value, datetime) else value


def _parsed(lines: Iterable[str]) -> Rows:
    rows: Rows = {}
    for line in map(json.loads, lines):
        if isinstance(line, dict):
            table, columns = line["table"], line["columns"]
            rows[table] = []
        else:
            rows[table].append(dict(zip(columns, line, strict=True)))
    return rows


def _file(revision: str) -> Path:
    return _FOLDER / f"{revision}.jsonl"


def _use(server: Server, log: Path) -> None:
    """Makes every kind of request that leaves a row."""
    opened = _post(server, "/populations", name="patients", budget={"accountant": "pure", "epsilon": "300"})
    assert opened["name"] == "patients"
    labs = server.uploaded(name="labs", partitions=_SHARDS, population="patients")["id"]
    visits = server.uploaded(name="visits")["id"]
    with worker(server.settings, log=log):
        _release(server, labs, visits)
        _spend_rho(server)
    told = {"url": "https://hooks.invalid/a", "events": ["job.queued", "budget.low"], "threshold": "0.1"}
    webhook = server.admin.http.post(f"/datasets/{labs}/webhooks", json=told)  # without an idempotency key
    assert webhook.is_success, webhook.text
    rotated = server.admin.http.post(f"/datasets/{labs}/webhooks/{webhook.json()['id']}/secret", json={})
    assert rotated.is_success, rotated.text
    joined = server.admin.http.put(f"/datasets/{visits}/population", json={"population": "patients"})
    assert joined.is_success, joined.text
    _charge_outside(server, labs, epsilon="0.5")
    server.granted(labs, "analyst")
    _change_caps(server)
    _reject_a_job(server)
    with server.database.write() as session:
        queue.see_worker(session, "pr_of_a_worker_that_died", at=server.database.now(session))
    cancelled = server.submitted(labs).json()["job_id"]
    assert server.admin.http.delete(f"/jobs/{cancelled}").is_success
    erased = server.uploaded(name="erased")["id"]
    assert server.admin.http.delete(f"/datasets/{erased}").is_success
    assert server.submitted(labs, scope={"shard": [1]}).is_success, "a queued job with its reservation"


def _release(server: Server, labs: str, visits: str) -> None:
    """Releases a profile, an evaluation and two models, one of them from two datasets."""
    _ended(server, _post(server, f"/datasets/{labs}/profiles", epsilon="10"))
    model = server.trained(labs, scope={"shard": [0]})["model_id"]
    assert server.admin.http.put(f"/datasets/{labs}/aliases/production", json={"model": model}).is_success
    assert server.admin.http.delete(f"/datasets/{labs}/aliases/production").is_success
    evaluation = {"epsilon": "20", "metrics": ["accuracy"], "scope": {"shard": [1]}}
    _ended(server, _post(server, f"/models/{model}/evaluations", **evaluation))
    from_both = training(labs, algorithm="sspe-1") | {"unlabelled": {"dataset": visits, "epsilon": "2"}}
    _ended(server, _post(server, "/train", **from_both))


def _spend_rho(server: Server) -> None:
    """Spends on an account with a δ: a model, an external charge with δ, and a cap that changes the guarantee."""
    budget = {"accountant": "zcdp", "epsilon": "3", "delta": _DELTA, "delta_set_aside": "0.0000005"}
    dataset = server.uploaded(name="scans", budget=budget)["id"]
    server.trained(dataset, delta=_DELTA)
    _charge_outside(server, dataset, epsilon="0.1", delta="0.0000001")
    _post(server, f"/ledger/{dataset}/cap", cap="2.5", reason="lower")


def _charge_outside(server: Server, dataset: str, **loss: str) -> None:
    declared = {"adjacency": "add_remove", **loss}
    _post(server, f"/ledger/{dataset}/reservations", description="a mean", per="row", declared=declared)


def _change_caps(server: Server) -> None:
    dataset = server.declared(name="many-caps")["id"]
    for number in range(_N_CAP_CHANGES):
        answer = server.admin.http.post(f"/ledger/{dataset}/cap", json={"cap": str(101 + number), "reason": "r"})
        assert answer.is_success, answer.text


def _reject_a_job(server: Server) -> None:
    """Sets rules and rejects a job that waits for an approval."""
    dataset = server.uploaded(name="ruled")["id"]
    analyst = server.granted(dataset, "analyst")
    quotas = [{"keys": [analyst.id], "cap": "2"}]
    rules = {"largest_job": "2", "approval_above": "0.1", "quotas": quotas, "frozen": False, "erase_rows_at": None}
    assert server.admin.http.put(f"/datasets/{dataset}/rules", json=rules).is_success
    waiting = analyst.http.post("/train", json=training(dataset), headers=new_idempotency_key()).json()
    _post(server, f"/approvals/{waiting['job_id']}", decision="reject", reason="not needed")


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
        url = f"sqlite:///{folder / 'grovekeeper.sqlite3'}"
        migrate.upgrade(url)
        with running_server(url, folder / "home", n_workers=0) as server:
            _use(server, folder / "worker.log")
        engine = create_engine(parse_url(url))
        file = _file(head_revision())
        with engine.connect() as connection, file.open("w", encoding="utf-8", newline="\n") as lines:
            _write_rows(connection, lines)
        engine.dispose()
    rows = stored(head_revision())
    print(f"{file}: {sum(map(len, rows.values()))} rows of {len(rows)} tables, {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    _main()
