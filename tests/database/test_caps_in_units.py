"""A cap is stated as an ε or in the unit of the account."""

from fractions import Fraction
from typing import Any

import pytest
from pydantic import ValidationError

from app.core.errors import InvalidRequest
from app.ledger import tables
from app.services.installation import Installation
from app.services.ledger import balances
from app.wire.datasets import BudgetIn
from app.wire.ledger import CapIn
from grovekeeper_forests.privacy.accountants import gdp, zcdp
from tests.support import people
from tests.support.crash_scene import ADMIN, DELTA, OWNER
from tests.support.databases import on_one_database

pytestmark = pytest.mark.contract


def budget(accountant: str, **stated: str) -> dict[str, str]:
    return {"accountant": accountant, "delta": DELTA, **stated}


@pytest.mark.parametrize(
    ("stated", "unit_steps"),
    [
        (budget("zcdp", rho="0.5"), 10**zcdp.PLACES // 2),
        (budget("gdp", mu="1.5"), 10**gdp.PLACES * 9 // 4),
        (budget("gdp", mu="1.0000009"), 1_000_001_800_000),  # and 0.81 of a step
    ],
)
def test_a_cap_in_the_unit_of_the_account_is_that_cap_to_the_step(
    installation: Installation, stated: dict[str, str], unit_steps: int
) -> None:
    dataset = people.declared(installation, budget=stated)["id"]
    with installation.database.read() as session:
        (opened,) = tables.entries(session, dataset, after=0, limit=1)
    assert opened.amount == unit_steps


@on_one_database
def test_a_cap_is_changed_in_the_unit_of_the_account(
    installation: Installation,
) -> None:
    dataset = people.declared(installation, budget=budget("zcdp", rho="0.5"))["id"]
    change(installation, dataset, rho="0.25")
    with pytest.raises(InvalidRequest) as refused:
        change(installation, dataset, mu="0.1")
    assert problems(refused) == [("/mu", "unit-of-another-accountant")]
    with installation.database.read() as session:
        *_, entry = tables.entries(session, dataset, after=0, limit=9)
    assert entry.amount == 10**zcdp.PLACES // 4


def change(installation: Installation, dataset: str, **stated: str) -> None:
    body = CapIn.model_validate({"reason": "a smaller study", **stated})
    balances.change_cap(installation, ADMIN, dataset, body, request=None)


def problems(refused: Any) -> list[tuple[str, str]]:
    return [(error.at, error.problem) for error in refused.value.errors]


@on_one_database
@pytest.mark.parametrize(
    ("stated", "at", "problem"),
    [
        (budget("gdp", rho="1"), "/budget/rho", "unit-of-another-accountant"),
        (budget("zcdp", mu="1"), "/budget/mu", "unit-of-another-accountant"),
        (budget("zcdp", rho="1e9"), "/budget/rho", "too-large"),
        (budget("zcdp", rho="1e-15"), "/budget/rho", "too-small"),
    ],
)
def test_a_cap_in_another_unit_or_out_of_range_is_refused(
    installation: Installation, stated: dict[str, str], at: str, problem: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        people.declared(installation, principal=OWNER, budget=stated)
    assert problems(refused) == [(at, problem)]


@pytest.mark.parametrize(
    "stated", [{}, {"rho": "1", "mu": "1"}, {"epsilon": "1", "rho": "1"}]
)
def test_a_budget_states_its_cap_once(stated: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        BudgetIn.model_validate(budget("zcdp", **stated))


def test_a_new_cap_is_stated_once() -> None:
    assert CapIn.model_validate({"mu": "1.5", "reason": "r"}).mu == Fraction(3, 2)
    for stated in ({}, {"cap": "1", "rho": "1"}):
        with pytest.raises(ValidationError):
            CapIn.model_validate({"reason": "r", **stated})
