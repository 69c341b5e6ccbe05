"""Selects the stored rows that lie in a box, the set of joint cells of a job's scope."""

import math
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.datasets import row_layout
from app.datasets.partition_columns import as_feature, stored_columns
from app.forests.data.sanitiser import sanitise_codes
from app.forests.data.schema import Feature, Schema
from app.privacy.composition import ColumnPartition, HashPartition, Partitions, Scope

Element = TypeVar("Element", np.int32, np.float64)


def _scalar(value: np.int32 | np.float64) -> pa.Scalar:
    """A scalar of Arrow. ``pa.scalar`` imports pandas where it is installed: 0.2 s of CPU in each child of a job."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(value.dtype), 1, [None, pa.py_buffer(value.tobytes())])[0]


_NO_CODE, _NAN = _scalar(np.int32(-1)), _scalar(np.float64(math.nan))


class Box:
    """Tests whether rows lie in a box, each row by its own cells alone (lemma L6 in docs/proofs/lemmas.md)."""

    def __init__(self, schema: Schema, partitions: Partitions, scope: Scope) -> None:
        """Finds the stored column of every partition that the scope restricts. Epochs are files: the caller picks them.

        Args:
            schema: public.
            partitions: public; as declared.
            scope: public; a box in normal form.

        Raises:
            ValueError: a partition or a cell that was not declared.
        """
        self._tests: list[tuple[str, Feature | None, NDArray[np.int32]]] = []
        declared = {partition.name: partition for partition in partitions.declared}
        stored = {column.partition.name: column.name for column in stored_columns(partitions)}
        if not scope.keys() <= declared.keys():
            raise ValueError("the declaration has no such partition")
        for name, cells in scope.items():
            partition = declared[name]
            if not all(map(partition.is_cell, cells)):
                raise ValueError("the declaration has no such cell")
            if isinstance(partition, HashPartition):
                self._tests.append((stored[name], None, np.array(cells, dtype=np.int32)))
            elif isinstance(partition, ColumnPartition):
                codes = np.array([partition.listed_cells.index(str(cell)) for cell in cells], dtype=np.int32)
                column, feature = stored.get(name, ""), as_feature(partition)
                if partition.is_feature:
                    index = [declared.name for declared in schema.features].index(partition.column)
                    column, feature = row_layout.feature_column(index), schema.features[index]
                self._tests.append((column, feature, codes))

    @property
    def columns(self) -> list[str]:
        """The stored columns that :meth:`covers` reads."""
        return [column for column, _, _ in self._tests]

    def covers(self, table: pa.Table) -> NDArray[np.bool_]:
        """A PRIVATE mask of the rows of a table that lie in the box."""
        covered = np.ones(table.num_rows, dtype=np.bool_)
        for column, feature, selected in self._tests:
            codes = integers(table.column(column))
            covered &= np.isin(codes if feature is None else sanitise_codes(feature, codes), selected)
        return covered


def integers(stored: pa.ChunkedArray) -> NDArray[np.int32]:
    """A column of integers. A null, which only a damaged file has, becomes −1: no declared code, class or cell."""
    return _without_nulls(pc.fill_null(stored, _NO_CODE), np.int32)


def numbers(stored: pa.ChunkedArray) -> NDArray[np.float64]:
    """A column of numbers; a null becomes NaN."""
    return _without_nulls(pc.fill_null(stored, _NAN), np.float64)


def _without_nulls(stored: pa.ChunkedArray, dtype: type[Element]) -> NDArray[Element]:
    """The values of a column. ``ChunkedArray.to_numpy`` imports pandas where it is installed."""
    chunks: list[NDArray[Element]] = [
        np.frombuffer(chunk.buffers()[1], dtype=dtype, count=len(chunk), offset=chunk.offset * np.dtype(dtype).itemsize)
        for chunk in stored.chunks
        if len(chunk)
    ]
    return chunks[0] if len(chunks) == 1 else np.concatenate([np.empty(0, dtype=dtype), *chunks])
