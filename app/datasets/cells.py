"""Assigns rows to the cells of partitions, and names the stored columns that hold these cells.

A row gets the cell of a hash partition by a keyed hash of its id. The assignment is stable (lemma L5 in
docs/proofs/lemmas.md): adding or removing a row moves no other row, as an assignment by position, shuffle or size
would.

Cells of hash partitions and of columns that are no feature are stored in columns of their own. A partition by a feature
reads the feature's column, and a partition by upload needs none, because an upload is a file. Whatever a stored number
is, the row is in exactly one cell.
"""

import hmac
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.core.sealed_files import DataKey
from app.forests.data.schema import Feature
from app.privacy.composition import ColumnPartition, HashPartition, Partitions

ROW_ID_BYTES = 16
_KEY_BYTES = 32
_DIGESTS = b"grovekeeper/row-digests/1"

CELL_COLUMN = "cell"


def digest_key(key: DataKey) -> bytes:
    """The secret that keys the hash partitions of a dataset and the ids of its units."""
    return key.derived(_DIGESTS)


def hash_keys(partitions: Partitions, *, dataset_key: bytes) -> dict[str, bytes]:
    """The key of every hash partition: HMAC-SHA256(dataset key, name of the partition).

    With one key for all partitions, their cells would depend on one another.
    """
    names = [partition.name for partition in partitions.declared if isinstance(partition, HashPartition)]
    return {name: hmac.digest(dataset_key, name.encode("utf-8"), "sha256") for name in names}


def hash_cells(row_ids: bytes, *, partition: HashPartition, dataset_key: bytes) -> "NDArray[np.int32]":
    """The cell of every row: HMAC-SHA256(dataset key, row id), read as a big-endian integer, modulo k.

    The whole 256-bit digest is reduced, so the shares of two cells differ by less than 2⁻²⁴⁶.

    Args:
        row_ids: PRIVATE; the ids one after another, 16 bytes each.
        partition: public.
        dataset_key: secret; made at declaration, never part of an answer.

    Returns:
        int32 ``(n_rows,)``, PRIVATE.

    Raises:
        ValueError: the key or the ids do not have their fixed length.
    """
    if len(dataset_key) != _KEY_BYTES:
        raise ValueError(f"a dataset key has {_KEY_BYTES} bytes")
    n_rows, rest = divmod(len(row_ids), ROW_ID_BYTES)
    if rest:
        raise ValueError(f"a row id has {ROW_ID_BYTES} bytes")
    digest, read, k = hmac.digest, int.from_bytes, partition.cells
    starts = range(0, len(row_ids), ROW_ID_BYTES)
    cells = (read(digest(dataset_key, row_ids[at : at + ROW_ID_BYTES], "sha256"), "big") % k for at in starts)
    return np.fromiter(cells, dtype=np.int32, count=n_rows)


@dataclass(frozen=True)
class StoredColumn:
    """A column of a row file that only holds a partition's cells: int32, never null."""

    name: str
    partition: HashPartition | ColumnPartition


def stored_columns(partitions: Partitions) -> list[StoredColumn]:
    """``cell``, ``cell1``, ``cell2`` … for the partitions that need a column of their own, in declared order."""
    needed = [
        partition
        for partition in partitions.declared
        if isinstance(partition, HashPartition) or (isinstance(partition, ColumnPartition) and not partition.is_feature)
    ]
    return [StoredColumn(f"{CELL_COLUMN}{index or ''}", partition) for index, partition in enumerate(needed)]


def own_column_partitions(partitions: Partitions) -> list[ColumnPartition]:
    """The partitions by a column that is neither a feature nor the label, in declared order."""
    stored = (column.partition for column in stored_columns(partitions))
    return [partition for partition in stored if isinstance(partition, ColumnPartition)]


def as_feature(partition: ColumnPartition) -> Feature:
    """A column partition as a categorical feature, so that its column is read by the rules of features."""
    return Feature(partition.column, "categorical", categories=partition.categories, missing=partition.has_missing)
