"""Which stored column tells the cell of a row.

A hash cell, and the value of a column that is no feature, are stored with the row. A partition by a feature reads the
feature itself, and the uploads are files of their own. Whatever a stored number is, the row is in exactly one cell.
"""

from dataclasses import dataclass

from app.forests.data.schema import Feature
from app.privacy.composition import ColumnPartition, HashPartition, Partitions

CELL_COLUMN = "cell"


@dataclass(frozen=True)
class StoredColumn:
    """A column of a row file that exists for a partition alone: int32, never null."""

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
    """The partitions whose column an upload brings beside the features and the label, in declared order."""
    stored = (column.partition for column in stored_columns(partitions))
    return [partition for partition in stored if isinstance(partition, ColumnPartition)]


def as_feature(partition: ColumnPartition) -> Feature:
    """A column partition's own column, read by the rules of a categorical feature: the same codes, the same OTHER."""
    return Feature(partition.column, "categorical", categories=partition.categories, missing=partition.has_missing)
