"""T1, T2 and T4 on profiles of a label that is a number: the exact law of the production
code over small datasets, the event of statistics, and known flaws.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial

import numpy as np
import pytest

from grovekeeper_forests.contract.algorithm import PublicFacts
from grovekeeper_forests.data.sanitiser import (
    SanitisedColumns,
    SanitisedRows,
    codes_of_numbers,
)
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.privacy.accountants import gdp, pure, zcdp
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency, DiscreteLaplace, Sequential
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.profile import draw, number_label, price
from grovekeeper_forests.releases.profile.number_label import plan_label
from grovekeeper_forests.releases.profile.price import ProfilePlan
from grovekeeper_forests.releases.statistics import draw as statistics_draw
from grovekeeper_forests.releases.statistics import price as statistics_price
from grovekeeper_forests.releases.statistics import quantile_draw
from grovekeeper_forests.releases.statistics.price import StatisticsPlan
from grovekeeper_forests.releases.statistics.quantile_draw import scores
from grovekeeper_forests.releases.statistics.sums import StoredRows
from tests.privacy.enumeration import TOLERANCE, EnumeratingRandomness, loss, output_law
from tests.privacy.recorder import Draw, Recorder, check
from tests.support.block_rows import in_blocks

DAYS = (0.0, 1.0, 2.0)
SCHEMA = Schema(
    (Feature("x", "categorical", categories=("a", "b")),),
    Label("days", bounds=(0.0, 2.0), is_whole=True),
)
BINNED = Schema((Feature("x", "numeric", lower=0.0, upper=9.0),), SCHEMA.label)
DELTA = Fraction(1, 10**6)
ACCOUNTS = {
    "pure": Terms(Fraction(1)),
    "zcdp": Terms(Fraction(1), zcdp.NAME, DELTA),
    "gdp": Terms(Fraction(1), gdp.NAME, DELTA),
}
Rows = tuple[float, ...]
"""The label of each row."""


@pytest.fixture
def one_quantile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer outputs, which an enumeration reaches."""
    monkeypatch.setattr(number_label, "SHOWN_QUANTILES", ("0.5",))
    monkeypatch.setattr(number_label, "N_PARTS", 3)


def facts_of(terms: Terms, schema: Schema = SCHEMA) -> PublicFacts:
    return public_facts(terms, None, schema, Adjacency.ADD_REMOVE_ONE)


def planned(terms: Terms = ACCOUNTS["pure"], size_share: str = "0") -> ProfilePlan:
    plan = price.plan({"size_share": size_share}, facts_of(terms))
    assert ProfilePlan.from_json(plan.to_json()) == plan
    return plan


def private_rows(rows: Rows, schema: Schema = SCHEMA) -> SanitisedRows:
    of_x = np.zeros(len(rows), dtype=np.int32)
    if schema is BINNED:
        of_x = np.arange(len(rows), dtype=np.float64) % 10
    labels = codes_of_numbers(SCHEMA.label, np.array(rows, dtype=np.float64))
    ids = np.zeros((len(rows), 16), dtype=np.uint8)
    return SanitisedRows(SanitisedColumns((of_x,), len(rows)), labels, ids)


def law(plan: ProfilePlan, rows: Rows) -> dict[object, float]:
    private = private_rows(rows)

    def run(randomness: EnumeratingRandomness) -> object:
        released = draw.release(plan, SCHEMA, private, randomness)  # type: ignore[arg-type]
        assert released.numbers is not None
        numbers = [m.tobytes() for table in released.numbers.measured for m in table]
        return tuple(numbers), released.size

    return output_law(run, window=(-1, 1))  # type: ignore[arg-type]


def neighbours() -> Iterator[tuple[Rows, Rows]]:
    for others in itertools.chain([()], itertools.product(DAYS), [(0.0, 2.0)]):
        for day in DAYS:
            yield others, (*others, day)


def worst(plan: ProfilePlan) -> float:
    of = cache(partial(law, plan))
    return max(loss(of(one), of(other)) for one, other in neighbours())


def claim_of(plan: ProfilePlan) -> float:
    return float(pure.loss(plan.event, adjacency=Adjacency.ADD_REMOVE_ONE))


@pytest.mark.usefixtures("one_quantile")
@pytest.mark.covering("epsilon", "size_share")
@pytest.mark.parametrize("size_share", ["0", "0.25"])
@pytest.mark.parametrize("epsilon", ["0.5", "2"])
def test_a_profile_of_a_number_loses_its_price_and_no_more(
    epsilon: str, size_share: str
) -> None:
    plan = planned(Terms(Fraction(epsilon)), size_share)
    claim = claim_of(plan)
    assert 0.99 * float(Fraction(epsilon)) < claim <= float(Fraction(epsilon))
    assert 0.6 * claim < worst(plan) <= claim + TOLERANCE


@pytest.mark.usefixtures("one_quantile")
def test_every_profile_can_come_from_every_dataset() -> None:
    plan = planned()
    support = law(plan, ()).keys()
    assert all(law(plan, rows).keys() == support for rows, _ in neighbours())


@pytest.mark.parametrize("schema", [SCHEMA, BINNED], ids=["free", "bins"])
@pytest.mark.parametrize("account", ACCOUNTS)
def test_the_label_has_the_event_of_statistics_at_its_share(
    account: str, schema: Schema
) -> None:
    """Theorems 1 and 2 of docs/proofs/statistics.md are about this event."""
    facts = facts_of(ACCOUNTS[account], schema)
    asked = {"class_share": "0.25", "size_share": "0.125"}
    parts = price.plan(asked, facts).event.parts
    share = Fraction(1, 4) if schema is BINNED else Fraction(7, 8)
    tables = [
        {"statistic": "mean", "column": "days"},
        {
            "statistic": "quantiles",
            "column": "days",
            "quantiles": ["0.05", "0.25", "0.5", "0.75", "0.95"],
        },
    ]
    expected = statistics_price.plan(tables, facts.part(share)).event.parts
    n_bins = len(parts) - len(expected) - 1
    assert n_bins == (schema is BINNED)
    assert parts[n_bins:-1] == expected


@pytest.mark.parametrize("account", ACCOUNTS)
def test_the_label_has_the_draws_of_statistics(account: str) -> None:
    """On the same rows, in the same order, from the same exact numbers."""
    plan = planned(ACCOUNTS[account])
    rows = private_rows((0.0, 1.0, 1.0, 2.0, 2.0))
    recorder = Recorder()
    released = draw.release(plan, SCHEMA, rows, recorder)  # type: ignore[arg-type]
    alone = Recorder(recorder.draws)
    of_label = plan.label_plan(SCHEMA)
    assert of_label is not None
    statistics = statistics_draw.release(of_label, in_blocks(rows, SCHEMA), alone)  # type: ignore[arg-type]
    assert released.numbers is not None
    assert statistics.to_json() == released.numbers.to_json()
    for one, other in zip(recorder.draws, alone.draws, strict=True):
        assert (one.kind, one.scale) == (other.kind, other.scale)
        assert np.array_equal(one.exact, other.exact)


measure_sums = StoredRows.measure_sums

FLAWS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a row is two rows of the statistics": lambda patch: patch.setattr(
        StoredRows, "measure_sums", lambda rows, plan: 2 * measure_sums(rows, plan)
    ),
    "scores are doubled": lambda patch: patch.setattr(
        quantile_draw, "scores", lambda counts, share: 2 * scores(counts, share)
    ),
    "all of the price pays for the mean, too": lambda patch: patch.setattr(
        number_label, "plan_label", _spent_twice
    ),
}


def _spent_twice(facts: PublicFacts) -> StatisticsPlan:
    """The flaw: noise of a mean for twice its share of the price."""
    honest = plan_label(facts)
    parts = [
        replace(part, event=replace(part.event, inverse_scale=scale * 2))
        if isinstance(part.event, DiscreteLaplace)
        and (scale := part.event.inverse_scale)
        else part
        for part in honest.event.parts
    ]
    return replace(honest, event=Sequential(tuple(parts)))


@pytest.mark.usefixtures("one_quantile")
@pytest.mark.parametrize("flaw", FLAWS)
def test_a_careless_change_is_noticed(
    flaw: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = claim_of(planned())
    FLAWS[flaw](monkeypatch)
    if "mean" in flaw:
        # nothing covers the price that the flaw claims
        monkeypatch.setattr(PublicFacts, "require_covered", lambda *_: None)
    assert worst(planned()) > claim + 0.15


def recorded(
    plan: ProfilePlan, schema: Schema, rows: SanitisedRows, replayed: list[Draw] | None
) -> list[Draw]:
    recorder = Recorder(replayed)
    draw.release(plan, schema, rows, recorder)  # type: ignore[arg-type]
    return recorder.draws


@pytest.mark.parametrize("n_rows", [1, 2])
@pytest.mark.parametrize("account", ACCOUNTS)
def test_recorded_draws_of_neighbours_cost_at_most_the_charge(
    account: str, n_rows: int
) -> None:
    """With bins and a size, for a row and for a unit of two rows."""
    terms = replace(ACCOUNTS[account], max_rows=n_rows)
    asked = {"class_share": "0.4", "size_share": "0.1"}
    plan = price.plan(asked, facts_of(terms, BINNED))
    days = tuple(index % 3 for index in range(30))
    whole = private_rows(days, BINNED)
    first = recorded(plan, BINNED, whole, None)
    shares = []
    for gone in range(0, 30, 7):
        kept = np.delete(np.arange(30), range(gone, gone + n_rows))
        fewer = SanitisedRows(
            SanitisedColumns((whole.features.columns[0][kept],), len(kept)),
            whole.y[kept],
            whole.row_ids[kept],
        )
        again = recorded(plan, BINNED, fewer, first)
        shares.append(
            check(plan.event, first, again, accountant=account, n_rows=n_rows)
        )
    assert 0.1 < max(shares) <= 1 + TOLERANCE
