"""Quantile bins: the columns that are binned without a price, and the properties of
private cuts.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from grovekeeper_forests.bins import quantile_bins, releases
from grovekeeper_forests.bins.quantile_bins import Grid
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    ExponentialMechanism,
    Part,
    PermuteAndFlip,
    Sequential,
    UnknownPrivacyEvent,
)
from tests.support.schemas import schema_of

LETTERS = [f"c{i}" for i in range(150)]


def schema(*features: dict) -> Schema:
    named = [{"name": f"f{i}", **feature} for i, feature in enumerate(features)]
    return schema_of(*named, classes=["a", "b"], label="y")


MIXED = schema(
    {"type": "integer", "lower": 0, "upper": 31},
    {"type": "integer", "lower": 0, "upper": 99, "missing": True},
    {"type": "integer", "lower": 0, "upper": 128},
    {"type": "numeric", "lower": 0, "upper": 1},
    {"type": "categorical", "categories": LETTERS},
    {"type": "categorical", "categories": LETTERS[:32], "ordered": True},
    {
        "type": "categorical",
        "categories": LETTERS[:33],
        "ordered": True,
        "missing": True,
    },
    {"type": "categorical", "categories": LETTERS, "ordered": True},
    {"type": "numeric", "lower": 2, "upper": 2},
)


def release(of: Schema, epsilon: int, columns: list[np.ndarray]) -> np.ndarray:
    private = quantile_bins.private_features(of)
    return releases.release_cuts(
        of,
        quantile_bins.event(of, Fraction(epsilon), size=0),
        cell_counts=lambda index, grid: releases.cell_counts(
            of.features[index], columns[private.index(index)], grid
        ),
        randomness=SystemRandomness(),
    )


def test_only_wide_numbers_and_long_ordered_lists_are_cut_privately() -> None:
    assert quantile_bins.private_features(MIXED) == (2, 3, 7)


def test_free_bins_come_from_the_declaration() -> None:
    encoding = quantile_bins.encoding(MIXED, quantile_bins.no_cuts(MIXED), Grid.COARSE)

    # 32 values; 32 groups and MISSING; nothing was cut; nothing; 150 and OTHER; 32 and
    # OTHER; 32 groups and MISSING; …
    assert encoding.n_codes.tolist() == [32, 33, 1, 1, 151, 33, 33, 1, 1]
    assert np.array_equal(encoding.edges[0], np.arange(31) + 0.5)


@pytest.mark.parametrize(
    ("n_values", "cuts"),
    [
        (31, range(1, 31)),
        (32, range(1, 32)),
        (33, [group * 33 // 32 for group in range(1, 32)]),
        (128, range(4, 128, 4)),
        (129, None),
    ],
)
def test_up_to_128_whole_numbers_are_parted_by_the_declaration_into_up_to_32_bins(
    n_values: int, cuts: Sequence[int] | None
) -> None:
    of = schema({"type": "integer", "lower": 0, "upper": n_values - 1})
    free = quantile_bins._free_cuts(of.features[0])

    assert (None if free is None else list(free)) == (
        None if cuts is None else list(cuts)
    )
    assert quantile_bins.private_features(of) == (() if cuts is not None else (0,))


def test_widest_encoding_is_never_passed() -> None:
    widest = quantile_bins.widest_encoding(MIXED)
    generator = np.random.default_rng(1)
    columns = [
        generator.integers(0, 129, 500).astype(float),
        generator.random(500),
        np.zeros(500, dtype=np.int32),
    ]
    for epsilon in (1, 1_000):
        released = quantile_bins.encoding(
            MIXED, release(MIXED, epsilon, columns), Grid.COARSE
        )
        assert np.all(released.n_codes <= widest.n_codes)
        assert len(released.candidates) <= len(widest.candidates)


def test_with_much_budget_bins_hold_equal_shares_of_skewed_rows() -> None:
    """Log-normal amounts between public bounds that are far too wide."""
    of = schema({"type": "numeric", "lower": 0, "upper": 1_000_000})
    values = np.exp(np.random.default_rng(2).normal(6, 1.5, 20_000)).clip(0, 1_000_000)
    encoding = quantile_bins.encoding(of, release(of, 100, [values]), Grid.COARSE)
    shares = np.bincount(
        encoding.encode(SanitisedColumns((values,), len(values)))[0]
    ) / len(values)

    assert len(shares) >= 12
    assert shares.min() > 0.01
    assert shares.max() < 0.2


def test_cuts_are_medians_of_medians() -> None:
    """At a very large ε and with distinct cells, the cuts are the exact quantiles of
    the grid.
    """
    of = schema({"type": "integer", "lower": 0, "upper": 159})
    values = np.repeat(np.arange(160.0), 50)
    cuts = release(of, 100_000, [values])

    assert cuts.tolist() == [[10 * step for step in range(1, 16)]]


class Chooser:
    """Records utilities, scales and the kind of each selection, and chooses at random."""

    def __init__(self) -> None:
        self.selected, self._chance = (
            list[tuple[str, Fraction, list[int], int]](),
            np.random.default_rng(4),
        )

    def permute_and_flip(
        self, utilities: np.ndarray, *, inverse_scale: Fraction
    ) -> int:
        return self._select(PermuteAndFlip.TYPE, utilities, inverse_scale)

    def select_exponential(
        self, utilities: np.ndarray, *, inverse_scale: Fraction
    ) -> int:
        return self._select(ExponentialMechanism.TYPE, utilities, inverse_scale)

    def _select(self, kind: str, utilities: np.ndarray, scale: Fraction) -> int:
        self.selected.append(
            (
                kind,
                scale,
                utilities.tolist(),
                int(self._chance.integers(len(utilities))),
            )
        )
        return self.selected[-1][-1]


@pytest.mark.parametrize("n_levels", [2, 4])
@pytest.mark.parametrize("kind", [PermuteAndFlip, ExponentialMechanism])
def test_a_cut_is_selected_by_the_rows_on_both_sides_within_its_interval(
    kind: type[PermuteAndFlip | ExponentialMechanism], n_levels: int
) -> None:
    """A plain walk over two columns of integers, whose cells are their values; a
    missing value is in no cell.
    """
    of = schema(
        {"type": "integer", "lower": 0, "upper": 150, "missing": True},
        {"type": "integer", "lower": 0, "upper": 3},
        {"type": "integer", "lower": 0, "upper": 140},
    )
    generator = np.random.default_rng(8)
    columns = [
        generator.integers(0, top + 1, 300).astype(float) for top in (150, 3, 140)
    ]
    columns[0][:20] = np.nan
    event = quantile_bins.event(
        of, Fraction(2), size=0, selection=kind, n_levels=n_levels
    )
    rows = SanitisedRows(
        SanitisedColumns(tuple(columns), 300),
        np.zeros(300, np.int32),
        np.zeros((300, 16), np.uint8),
    )
    chooser, expected = Chooser(), list[tuple[str, Fraction, list[int], int]]()
    cuts = releases.cuts(event, of, rows, chooser)  # type: ignore[arg-type]
    for row, (index, n_cells) in enumerate(((0, 151), (2, 141))):
        values, intervals, released = columns[index], [(0, n_cells)], list[int]()
        for _ in range(n_levels):
            halves = list[tuple[int, int]]()
            for start, stop in intervals:
                places = range(start + 1, stop)
                below = [
                    int(((values >= start) & (values < place)).sum())
                    for place in places
                ]
                above = [
                    int(((values >= place) & (values < stop)).sum()) for place in places
                ]
                if not places:
                    continue
                choice = chooser.selected[len(expected)][-1]
                utilities = [
                    -abs(less - more) for less, more in zip(below, above, strict=True)
                ]
                expected.append(
                    (
                        kind.TYPE,
                        quantile_bins.medians_of(event)[0].inverse_scale,
                        utilities,
                        choice,
                    )
                )
                released.append(places[choice])
                halves += [(start, places[choice]), (places[choice], stop)]
            intervals = halves
        assert cuts[row].tolist() == sorted(released) + [quantile_bins.NO_CUT] * (
            cuts.shape[1] - len(released)
        )
    assert chooser.selected == expected
    assert len(cuts) == 2
    assert (
        quantile_bins.medians_of(event)[0].max_candidates
        == max(len(own) for _, _, own, _ in expected)
        == 150
    )


def test_bins_that_are_not_priced_are_those_of_a_profile_or_none_and_read_no_row() -> (
    None
):
    of, chooser = schema({"type": "integer", "lower": 0, "upper": 150}), Chooser()
    reused = np.array([[3, 40, *[quantile_bins.NO_CUT] * 13]], dtype=np.uint16)
    profile = SimpleNamespace(cut_array=reused)
    nothing: Any = None
    cuts_of = partial(releases.cuts, None, of, nothing, chooser)  # type: ignore[arg-type]
    assert np.array_equal(cuts_of(), quantile_bins.no_cuts(of))
    assert np.array_equal(cuts_of(reused=profile), reused)  # type: ignore[arg-type]
    assert not chooser.selected


def test_intervals_without_an_inner_edge_are_left_uncut() -> None:
    """Rows at 0 and 1 only, at a very large ε: the first cut is between them and leaves
    a single cell below.
    """
    of = schema({"type": "integer", "lower": 0, "upper": 128})
    cuts = release(of, 100_000, [np.repeat([0.0, 1.0], 1_000)])
    result = cuts[0][cuts[0] != quantile_bins.NO_CUT].tolist()

    assert result[0] == 1
    assert len(result) <= 1 + 7
    assert all(low < high for low, high in pairwise(result))
    assert quantile_bins.is_valid(of, cuts, Grid.COARSE)


def test_missing_values_have_a_bin_of_their_own() -> None:
    of = schema({"type": "numeric", "lower": 0, "upper": 1, "missing": True})
    values = np.array([0.0, np.nan, 1.0, np.nan])
    encoding = quantile_bins.encoding(of, release(of, 1, [values]), Grid.COARSE)
    codes = encoding.encode(SanitisedColumns((values,), 4))[0]

    assert codes[1] == codes[3] == encoding.n_codes[0] - 1
    assert codes.max() == codes[1] > codes[2] > codes[0]


def test_long_ordered_categories_are_binned_like_numbers() -> None:
    of = schema(
        {"type": "categorical", "categories": LETTERS, "ordered": True, "missing": True}
    )
    # the lowest, the highest, OTHER, MISSING
    values = np.array([0, 149, 150, 151], dtype=np.int32)
    encoding = quantile_bins.encoding(
        of, release(of, 100, [np.arange(150, dtype=np.int32)]), Grid.COARSE
    )
    codes = encoding.encode(SanitisedColumns((values,), 4))[0].tolist()

    assert codes[0] == 0
    assert codes[1] == codes[2] == encoding.n_codes[0] - 2
    assert codes[3] == encoding.n_codes[0] - 1
    assert not np.any(encoding.candidates.equals)
    assert encoding.candidates.threshold.tolist() == list(
        range(int(encoding.n_codes[0]) - 1)
    )


def test_event_costs_what_was_asked() -> None:
    for epsilon in (Fraction(1, 1_000), Fraction(1), Fraction(7, 3)):
        event = quantile_bins.event(MIXED, epsilon, size=0)
        loss = pure.loss(event, adjacency=Adjacency.ADD_REMOVE_ONE)
        selections = 3 * quantile_bins.LEVELS
        assert loss == selections * 2 * quantile_bins.medians_of(event)[0].inverse_scale
        assert 0 <= epsilon - loss < Fraction(2 * selections, 2**32)


def test_an_event_states_every_median_and_the_most_candidates_of_one() -> None:
    event = quantile_bins.event(MIXED, Fraction(1), size=0)
    median, _ = quantile_bins.medians_of(event)
    private = [MIXED.features[index] for index in (2, 3, 7)]
    few, most, some = map(quantile_bins.n_cells, private)
    assert median.max_candidates == most - 1
    assert most > max(few, some)
    [features] = event.parts  # type: ignore[union-attr]
    for level, n_intervals in zip(features.event.parts, (1, 2, 4, 8), strict=True):
        assert level.event.parts == (Part(n_intervals, median),)
    assert features.times == 3


def test_too_small_a_budget_is_refused() -> None:
    with pytest.raises(ParameterInvalid):
        quantile_bins.event(MIXED, Fraction(1, 2**31), size=0)


def test_foreign_events_are_refused() -> None:
    for event in (
        Sequential(()),
        Sequential(
            (Part(1, DiscreteLaplace(Adjacency.ADD_REMOVE_ONE, *[Fraction(1)] * 2, 3)),)
        ),
    ):
        with pytest.raises(UnknownPrivacyEvent):
            quantile_bins.medians_of(event)


@pytest.mark.parametrize(
    "row",
    [
        [5, 5, *[0] * 13],
        [6, 5, *[0] * 13],
        [0, 5, *[0] * 13],
        [5, 0, 7, *[0] * 12],
        [129, *[0] * 14],
        [0] * 14,
    ],
    ids=[
        "twice",
        "descending",
        "gap-first",
        "gap-between",
        "beyond-the-grid",
        "too-short",
    ],
)
def test_impossible_cuts_are_refused(row: list[int]) -> None:
    of = schema({"type": "integer", "lower": 0, "upper": 128})

    possible = np.array([[128, *[0] * 14]], dtype=np.uint16)
    assert quantile_bins.is_valid(of, possible, Grid.COARSE)
    impossible = np.array([row], dtype=np.uint16)
    assert not quantile_bins.is_valid(of, impossible, Grid.COARSE)
