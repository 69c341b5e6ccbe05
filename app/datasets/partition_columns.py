"""Maps partitions to the stored columns that hold each row's cell.

Cells of hash partitions and of columns that are no feature are stored in columns of their own. A partition by a feature
reads the feature's column, and a partition by upload needs none, because an upload is a file. Whatever a stored number
is, the row is in exactly one cell.
"""

from dataclasses import dataclass

from app.forests.data.schema import Feature
from app.privacy.composition import ColumnPartition, HashPartition, Partitions

CELL_COLUMN = "cell"


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
