"""T1 and T2 on private quantile bins: the exact law of the production code over every
small dataset.
"""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from grovekeeper_forests.bins import quantile_bins, releases
from grovekeeper_forests.bins.quantile_bins import Grid
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.events import (
    Adjacency,
    Event,
    ExponentialMechanism,
    PermuteAndFlip,
)
from tests.privacy.enumeration import TOLERANCE, EnumeratingRandomness, loss, output_law
from tests.support.schemas import schema_of

Rows = tuple[tuple[int, ...], ...]
"""Cells of each record, one per feature."""

N_CELLS = 4
EMPTY: Rows = ()


def schema(n_features: int) -> Schema:
    features = [
        {"name": f"f{i}", "type": "integer", "lower": 0, "upper": N_CELLS - 1}
        for i in range(n_features)
    ]
    return schema_of(*features, classes=["a", "b"], label="y")


@pytest.fixture(autouse=True)
def no_free_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Production never cuts a grid of four cells privately; this test must, two levels
    deep.
    """
    monkeypatch.setattr(quantile_bins, "_FREE_CELLS", 1)
    monkeypatch.setattr(quantile_bins, "_GROUPED_CELLS", 1)
    monkeypatch.setattr(quantile_bins, "LEVELS", 2)
    monkeypatch.setattr(quantile_bins, "MAX_CUTS", 3)


def law(of: Schema, event: Event, rows: Rows) -> dict[bytes, float]:
    def run(randomness: EnumeratingRandomness) -> bytes:
        def cell_counts(index: int, grid: Grid) -> np.ndarray:
            return releases.cell_counts(
                of.features[index],
                np.array([row[index] for row in rows], dtype=np.float64),
                grid,
            )

        return releases.release_cuts(
            of, event, cell_counts=cell_counts, randomness=randomness
        ).tobytes()  # type: ignore[arg-type]

    return output_law(run)


def neighbours(n_features: int, n_rows: int) -> Iterator[tuple[Rows, Rows]]:
    """(D, D without one record) for every multiset of at most n_rows records."""
    records = list(itertools.product(range(N_CELLS), repeat=n_features))
    for size in range(1, n_rows + 1):
        for rows in itertools.combinations_with_replacement(records, size):
            for index in range(size):
                yield rows, rows[:index] + rows[index + 1 :]


def worst(of: Schema, event: Event, *, n_rows: int) -> float:
    known: dict[Rows, dict[bytes, float]] = {}

    def of_rows(rows: Rows) -> dict[bytes, float]:
        if rows not in known:
            known[rows] = law(of, event, rows)
        return known[rows]

    pairs = neighbours(len(of.features), n_rows)
    return max(loss(of_rows(one), of_rows(other)) for one, other in pairs)


@pytest.mark.parametrize("epsilon", ["0.2", "1", "6"])
def test_cuts_of_one_feature_lose_at_most_the_claim(epsilon: str) -> None:
    of = schema(1)
    event = quantile_bins.event(of, Fraction(epsilon), size=0)
    claim = float(pure.loss(event, adjacency=Adjacency.ADD_REMOVE_ONE))
    worst_loss = worst(of, event, n_rows=5)

    assert claim <= float(Fraction(epsilon))
    assert 0.5 * claim < worst_loss <= claim + TOLERANCE


def test_features_add_up() -> None:
    of = schema(2)
    event = quantile_bins.event(of, Fraction(1), size=0)
    worst_loss = worst(of, event, n_rows=2)

    assert 0.4 < worst_loss <= 1.0 + TOLERANCE


def test_exponential_mechanism_loses_at_most_the_claim() -> None:
    of = schema(1)
    event = quantile_bins.event(of, Fraction(1), size=0, selection=ExponentialMechanism)

    assert 0.3 < worst(of, event, n_rows=4) <= 1.0 + TOLERANCE


def test_every_set_of_cuts_can_come_from_every_dataset() -> None:
    of = schema(1)
    event = quantile_bins.event(of, Fraction(3), size=0)
    support = law(of, event, EMPTY).keys()

    assert len(support) > 1
    for rows, _ in neighbours(1, 3):
        assert law(of, event, rows).keys() == support


def test_half_of_the_range_would_be_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank utility is not monotone: with range sensitivity 1 the loss exceeds the
    claim.
    """
    monkeypatch.setattr(quantile_bins, "RANGE_SENSITIVITY", 1)
    of = schema(1)
    event = quantile_bins.event(of, Fraction(1), size=0)

    assert pure.loss(event, adjacency=Adjacency.ADD_REMOVE_ONE) <= 1
    assert worst(of, event, n_rows=5) > 1.1


def test_cuts_at_the_values_present_are_an_infinite_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Candidates between the smallest and the largest value, as in published private
    medians.
    """
    honest = releases._cuts_of

    def between_extremes(
        counts: np.ndarray, of_edges: np.ndarray, select: object, depth: int
    ) -> list[int]:
        present = np.flatnonzero(counts)
        if len(present) < 2:
            return []
        low, high = int(present[0]), int(present[-1])
        part = counts[low : high + 1], of_edges[low:high]
        return [low + cut for cut in honest(*part, select, depth)]  # type: ignore[arg-type]

    monkeypatch.setattr(releases, "_cuts_of", between_extremes)
    of = schema(1)

    assert worst(of, quantile_bins.event(of, Fraction(1), size=0), n_rows=3) == math.inf


def test_event_names_the_mechanism_that_is_drawn() -> None:
    of = schema(1)

    assert isinstance(
        quantile_bins.medians_of(quantile_bins.event(of, Fraction(1), size=0))[0],
        PermuteAndFlip,
    )
    event = quantile_bins.event(of, Fraction(1), size=0, selection=ExponentialMechanism)
    assert isinstance(quantile_bins.medians_of(event)[0], ExponentialMechanism)
