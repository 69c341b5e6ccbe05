"""Converts arrays of Arrow to NumPy.

The conversions of pyarrow itself first search for pandas, which costs time and opens
files.
"""

from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from grovekeeper_forests.array_types import BoolArray, Float64Array

_SECONDS = 86_400
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

Number = TypeVar("Number", bound=np.generic)


def has_text(kind: pa.DataType) -> bool:
    """Whether the cells of a column of this type are strings, in a dictionary or not."""
    kind = _of_cells(kind)
    return any(
        test(kind)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
        )
    )


def has_numbers(kind: pa.DataType) -> bool:
    """Whether the cells of a column of this type are integers or floats, in a
    dictionary or not.
    """
    kind = _of_cells(kind)
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def has_dates(kind: pa.DataType) -> bool:
    """Whether the cells of a column of this type are dates, or times without a zone, in
    a dictionary or not.
    """
    kind = _of_cells(kind)
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return bool(pa.types.is_date(kind))


def days(array: pa.Array) -> Float64Array:
    """Days from 1970-01-01 of an array for which :func:`has_dates` holds; NaN for a
    null. A time of the day is a half, so that no other time counts as midnight.
    """
    if pa.types.is_date32(array.type):
        numbers = array.cast(pa.int32())
        return floats(numbers)
    unit = "ms"
    if pa.types.is_timestamp(array.type):
        unit = array.type.unit
    of_a_day = _SECONDS * _PER_SECOND[unit]
    times = elements(array.cast(pa.int64()), np.int64)
    whole, rest = np.divmod(times, of_a_day)
    found = whole.astype(np.float64)
    found[rest != 0] += 0.5
    found[~are_valid(array)] = np.nan
    return found


def are_valid(array: pa.Array) -> BoolArray:
    """Which elements of an array are not null."""
    return np.frombuffer(
        pc.is_valid(array).cast(pa.uint8()).buffers()[1], np.bool_, count=len(array)
    )


def floats(array: pa.Array) -> Float64Array:
    """Numbers as the nearest floats, as their texts would be read; NaN for a null."""
    values: Float64Array = elements(array.cast(pa.float64(), safe=False), np.float64)
    if array.null_count:
        return np.where(are_valid(array), values, np.nan)
    return values


def elements(array: pa.Array, dtype: type[Number]) -> NDArray[Number]:
    """The elements of an array of numbers; any number for a null."""
    # A foreign buffer may be longer than its elements, and end in the middle of one.
    return np.frombuffer(
        array.buffers()[1],
        dtype,
        count=len(array),
        offset=array.offset * np.dtype(dtype).itemsize,
    )


def mask(flags: BoolArray) -> pa.BooleanArray:
    """The array of truth values by which Arrow filters rows."""
    return pa.Array.from_buffers(
        pa.bool_(),
        len(flags),
        [None, pa.py_buffer(np.packbits(flags, bitorder="little"))],
    )


def _of_cells(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
