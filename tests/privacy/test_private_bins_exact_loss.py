"""T1, T2 and T4 on private bins: the exact law of edges and counts together, on every
account, for rows, labels and units of several rows.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants import gdp, pure, zcdp
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.statistics import (
    draw,
    price,
    quantile_draw,
    quantile_price,
)
from grovekeeper_forests.releases.statistics.price import StatisticsPlan
from grovekeeper_forests.releases.statistics.tables import Table
from tests.privacy.enumeration import TOLERANCE, aligned, draw_unpaid, loss
from tests.privacy.test_quantiles_exact_loss import (
    DELTA,
    LABELS,
    aged,
    planned,
    used_share,
)
from tests.privacy.test_statistics_exact_loss import (
    ACCOUNTS,
    NAN,
    ROWS,
    Row,
    law,
    private_rows,
    shares_of_the_charge,
)

AGES = {"bins": {"age": {"quantiles": 2}}}
HISTOGRAM = {"statistic": "histogram", "column": "age", **AGES}
BY_LABEL = {"statistic": "crosstab", "columns": ["ill", "age"], **AGES}
OF_A_LABEL = HISTOGRAM | {"where": [{"column": "ill", "in": ["yes"]}]}
Rows = tuple[Row, ...]
Pair = tuple[dict[Any, float], dict[Any, float]]


def pairs(plan: StatisticsPlan) -> Iterator[Pair]:
    """The laws of datasets of which one has a row more."""

    @cache
    def law_of(rows: Rows) -> dict[Any, float]:
        return law(plan, rows)

    for counts in itertools.product((0, 1, 3), (0,), (0, 1), (0, 3)):
        rows = aged(*(age for age in range(4) for _ in range(counts[age])))
        for age in (0.0, 1.0, 3.0, NAN):
            yield law_of(rows), law_of((*rows, *aged(age)))


def claimed(plan: StatisticsPlan, adjacency: Adjacency) -> float:
    return float(pure.loss(plan.event, adjacency=adjacency))


@pytest.mark.parametrize("epsilon", ["0.5", "2"])
def test_private_bins_lose_their_price_and_no_more(epsilon: str) -> None:
    plan = planned(HISTOGRAM, terms=Terms(Fraction(epsilon)))
    claim = claimed(plan, Adjacency.ADD_REMOVE_ONE)
    assert 0.99 * float(Fraction(epsilon)) < claim <= float(Fraction(epsilon))
    found = max(loss(*pair) for pair in pairs(plan))
    assert 0.8 * claim < found <= claim + TOLERANCE


@pytest.mark.parametrize("accountant", [zcdp.NAME, gdp.NAME])
def test_private_bins_lose_their_price_in_rho_and_mu(accountant: str) -> None:
    plan = planned(HISTOGRAM, terms=Terms(Fraction(2), accountant, DELTA))
    accounting = accountants.by_name(accountant)
    claim = float(accounting.loss(plan.event, adjacency=Adjacency.ADD_REMOVE_ONE))
    used = max(
        used_share(accountant, claim, *order)
        for pair in pairs(plan)
        for order in itertools.permutations(aligned(*pair))
    )
    assert 0.2 < used <= 1 + TOLERANCE


def test_a_replaced_row_loses_twice_the_price() -> None:
    plan = planned(HISTOGRAM, terms=Terms(Fraction(1)))
    found = max(
        loss(law(plan, aged(*ages, 0.0)), law(plan, aged(*ages, 3.0)))
        for ages in ((), (3.0, 3.0), (0.0, 0.0, 3.0))
    )
    assert 1.05 < found <= 2 + TOLERANCE


def test_a_unit_of_two_rows_loses_the_price() -> None:
    plan = planned(HISTOGRAM, terms=Terms(Fraction(1), max_rows=2))
    found = max(
        loss(law(plan, aged(*ages, *unit)), law(plan, aged(*ages)))
        for ages in ((), (3.0, 3.0))
        for unit in ((0.0, 0.0), (0.0, 3.0), (3.0, 3.0))
    )
    assert 0.6 < found <= 1 + TOLERANCE


def label_pairs(plan: StatisticsPlan) -> Iterator[Pair]:
    for others, age in itertools.product(((), (0.0, 3.0, 3.0)), (0.0, 3.0)):
        crowd = aged(*others, label=1)
        for before, after in itertools.combinations(LABELS, 2):
            yield (
                law(plan, (*crowd, *aged(age, label=before))),
                law(plan, (*crowd, *aged(age, label=after))),
            )


def test_a_changed_label_loses_its_price_and_no_more() -> None:
    terms = Terms(Fraction(1, 2), adjacency=Adjacency.LABEL)
    plan = planned(OF_A_LABEL, terms=terms)
    claim = claimed(plan, Adjacency.LABEL)
    assert 0.495 < claim <= 0.5
    found = max(loss(*pair) for pair in label_pairs(plan))
    # the counts pay for two cells, and a condition on the label moves one
    assert 0.4 * claim < found <= claim + TOLERANCE


def test_every_release_can_come_from_every_dataset() -> None:
    plan = planned(HISTOGRAM, terms=Terms(Fraction(1)))
    support = law(plan, ()).keys()
    for rows in (aged(NAN), aged(3.0), aged(*[2.0] * 9)):
        assert law(plan, rows).keys() == support


@pytest.mark.parametrize("n_rows", [1, 2])
@pytest.mark.parametrize("account", ACCOUNTS)
def test_a_unit_moves_the_draws_of_private_bins_by_what_was_charged(
    account: str, n_rows: int
) -> None:
    plan = planned(
        HISTOGRAM, BY_LABEL, terms=replace(ACCOUNTS[account], max_rows=n_rows)
    )
    neighbours = (
        (*ROWS[:gone], *ROWS[gone + n_rows :]) for gone in range(0, len(ROWS), 11)
    )
    shares = shares_of_the_charge(plan, account, neighbours, n_rows)
    assert 0.4 < max(shares) <= 1


@pytest.mark.parametrize("account", ACCOUNTS)
def test_a_label_moves_the_draws_of_private_bins_by_what_was_charged(
    account: str,
) -> None:
    terms = replace(ACCOUNTS[account], adjacency=Adjacency.LABEL)
    plan = planned(BY_LABEL, OF_A_LABEL, terms=terms)
    relabelled = (
        (*ROWS[:place], (*ROWS[place][:3], other), *ROWS[place + 1 :])
        for place in range(0, len(ROWS), 11)
        for other in set(LABELS) - {ROWS[place][3]}
    )
    assert 0.3 < max(shares_of_the_charge(plan, account, relabelled)) <= 1


@pytest.mark.parametrize("account", ACCOUNTS)
def test_private_bins_draw_what_is_paid_for(
    account: str, caplog: pytest.LogCaptureFixture
) -> None:
    plan = planned(HISTOGRAM, BY_LABEL, terms=ACCOUNTS[account])
    draw.release(plan, private_rows(aged(1.0)), SystemRandomness())
    assert not caplog.records, "a paid draw that was not drawn"


def _edges_from_rows(table: Table, _: object, by_cell: np.ndarray, *__: object) -> Any:
    half = int(np.searchsorted(by_cell.cumsum(), by_cell.sum() / 2))
    return np.array([min(max(half, 1), table.n_candidates - 1)])


def _overlapping(counts: np.ndarray, starts: np.ndarray, _: Table) -> np.ndarray:
    below = counts[: starts[0] + 1].sum()
    return np.array([below, counts[: starts[0] + 9].sum(), counts[-1]])


FLAWS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the edges are exact": lambda patch: patch.setattr(
        draw, "select_edges", _edges_from_rows
    ),
    "half of the sensitivity of the edges": lambda patch: patch.setattr(
        quantile_price, "range_sensitivity", lambda share: share.denominator // 2
    ),
    "the scores are doubled": lambda patch: patch.setattr(
        quantile_draw,
        "scores",
        lambda counts, share, scores=quantile_draw.scores: 2 * scores(counts, share),
    ),
    "counts have the whole price, too": lambda patch: patch.setattr(
        price, "EDGES_SHARE", _WholeTwice(1, 2)
    ),
    "bins share rows": lambda patch: patch.setattr(draw, "_binned", _overlapping),
}


class _WholeTwice(Fraction):
    """A share that leaves everything to the counts."""

    def __rsub__(self, other: object) -> Any:
        return Fraction(1)


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_careless_change_is_noticed(
    monkeypatch: pytest.MonkeyPatch, flaw: str
) -> None:
    FLAWS[flaw](monkeypatch)
    draw_unpaid(monkeypatch)
    monkeypatch.setattr(
        "grovekeeper_forests.contract.algorithm.PublicFacts.require_covered",
        lambda *_: None,
    )
    plan = planned(HISTOGRAM, terms=Terms(Fraction(1)))
    assert any(loss(*pair) > 1.05 for pair in pairs(plan))
