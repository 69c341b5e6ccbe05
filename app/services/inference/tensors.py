"""Converts the columns of a model from and to tensors of the Open Inference Protocol.

A number is an ``FP64`` or an ``INT64``, a category or a label a ``BYTES``. Bytes are little-endian. An element of
``BYTES`` is its length as four bytes, and then its UTF-8. A missing value is ``null`` in JSON, NaN among the bytes of
``FP64``, the empty string in ``BYTES``; ``INT64`` has none.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

_PREFIX = struct.Struct("<I")

Cells: TypeAlias = list[Any] | NDArray[np.float64]
"""The values of a column: a list in which ``None`` is a missing value, or numbers of which NaN is one."""


@dataclass(frozen=True)
class Datatype:
    """A datatype of tensors.

    Attributes:
        types: types of values in JSON.
        cells_of_list: cells of values in JSON that have these types.
        cells_of_bytes: cells of so many elements; ``None`` if the bytes are no such tensor.
    """

    types: frozenset[type]
    cells_of_list: Callable[[list[Any]], Cells]
    cells_of_bytes: Callable[[memoryview, int], Cells | None]


def _numbers(dtype: str) -> Callable[[memoryview, int], Cells | None]:
    def cells(content: memoryview, n_rows: int) -> Cells | None:
        return np.frombuffer(content, dtype=dtype).astype(np.float64) if len(content) == 8 * n_rows else None

    return cells


def _strings(content: memoryview, n_rows: int) -> Cells | None:
    cells: list[Any] = []
    position = 0
    for _ in range(n_rows):
        if position + _PREFIX.size > len(content):
            return None
        (length,) = _PREFIX.unpack_from(content, position)
        position += _PREFIX.size
        if position + length > len(content):
            return None
        try:
            cells.append(str(content[position : position + length], "utf-8") or None)
        except UnicodeDecodeError:
            return None
        position += length
    return cells if position == len(content) else None


DATATYPES: Mapping[str, Datatype] = {
    "FP64": Datatype(frozenset({int, float, type(None)}), list, _numbers("<f8")),
    "INT64": Datatype(frozenset({int, type(None)}), list, _numbers("<i8")),
    "BYTES": Datatype(frozenset({str, type(None)}), lambda cells: [cell or None for cell in cells], _strings),
}


def bytes_of_strings(values: Sequence[str]) -> bytes:
    """The bytes of a ``BYTES`` tensor."""
    encoded = [value.encode("utf-8") for value in values]
    return b"".join(part for value in encoded for part in (_PREFIX.pack(len(value)), value))


def bytes_of_numbers(values: NDArray[np.float64]) -> bytes:
    """The bytes of an ``FP64`` tensor, row by row."""
    return values.astype("<f8").tobytes()
