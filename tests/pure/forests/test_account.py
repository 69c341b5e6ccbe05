"""The account of a process: what it charges, what it refuses, and what it states, held to
a second statement of its arithmetic. No rows are read and no noise is drawn.
"""

import copy
import os
import pickle
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from grovekeeper_forests.account import (
    InProcessAccount,
    LimitExceeded,
    receipt_of,
    terms_of,
)
from grovekeeper_forests.contract.plan import Plan, UnlabelledPlan
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.forest import price
from tests.support.plans import request_for
from tests.support.schemas import schema_of

DELTA = Fraction(1, 10**6)
SCHEMA = schema_of(
    {"name": "age", "type": "integer", "lower": 0, "upper": 120, "bounds": "natural"},
    {"name": "ward", "type": "categorical", "categories": ["A", "B"]},
    classes=["no", "yes"],
    label="ill",
)


def planned(
    epsilon: Fraction | int,
    *,
    accountant: str = "pure",
    delta: Fraction | None = None,
) -> Plan:
    request = request_for(
        "rpf",
        {},
        Fraction(epsilon),
        1_000,
        accountant=accountant,
        delta=delta,
        adjacency=Adjacency.ADD_REMOVE_ONE,
    )
    return price.plan(request, SCHEMA)


def mu_squared(epsilon: float, delta: float) -> float:
    """The largest μ² whose δ at ε is at most ``delta``: Corollary 2.13 of Dong, Roth and
    Su in floats, by bisection.
    """
    low, high = 0.0, 100.0
    while high - low > 1e-13:
        middle = (low + high) / 2
        mu = middle**0.5
        near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        at_middle = norm.cdf(-near) - np.exp(epsilon) * norm.cdf(-far)
        low, high = (middle, high) if at_middle <= delta else (low, middle)
    return low


def test_jobs_add_up_to_the_limit_and_no_further() -> None:
    account = InProcessAccount("2.5")
    stated = (account.unit, account.limit, account.spent, account.remaining)
    assert stated == ("epsilon", "2.5", "0", "2.5")
    assert account.receipts == ()

    amounts = (Fraction(1, 2), Fraction(7, 5), Fraction(3, 10), Fraction(3, 10))
    plans = [planned(amount) for amount in amounts]
    receipts = [account.charge(plan) for plan in plans]

    assert [receipt.amount for receipt in receipts] == ["0.5", "1.4", "0.3", "0.3"]
    assert [receipt.event for receipt in receipts] == [plan.event for plan in plans]
    assert account.receipts == tuple(receipts)
    assert (account.spent, account.remaining) == ("2.5", "0")


def test_a_job_above_what_is_left_is_refused_and_costs_nothing() -> None:
    account = InProcessAccount(1)
    account.charge(planned(Fraction(7, 10)))
    with pytest.raises(LimitExceeded) as refused:
        account.charge(planned(Fraction(2, 5)))
    refusal = refused.value
    stated = (refusal.unit, refusal.requested, refusal.remaining)
    assert stated == ("epsilon", "0.4", "0.3")
    assert str(refusal) == "0.4 ε requested, 0.3 ε left of the limit of this account"
    assert (account.spent, account.remaining) == ("0.7", "0.3")
    assert len(account.receipts) == 1


def test_an_account_with_a_delta_counts_squared_mu() -> None:
    account = InProcessAccount(2, DELTA)
    plan = planned(1, accountant="gdp", delta=DELTA)
    receipt = account.charge(plan)

    assert account.unit == "mu_squared"
    assert float(account.limit) == pytest.approx(mu_squared(2, 1e-6), rel=1e-9)
    assert float(receipt.amount) == pytest.approx(mu_squared(1, 1e-6), rel=1e-9)
    assert account.spent == receipt.amount
    left = Fraction(account.limit) - Fraction(receipt.amount)
    assert Fraction(account.remaining) == left
    with pytest.raises(LimitExceeded, match=r"μ² requested, 0\.\d+ μ² left"):
        account.charge(planned(Fraction(19, 10), accountant="gdp", delta=DELTA))


def test_a_receipt_states_the_event_in_the_unit_of_its_account() -> None:
    in_epsilon = receipt_of(planned(1))
    in_mu = receipt_of(planned(1, accountant="gdp", delta=DELTA))
    assert "ε ≤ 1;" in in_epsilon.text.splitlines()[-1]
    assert " μ²" in in_mu.text.splitlines()[-1]


def test_a_receipt_states_the_loss_under_the_adjacency_of_its_account() -> None:
    """A changed label is one row less and one row more."""
    plan = planned(1)
    for_labels = replace(plan, terms=replace(plan.terms, adjacency=Adjacency.LABEL))
    total = receipt_of(for_labels).text.splitlines()[-1]
    assert "changing one label" in total
    assert "ε ≤ 2." in total


def test_an_account_with_a_delta_takes_no_job_without_one() -> None:
    account = InProcessAccount(2, DELTA)
    with pytest.raises(ParameterInvalid, match="delta: required"):
        account.charge(planned(1))
    assert (account.spent, account.receipts) == ("0", ())


def test_an_account_without_a_delta_takes_no_job_with_one() -> None:
    account = InProcessAccount(9)
    with pytest.raises(ParameterInvalid, match="delta: not-for-pure"):
        account.charge(planned(1, accountant="gdp", delta=DELTA))
    assert (account.spent, account.receipts) == ("0", ())


def test_an_account_in_squared_mu_takes_no_plan_in_rho() -> None:
    """The steps of ρ are about half as many for the same loss."""
    account = InProcessAccount(2, DELTA)
    with pytest.raises(ParameterInvalid, match="delta: not-for-gdp"):
        account.charge(planned(1, accountant="zcdp", delta=DELTA))
    assert account.spent == "0"


def test_the_limit_of_an_account_is_rounded_down() -> None:
    assert InProcessAccount("1.0000000005").limit == "1"


def test_an_account_charges_in_no_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork has a copy of the account, which would be spent again."""
    account, plan = InProcessAccount(1), planned(1)
    with (
        monkeypatch.context() as elsewhere,
        pytest.raises(RuntimeError, match="process that made it"),
    ):
        elsewhere.setattr(os, "getpid", lambda: -1)
        account.charge(plan)
    account.charge(plan)
    assert account.remaining == "0"


def test_a_copy_of_an_account_is_the_account() -> None:
    account = InProcessAccount(1)
    copies = (copy.copy(account), copy.deepcopy(account), account.__sklearn_clone__())
    assert all(one is account for one in copies)
    with pytest.raises(TypeError, match="process that made it"):
        pickle.dumps(account)


def test_a_plan_for_other_accounts_is_not_charged() -> None:
    account, plan = InProcessAccount(9), planned(1)
    for changed in (
        replace(plan, terms=replace(plan.terms, max_rows=2)),
        # A price for two rows covers the event of one, but the account counts one.
        replace(plan, terms=replace(plan.terms, max_rows=2, epsilon=Fraction(2))),
        replace(plan, terms=replace(plan.terms, adjacency=Adjacency.LABEL)),
        replace(
            plan,
            terms=replace(plan.terms, adjacency=Adjacency.LABEL, epsilon=Fraction(2)),
        ),
        replace(plan, unlabelled=UnlabelledPlan(plan.event, plan.terms)),
        replace(plan, terms=replace(plan.terms, epsilon=Fraction(1, 2))),
    ):
        with pytest.raises(ValueError, match="single rows"):
            account.charge(changed)
    assert (account.spent, account.receipts) == ("0", ())


@pytest.mark.parametrize(
    "epsilon",
    [
        0.1,
        "0.1",
        Decimal("0.1"),
        Fraction(1, 10),
        np.float64(0.1),
    ],
)
def test_an_amount_is_exact_however_it_is_spelt(epsilon: object) -> None:
    account = InProcessAccount(epsilon)
    assert (account.limit, terms_of(epsilon).epsilon) == ("0.1", Fraction(1, 10))


@pytest.mark.parametrize("epsilon", [3, np.int64(3), np.uint8(3), 3.0, "3"])
def test_a_whole_amount_is_exact_however_it_is_spelt(epsilon: object) -> None:
    assert InProcessAccount(epsilon).limit == "3"


@pytest.mark.parametrize("delta", [1e-6, "0.000001", "1e-6", DELTA])
def test_a_delta_is_exact_however_it_is_spelt(delta: object) -> None:
    terms = terms_of(1, delta)
    assert (terms.accountant, terms.delta, terms.epsilon) == ("gdp", DELTA, 1)


@pytest.mark.parametrize(
    "amount", [0, -1, float("nan"), float("inf"), "much", None, True, np.True_, 10**16]
)
def test_what_is_no_amount_is_refused_with_what_is_one(amount: object) -> None:
    with pytest.raises(ParameterInvalid, match="epsilon: not-") as refused:
        InProcessAccount(amount)
    assert "0.5" in str(refused.value)


@pytest.mark.parametrize("delta", [0, -1, "small", True])
def test_what_is_no_delta_is_refused_by_its_name(delta: object) -> None:
    with pytest.raises(ParameterInvalid, match="delta: not-"):
        InProcessAccount(1, delta)
