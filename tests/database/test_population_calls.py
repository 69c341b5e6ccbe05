"""Lowered caps and lists of populations, on both databases."""

import dataclasses

import pytest

from app.access.grants import Principal, Role
from app.core import stamps
from app.core.errors import (
    BudgetExceeded,
    InvalidRequest,
)
from app.ledger import accounts, populations, statements
from app.ledger import reservations as ledger
from app.ledger.populations import NewPopulation
from app.services.installation import Installation
from app.services.pagination import PageRequest
from app.services.populations import list_populations, show_population
from tests.support.crash_scene import ADMIN, OWNER, STRANGER
from tests.support.evidence import verified
from tests.support.population_accounts import PURE, account, join, opened, reserve

pytestmark = pytest.mark.contract

AUDITOR = Principal("key_auditor", frozenset({Role.AUDITOR}))


@pytest.fixture
def three(installation: Installation) -> Installation:
    """A population of ε = 3 with two members of ε = 3."""
    like = dataclasses.replace(PURE, cap=3 * 10**9)
    with installation.database.write() as session:
        opened(session, cap=3 * 10**9)
        for name in ("ds_1", "ds_2"):
            account(session, name, like)
    return installation


def test_a_lowered_cap_admits_nothing_over_it_and_takes_nothing_back(
    three: Installation,
) -> None:
    with three.database.write() as session:
        for name in ("ds_1", "ds_2"):
            join(session, name)
        reservation_id = reserve(session, "ds_1", 2 * 10**9, "jb_1")
    with three.database.write() as session:
        accounts.change_cap(
            session, "pop_a", 10**9, reason="a test", actor=OWNER.key_id
        )
    with three.database.write() as session:
        assert statements.balance(session, "ds_2").room == 0
        with pytest.raises(BudgetExceeded) as refused:
            reserve(session, "ds_2", 1, "jb_2")
        assert (refused.value.cap, refused.value.population) == ("1", "patients")
        ledger.charge(session, reservation_id, actor="worker")
        assert verified(session, "pop_a").printable == 2 * 10**9


def test_lists_take_cursors_of_theirs_and_no_others(three: Installation) -> None:
    with three.database.write() as session:
        other = NewPopulation("pop_b", "others", "pure", 5, None, STRANGER.key_id)
        populations.open_population(session, other, at=stamps.now())
    page = list_populations(three, ADMIN, PageRequest(1))
    assert ([population.id for population in page.populations], page.next) == (
        ["pop_a"],
        "pop_a",
    )
    page = list_populations(three, ADMIN, PageRequest(1, page.next))
    assert ([population.id for population in page.populations], page.next) == (
        ["pop_b"],
        None,
    )
    for principal, cursor in ((ADMIN, "junk"), (ADMIN, "patients"), (OWNER, "pop_b")):
        with pytest.raises(InvalidRequest):
            list_populations(three, principal, PageRequest(1, cursor))
    assert show_population(three, ADMIN, "others").cap == "0.000000005"
