"""Revision 0018 keeps beside every member's load what is reserved of it: what the boxes say, moved from there on."""

import json
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine

from app.core.errors import BudgetExceeded
from app.db import migrate
from app.db.engine import parse_url
from app.db.unit_of_work import Database
from app.ledger import loads, repository, state
from app.ledger import service as ledger
from app.ledger.loads import Carried
from tests.support.crash_scene import EVENT
from tests.support.loads import BoxAmount, loads_of
from tests.support.scripts import loaded
from tests.support.three_partitions import PARTITIONS, SCOPES

_BEFORE = "0017"
_REVISION = Path(__file__).parents[2] / "migrations" / "versions" / "0018_members_beside_their_loads.py"
_CUT = json.dumps([{"name": "shard", "kind": "hash", "cells": 2}, {"name": "region", "kind": "hash", "cells": 3}])
_ACCOUNT = (
    "INSERT INTO accounts (id, name, accountant, adjacency, cap, highest_cap, delta, privacy_unit, partitions,"
    " last_sequence, last_hash, last_at) VALUES ('{id}', '{id}', 'pure', {adjacency}, 100, 100, NULL, {unit}, '{cut}',"
    " 4, 'a hash', '2026-11-20T09:30:00.000000Z')"
)
_MEMBER = (
    "INSERT INTO population_members (account_id, population_id, joined_at, load)"
    " VALUES ('{id}', 'pp_a', '2026-11-20T09:30:00.000000Z', {load})"
)
_BOX = "INSERT INTO account_boxes VALUES ('{id}', '{box}', '{scope}', {charged}, {reserved}, 0)"
_HELD = (
    "INSERT INTO reservations (id, account_id, job_id, part, amount, scope, event, state)"
    " VALUES ('rs_1', 'ds_1', 'jb_1', 0, 40, '{\"shard\":[1]}', '{}', 'reserved')"
)


def _statements() -> list[str]:
    unit = {"adjacency": "'add_remove'", "unit": '\'{"column":null,"max_rows":1}\''}
    boxes = [
        ("ds_1", '{"shard":[0]}', 30, 0), ("ds_1", '{"region":[1]}', 25, 5), ("ds_1", '{"shard":[1]}', 0, 40),
        ("ds_2", "{}", 20, 6),
    ]  # fmt: skip
    return [
        _ACCOUNT.format(id="pp_a", adjacency="NULL", unit="NULL", cut="[]"),
        "INSERT INTO populations VALUES ('pp_a', 'patients', 'add_remove', NULL, 'key_a',"
        " '2026-11-20T09:30:00.000000Z')",
        *(_ACCOUNT.format(id=name, cut=cut, **unit) for name, cut in (("ds_1", _CUT), ("ds_2", "[]"), ("ds_3", "[]"))),
        *(
            _BOX.format(id=name, box=sha256(scope.encode()).hexdigest(), scope=scope, charged=one, reserved=two)
            for name, scope, one, two in boxes
        ),
        *(_MEMBER.format(id=name, load=load) for name, load in (("ds_1", 70), ("ds_2", 26), ("ds_3", 0))),
        _HELD,
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


def test_members_keep_what_is_reserved_of_their_loads(upgraded: Database) -> None:
    with upgraded.read() as session:
        assert loads.of_population(session, "pp_a").members == {
            "ds_1": Carried(70, 45, is_exact=True),
            "ds_2": Carried(26, 6, is_exact=True),
            "ds_3": Carried(0, 0, is_exact=True),
        }


def test_what_was_held_before_the_upgrade_is_charged_after_it(upgraded: Database) -> None:
    with upgraded.write() as session:
        ledger.charge(session, "rs_1", actor="worker")
        found = loads.of_population(session, "pp_a")
        for account_id, carried in found.members.items():
            tightest = state.tightest(session, repository.account(session, account_id), {})
            assert carried == Carried(tightest.load, tightest.reserved, is_exact=True)
        with pytest.raises(BudgetExceeded) as refused:
            ledger.reserve(session, ledger.NewReservation("ds_3", 5, {}, EVENT, "jb_2"), actor="key_a")
    told = [Fraction(each) * 10**9 for each in (refused.value.charged, refused.value.reserved)]
    assert (refused.value.population, told) == ("pp_a", [85, 11])


@pytest.fixture(scope="module")
def revision() -> Any:
    return loaded(_REVISION)


_BOXES = st.lists(st.tuples(SCOPES, st.integers(1, 9), st.integers(0, 9)), max_size=8)


def _boxes(revision: Any, drawn: list[tuple[dict[str, set[int]], int, int]]) -> list[Any]:
    return [
        revision._Box({name: frozenset(cells) for name, cells in scope.items()}, load, min(reserved, load))
        for scope, load, reserved in drawn
    ]


def _on(cell: dict[str, int], boxes: list[Any]) -> tuple[int, int]:
    covering = [box for box in boxes if all(cell[name] in cells for name, cells in box.scope.items())]
    return sum(box.load for box in covering), sum(box.reserved for box in covering)


@settings(max_examples=300, deadline=None)
@given(drawn=_BOXES)
def test_its_cell_is_that_of_the_composition(revision: Any, drawn: list[Any]) -> None:
    """Or another name of it: the same boxes cover both, so the same is reserved there."""
    boxes = _boxes(revision, drawn)
    amounts = [BoxAmount({name: tuple(sorted(cells)) for name, cells in box.scope.items()}, box.load) for box in boxes]
    largest = loads_of(PARTITIONS, amounts).largest()
    cell, is_exact = revision._tightest(boxes)
    assert (is_exact, largest.is_exact) == (True, True)
    assert _on(cell, boxes) == _on(dict(largest.cell), boxes)
    assert _on(cell, boxes)[0] == largest.load


@settings(max_examples=100, deadline=None)
@given(drawn=_BOXES.filter(bool))
def test_where_there_are_too_many_choices_it_names_a_cell_and_claims_nothing(revision: Any, drawn: list[Any]) -> None:
    boxes, most = _boxes(revision, drawn), revision._MOST_CHOICES
    exact, _ = revision._tightest(boxes)
    revision._MOST_CHOICES = 0
    try:
        cell, is_exact = revision._tightest(boxes)
    finally:
        revision._MOST_CHOICES = most
    assert not is_exact
    assert set(cell) == {name for box in boxes for name in box.scope}
    assert _on(cell, boxes)[0] <= _on(exact, boxes)[0]
