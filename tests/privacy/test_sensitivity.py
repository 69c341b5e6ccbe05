"""T4: the effect of one row on the production histograms and utilities."""

import itertools
from fractions import Fraction
from math import floor

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.data.coded_rows import CodedPart
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.trees.tree_growth import (
    class_shares,
    count_gini,
    normalised,
    split_utilities,
)
from grovekeeper_forests.trees.tree_histograms import (
    Assignment,
    LocalHistograms,
    TreeHistograms,
)
from grovekeeper_forests.trees.tree_price import (
    BITS,
    GINI_RANGE_SENSITIVITY,
    NORMALISED_RANGE_SENSITIVITY,
    SHARE_RANGE_SENSITIVITY,
)
from tests.support.schemas import schema_of

SCHEMA = schema_of(
    {"name": "height", "type": "numeric", "lower": 0, "upper": 1, "missing": True},
    {
        "name": "colour",
        "type": "categorical",
        "categories": ["a", "b", "c"],
        "missing": True,
    },
    {
        "name": "grade",
        "type": "categorical",
        "categories": ["low", "middle", "high"],
        "ordered": True,
    },
    {"name": "constant", "type": "integer", "lower": 3, "upper": 3},
    classes=["x", "y", "z"],
)
ENCODING = Encoding.of(SCHEMA, 5)

counts = st.lists(st.integers(0, 2**29), min_size=2, max_size=3)
row = st.tuples(
    *(st.integers(0, int(n) - 1) for n in ENCODING.n_codes), st.integers(0, 2)
)


def exact_gini(values: list[int]) -> int:
    n = sum(values)
    return (
        floor(Fraction(2**BITS * (n * n - sum(value * value for value in values)), n))
        if n
        else 0
    )


def gini(values: list[int]) -> int:
    return int(count_gini(np.array(values, dtype=np.int64)))


@given(values=counts)
@settings(max_examples=300, deadline=None)
def test_count_gini_is_exact_for_every_admitted_number_of_rows(
    values: list[int],
) -> None:
    assert sum(values) <= forest_limits.MAX_ROWS_PER_DATASET
    assert gini(values) == exact_gini(values)


def test_count_gini_is_exact_at_the_largest_dataset() -> None:
    most = forest_limits.MAX_ROWS_PER_DATASET
    for values in (
        [most, 0],
        [most - 1, 1],
        [most // 2, most - most // 2],
        [1, most - 1],
        [0, 0],
        [1, 0],
    ):
        assert gini(values) == exact_gini(values)


@given(values=counts, added=st.integers(0, 1))
@settings(max_examples=300, deadline=None)
def test_one_row_raises_the_count_gini_by_at_most_its_range(
    values: list[int], added: int
) -> None:
    more = [value + (index == added) for index, value in enumerate(values)]

    assert 0 <= gini(more) - gini(values) <= GINI_RANGE_SENSITIVITY


def test_the_range_of_the_count_gini_is_used_up() -> None:
    """A row of a new class in a large pure node reaches the bound, so the bound is
    tight.
    """
    assert gini([100_000, 1]) - gini([100_000, 0]) == GINI_RANGE_SENSITIVITY - 1


def test_every_small_count_vector_keeps_the_range() -> None:
    for first in range(40):
        for second in range(40):
            for more in ([first + 1, second], [first, second + 1]):
                assert 0 <= gini(more) - gini([first, second]) <= GINI_RANGE_SENSITIVITY


def test_one_row_moves_two_class_shares_against_each_other_by_at_most_their_range() -> (
    None
):
    """Lemma M2, floors included, over every small leaf of two and of three classes; the
    first row uses up the range.
    """
    leaves = [
        *itertools.product(range(60), repeat=2),
        *itertools.product(range(12), repeat=3),
    ]
    ranges = []
    for values in leaves:
        for added in range(len(values)):
            more = [value + (index == added) for index, value in enumerate(values)]
            change = class_shares(np.array(more)) - class_shares(np.array(values))
            ranges.append(int(change.max() - change.min()))

    assert max(ranges) == SHARE_RANGE_SENSITIVITY
    assert class_shares(np.array([0, 0])).tolist() == [0, 0]
    assert class_shares(np.array([[2**31 - 2, 1], [1, 2]])).tolist() == [
        [2**BITS - 1, 0],
        [2**BITS // 3, 170],
    ]


@given(values=st.lists(st.integers(-(2**41), 2**41), min_size=1, max_size=6))
@example(values=[0, 1])
@settings(max_examples=300, deadline=None)
def test_normalised_utilities_are_exact_and_stay_within_their_range(
    values: list[int],
) -> None:
    low, width = min(values), max(values) - min(values)
    exact = [
        floor(Fraction(2**BITS * (value - low), width)) if width else 0
        for value in values
    ]

    assert normalised(np.array(values, dtype=np.int64)).tolist() == exact
    assert 2 * max(exact) <= NORMALISED_RANGE_SENSITIVITY


def tree_of(rows: list[tuple[int, ...]]) -> TreeHistograms:
    """The rows (codes and class) in one tree, at its root."""
    table = np.array(rows, dtype=np.int32).reshape(len(rows), len(ENCODING.n_codes) + 1)
    X = np.ascontiguousarray(table[:, :-1].T.astype(np.uint8))
    return LocalHistograms(
        CodedPart(ENCODING, X, table[:, -1].copy(), None), Assignment()
    ).of_tree(0)


def utilities(
    rows: list[tuple[int, ...]], levels: list[tuple[int, int, bool]]
) -> np.ndarray:
    """Utilities of all candidates in all nodes below the given splits (one split for
    all nodes of a level).
    """
    tree = tree_of(rows)
    for depth, (feature, threshold, equals) in enumerate(levels):
        n_nodes = 2**depth
        tree.descend(
            feature=np.full(n_nodes, feature, dtype=np.int32),
            threshold=np.full(n_nodes, threshold, dtype=np.uint8),
            equals=np.full(n_nodes, equals, dtype=np.bool_),
        )
    return split_utilities(tree, ENCODING, n_nodes=2 ** len(levels))


splits = st.lists(
    st.sampled_from([(0, 2, False), (1, 0, True), (1, 3, True), (2, 1, False)]),
    min_size=0,
    max_size=2,
)


@given(rows=st.lists(row, max_size=12), added=row, levels=splits)
@settings(max_examples=150, deadline=None)
def test_added_row_lowers_the_utilities_of_one_node_by_at_most_the_range(
    rows: list[tuple[int, ...]],
    added: tuple[int, ...],
    levels: list[tuple[int, int, bool]],
) -> None:
    change = utilities([*rows, added], levels) - utilities(rows, levels)

    assert change.max(initial=0) <= 0  # monotone: all candidates move in one direction
    assert change.min(initial=0) >= -GINI_RANGE_SENSITIVITY
    # only the node that the row reaches
    assert np.sum(np.any(change != 0, axis=1)) <= 1


@given(rows=st.lists(row, max_size=12), removed=row, added=row)
@settings(max_examples=100, deadline=None)
def test_replaced_row_spreads_the_utilities_by_at_most_twice_the_range(
    rows: list[tuple[int, ...]], removed: tuple[int, ...], added: tuple[int, ...]
) -> None:
    change = utilities([*rows, added], []) - utilities([*rows, removed], [])

    assert change.max() - change.min() <= 2 * GINI_RANGE_SENSITIVITY


def test_utilities_are_those_of_the_rows_on_both_sides() -> None:
    """Against a plain count, candidate by candidate."""
    generator = np.random.default_rng(5)
    sizes = [*ENCODING.n_codes.tolist(), 3]
    rows = [
        tuple(int(generator.integers(0, size)) for size in sizes) for _ in range(60)
    ]
    computed = utilities(rows, [])[0]

    candidates = ENCODING.candidates
    for index in range(len(candidates)):
        feature, threshold = (
            int(candidates.feature[index]),
            int(candidates.threshold[index]),
        )
        sides: tuple[list[int], list[int]] = ([0, 0, 0], [0, 0, 0])
        for values in rows:
            value = values[feature]
            sides[
                value != threshold if candidates.equals[index] else value > threshold
            ][values[-1]] += 1
        assert computed[index] == -exact_gini(sides[0]) - exact_gini(sides[1])


@given(rows=st.lists(row, max_size=12), added=row)
@settings(max_examples=100, deadline=None)
def test_added_row_adds_one_to_one_leaf_count(
    rows: list[tuple[int, ...]], added: tuple[int, ...]
) -> None:
    def leaves(some: list[tuple[int, ...]]) -> np.ndarray:
        tree = tree_of(some)
        tree.descend(
            feature=np.array([1], dtype=np.int32),
            threshold=np.array([2], dtype=np.uint8),
            equals=np.array([True]),
        )
        return tree.leaf_histogram()

    change = leaves([*rows, added]) - leaves(rows)

    assert sorted(change.ravel().tolist()) == [0] * 5 + [1]
    assert change[int(added[1] != 2), added[-1]] == 1
