"""Tests the learners and the rules of two cells on small tables."""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.noise.randomness import SystemRandomness
from research import bundled, two_cells
from research.datasets import Dataset, split_of

WDBC = bundled.read("wdbc")
_NO_NOISE = Fraction(2**20)
"""So much ε that counts have no noise."""


def _counts(
    codes: NDArray[np.int64], y: NDArray[np.int32]
) -> list[NDArray[np.float64]]:
    return two_cells.noisy_counts(
        codes,
        [3, 2],
        y,
        n_classes=2,
        epsilon=_NO_NOISE,
        randomness=SystemRandomness(),
    )


def test_a_row_adds_one_to_one_cell_of_each_column() -> None:
    codes = np.array([[0, 1], [2, 0], [2, 1]])
    y = np.array([0, 1, 1], dtype=np.int32)

    with_row = _counts(codes, y)
    without = _counts(codes[:-1], y[:-1])

    changes = [
        np.abs(one - other) for one, other in zip(with_row, without, strict=True)
    ]
    assert [change.sum() for change in changes] == [1, 1]
    assert (with_row[0][1, 2], with_row[1][1, 1]) == (2, 1)


def test_noise_grows_with_the_number_of_columns() -> None:
    empty = np.zeros((0, 400), dtype=np.int64)
    tables = two_cells.noisy_counts(
        empty,
        [50] * 400,
        np.zeros(0, dtype=np.int32),
        n_classes=1,
        epsilon=Fraction(4),
        randomness=SystemRandomness(),
    )

    # 20,000 draws at an inverse scale of 1/100: the standard deviation is 141
    assert 130 < np.std(np.concatenate(tables)) < 153


def test_scores_without_noise_are_those_of_bayes() -> None:
    codes, n_codes = two_cells.coded(WDBC)
    train, test = split_of(len(WDBC.y), 0)
    tables = two_cells.noisy_counts(
        codes[train],
        n_codes,
        WDBC.y[train],
        n_classes=2,
        epsilon=_NO_NOISE,
        randomness=SystemRandomness(),
    )
    scores = two_cells.bayes_scores(tables, codes[test], _NO_NOISE)

    assert np.mean(scores.argmax(axis=1) == WDBC.y[test]) > 0.85


def test_half_of_a_budget_is_the_largest_epsilon_that_fits() -> None:
    half = Fraction(two_cells.half_of("1"))

    assert Fraction(1, 2) < half < 1


def _table(n_features: int, n_classes: int, n_rows: int) -> Dataset:
    features = tuple(
        Feature(f"x{place}", "integer", 0.0, 16.0) for place in range(n_features)
    )
    schema = Schema(features, Label("class", tuple(map(str, range(n_classes)))))
    columns = tuple(np.zeros(n_rows) for _ in features)
    return Dataset("made", schema, columns, np.zeros(n_rows, dtype=np.int32))


def test_a_small_table_of_many_classes_joins_two_levels() -> None:
    many = _table(16, 26, 1_000)
    few = _table(16, 2, 1_000)
    wide = _table(200, 26, 1_000)

    joins = [two_cells.joins_two_levels(table, "1") for table in (many, few, wide)]

    # few classes take two levels by default; so many columns never do
    assert joins == [True, False, False]


def test_both_forests_share_where_many_features_are_all_categories() -> None:
    category = Feature("x", "categorical", categories=("a", "b"))
    features = tuple(
        Feature(f"x{place}", "categorical", categories=("a", "b"))
        for place in range(48)
    )
    label = Label("class", ("no", "yes"))

    assert two_cells.takes_both(Schema(features, label))
    assert not two_cells.takes_both(Schema((category,), label))
    number = Feature("n", "numeric", 0.0, 1.0)
    assert not two_cells.takes_both(Schema((*features, number), label))
