"""Every algorithm on every kind of account: the service and the verifier agree that the
price covers the plan.
"""

from fractions import Fraction

import pytest

from grovekeeper_forests import catalogue
from grovekeeper_forests.amounts import SYMBOLS
from grovekeeper_forests.contract.plan import Plan, PlanInvalid, UnlabelledPlan
from grovekeeper_forests.errors import AccountantMismatch, AdjacencyMismatch
from grovekeeper_forests.privacy import accountants, receipts
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest.price import plan
from grovekeeper_verifier import events as verifier
from tests.support.plans import request_for
from tests.support.schemas import schema_of
from tests.support.stored_plans import read_priced

pytestmark = pytest.mark.contract

DELTA = Fraction(1, 10**6)
SCHEMA = schema_of(
    {"name": "age", "type": "integer", "lower": 0, "upper": 120, "bounds": "natural"},
    {"name": "income", "type": "numeric", "lower": 0, "upper": 1},
    {
        "name": "sector",
        "type": "categorical",
        "categories": ["a", "b", "c"],
        "missing": True,
    },
    classes=["low", "high"],
    label="y",
)
each_algorithm = pytest.mark.parametrize("slug", sorted(catalogue.BY_SLUG))
each_accountant = pytest.mark.parametrize("accountant", accountants.NAMES)


def delta_for(accountant: str) -> Fraction | None:
    return DELTA if accountants.by_name(accountant).TAKES_DELTA else None


def planned(
    slug: str,
    accountant: str,
    epsilon: Fraction,
    adjacency: Adjacency,
    max_rows: int = 1,
) -> Plan:
    given = {
        "accountant": accountant,
        "delta": delta_for(accountant),
        "adjacency": adjacency,
        "max_rows": max_rows,
    }
    return plan(request_for(slug, {}, epsilon, 20_000, **given), SCHEMA)


def parts_of(job_plan: Plan) -> list[Plan | UnlabelledPlan]:
    """The parts of a plan that each account pays for."""
    return (
        [job_plan] if job_plan.unlabelled is None else [job_plan, job_plan.unlabelled]
    )


def native(slug: str) -> Adjacency:
    return catalogue.BY_SLUG[slug].adjacency


@pytest.mark.covering("slug, accountant", "epsilon", "adjacency")
@each_algorithm
@each_accountant
@pytest.mark.parametrize("epsilon", [Fraction(1, 4), Fraction(3)])
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE_ONE, Adjacency.LABEL])
def test_event_is_covered_by_the_price_and_uses_most_of_it(
    slug: str, accountant: str, epsilon: Fraction, adjacency: Adjacency
) -> None:
    unit = accountants.by_name(accountant)
    if (adjacency, native(slug)) == (Adjacency.ADD_REMOVE_ONE, Adjacency.LABEL):
        with pytest.raises(AdjacencyMismatch) as mismatch:
            planned(slug, accountant, epsilon, adjacency)
        assert (mismatch.value.adjacency, mismatch.value.accepted_by) == (
            "add_remove",
            ("label",),
        )
        return
    if accountant not in catalogue.BY_SLUG[slug].accountants:
        with pytest.raises(AccountantMismatch) as refused:
            planned(slug, accountant, epsilon, adjacency)
        assert refused.value.accountant == accountant
        assert set(refused.value.accepted_by) == set(
            catalogue.BY_SLUG[slug].accountants
        )
        return
    job_plan = planned(slug, accountant, epsilon, adjacency)
    limit = Fraction(unit.price(epsilon, delta_for(accountant)), 10**unit.PLACES)

    for part in parts_of(job_plan):
        loss = unit.loss(part.event, adjacency=adjacency)
        assert limit * Fraction(99, 100) < loss <= limit
        assert (
            verifier.total(
                part.event.to_json(), adjacency=adjacency.value, accountant=accountant
            )
            <= limit
        )
    assert forest_price.read_plan(job_plan.to_json()) == job_plan
    assert any(
        "A changed label is both" in warning for warning in job_plan.warnings
    ) is (adjacency is not native(slug))
    receipt = receipts.in_words(
        job_plan.event, accountant=accountant, adjacency=job_plan.terms.adjacency
    )
    assert SYMBOLS[unit.UNIT] in receipt.splitlines()[-1]


@pytest.mark.covering("slug, accountant", "adjacency")
@each_algorithm
@each_accountant
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE_ONE, Adjacency.LABEL])
def test_price_is_that_of_a_whole_unit(
    slug: str, accountant: str, adjacency: Adjacency
) -> None:
    if accountant not in catalogue.BY_SLUG[slug].accountants or (
        adjacency,
        native(slug),
    ) == (
        Adjacency.ADD_REMOVE_ONE,
        Adjacency.LABEL,
    ):
        return
    unit, max_rows = accountants.by_name(accountant), 3
    job_plan = planned(slug, accountant, Fraction(4), adjacency, max_rows)
    limit = Fraction(unit.price(Fraction(4), delta_for(accountant)), 10**unit.PLACES)

    times = max_rows if accountant == "pure" else max_rows**2
    loss = unit.loss(job_plan.event, adjacency=adjacency)
    assert limit * Fraction(98, 100) < times * loss <= limit
    assert (
        times
        * verifier.total(
            job_plan.event.to_json(), adjacency=adjacency.value, accountant=accountant
        )
        <= limit
    )
    assert forest_price.read_plan(job_plan.to_json()) == job_plan
    with pytest.raises(PlanInvalid):
        read_priced({**job_plan.to_json(), "max_rows": max_rows + 1}, SCHEMA)
    words = receipts.in_words(
        job_plan.event, accountant=accountant, adjacency=adjacency, max_rows=max_rows
    )
    reported = words.splitlines()[-1]
    assert reported.startswith(
        f"For all of the at most {max_rows} rows of one unit together: {SYMBOLS[unit.UNIT]} "
    )


@each_algorithm
def test_accounts_that_an_algorithm_names_are_those_that_have_a_bound_for_it(
    slug: str,
) -> None:
    """An algorithm names every account that can pay for it, and no other: normal noise
    has no finite ε.
    """
    named = catalogue.BY_SLUG[slug].accountants

    for accountant in named:
        for part in parts_of(planned(slug, accountant, Fraction(1), native(slug))):
            accepting = set(accountants.accepting(part.event, adjacency=native(slug)))
            assert {accountant} <= accepting <= set(named)
            assert accountant != "pure" or accepting == set(named)


@pytest.mark.parametrize(
    ("accountant", "steps"), [("pure", 2), ("zcdp", 4), ("gdp", 4)]
)
def test_an_add_remove_mechanism_costs_two_steps_where_labels_are_protected(
    accountant: str, steps: int
) -> None:
    """An event that costs half of an add/remove budget's ε costs all of a label
    budget's ε.
    """
    unit, label = accountants.by_name(accountant), Adjacency.LABEL
    event = planned("auto", accountant, Fraction(2), label).event

    assert unit.loss(event, adjacency=label) == steps * unit.loss(
        event, adjacency=Adjacency.ADD_REMOVE_ONE
    )
