"""T4 and lemma R1: the effect of one record on the reweighted forest's production
histograms and weights.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grovekeeper_forests.algorithms.rpf import grow, reweighted_rows
from grovekeeper_forests.algorithms.rpf.grow import split_utilities
from grovekeeper_forests.algorithms.rpf.reweighted_rows import LocalReweightedRows
from grovekeeper_forests.data.encoding import Encoding, pairs_of_schema
from grovekeeper_forests.kernels.boosting import UNIT
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
    classes=["x", "y", "z"],
)
ENCODING = Encoding.of(SCHEMA, 5).paired(pairs_of_schema(SCHEMA))
N_FEATURES = len(SCHEMA.features)
SPLITS = [(0, 2, False), (1, 0, True), (1, 3, True), (4, 5, False)]

Row = tuple[int, ...]
row = st.tuples(
    *(st.integers(0, int(n) - 1) for n in ENCODING.n_own_codes), st.integers(0, 2)
)
levels = st.lists(st.sampled_from(SPLITS), max_size=2)
scores = st.lists(
    st.lists(st.integers(-300_000, 300_000), min_size=3, max_size=3),
    min_size=2,
    max_size=2,
)


def weighted(rows: list[Row], first_tree: list[list[int]]) -> LocalReweightedRows:
    """Rows after a released tree of one split at colour a."""
    table = np.array(rows, dtype=np.int32).reshape(len(rows), N_FEATURES + 1)
    X = np.ascontiguousarray(table[:, :-1].T.astype(np.uint8))
    held = LocalReweightedRows(
        X,
        table[:, -1].copy(),
        n_codes=ENCODING.n_codes,
        n_classes=3,
        pairs=ENCODING.pairs,
    )
    descend(held, [(1, 0, True)])
    held.finish_tree(np.array(first_tree, dtype=np.int32))
    return held


def descend(rows: LocalReweightedRows, path: list[tuple[int, int, bool]]) -> None:
    for depth, (feature, threshold, equals) in enumerate(path):
        n_nodes = 2**depth
        rows.descend(
            feature=np.full(n_nodes, feature, dtype=np.int32),
            threshold=np.full(n_nodes, threshold, dtype=np.uint8),
            equals=np.full(n_nodes, equals, dtype=np.bool_),
        )


def utilities(
    rows: list[Row], first_tree: list[list[int]], path: list[tuple[int, int, bool]]
) -> np.ndarray:
    """The utility of every candidate and of a stop, in all nodes below the given
    splits.
    """
    weighted_rows = weighted(rows, first_tree)
    descend(weighted_rows, path)
    splitting, stopping = split_utilities(
        weighted_rows, ENCODING, np.arange(2 ** len(path), dtype=np.int32)
    )
    return np.column_stack((splitting, stopping))


@given(rows=st.lists(row, max_size=12), added=row, first_tree=scores, path=levels)
@settings(max_examples=200, deadline=None)
def test_added_record_raises_the_utilities_of_one_node_by_at_most_a_row(
    rows: list[Row],
    added: Row,
    first_tree: list[list[int]],
    path: list[tuple[int, int, bool]],
) -> None:
    change = utilities([*rows, added], first_tree, path) - utilities(
        rows, first_tree, path
    )

    assert change.min(initial=0) >= 0  # monotone: all candidates move in one direction
    assert change.max(initial=0) <= UNIT
    # only the node that the record reaches
    assert np.sum(np.any(change != 0, axis=1)) <= 1
    # and also for one split of a whole level
    assert change.sum(axis=0).max(initial=0) <= UNIT


def utilities_of_two(
    rows: list[Row], first_tree: list[list[int]], path: list[tuple[int, int, bool]]
) -> np.ndarray:
    """The utility of every two candidates, summed over all nodes below the given
    splits.
    """
    weighted_rows = weighted(rows, first_tree)
    descend(weighted_rows, path)
    computed = grow.joint_utilities(
        weighted_rows, ENCODING, len(ENCODING.n_codes), n_nodes=2 ** len(path)
    )
    return computed[np.triu_indices(len(computed), 1)]


@given(rows=st.lists(row, max_size=12), added=row, first_tree=scores, path=levels)
@settings(max_examples=100, deadline=None)
def test_added_record_raises_the_utilities_of_two_splits_by_at_most_a_row(
    rows: list[Row],
    added: Row,
    first_tree: list[list[int]],
    path: list[tuple[int, int, bool]],
) -> None:
    change = utilities_of_two([*rows, added], first_tree, path) - utilities_of_two(
        rows, first_tree, path
    )

    assert change.min() >= 0
    assert change.max() <= UNIT


def test_utility_of_two_splits_is_that_of_the_second_below_the_first() -> None:
    generator = np.random.default_rng(4)
    sizes = [*ENCODING.n_own_codes.tolist(), 3]
    rows = [
        tuple(int(generator.integers(0, size)) for size in sizes) for _ in range(60)
    ]
    flat, candidates = [[0, 0, 0], [0, 0, 0]], ENCODING.candidates
    weighted_rows = weighted(rows, flat)
    computed = grow.joint_utilities(
        weighted_rows, ENCODING, len(ENCODING.n_codes), n_nodes=1
    )
    for first in range(len(candidates)):
        split = (
            candidates.feature[first],
            candidates.threshold[first],
            candidates.equals[first],
        )
        below = utilities(rows, flat, [tuple(part.item() for part in split)])[
            :, :-1
        ].sum(axis=0)
        assert np.array_equal(computed[first, first + 1 :], below[first + 1 :])


@given(rows=st.lists(row, max_size=12), removed=row, added=row, first_tree=scores)
@settings(max_examples=100, deadline=None)
def test_replaced_record_spreads_the_utilities_by_at_most_two_rows(
    rows: list[Row], removed: Row, added: Row, first_tree: list[list[int]]
) -> None:
    change = utilities([*rows, added], first_tree, []) - utilities(
        [*rows, removed], first_tree, []
    )

    assert change.max() - change.min() <= 2 * UNIT


def test_the_whole_range_is_used_up() -> None:
    rows = [(0, 0, 0, 0)] * 40
    flat = [[0, 0, 0], [0, 0, 0]]

    assert (
        utilities([*rows, rows[0]], flat, []) - utilities(rows, flat, [])
    ).max() == UNIT


@given(rows=st.lists(row, max_size=12), added=row, first_tree=scores)
@settings(max_examples=100, deadline=None)
def test_added_record_raises_one_weight_of_one_leaf_by_at_most_a_row(
    rows: list[Row], added: Row, first_tree: list[list[int]]
) -> None:
    def leaves(some: list[Row]) -> np.ndarray:
        weighted_rows = weighted(some, first_tree)
        descend(weighted_rows, [(0, 1, False)])
        return weighted_rows.leaf_histogram()

    change = leaves([*rows, added]) - leaves(rows)

    assert np.count_nonzero(change) <= 1
    assert 0 <= change.sum() <= UNIT


@pytest.fixture(scope="module")
def many() -> tuple[list[Row], list[np.ndarray]]:
    generator = np.random.default_rng(8)
    sizes = [*ENCODING.n_own_codes.tolist(), 3]
    rows = [
        tuple(int(generator.integers(0, size)) for size in sizes) for _ in range(400)
    ]
    trees = [
        generator.integers(-150_000, 150_000, (4, 3), dtype=np.int32) for _ in range(6)
    ]
    return rows, trees


def weights_of(rows: list[Row], trees: list[np.ndarray]) -> np.ndarray:
    """Weights after six released trees of two levels."""
    table = np.array(rows, dtype=np.int32)
    X = np.ascontiguousarray(table[:, :-1].T.astype(np.uint8))
    held = LocalReweightedRows(
        X,
        table[:, -1].copy(),
        n_codes=ENCODING.n_codes,
        n_classes=3,
        pairs=ENCODING.pairs,
    )
    for index, tree in enumerate(trees):
        descend(held, [SPLITS[index % 4], SPLITS[(index + 1) % 4]])
        held.finish_tree(tree)
    return held._weight


def test_every_other_row_keeps_its_weight_when_rows_leave(
    many: tuple[list[Row], list[np.ndarray]],
) -> None:
    rows, trees = many
    whole = weights_of(rows, trees)
    generator = np.random.default_rng(1)

    assert len(np.unique(whole)) > 5  # otherwise the test would prove nothing
    for _ in range(20):
        indices = np.flatnonzero(generator.random(len(rows)) < generator.random())
        if len(indices):
            assert np.array_equal(
                weights_of([rows[i] for i in indices], trees), whole[indices]
            )


def test_order_and_batches_of_rows_do_not_matter(
    many: tuple[list[Row], list[np.ndarray]],
) -> None:
    rows, trees = many
    whole = weights_of(rows, trees)
    order = np.random.default_rng(2).permutation(len(rows))
    in_parts = np.concatenate(
        [weights_of(rows[start : start + 7], trees) for start in range(0, len(rows), 7)]
    )

    assert np.array_equal(weights_of([rows[i] for i in order], trees), whole[order])
    assert np.array_equal(in_parts, whole)


def test_sums_over_parts_of_the_rows_are_the_sums_over_all(
    many: tuple[list[Row], list[np.ndarray]],
) -> None:
    rows, trees = many
    first = trees[0][:2].tolist()
    nodes = np.array([0], dtype=np.int32)
    whole = weighted(rows, first).class_histogram(slice(0, 5), nodes)
    parts = [
        weighted(rows[start : start + 90], first).class_histogram(slice(0, 5), nodes)
        for start in range(0, 400, 90)
    ]

    assert np.array_equal(sum(parts), whole)


def test_sums_onto_those_of_other_parts_hold_where_columns_are_counted_in_slabs(
    many: tuple[list[Row], list[np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, trees = many
    first = trees[0][:2].tolist()
    nodes = np.array([0], dtype=np.int32)
    whole = weighted(rows, first).class_histogram(slice(0, 5), nodes)
    monkeypatch.setattr(reweighted_rows, "_SLAB", 2)
    sums = None
    for start in range(0, 400, 90):
        part = weighted(rows[start : start + 90], first)
        sums = part.class_histogram(slice(0, 5), nodes, sums)

    assert np.array_equal(sums, whole)
