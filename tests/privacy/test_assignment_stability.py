"""T3: no row's tree, part or layer depends on another row."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from grovekeeper_forests.trees.tree_histograms import (
    KEY_BYTES,
    fresh_key,
    shards,
    structure_rows,
)

keys = st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES)
row_ids = st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=40)


def as_array(ids: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(ids), dtype=np.uint8).reshape(len(ids), 16)


@given(key=keys, ids=row_ids, n_shards=st.integers(1, 64), data=st.data())
@settings(max_examples=100, deadline=None)
def test_removing_a_row_moves_no_other(
    key: bytes, ids: list[bytes], n_shards: int, data: st.DataObject
) -> None:
    removed = data.draw(st.integers(0, len(ids) - 1))
    whole = shards(key, as_array(ids), n_shards=n_shards)
    rest = shards(key, np.delete(as_array(ids), removed, axis=0), n_shards=n_shards)

    assert np.array_equal(rest, np.delete(whole, removed))
    assert whole.dtype == np.int64
    assert whole.min() >= 0
    assert whole.max() < n_shards


@given(key=keys, ids=row_ids, n_shards=st.integers(1, 64), data=st.data())
@settings(max_examples=50, deadline=None)
def test_order_of_rows_does_not_matter(
    key: bytes, ids: list[bytes], n_shards: int, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(ids))))

    assert np.array_equal(
        shards(key, as_array(ids)[order], n_shards=n_shards),
        shards(key, as_array(ids), n_shards=n_shards)[order],
    )


def test_no_rows_have_no_shards() -> None:
    assert (
        len(shards(bytes(KEY_BYTES), np.empty((0, 16), dtype=np.uint8), n_shards=4))
        == 0
    )


def test_rows_spread_over_all_shards_and_another_key_spreads_them_otherwise() -> None:
    ids = np.random.default_rng(0).integers(0, 256, (4_000, 16), dtype=np.uint8)
    one, other = (
        shards(key, ids, n_shards=8) for key in (bytes(KEY_BYTES), b"\1" * KEY_BYTES)
    )

    for found in (one, other):
        assert np.all(np.abs(np.bincount(found, minlength=8) - 500) < 120)
    assert 350 < np.sum(one == other) < 650


def test_a_key_is_32_uniform_bytes() -> None:
    class Counting:
        drawn = 0

        def uniform(self, n: int) -> int:
            assert n == 256
            self.drawn += 1
            return self.drawn

    assert fresh_key(Counting()) == bytes(range(1, KEY_BYTES + 1))


@given(
    ids=st.lists(
        st.binary(min_size=16, max_size=16), min_size=2, max_size=30, unique=True
    ),
    data=st.data(),
)
@settings(max_examples=50, deadline=None)
def test_removing_a_row_moves_no_other_between_layers_trees_and_parts(
    ids: list[bytes], data: st.DataObject
) -> None:
    """Growth separates rows by layer, then by tree, then by part of a tree; the keys
    are fixed.
    """
    removed = data.draw(st.integers(0, len(ids) - 1))
    rest = ids[:removed] + ids[removed + 1 :]

    assert places(rest) == {
        row_id: place for row_id, place in places(ids).items() if row_id != ids[removed]
    }


def places(ids: list[bytes]) -> dict[bytes, tuple[int, int, bool]]:
    """Layer, tree and part of every row, as growth computes them."""
    one, other, third = (bytes([byte]) * KEY_BYTES for byte in (1, 2, 3))
    layer, tree = (
        shards(one, as_array(ids), n_shards=2),
        shards(other, as_array(ids), n_shards=3),
    )
    results = {}
    for row, row_id in enumerate(ids):
        mine = np.flatnonzero((layer == layer[row]) & (tree == tree[row]))
        part = structure_rows(
            third, as_array(ids)[mine], tree=int(tree[row]), share=Fraction(1, 2)
        )
        results[row_id] = (
            int(layer[row]),
            int(tree[row]),
            bool(part[np.flatnonzero(mine == row)[0]]),
        )
    return results


def test_every_tree_parts_the_rows_anew() -> None:
    """If all trees used one division, the forest would never choose a split by the rows
    of the other part.
    """
    ids = as_array([number.to_bytes(16) for number in range(200)])
    first, second = (
        structure_rows(bytes(KEY_BYTES), ids, tree=tree, share=Fraction(1, 2))
        for tree in (0, 1)
    )

    assert 60 < np.count_nonzero(first) < 140
    assert 60 < np.count_nonzero(first ^ second) < 140
