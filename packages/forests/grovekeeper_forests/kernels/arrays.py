"""Checks type, shape, layout and range of arrays before a compiled loop runs over them.

A loop does not check its indices. A wrong index would read or overwrite foreign memory,
so the range of every array that indexes another array is checked first. No error
message contains a value.
"""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from grovekeeper_forests.array_types import BoolArray, Int32Array, UInt8Array

Splits = tuple[Int32Array, UInt8Array, BoolArray]
"""Feature, threshold and equality of nodes; of a tree, in heap order."""

MAX_FEATURES = 2**16 - 1
"""A split's feature has two bytes in the loops."""

UNIT_BITS = 31
"""Values of the exponential function are integers in units of 2^-31, in the tables of
boosting and in its loops.
"""

FINE_BITS = 12
"""Low bits of a score that the fine table resolves; the coarse table has steps of 2^-4."""


def require(
    array: NDArray[Any], dtype: DTypeLike, *, shape: tuple[int | None, ...], name: str
) -> NDArray[Any]:
    """Returns the array, or a contiguous and aligned copy of it.

    Args:
        array: the caller's argument.
        dtype: the required type; arrays of other types are refused, not converted.
        shape: the length of every axis; ``None`` allows any length.
        name: name of the argument, for the message.

    Raises:
        ValueError: another type or shape.
    """
    if array.dtype != dtype or array.ndim != len(shape):
        raise ValueError(
            f"{name} must be {np.dtype(dtype).name} with {len(shape)} axes"
        )
    for required, length in zip(shape, array.shape, strict=True):
        if required not in (None, length):
            raise ValueError(f"{name} has the wrong shape")
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    return np.require(array, requirements=("C_CONTIGUOUS", "ALIGNED"))


def require_result(
    array: NDArray[Any], dtype: DTypeLike, *, shape: tuple[int, ...], name: str
) -> None:
    """Checks an array that a loop writes to. It is never copied, because a copy would
    receive the result.

    Raises:
        ValueError: another type or shape, or an array that is read-only, not contiguous
            or not aligned.
    """
    if array.dtype != dtype or array.shape != shape or not array.flags.carray:
        raise ValueError(
            f"{name} must be a contiguous {np.dtype(dtype).name} array of the right shape"
        )


def require_range(array: NDArray[Any], *, lowest: int, below: int, name: str) -> None:
    """Checks that ``lowest`` ≤ element < ``below`` for every element of an integer
    array.

    Raises:
        ValueError: an element is outside.
    """
    if array.size and (array.min() < lowest or array.max() >= below):
        raise ValueError(f"{name} has a value out of range")


def require_splits(
    splits: Splits, *, shape: tuple[int | None, ...], n_features: int
) -> Splits:
    """Checks type and shape of the features, thresholds and ``equals`` of nodes. Values
    are not checked.

    Raises:
        ValueError: a wrong type or shape, or more than :data:`MAX_FEATURES` features.
    """
    if n_features > MAX_FEATURES:
        raise ValueError("X has too many features")
    feature, threshold, equals = splits
    feature = require(feature, np.int32, shape=shape, name="feature")
    threshold = require(threshold, np.uint8, shape=feature.shape, name="threshold")
    equals = require(equals, np.bool_, shape=feature.shape, name="equals")
    return feature, threshold, equals
