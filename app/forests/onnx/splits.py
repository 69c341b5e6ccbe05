"""Converts splits on bins to node modes and thresholds of ONNX trees on the values of ``app.forests.onnx.columns``."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.forests.onnx.columns import FIRST_CODE, Columns

AT_MOST: Final = 0
EQUAL: Final = 4
MEMBER: Final = 6
"""Modes of ai.onnx.ml 5: a row goes left if its value is at most the node's, equal to the node's, or in its set."""

_CODES: Final = 256


@dataclass(frozen=True, eq=False)
class Splits:
    """The splits of complete trees; a row goes left where the mode's test is true.

    The nodes of a tree are in the order of :func:`preorder`. The ONNX standard lists sets in the order of nodes, and
    its reference evaluator reads sets in the order of a depth-first walk; in preorder the two orders are equal.

    Attributes:
        feature: int64 ``(n_trees, n_nodes)``, columns of the matrix.
        mode: uint8, same shape.
        value: float64, same shape; the number that the test compares with; 0 for a set.
        members: float64 ``(…,)``: the sets in the order of the nodes, with a NaN after each set.
    """

    feature: NDArray[np.int64]
    mode: NDArray[np.uint8]
    value: NDArray[np.float64]
    members: NDArray[np.float64]


def preorder(n_nodes: int) -> NDArray[np.int64]:
    """Heap numbers of a complete tree's nodes in preorder: a node, then its left subtree, then its right subtree."""
    order, pending = list[int](), [0]
    while pending:
        node = pending.pop()
        if node < n_nodes:
            order.append(node)
            pending += [2 * node + 2, 2 * node + 1]
    return np.array(order, dtype=np.int64)


def of_thresholds(
    columns: Columns, *, feature: NDArray[np.int32], threshold: NDArray[np.uint8], equals: NDArray[np.bool_]
) -> Splits:
    """Converts splits in heap order: rows go right above the threshold or, if ``equals``, off the threshold."""
    order = preorder(feature.shape[1])
    feature, threshold, equals = feature[:, order], threshold[:, order], equals[:, order]
    assert columns.is_coded[feature[equals]].all(), "growth splits numbers at thresholds only"
    value = np.where(equals, threshold + FIRST_CODE, columns.cuts[feature, threshold])
    mode = np.where(equals, EQUAL, AT_MOST).astype(np.uint8)
    return Splits(columns.place[feature], mode, value, np.empty(0))


def of_masks(columns: Columns, *, feature: NDArray[np.int32], right: NDArray[np.uint64]) -> Splits:
    """Converts splits in heap order with a mask of 256 bits per node: bit c sends bin c to the right."""
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
        members += [np.append(np.flatnonzero(bins) + FIRST_CODE, np.nan) for bins in goes_left[~is_threshold]]
    return Splits(columns.place[feature], mode, value, np.concatenate([np.empty(0), *members]))


def _bits(masks: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Unpacks words of 64 bits to bool ``(n_nodes, 256)``."""
    return np.unpackbits(masks.astype("<u8").view(np.uint8), axis=1, bitorder="little").astype(np.bool_)
