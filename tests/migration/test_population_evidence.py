"""Populations that are older than their chains: what the upgrade says of them verifies, and so does what follows."""

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
import rfc8785
from sqlalchemy import Connection, create_engine, text

from app.core.errors import BudgetExceeded
from app.db import migrate
from app.db.engine import parse_url
from app.db.unit_of_work import Database
from app.ledger import caps, repository
from app.ledger import service as ledger
from app.ledger.entries import FIRST_PREVIOUS_HASH, Entry, EntryKind
from tests.support.crash_scene import EVENT
from tests.support.evidence import verified

_BEFORE = "0014"
_AT = "2026-11-20T09:30:00.000000Z"
_SHARDS = [{"name": "shard", "kind": "hash", "cells": 2}, {"name": "half", "kind": "hash", "cells": 3}]
_JOBS: dict[str, list[tuple[str, int, dict[str, Any], str | None]]] = {
    "ds_cut": [
        ("jb_1", 30, {"shard": [0]}, "charge"),
        ("jb_2", 25, {"half": [1]}, "charge"),
        ("jb_3", 40, {"shard": [1]}, "void"),
        ("jb_4", 20, {"half": [0, 1]}, None),
    ],
    "ds_spent": [("jb_5", 35, {}, "charge"), ("jb_6", 11, {"shard": [0]}, None)],
    "ds_fresh": [],
}
_STATES = {"charge": "charged", "void": "void", None: "reserved"}
_ADD_ENTRY = text(
    "INSERT INTO entries (account_id, sequence, kind, amount, scope, event, job_id, actor, at, previous_hash, hash,"
    " details) VALUES (:account_id, :sequence, :kind, :amount, :scope, :event, :job_id, :actor, :at, :previous_hash,"
    " :hash, :details)"
)
_ADD_ACCOUNT = text(
    "INSERT INTO accounts (id, name, accountant, adjacency, cap, highest_cap, delta, privacy_unit, partitions,"
    " last_sequence, last_hash, last_at) VALUES (:id, :id, :accountant, 'add_remove', 100, 100, :delta, :unit,"
    " :partitions, :size, :last, :at)"
)
_ADD_RESERVATION = text(
    "INSERT INTO reservations (id, account_id, job_id, amount, scope, event, state)"
    " VALUES (:id, :account_id, :job_id, :amount, :scope, :event, :state)"
)
_ADD_BOX = text("INSERT INTO account_boxes VALUES (:account_id, :box, :scope, :charged, :reserved, 0)")
_ADD_POPULATION = text(
    "INSERT INTO populations VALUES ('pp_old', 'patients', :accountant, 120, 120, :delta, 'add_remove', NULL, 'key_a',"
    " :at)"
)
_ADD_MEMBER = text("INSERT INTO population_members VALUES (:id, 'pp_old', :at)")


class _Account:
    """An account of the revision before, with true entries."""

    def __init__(self, account_id: str, accountant: str, delta: str | None) -> None:
        self.id, self.places = account_id, 9 if accountant == "pure" else 12
        self.facts = {"accountant": accountant, "delta": delta}
        self.partitions = _SHARDS if account_id != "ds_fresh" else []
        self.unit = {"column": None, "max_rows": 1}
        self.entries: list[Entry] = []
        details = {"dataset": account_id, **self.facts, "adjacency": "add_remove"}
        self.add("open", 100, {}, None, {**details, "privacy_unit": self.unit, "partitions": self.partitions})
        for job_id, amount, scope, end in _JOBS[account_id]:
            self.add("reserve", amount, scope, job_id)
            if end is not None:
                self.add(end, amount, scope, job_id)

    def add(
        self, kind: str, amount: int, scope: dict[str, Any], job_id: str | None, details: dict[str, Any] | None = None
    ) -> None:
        made = Entry(
            sequence=len(self.entries) + 1,
            kind=EntryKind(kind),
            amount=amount,
            scope=scope,
            event=EVENT if job_id else None,
            job_id=job_id,
            actor="key_a",
            at=_AT,
            previous_hash=self.entries[-1].hash if self.entries else FIRST_PREVIOUS_HASH,
            places=self.places,
            details=details,
        )
        self.entries.append(made.sealed())

    def write(self, connection: Connection) -> None:
        last = self.entries[-1]
        account = {"id": self.id, **self.facts, "unit": _text(self.unit), "partitions": _text(self.partitions)}
        connection.execute(_ADD_ACCOUNT, {**account, "size": last.sequence, "last": last.hash, "at": last.at})
        for entry in self.entries:
            said = {name: value for name, value in entry.to_json().items() if name != "amount"}
            texts = {name: _text(said.get(name)) for name in ("scope", "event", "details")}
            connection.execute(_ADD_ENTRY, {**said, **texts, "account_id": self.id, "amount": entry.amount})
        for job_id, amount, scope, end in _JOBS[self.id]:
            job = {"account_id": self.id, "job_id": job_id, "amount": amount, "scope": _text(scope)}
            state = _STATES[end]
            connection.execute(_ADD_RESERVATION, {**job, "id": f"rs_{job_id}", "event": _text(EVENT), "state": state})
            if state != "void":
                box = hashlib.sha256(rfc8785.dumps(scope)).hexdigest()
                held = {"charged": amount if end else 0, "reserved": 0 if end else amount}
                connection.execute(_ADD_BOX, {**job, **held, "box": box})


def _text(value: Any) -> str | None:
    return None if value is None else rfc8785.dumps(value).decode("utf-8")


@pytest.fixture(params=["pure", "zcdp"])
def upgraded(request: pytest.FixtureRequest, empty_database_url: str) -> Iterator[Database]:
    """Three members with histories of their own, brought to this revision."""
    migrate.upgrade(empty_database_url, revision=_BEFORE)
    delta = None if request.param == "pure" else "0.000001"
    engine = create_engine(parse_url(empty_database_url))
    with engine.begin() as connection:
        connection.execute(_ADD_POPULATION, {"accountant": request.param, "delta": delta, "at": _AT})
        for account_id in _JOBS:
            _Account(account_id, request.param, delta).write(connection)
            connection.execute(_ADD_MEMBER, {"id": account_id, "at": _AT})
    engine.dispose()
    migrate.upgrade(empty_database_url)
    database = Database.open(empty_database_url)
    yield database
    database.close()


def test_the_chain_that_begins_with_the_upgrade_agrees_with_every_member(upgraded: Database) -> None:
    with upgraded.read() as session:
        found = verified(session, "pp_old")
        accountant = repository.account(session, "pp_old").accountant
    assert found.kinds == {"open": 1, "join": 3}
    assert {name: member.load for name, member in found.members.items()} == {
        "ds_cut": 75,
        "ds_spent": 46,
        "ds_fresh": 0,
    }
    assert [(each.n_bounds, each.n_later) for each in found.compared.values()] == [(0, 0)] * 3
    assert found.printable == (121 if accountant == "pure" else 320)


def test_what_follows_agrees_as_well(upgraded: Database) -> None:
    with upgraded.write() as session:
        with pytest.raises(BudgetExceeded):
            ledger.reserve(session, ledger.NewReservation("ds_fresh", 5, {}, EVENT, "jb_7"), actor="key_a")
        ledger.void(session, "rs_jb_6", actor="key_a")
        ledger.charge(session, "rs_jb_4", actor="worker")
        ledger.reserve(session, ledger.NewReservation("ds_fresh", 5, {}, EVENT, "jb_8"), actor="key_a")
        caps.change(session, "pp_old", 115, reason="a test", actor="key_a")
        scope = {"shard": (1,)}
        ledger.reserve(session, ledger.NewReservation("ds_cut", 20, scope, EVENT, "jb_9"), actor="key_a")
    with upgraded.read() as session:
        found = verified(session, "pp_old")
    assert found.kinds == {"open": 1, "join": 3, "load": 3, "cap": 1}
    assert {name: member.load for name, member in found.members.items()} == {
        "ds_cut": 75,
        "ds_spent": 35,
        "ds_fresh": 5,
    }
