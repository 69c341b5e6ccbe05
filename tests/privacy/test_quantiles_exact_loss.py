"""T1, T2 and T4 on quantiles: the exact law of the production code over small datasets,
on every account, for rows, labels and units of several rows.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from grovekeeper_forests.noise.randomness import (
    PaidRandomness,
    SystemRandomness,
    UnpaidDraw,
)
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants import gdp, pure, zcdp
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.statistics import (
    draw,
    price,
    quantile_draw,
    quantile_price,
    sums,
)
from grovekeeper_forests.releases.statistics.price import StatisticsPlan
from grovekeeper_forests.releases.statistics.quantile_draw import scores
from grovekeeper_forests.releases.statistics.quantile_price import range_sensitivity
from grovekeeper_forests.releases.statistics.tables import Table
from tests.privacy.enumeration import (
    TOLERANCE,
    EnumeratingRandomness,
    aligned,
    divergence,
    draw_unpaid,
    loss,
    output_law,
    renyi,
)
from tests.privacy.test_statistics_exact_loss import (
    ACCOUNTS,
    NAN,
    SCHEMA,
    UNLABELLED,
    Row,
    private_rows,
)

DELTA = Fraction(1, 10**6)
MEDIAN = {"statistic": "median", "column": "age"}
BY_LABEL = MEDIAN | {"by": ["ill"]}
OF_A_LABEL = MEDIAN | {"where": [{"column": "ill", "in": ["yes"]}]}
Rows = tuple[Row, ...]


def quantile(share: str, **more: Any) -> dict[str, Any]:
    return MEDIAN | {"statistic": "quantiles", "quantiles": [share]} | more


def planned(*tables: dict[str, Any], terms: Terms) -> StatisticsPlan:
    facts = public_facts(terms, None, SCHEMA, terms.adjacency)
    plan = price.plan(tables, facts)
    assert StatisticsPlan.from_json(plan.to_json(), SCHEMA) == plan
    return plan


def aged(*ages: float, label: int = 0) -> Rows:
    return tuple((age, 0.0, 0, label) for age in ages)


def law(plan: StatisticsPlan, rows: Rows) -> dict[Any, float]:
    private = private_rows(rows)

    def run(randomness: EnumeratingRandomness) -> object:
        released = draw.release(plan, private, randomness)  # type: ignore[arg-type]
        return tuple(m.tobytes() for table in released.measured for m in table)

    return output_law(run)  # type: ignore[arg-type]


def laws_of(plan: StatisticsPlan) -> Callable[[Rows], dict[Any, float]]:
    """The law of each dataset, computed once; rows have no order."""
    kept = cache(partial(law, plan))
    return lambda rows: kept(tuple(sorted(rows)))


def datasets() -> Iterator[Rows]:
    """Few and many rows of each age from 0 to 3."""
    for counts in itertools.product((0, 1, 8), repeat=4):
        yield aged(*(age for age in range(4) for _ in range(counts[age])))


def pairs(plan: StatisticsPlan) -> Iterator[tuple[dict[Any, float], dict[Any, float]]]:
    """The laws of datasets of which one has a row more."""
    law_of = laws_of(plan)
    for rows in datasets():
        for age in (0.0, 1.0, 2.0, 3.0):
            yield law_of(rows), law_of((*rows, *aged(age)))


def losses(plan: StatisticsPlan) -> Iterator[float]:
    return (loss(*pair) for pair in pairs(plan))


QUANTILES = ["0.5", "0.25", "0.9"]


@pytest.mark.covering("share", "epsilon")
@pytest.mark.parametrize("share", QUANTILES)
@pytest.mark.parametrize("epsilon", ["0.5", "2"])
def test_a_quantile_loses_its_price_and_no_more(share: str, epsilon: str) -> None:
    plan = planned(quantile(share), terms=Terms(Fraction(epsilon)))
    claim = float(pure.loss(plan.event, adjacency=Adjacency.ADD_REMOVE_ONE))
    assert 0.99 * float(Fraction(epsilon)) < claim <= float(Fraction(epsilon))
    assert 0.6 * claim < max(losses(plan)) <= claim + TOLERANCE


@pytest.mark.covering("share", "epsilon")
@pytest.mark.parametrize("share", [Fraction(1, 2), Fraction(1, 4), Fraction(9, 10)])
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
def test_on_a_wide_grid_a_quantile_loses_almost_all_of_its_price(
    share: Fraction, epsilon: Fraction
) -> None:
    """Many cells between two clumps of rows fall by max(q, 1 − q), and a cell below
    them rises by as much.
    """
    part, whole = share.numerator, share.denominator
    lower, upper = 40 * part, 40 * (whole - part)
    counts = np.array([1, 0, lower - 1, *[0] * 2_000, upper], dtype=np.int64)
    row = 0
    if 2 * part > whole:
        counts, row = counts[::-1].copy(), len(counts) - 1
        counts[0], counts[-3] = lower, upper - 1
    more = counts.copy()
    more[row] += 1
    scale = epsilon / range_sensitivity(share)
    before, after = scores(counts, share), scores(more, share)
    for law_of in (exponential_law, permute_and_flip_law):
        ratios = np.log(law_of(after, scale) / law_of(before, scale))
        assert 0.95 * epsilon < np.abs(ratios).max() <= epsilon + TOLERANCE


def exponential_law(utilities: np.ndarray, scale: Fraction) -> np.ndarray:
    weights = np.exp(float(scale) * (utilities - utilities.max()))
    return weights / weights.sum()


def permute_and_flip_law(utilities: np.ndarray, scale: Fraction) -> np.ndarray:
    """Each of the N + 1 accepted candidates wins with the same probability (lemma L2):
    the mean of 1 / (N + 1), the integral of t^N.
    """
    accepted = np.exp(float(scale) * (utilities - utilities.max()))
    nodes, weights = np.polynomial.legendre.leggauss(400)
    t, weights = (nodes + 1) / 2, weights / 2
    factors = 1 - accepted[:, None] * (1 - t)[None, :]
    logs = np.log(factors)
    return accepted * (np.exp(logs.sum(axis=0) - logs) @ weights)


@pytest.mark.covering("share", "accountant")
@pytest.mark.parametrize("share", QUANTILES)
@pytest.mark.parametrize("accountant", [zcdp.NAME, gdp.NAME])
def test_a_quantile_loses_its_price_in_rho_and_mu(accountant: str, share: str) -> None:
    """The whole curve: Rényi divergences of all orders, and δ at every ε."""
    plan = planned(quantile(share), terms=Terms(Fraction(2), accountant, DELTA))
    claim = accountants.by_name(accountant).loss(
        plan.event, adjacency=Adjacency.ADD_REMOVE_ONE
    )
    used = max(
        used_share(accountant, float(claim), *order)
        for one, other in pairs(plan)
        for order in itertools.permutations(aligned(one, other))
    )
    assert 0.2 < used <= 1 + TOLERANCE


def used_share(
    accountant: str, claim: float, one: np.ndarray, other: np.ndarray
) -> float:
    """How much of a claimed ρ, or of a claimed δ of μ², a pair of laws uses."""
    if accountant == zcdp.NAME:
        return max(
            renyi(one, other, order) / (order * claim) for order in (1.01, 2.0, 8.0)
        )
    mu = math.sqrt(claim)
    return max(
        divergence(one, other, epsilon) / delta_of(mu, epsilon)
        for epsilon in (0.0, 0.1, 0.3)
    )


def delta_of(mu: float, epsilon: float) -> float:
    """δ of μ-GDP at an ε (docs/proofs/accounting.md, A6)."""
    return _normal(-epsilon / mu + mu / 2) - math.exp(epsilon) * _normal(
        -epsilon / mu - mu / 2
    )


def _normal(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def test_several_quantiles_lose_the_price_of_all_together() -> None:
    asked = MEDIAN | {"statistic": "quantiles", "quantiles": ["0.25", "0.75"]}
    plan = planned(asked, terms=Terms(Fraction(2)))
    claim = float(pure.loss(plan.event, adjacency=Adjacency.ADD_REMOVE_ONE))
    assert claim > 1.98
    assert 0.5 * claim < max(losses(plan)) <= claim + TOLERANCE


def test_a_replaced_row_loses_twice_the_price() -> None:
    law_of = laws_of(planned(MEDIAN, terms=Terms(Fraction(1))))
    found = max(
        loss(law_of((*rows, *aged(one))), law_of((*rows, *aged(other))))
        for rows in itertools.islice(datasets(), 0, None, 4)
        for one, other in itertools.combinations((0.0, 1.0, 2.0, 3.0), 2)
    )
    assert 1.1 < found <= 2 + TOLERANCE


def test_a_unit_of_two_rows_loses_the_price() -> None:
    law_of = laws_of(planned(MEDIAN, terms=Terms(Fraction(1), max_rows=2)))
    found = max(
        loss(law_of((*rows, *aged(*unit))), law_of(rows))
        for rows in itertools.islice(datasets(), 0, None, 3)
        for unit in itertools.combinations_with_replacement((0.0, 1.0, 2.0, 3.0), 2)
    )
    assert 0.6 < found <= 1 + TOLERANCE


LABELS = (0, 1, UNLABELLED)


def label_pairs(
    plan: StatisticsPlan,
) -> Iterator[tuple[dict[Any, float], dict[Any, float]]]:
    """The laws of datasets that differ in the label of one row."""
    law_of = laws_of(plan)
    crowds = [(), (0.0, *[1.0] * 8, *[3.0] * 8)]
    for of_no, of_yes, age in itertools.product(crowds, crowds, (0.0, 3.0)):
        others = (*aged(*of_no, label=0), *aged(*of_yes, label=1))
        for before, after in itertools.combinations(LABELS, 2):
            yield (
                law_of((*others, *aged(age, label=before))),
                law_of((*others, *aged(age, label=after))),
            )


@pytest.mark.parametrize("table", [BY_LABEL, OF_A_LABEL], ids=["by", "where"])
def test_a_changed_label_loses_its_price_and_no_more(table: dict[str, Any]) -> None:
    terms = Terms(Fraction(1, 2), adjacency=Adjacency.LABEL)
    plan = planned(table, terms=terms)
    claim = float(pure.loss(plan.event, adjacency=Adjacency.LABEL))
    assert 0.495 < claim <= 0.5
    found = max(loss(*pair) for pair in label_pairs(plan))
    assert 0.5 * claim < found <= claim + TOLERANCE


@pytest.mark.covering("table", "accountant")
@pytest.mark.parametrize("accountant", [zcdp.NAME, gdp.NAME])
@pytest.mark.parametrize("table", [BY_LABEL, OF_A_LABEL], ids=["by", "where"])
def test_a_changed_label_loses_its_price_in_rho_and_mu(
    table: dict[str, Any], accountant: str
) -> None:
    terms = Terms(Fraction(2), accountant, DELTA, Adjacency.LABEL)
    plan = planned(table, terms=terms)
    claim = accountants.by_name(accountant).loss(plan.event, adjacency=Adjacency.LABEL)
    used = max(
        used_share(accountant, float(claim), *order)
        for pair in label_pairs(plan)
        for order in itertools.permutations(aligned(*pair))
    )
    assert 0.2 < used <= 1 + TOLERANCE


HOSTILE: dict[str, Rows] = {
    "none": (),
    "an empty cell": aged(NAN),
    "a label of no class": aged(1.0, label=UNLABELLED),
    "a bound": aged(3.0),
    "ties": aged(*[2.0] * 9),
}


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("rows", HOSTILE.values(), ids=HOSTILE)
def test_every_release_can_come_from_every_dataset(account: str, rows: Rows) -> None:
    plan = planned(BY_LABEL, terms=ACCOUNTS[account])
    assert len(law(plan, rows)) == 4**3


@pytest.mark.parametrize("account", ACCOUNTS)
def test_an_empty_cell_changes_nothing(account: str) -> None:
    plan = planned(MEDIAN, terms=ACCOUNTS[account])
    rows = aged(0.0, 3.0, 3.0)
    assert law(plan, rows) == law(plan, (*rows, *aged(NAN)))


@pytest.mark.parametrize("share", ["1/2", "1/4", "9/10", "1/1000"])
def test_one_row_moves_scores_by_what_the_event_states(share: str) -> None:
    stated, reached, largest = range_sensitivity(Fraction(share)), 0, 0
    for counts in itertools.product((0, 1, 2, 3_000), repeat=4):
        before = scores(np.array(counts), Fraction(share))
        for cell in range(4):
            more = np.array(counts)
            more[cell] += 1
            change = scores(more, Fraction(share)) - before
            reached = max(reached, int(change.max() - change.min()))
            largest = max(largest, int(np.abs(change).max()))
    assert reached == stated
    assert largest == stated // 2


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE_ONE, Adjacency.LABEL])
def test_a_release_draws_what_is_paid_for(
    account: str, adjacency: Adjacency, caplog: pytest.LogCaptureFixture
) -> None:
    terms = replace(ACCOUNTS[account], adjacency=adjacency)
    asked = BY_LABEL | {"statistic": "quantiles", "quantiles": ["0.25", "0.5"]}
    plan = planned(asked, OF_A_LABEL, terms=terms)
    draw.release(plan, private_rows(aged(1.0)), SystemRandomness())
    assert not caplog.records, "a paid draw that was not drawn"

    [(table, priced), _] = plan.measured
    events = [event for _, event in priced]
    paid = PaidRandomness(SystemRandomness(), *events)
    counts = np.zeros((table.n_cells, table.n_candidates), dtype=np.int64)
    quantile_draw.select_quantiles(table, events, counts, paid)
    with pytest.raises(UnpaidDraw):
        quantile_draw.select_quantiles(table, events, counts, paid)


def _candidates_from_rows(counts: np.ndarray, share: Fraction) -> np.ndarray:
    found = scores(counts, share)
    return found if not counts.any() else np.where(counts > 0, found, -50)


def _of_all_groups_together(patch: pytest.MonkeyPatch) -> None:
    exact = sums._by_candidate

    def together(table: Table, *rows: Any) -> np.ndarray:
        counts = exact(table, *rows).reshape(table.n_cells, -1)
        return (counts + counts.sum(axis=0)).ravel()

    patch.setattr(sums, "_by_candidate", together)


FLAWS: dict[str, tuple[dict[str, Any], Callable[[pytest.MonkeyPatch], None]]] = {
    "half the sensitivity": (
        MEDIAN,
        lambda patch: patch.setattr(
            quantile_price, "range_sensitivity", lambda share: share.denominator // 2
        ),
    ),
    "the sensitivity of one direction": (
        quantile("0.9"),
        lambda patch: patch.setattr(
            quantile_price, "range_sensitivity", lambda share: share.denominator
        ),
    ),
    "candidates from the rows": (
        MEDIAN,
        lambda patch: patch.setattr(quantile_draw, "scores", _candidates_from_rows),
    ),
    "every row counts in every group": (BY_LABEL, _of_all_groups_together),
    "scores are doubled": (
        MEDIAN,
        lambda patch: patch.setattr(
            quantile_draw, "scores", lambda counts, share: 2 * scores(counts, share)
        ),
    ),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_careless_change_is_noticed(
    monkeypatch: pytest.MonkeyPatch, flaw: str
) -> None:
    table, put_in = FLAWS[flaw]
    put_in(monkeypatch)
    draw_unpaid(monkeypatch)
    plan = planned(table, terms=Terms(Fraction(1)))
    assert any(found > 1.05 for found in itertools.islice(losses(plan), 0, None, 3))


def test_groups_that_are_paid_once_lose_more_than_the_price(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (quantile_price, quantile_draw):
        monkeypatch.setattr(module, "n_changed_groups", lambda *_: 1)
    terms = Terms(Fraction(1, 2), adjacency=Adjacency.LABEL)
    plan = planned(BY_LABEL, terms=terms)
    assert any(loss(*pair) > 0.6 for pair in label_pairs(plan))
