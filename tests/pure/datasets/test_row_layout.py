"""Tests that a hash cell is a keyed function of one row's id."""

import hashlib
import hmac
import os

import numpy as np
import pytest

from app.datasets.row_layout import hash_cells
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.privacy.partitions import HashPartition

KEY = bytes(range(32))


def test_a_cell_is_the_hmac_of_the_id_modulo_k():
    ids = [os.urandom(16) for _ in range(50)]
    by_hand = [
        int(hmac.new(KEY, row_id, hashlib.sha256).hexdigest(), 16) % 7 for row_id in ids
    ]
    cells = hash_cells(
        b"".join(ids), partition=HashPartition("shard", 7), dataset_key=KEY
    )
    assert cells.tolist() == by_hand
    assert cells.dtype == np.int32


def test_stored_cells_keep_their_meaning():
    """These cells are stored in files, so they never change."""
    cells = hash_cells(
        bytes(16) + bytes([255] * 16),
        partition=HashPartition("shard", 1024),
        dataset_key=KEY,
    )
    assert cells.tolist() == [312, 300]


def test_removing_a_row_moves_no_other_row():
    partition = HashPartition("shard", 13)
    ids = [os.urandom(16) for _ in range(20)]
    together = hash_cells(b"".join(ids), partition=partition, dataset_key=KEY).tolist()
    without_first = hash_cells(
        b"".join(ids[1:]), partition=partition, dataset_key=KEY
    ).tolist()
    assert together[1:] == without_first


def test_another_key_gives_other_cells():
    ids, partition = os.urandom(16 * 200), HashPartition("shard", 1024)
    one = hash_cells(ids, partition=partition, dataset_key=KEY)
    other = hash_cells(ids, partition=partition, dataset_key=bytes(32))
    assert (one != other).any()


def test_rows_are_spread_evenly_over_cells():
    ids = b"".join(index.to_bytes(16, "big") for index in range(20_000))
    counts = np.bincount(
        hash_cells(ids, partition=HashPartition("shard", 10), dataset_key=KEY),
        minlength=10,
    )
    # Six standard deviations of a binomial count with p = 1/10; the ids are fixed, so
    # the result is, too.
    assert np.abs(counts - 2_000).max() < 6 * 42.5


def test_no_rows_have_no_cells():
    assert hash_cells(
        b"", partition=HashPartition("shard", 3), dataset_key=KEY
    ).shape == (0,)


@pytest.mark.parametrize("cells", [0, -1, forest_limits.MAX_HASH_CELLS + 1])
def test_a_number_of_cells_outside_the_limits_is_refused(cells):
    with pytest.raises(ValueError, match="hash partition"):
        HashPartition("shard", cells)


@pytest.mark.parametrize("key", [b"", KEY[:31], KEY + b"x"])
def test_a_key_of_another_length_is_refused(key):
    with pytest.raises(ValueError, match="dataset key"):
        hash_cells(bytes(16), partition=HashPartition("shard", 3), dataset_key=key)


def test_an_incomplete_id_is_refused():
    with pytest.raises(ValueError, match="row id"):
        hash_cells(bytes(24), partition=HashPartition("shard", 3), dataset_key=KEY)
