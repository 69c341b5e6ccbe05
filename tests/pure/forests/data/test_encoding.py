"""Public bins: exact edges, a code for every value, and no candidate split with an
empty side.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from grovekeeper_forests.data.encoding import (
    MAX_BINS,
    Encoding,
    pairs_of_schema,
    to_numbers,
)
from grovekeeper_forests.data.sanitiser import SanitisedColumns
from grovekeeper_forests.data.schema import Feature, Label, Schema
from tests.support.schemas import schema_of


def schema(*features: dict) -> Schema:
    named = [{"name": f"f{index}", **feature} for index, feature in enumerate(features)]
    return schema_of(*named, classes=["a", "b"], label="y")


def codes(encoding: Encoding, values: list, dtype: type = np.float64) -> list[int]:
    return encoding.encode(
        SanitisedColumns((np.array(values, dtype=dtype),), len(values))
    )[0].tolist()


def splits(encoding: Encoding) -> list[tuple[int, int, bool]]:
    candidates = encoding.candidates
    return list(
        zip(
            candidates.feature.tolist(),
            candidates.threshold.tolist(),
            candidates.equals.tolist(),
            strict=True,
        )
    )


def test_integer_of_small_range_has_a_bin_per_value() -> None:
    encoding = Encoding.of(schema({"type": "integer", "lower": -2, "upper": 3}), 32)

    assert codes(encoding, [-2, -1, 0, 1, 2, 3]) == [0, 1, 2, 3, 4, 5]
    assert encoding.n_codes.tolist() == [6]
    assert splits(encoding) == [(0, code, False) for code in range(5)]


def test_integer_of_large_range_is_grouped_between_whole_numbers() -> None:
    encoding = Encoding.of(schema({"type": "integer", "lower": 0, "upper": 1_000}), 8)
    (edges,) = encoding.edges

    assert edges is not None
    assert all(edge % 1 == 0.5 for edge in edges)
    assert len(edges) == 7
    result = codes(encoding, list(range(1_001)))
    assert result == sorted(result)
    assert set(result) == set(range(8))


def test_skewed_number_gets_edges_near_zero() -> None:
    encoding = Encoding.of(
        schema({"type": "numeric", "lower": 0, "upper": 100_000}), 32
    )

    assert len(set(codes(encoding, [0, 100, 1_000, 3_000, 5_000]))) >= 4


def test_number_around_zero_gets_edges_near_zero_on_both_sides() -> None:
    (edges,) = Encoding.of(
        schema({"type": "numeric", "lower": -64, "upper": 64}), 17
    ).edges

    assert edges is not None
    assert {4.0, -4.0, 2.0, -2.0} <= set(edges.tolist())


def test_value_on_an_edge_belongs_below_it() -> None:
    encoding = Encoding.of(schema({"type": "numeric", "lower": 0, "upper": 1}), 2)

    assert codes(encoding, [0.0, 0.5, math.nextafter(0.5, 1), 1.0]) == [0, 0, 1, 1]


def test_missing_number_has_the_top_bin_and_a_candidate_of_its_own() -> None:
    encoding = Encoding.of(
        schema({"type": "integer", "lower": 0, "upper": 2, "missing": True}), 32
    )

    assert codes(encoding, [0, 2, math.nan]) == [0, 2, 3]
    assert splits(encoding) == [(0, 0, False), (0, 1, False), (0, 2, False)]


def test_missing_number_that_the_schema_does_not_allow_still_has_a_code() -> None:
    assert codes(
        Encoding.of(schema({"type": "integer", "lower": 0, "upper": 2}), 32), [math.nan]
    ) == [2]


@pytest.mark.parametrize("kind", ["numeric", "integer"])
def test_equal_bounds_give_one_bin_and_no_candidate(kind: str) -> None:
    encoding = Encoding.of(schema({"type": kind, "lower": 7, "upper": 7}), 32)

    assert codes(encoding, [7, 7]) == [0, 0]
    assert len(encoding.candidates) == 0


def test_equal_bounds_with_missing_split_missing_off() -> None:
    encoding = Encoding.of(
        schema({"type": "numeric", "lower": 7, "upper": 7, "missing": True}), 32
    )

    assert codes(encoding, [7, math.nan]) == [0, 1]
    assert splits(encoding) == [(0, 0, False)]


def test_categories_are_split_one_against_the_rest_and_other_never_alone() -> None:
    encoding = Encoding.of(
        schema({"type": "categorical", "categories": ["a", "b", "c"], "missing": True}),
        32,
    )

    assert encoding.n_codes.tolist() == [5]
    assert codes(encoding, [0, 1, 2, 3, 4], np.int32) == [0, 1, 2, 3, 4]
    assert splits(encoding) == [(0, 0, True), (0, 1, True), (0, 2, True), (0, 4, True)]


@pytest.mark.parametrize(
    ("n_categories", "missing", "expected"),
    [(1, False, 0), (2, False, 1), (1, True, 1), (3, False, 3)],
)
def test_the_same_split_is_offered_once(
    n_categories: int, missing: bool, expected: int
) -> None:
    feature = {
        "type": "categorical",
        "categories": [f"c{i}" for i in range(n_categories)],
        "missing": missing,
    }

    assert len(Encoding.of(schema(feature), 32).candidates) == expected


def test_ordered_categories_are_split_at_thresholds_with_other_at_the_top() -> None:
    feature = {
        "type": "categorical",
        "categories": ["low", "middle", "high"],
        "ordered": True,
        "missing": True,
    }
    encoding = Encoding.of(schema(feature), 32)

    assert splits(encoding) == [(0, 0, False), (0, 1, False), (0, 3, False)]


def test_missing_beside_255_categories_shares_the_code_of_other() -> None:
    feature = {
        "type": "categorical",
        "categories": [f"c{i}" for i in range(255)],
        "missing": True,
    }
    encoding = Encoding.of(schema(feature), 32)

    assert encoding.n_codes.tolist() == [256]
    assert codes(encoding, [0, 254, 255, 256], np.int32) == [0, 254, 255, 255]
    assert len(encoding.candidates) == 255


@given(
    bounds=st.tuples(
        st.floats(-1e308, 1e308, allow_nan=False),
        st.floats(-1e308, 1e308, allow_nan=False),
    ).map(sorted),
    n_bins=st.integers(2, MAX_BINS),
    values=st.lists(st.floats(0, 1), min_size=1, max_size=10),
)
@settings(max_examples=150, deadline=None)
def test_edges_are_ascending_inside_the_bounds_and_codes_monotone(
    bounds: list[float], n_bins: int, values: list[float]
) -> None:
    lower, upper = bounds
    encoding = Encoding.of(
        schema({"type": "numeric", "lower": lower, "upper": upper}), n_bins
    )
    (edges,) = encoding.edges
    inside = sorted(
        float(Fraction(lower) + (Fraction(upper) - Fraction(lower)) * Fraction(value))
        for value in values
    )
    result = codes(encoding, inside)

    assert edges is not None
    assert np.all(np.diff(edges) > 0)
    assert np.all((edges >= lower) & (edges <= upper))
    assert len(edges) <= n_bins - 1
    assert result == sorted(result)
    assert max(result) < encoding.n_codes[0]


def test_encoding_is_record_wise() -> None:
    encoding = Encoding.of(
        schema({"type": "numeric", "lower": 0, "upper": 1, "missing": True}), 16
    )
    values = np.random.default_rng(0).random(200)
    whole = codes(encoding, values.tolist())

    assert [codes(encoding, [value])[0] for value in values] == whole


def _codes_by_numpy(encoding: Encoding, columns: SanitisedColumns) -> NDArray[np.uint8]:
    """The codes of rows in plain NumPy, one column after another."""
    codes = np.empty((len(encoding.edges), columns.n_rows), dtype=np.uint8)
    for row, (feature, values, edges) in enumerate(
        zip(encoding.schema.features, columns.columns, encoding.edges, strict=True)
    ):
        last = int(encoding.n_codes[row]) - 1
        if edges is None:
            codes[row] = np.minimum(values, last)
            continue
        numbers = to_numbers(feature, values)
        codes[row] = np.where(
            np.isnan(numbers), last, np.searchsorted(edges, numbers, side="left")
        )
    return codes


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_rows=st.sampled_from([0, 1, 3, 200, 2**16 + 3]),
    missing=st.booleans(),
)
def test_compiled_codes_are_those_of_a_search_per_column(
    seed: int, n_rows: int, missing: bool
) -> None:
    rng = np.random.default_rng(seed)
    letters = tuple(
        f"c{index}" for index in range(int(rng.choice([1, 2, 40, 254, 255])))
    )
    features = (
        Feature("number", "numeric", lower=-3.0, upper=5.0, missing=missing),
        Feature("constant", "integer", lower=2.0, upper=2.0, missing=missing),
        Feature("letter", "categorical", categories=letters, missing=missing),
        Feature(
            "grade", "categorical", categories=letters, ordered=True, missing=missing
        ),
    )
    grades = np.arange(0.5, len(letters) - 1, 3.0)
    edges = np.unique(rng.uniform(-3.0, 5.0, int(rng.integers(0, 255))))
    encoding = Encoding.with_edges(
        Schema(features, Label("y", ("a", "b"))), (edges, np.empty(0), None, grades)
    )
    numbers = rng.choice(
        np.concatenate([edges, rng.uniform(-3.0, 5.0, 50), [-3.0, 0.0, 5.0]]), n_rows
    )
    constants = np.full(n_rows, 2.0)
    if missing:
        numbers[rng.random(n_rows) < 0.2] = np.nan
        constants[rng.random(n_rows) < 0.2] = np.nan
    categories = rng.integers(
        0, len(letters) + 1 + missing, (2, n_rows), dtype=np.int32
    )
    columns = SanitisedColumns((numbers, constants, *categories), n_rows)
    np.testing.assert_array_equal(
        encoding.encode(columns), _codes_by_numpy(encoding, columns)
    )


def test_the_columns_that_splits_use_have_the_same_codes_in_a_smaller_encoding() -> (
    None
):
    rng = np.random.default_rng(3)
    features = tuple(Feature(f"x{index}", "numeric", upper=1.0) for index in range(5))
    schema = Schema(features, Label("y", ("a", "b")))
    whole = Encoding.of(schema, 8).paired(pairs_of_schema(schema))
    columns = SanitisedColumns(tuple(rng.random((5, 30))), 30)
    for used in ([], [3], [1, 6, 7], [24], list(range(25))):
        smaller, chosen, numbers = whole.of_columns(np.array(used, dtype=np.int64))
        codes = smaller.encode_all(
            SanitisedColumns(tuple(columns.columns[index] for index in chosen), 30)
        )
        np.testing.assert_array_equal(codes[numbers], whole.encode_all(columns)[used])
