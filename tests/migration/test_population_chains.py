"""Revision 0015 begins a chain for every population that exists: what it says is so, and it goes on from there."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, select

from app.core.errors import BudgetExceeded
from app.db import migrate
from app.db.engine import parse_url
from app.db.unit_of_work import Database
from app.ledger import caps, loads, merkle, repository, state
from app.ledger import service as ledger
from app.ledger.log import Log
from app.ledger.tables import BlockRow
from app.verifier.tree import GrowingTree
from tests.support.crash_scene import EVENT
from tests.support.loads import BoxAmount, loads_of
from tests.support.scripts import loaded
from tests.support.three_partitions import PARTITIONS, SCOPES

_BEFORE = "0014"
_REVISION = Path(__file__).parents[2] / "migrations" / "versions" / "0015_population_chains.py"
_CUT = json.dumps([{"name": "shard", "kind": "hash", "cells": 2}, {"name": "region", "kind": "hash", "cells": 3}])
_POPULATION = (
    "INSERT INTO populations VALUES ('{id}', '{id}', '{accountant}', {cap}, {cap}, {delta}, 'add_remove', {unit},"
    " 'key_a', '2026-11-20T09:30:00.000000Z')"
)
_ACCOUNT = (
    "INSERT INTO accounts (id, name, accountant, adjacency, cap, highest_cap, delta, privacy_unit, partitions,"
    " last_sequence, last_hash, last_at) VALUES ('{id}', '{id}', '{accountant}', 'add_remove', {cap}, {highest},"
    " {delta}, '{unit}', '{cut}', 4, '{hash}', '2026-11-20T09:30:00.000000Z')"
)
_MEMBER = "INSERT INTO population_members VALUES ('{id}', '{population}', '2026-11-20T09:3{minute}:00.000000Z')"
_BOX = "INSERT INTO account_boxes VALUES ('{id}', '{scope}', '{scope}', {charged}, {reserved}, 0)"
_PURE = {"accountant": "pure", "delta": "NULL"}
_ZCDP = {"accountant": "zcdp", "delta": "'0.000001'"}
_ROW, _PATIENT = '{"column":null,"max_rows":1}', '{"column":"patient","max_rows":2}'


def _statements() -> list[str]:
    member = {**_PURE, "cap": 100, "highest": 100, "unit": _ROW, "cut": "[]", "hash": "0" * 64}
    cut = {**member, "cut": _CUT}
    delta = {**member, **_ZCDP, "unit": _PATIENT, "hash": "1" * 64}
    accounts = {"ds_1": cut, "ds_2": member, "ds_3": member, "ds_4": {**delta, "highest": 700}, "ds_5": delta}
    boxes = [
        ("ds_1", '{"shard":[0]}', 30, 0), ("ds_1", '{"region":[1]}', 25, 5), ("ds_1", '{"shard":[1]}', 0, 40),
        ("ds_2", "{}", 40, 6), ("ds_4", "{}", 9, 0),
    ]  # fmt: skip
    members = [("ds_2", "pp_a", 1), ("ds_1", "pp_a", 0), ("ds_3", "pp_a", 2), ("ds_5", "pp_b", 0), ("ds_4", "pp_b", 0)]
    return [
        _POPULATION.format(id="pp_a", cap=110, unit="NULL", **_PURE),
        _POPULATION.format(id="pp_b", cap=100, unit="'patient'", **_ZCDP),
        *(_ACCOUNT.format(id=name, **facts) for name, facts in accounts.items()),
        *(_BOX.format(id=name, scope=scope, charged=one, reserved=two) for name, scope, one, two in boxes),
        *(_MEMBER.format(id=name, population=population, minute=minute) for name, population, minute in members),
    ]


@pytest.fixture
def upgraded(empty_database_url: str) -> Any:
    migrate.upgrade(empty_database_url, revision=_BEFORE)
    engine = create_engine(parse_url(empty_database_url))
    with engine.begin() as connection:
        for statement in _statements():
            connection.exec_driver_sql(statement)
    engine.dispose()
    migrate.upgrade(empty_database_url)
    database = Database.open(empty_database_url)
    yield database
    database.close()


def _said(database: Database, population: str) -> list[tuple[str, int, str, dict[str, Any]]]:
    """Kind, amount, actor and details of every entry, whose chain is recomputed."""
    with database.read() as session:
        entries = ledger.entries(session, population, after=0, limit=100)
        account = repository.account(session, population)
        root = Log(session, population).root(len(entries))
    growing, previous = GrowingTree(), "0" * 64
    for number, entry in enumerate(entries, start=1):
        assert (entry.sequence, entry.previous_hash, entry.at) == (number, previous, entries[0].at)
        assert dataclasses.replace(entry, hash="").sealed().hash == entry.hash
        growing.add(merkle.leaf(entry.hash))
        previous = entry.hash
    assert (account.last_sequence, account.last_hash, account.last_at) == (len(entries), previous, entries[-1].at)
    assert root == growing.root()
    return [(entry.kind.value, entry.amount, entry.actor, entry.details or {}) for entry in entries]


def _joined(dataset: str, load: int, *, highest: str, column: str | None, digit: str) -> tuple[Any, ...]:
    member = {
        "dataset": dataset, "sequence": 4, "hash": digit * 64, "adjacency": "add_remove", "unit_column": column,
        "highest_cap": highest,
    }  # fmt: skip
    return ("join", load, "migration", {"member": member})


def test_a_population_that_exists_gets_its_chain(upgraded: Database) -> None:
    opened = {"population": "pp_a", "accountant": "pure", "delta": None}
    assert _said(upgraded, "pp_a") == [
        ("open", 110, "key_a", opened),
        _joined("ds_1", 70, highest="0.0000001", column=None, digit="0"),
        _joined("ds_2", 46, highest="0.0000001", column=None, digit="0"),
        _joined("ds_3", 0, highest="0.0000001", column=None, digit="0"),
    ]
    opened = {"population": "pp_b", "accountant": "zcdp", "delta": "0.000001"}
    assert _said(upgraded, "pp_b") == [
        ("open", 100, "key_a", opened),
        _joined("ds_4", 9, highest="0.0000000007", column="patient", digit="1"),
        _joined("ds_5", 0, highest="0.0000000001", column="patient", digit="1"),
    ]


def test_what_may_be_printed_is_no_less_than_before(upgraded: Database) -> None:
    with upgraded.read() as session:
        found = {name: loads.of_population(session, name) for name in ("pp_a", "pp_b")}
        assert {name: caps.printable_of(session, each).amount for name, each in found.items()} == {
            "pp_a": 116, "pp_b": 800,
        }  # fmt: skip


def test_loads_are_what_lies_on_the_tightest_cells_and_the_chain_goes_on(upgraded: Database) -> None:
    with upgraded.write() as session:
        population = loads.of_population(session, "pp_a")
        for account_id, load in population.loads.items():
            assert load == state.tightest(session, repository.account(session, account_id), {}).load
        with pytest.raises(BudgetExceeded):
            ledger.reserve(session, ledger.NewReservation("ds_3", 1, {}, EVENT, "jb_1"), actor="key_a")
        caps.change(session, "pp_a", 130, reason="a test", actor="key_b")
        ledger.reserve(session, ledger.NewReservation("ds_3", 14, {}, EVENT, "jb_1"), actor="key_a")
    with upgraded.read() as session:
        newest = ledger.entries(session, "pp_a", after=4, limit=10)
    assert [(entry.kind.value, entry.amount, entry.previous_hash) for entry in newest] == [
        ("cap", 130, newest[0].previous_hash), ("load", 14, newest[0].hash),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def revision() -> Any:
    return loaded(_REVISION)


@settings(max_examples=300, deadline=None)
@given(boxes=st.lists(st.tuples(SCOPES, st.integers(1, 50)), max_size=8))
def test_its_own_sum_is_that_of_the_composition(revision: Any, boxes: list[tuple[dict[str, set[int]], int]]) -> None:
    amounts = [BoxAmount({name: tuple(sorted(cells)) for name, cells in scope.items()}, load) for scope, load in boxes]
    largest = loads_of(PARTITIONS, amounts).largest()
    assert largest.is_exact
    frozen = [({name: frozenset(cells) for name, cells in scope.items()}, load) for scope, load in boxes]
    assert revision._largest(frozen) == largest.load


@settings(max_examples=100, deadline=None)
@given(boxes=st.lists(st.tuples(SCOPES, st.integers(1, 50)), min_size=1, max_size=8))
def test_where_there_are_too_many_choices_it_is_a_bound(
    revision: Any, boxes: list[tuple[dict[str, set[int]], int]]
) -> None:
    frozen = [({name: frozenset(cells) for name, cells in scope.items()}, load) for scope, load in boxes]
    exact, most = revision._largest(frozen), revision._MOST_CHOICES
    revision._MOST_CHOICES = 1
    try:
        bound = revision._largest(frozen)
    finally:
        revision._MOST_CHOICES = most
    assert exact <= bound <= sum(load for _, load in boxes)


def test_a_long_chain_has_its_stored_subtrees(empty_database_url: str) -> None:
    migrate.upgrade(empty_database_url, revision=_BEFORE)
    member = {**_PURE, "cap": 100, "highest": 100, "unit": _ROW, "cut": "[]", "hash": "0" * 64}
    engine = create_engine(parse_url(empty_database_url))
    with engine.begin() as connection:
        connection.exec_driver_sql(_POPULATION.format(id="pp_a", cap=110, unit="NULL", **_PURE))
        for number in range(600):
            connection.exec_driver_sql(_ACCOUNT.format(id=f"ds_{number:03}", **member))
            connection.exec_driver_sql(_MEMBER.format(id=f"ds_{number:03}", population="pp_a", minute=0))
    engine.dispose()
    migrate.upgrade(empty_database_url)
    database = Database.open(empty_database_url, pool_size=1)
    with database.read() as session:
        stored = session.execute(select(BlockRow.height, BlockRow.position).order_by(BlockRow.position)).all()
        hashes = [entry.hash for entry in ledger.entries(session, "pp_a", after=0, limit=1_000)]
        root = Log(session, "pp_a").root(len(hashes))
    database.close()
    growing = GrowingTree()
    for each in hashes:
        growing.add(merkle.leaf(each))
    assert [tuple(row) for row in stored] == [(8, 0), (8, 1)]
    assert (len(hashes), root) == (601, growing.root())
