"""Converts splits on bins to node modes and thresholds of ONNX trees on the values of ``app.forests.onnx.columns``."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.forests.onnx.columns import FIRST_CODE, Columns

AT_MOST: Final = 0
EQUAL: Final = 4
MEMBER: Final = 6
"""Modes of ai.onnx.ml 5: left if the value is at most the node's, equal to it, or in the node's set."""

_CODES: Final = 256


@dataclass(frozen=True, eq=False)
class Splits:
    """The splits of complete trees; a row goes left where the mode's test is true.

    The nodes of a tree are in the order of :func:`preorder`. The standard lists sets in the order of their nodes, and
    its reference evaluator reads them in the order of a walk: this order is both.

    Attributes:
        feature: int64 ``(n_trees, n_nodes)``, columns of the matrix.
        mode: uint8, same shape.
        value: float64, same shape; what the test compares with, 0 for a set.
        members: float64 ``(…,)``: the sets, in the order of their nodes, each ended by NaN.
    """

    feature: NDArray[np.int64]
    mode: NDArray[np.uint8]
    value: NDArray[np.float64]
    members: NDArray[np.float64]


def preorder(n_nodes: int) -> NDArray[np.int64]:
    """Heap numbers of a complete tree's nodes: each before its left side, that before its right side."""
    found, pending = list[int](), [0]
    while pending:
        node = pending.pop()
        if node < n_nodes:
            found.append(node)
            pending += [2 * node + 2, 2 * node + 1]
    return np.array(found, dtype=np.int64)


def of_thresholds(
    columns: Columns, *, feature: NDArray[np.int32], threshold: NDArray[np.uint8], equals: NDArray[np.bool_]
) -> Splits:
    """Splits in heap order that send a row right if its bin is above the threshold, or another one if ``equals``."""
    order = preorder(feature.shape[1])
    feature, threshold, equals = feature[:, order], threshold[:, order], equals[:, order]
    assert columns.is_coded[feature[equals]].all(), "growth splits numbers at thresholds only"
    value = np.where(equals, threshold + FIRST_CODE, columns.cuts[feature, threshold])
    mode = np.where(equals, EQUAL, AT_MOST).astype(np.uint8)
    return Splits(columns.place[feature], mode, value, np.empty(0))


def of_masks(columns: Columns, *, feature: NDArray[np.int32], right: NDArray[np.uint64]) -> Splits:
    """Splits in heap order that name every bin they send right: bit c of a node's 256."""
    order = preorder(feature.shape[1])
    feature, right = feature[:, order], right[:, order]
    mode = np.full(feature.shape, AT_MOST, dtype=np.uint8)
    value = np.empty(feature.shape)
    members: list[NDArray[np.float64]] = []
    for tree, (features, masks) in enumerate(zip(feature, right, strict=True)):
        last = np.isfinite(columns.cuts[features]).sum(axis=1)[:, np.newaxis]
        goes_left = ~_bits(masks) & (np.arange(_CODES) <= last)
        n_left = goes_left.sum(axis=1)
        is_threshold = goes_left.argmin(axis=1) == n_left % _CODES
        assert (is_threshold | columns.is_coded[features]).all(), "growth splits numbers at thresholds only"
        mode[tree, ~is_threshold] = MEMBER
        value_of_last = np.where(n_left > 0, columns.cuts[features, n_left - 1], -np.inf)
        value[tree] = np.where(is_threshold, value_of_last, 0.0)
        members += [np.append(np.flatnonzero(own) + FIRST_CODE, np.nan) for own in goes_left[~is_threshold]]
    return Splits(columns.place[feature], mode, value, np.concatenate([np.empty(0), *members]))


def _bits(masks: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """bool ``(n_nodes, 256)`` from words of 64."""
    return np.unpackbits(masks.astype("<u8").view(np.uint8), axis=1, bitorder="little").astype(np.bool_)
