"""T3 and T4 for the papers' forests: one row's effect on utilities is bounded, and it
changes no other assignment.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grovekeeper_forests.algorithms.literature import medians
from grovekeeper_forests.algorithms.literature.price import MEDIAN_RANGE_SENSITIVITY
from grovekeeper_forests.trees import tree_growth, tree_price
from grovekeeper_forests.trees.tree_histograms import shards, structure_rows
from tests.privacy.test_sensitivity import ENCODING, row, splits, tree_of

ROWS = st.lists(row, max_size=12)
counts = st.lists(st.integers(0, 2**29), min_size=2, max_size=4)
ids = st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=30)
key = st.binary(min_size=32, max_size=32)


def at(rows: list[tuple[int, ...]], levels: list[tuple[int, int, bool]]) -> object:
    """The rows below the given splits, one split for all nodes of a level."""
    tree = tree_of(rows)
    for depth, (feature, threshold, equals) in enumerate(levels):
        tree.descend(
            feature=np.full(2**depth, feature, dtype=np.int32),
            threshold=np.full(2**depth, threshold, dtype=np.uint8),
            equals=np.full(2**depth, equals, dtype=np.bool_),
        )
    return tree


@given(values=counts, added=st.integers(0, 1))
@settings(max_examples=200, deadline=None)
def test_one_row_raises_the_miscount_by_nothing_or_one(
    values: list[int], added: int
) -> None:
    more = [value + (index == added) for index, value in enumerate(values)]
    before, after = (
        int(tree_growth.miscount(np.array(each, dtype=np.int64)))
        for each in (values, more)
    )

    assert before == sum(values) - max(values)
    assert after - before in (0, 1)


@given(rows=ROWS, added=row, levels=splits)
@settings(max_examples=80, deadline=None)
def test_added_row_lowers_every_miscount_utility_of_one_node_by_at_most_one(
    rows: list[tuple[int, ...]],
    added: tuple[int, ...],
    levels: list[tuple[int, int, bool]],
) -> None:
    more, fewer = (
        tree_growth.split_utilities(
            at(some, levels),
            ENCODING,
            n_nodes=2 ** len(levels),
            utility=tree_price.MISCOUNT,
        )
        for some in ([*rows, added], rows)
    )
    change = more - fewer

    assert change.max(initial=0) <= 0  # monotone: all candidates move in one direction
    assert change.min(initial=0) >= -tree_price.RANGE_SENSITIVITIES[tree_price.MISCOUNT]
    assert np.sum(np.any(change != 0, axis=1)) <= 1


@given(rows=ROWS, added=row, levels=splits, feature=st.integers(0, 2))
@settings(max_examples=120, deadline=None)
def test_added_row_moves_every_evenness_of_one_node_by_exactly_one(
    rows: list[tuple[int, ...]],
    added: tuple[int, ...],
    levels: list[tuple[int, int, bool]],
    feature: int,
) -> None:
    more, fewer = (
        medians.split_evenness(at(some, levels), ENCODING, feature)
        for some in ([*rows, added], rows)
    )
    change = more - fewer
    touched = np.any(change != 0, axis=1)

    assert np.sum(touched) == 1
    assert set(np.abs(change[touched]).ravel().tolist()) == {1}
    assert change.max() - change.min() <= MEDIAN_RANGE_SENSITIVITY


def test_evenness_is_not_monotone_and_uses_up_its_range() -> None:
    """A row above all others raises the splits below it whose upper side was too small,
    and lowers the others.
    """
    rows = [(0, 0, 0, 0, 0)] * 3
    change = (
        medians.split_evenness(tree_of([*rows, (1, 0, 0, 0, 0)]), ENCODING, 0)
        - medians.split_evenness(tree_of(rows), ENCODING, 0)
    )[0]

    assert change.tolist()[:2] == [1, -1]
    assert change.max() - change.min() == MEDIAN_RANGE_SENSITIVITY


def test_evenness_is_that_of_the_rows_on_both_sides() -> None:
    """Against a plain count, split by split."""
    generator = np.random.default_rng(6)
    rows = [
        tuple(
            int(generator.integers(0, size)) for size in (*ENCODING.n_codes.tolist(), 3)
        )
        for _ in range(50)
    ]
    candidates = ENCODING.candidates
    for feature in range(3):
        result = medians.split_evenness(tree_of(rows), ENCODING, feature)[0]
        mine = np.flatnonzero(candidates.feature == feature)
        expected = []
        for index in mine:
            code, equals = (
                int(candidates.threshold[index]),
                bool(candidates.equals[index]),
            )
            left = sum(
                values[feature] == code if equals else values[feature] <= code
                for values in rows
            )
            expected.append(-abs(2 * left - len(rows)))
        assert result.tolist() == expected


def as_array(some: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(some), dtype=np.uint8).reshape(len(some), 16)


@given(key=key, ids=ids, tree=st.integers(0, 1023), data=st.data())
@settings(max_examples=60, deadline=None)
def test_removing_a_row_moves_no_other_between_parts(
    key: bytes, ids: list[bytes], tree: int, data: st.DataObject
) -> None:
    removed = data.draw(st.integers(0, len(ids) - 1))
    whole = structure_rows(key, as_array(ids), tree=tree, share=Fraction(2, 5))
    rest = structure_rows(
        key, np.delete(as_array(ids), removed, axis=0), tree=tree, share=Fraction(2, 5)
    )

    assert whole.dtype == np.bool_
    assert np.array_equal(rest, np.delete(whole, removed))


@pytest.mark.parametrize("share", [Fraction(1, 100), Fraction(1, 2), Fraction(4, 5)])
def test_parts_have_the_stated_share_and_every_tree_parts_anew(share: Fraction) -> None:
    some = np.random.default_rng(1).integers(0, 256, (4_000, 16), dtype=np.uint8)
    one, other = (
        structure_rows(bytes(32), some, tree=tree, share=share) for tree in (0, 1)
    )
    expected = float(share)
    spread = 5 * (expected * (1 - expected) / len(some)) ** 0.5

    assert abs(one.mean() - expected) < spread
    assert (
        abs(np.mean(one & other) - expected**2) < 5 * (expected**2 / len(some)) ** 0.5
    )
    shard = shards(bytes(32), some, n_shards=2)
    assert abs(np.mean(one[shard == 0]) - expected) < 2 * spread


def test_parts_of_shares_near_the_ends() -> None:
    row_id = np.zeros((1, 16), np.uint8)

    assert not structure_rows(bytes(32), row_id, tree=0, share=Fraction(0))
    assert structure_rows(bytes(32), row_id, tree=0, share=Fraction(1))
