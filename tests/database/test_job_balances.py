"""Quotes of jobs on two members of a population: both parts fit if and only if
admission accepts both.
"""

import itertools
from collections.abc import Iterator
from fractions import Fraction

import pytest
from sqlalchemy.orm import Session

from app.core import stamps
from app.core.errors import BudgetExceeded
from app.ledger import accounts, populations, statements
from app.ledger import reservations as ledger
from app.ledger.admission import AskedAmount
from app.ledger.populations import NewPopulation
from app.services.installation import Installation
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import Scope
from tests.support import reserving
from tests.support.crash_scene import EVENT, OWNER
from tests.support.databases import on_one_database

pytestmark = pytest.mark.contract

HALVES = Partitions.from_json([{"name": "half", "kind": "hash", "cells": 2}])


@pytest.fixture
def session(installation: Installation) -> Iterator[Session]:
    with installation.database.write() as opened_session:
        new_population = NewPopulation(
            "pop_a", "patients", "pure", 10, None, OWNER.key_id
        )
        populations.open_population(opened_session, new_population, at=stamps.now())
        for name in ("ds_1", "ds_2", "ds_alone"):
            _open(opened_session, name)
        yield opened_session


def _open(session: Session, name: str) -> None:
    new_account = accounts.NewAccount(
        id=name, name=name, accountant="pure", adjacency="add_remove", cap=100, delta=None,
        privacy_unit={"column": None, "max_rows": 1}, partitions=HALVES,
    )  # fmt: skip
    accounts.open_account(session, new_account, actor=OWNER.key_id)
    if name != "ds_alone":
        populations.join(session, "pop_a", name, actor=OWNER.key_id, at=stamps.now())


Asked = tuple[str, dict[str, tuple[int, ...]], int]


def _rooms(session: Session, *requested: Asked) -> list[int]:
    parts = [
        AskedAmount(name, amount, Scope(scope)) for name, scope, amount in requested
    ]
    return [
        balance.room for balance in statements.balances_of_job(session, parts, "key_a")
    ]


def _refused(session: Session, *requested: Asked) -> BudgetExceeded | None:
    """The reason why admission refuses the job, or nothing; the reservations are rolled
    back.
    """
    new_reservations = [
        ledger.NewReservation(name, amount, Scope(scope), EVENT, "jb_tried")
        for name, scope, amount in requested
    ]
    nested = session.begin_nested()
    try:
        reserving.reserve(session, new_reservations, actor="key_a")
    except BudgetExceeded as refused:
        return refused
    finally:
        nested.rollback()
    return None


def test_each_part_is_quoted_the_room_that_the_other_part_leaves(
    session: Session,
) -> None:
    assert _rooms(session, ("ds_1", {}, 6), ("ds_2", {}, 3)) == [7, 4]
    assert _rooms(session, ("ds_1", {}, 6), ("ds_2", {}, 6)) == [4, 4]
    assert _rooms(session, ("ds_1", {}, 12), ("ds_2", {}, 3)) == [7, 0]
    assert _rooms(session, ("ds_1", {}, 6), ("ds_alone", {}, 60)) == [10, 100]
    assert _rooms(session, ("ds_1", {}, 6)) == [10]


def test_disjoint_halves_of_one_member_cost_its_people_the_larger_part(
    session: Session,
) -> None:
    own, other = {"half": (0,)}, {"half": (1,)}
    assert _rooms(session, ("ds_1", own, 9), ("ds_1", other, 10)) == [10, 10]
    assert _rooms(session, ("ds_1", own, 11), ("ds_1", other, 10)) == [10, 0]


@on_one_database
@pytest.mark.parametrize("turned", [False, True])
def test_both_parts_fit_exactly_where_admission_takes_both(
    session: Session, turned: bool
) -> None:
    """For every load on half of a member, both orders of the accounts' ids, and amounts
    around the cap of the sum.
    """
    held = ledger.NewReservation("ds_1", 4, Scope({"half": (0,)}), EVENT, "jb_held")
    reserving.reserve(session, [held], actor="key_a")
    boxes: list[dict[str, tuple[int, ...]]] = [{}, {"half": (0,)}, {"half": (1,)}]
    outcomes = set()
    for box, one, two in itertools.product(boxes, (1, 2, 5, 7, 11), (1, 4, 5, 6)):
        requested: list[Asked] = [("ds_1", box, one), ("ds_2", {}, two)]
        requested = requested[::-1] if turned else requested
        rooms = _rooms(session, *requested)
        fits = all(
            amount <= room for (*_, amount), room in zip(requested, rooms, strict=True)
        )
        refused = _refused(session, *requested)
        assert fits is (refused is None), (requested, rooms)
        # the refusal of either part agrees with the quote of that part
        if refused is not None:
            room = {
                name: each for (name, *_), each in zip(requested, rooms, strict=True)
            }[refused.dataset]
            assert Fraction(refused.largest_that_fits) * 10**9 == room
        outcomes.add(None if refused is None else refused.dataset)
    assert outcomes == {None, "ds_1", "ds_2"}
