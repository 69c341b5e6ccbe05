"""Sends private rows down released splits, and sums them by cell: class histograms of
nodes and leaves, gradients.

The nodes that rows reach are PRIVATE. All sums are exact integers, with or without
weights, and any partition of the rows gives the same totals. The sums are PRIVATE, too:
only a mechanism may read them.
"""

import math
from functools import cache
from types import ModuleType

import numpy as np

from grovekeeper_forests.array_types import (
    BoolArray,
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt16Array,
)
from grovekeeper_forests.kernels.arrays import (
    require,
    require_range,
    require_result,
    require_splits,
)
from grovekeeper_forests.kernels.boosting import UNIT


@cache
def _loops() -> ModuleType:
    """The compiled loops, which load the compiler: 0.5 s of CPU."""
    from grovekeeper_forests.kernels.compiled import node_row_loops

    return node_row_loops


def descend(
    X: UInt8Array,
    node: Int32Array,
    *,
    feature: Int32Array,
    threshold: UInt8Array,
    equals: BoolArray,
) -> Int32Array:
    """Moves every row from its node of one level to a node of the next.

    The new node is ``2 · node + go_right``. At an ordered split a row goes right if its
    bin is above the threshold, at a category split (``equals``) if its bin differs from
    the threshold.

    Args:
        X: PRIVATE bins, uint8 ``(n_features, n_rows)``.
        node: PRIVATE node of this level, int32 ``(n_rows,)``; −1 stays −1.
        feature: public; feature of every node's split, int32 ``(n_nodes,)``.
        threshold: public; uint8 ``(n_nodes,)``.
        equals: public; bool ``(n_nodes,)``.

    Returns:
        PRIVATE int32 ``(n_rows,)``.

    Raises:
        ValueError: a type, a shape or an index out of its range.
    """
    X = require(X, np.uint8, shape=(None, None), name="X")
    n_features, n_rows = X.shape
    node = require(node, np.int32, shape=(n_rows,), name="node")
    splits = require_splits(
        (feature, threshold, equals), shape=(None,), n_features=n_features
    )
    require_range(node, lowest=-1, below=feature.size, name="node")
    require_range(splits[0], lowest=0, below=n_features, name="feature")
    child = np.empty(n_rows, dtype=np.int32)
    _loops().descend(X, node, *splits, child)
    return child


MAX_CELLS = 2**32
"""Most cells of one histogram: 32 GiB of counts, far above the limit of plans; cell
numbers stay inside 32 bits.
"""

# makes a loop treat no column's codes as nodes
_NO_CODES = np.zeros(0, dtype=np.uint8)

_UNWEIGHTED = np.zeros(0, dtype=np.uint16)  # makes a loop add 1 for every row


def no_sums(*shape: int, n_bins: Int32Array) -> Int64Array:
    """Zeros for a histogram of so many nodes (and codes of a column) and classes.

    Args:
        shape: public; nodes, then codes of the column in a joint histogram, then
            classes.
        n_bins: public; bins of every feature, int32 ``(n_features,)``.

    Returns:
        int64 ``(*nodes and codes, sum(n_bins), n_classes)``.

    Raises:
        ValueError: more than :data:`MAX_CELLS` cells.
    """
    *slots, n_classes = shape
    form = (*slots, int(n_bins.sum(dtype=np.int64)), n_classes)
    if math.prod(form) > MAX_CELLS:
        raise ValueError("the histogram has too many cells")
    return np.zeros(form, dtype=np.int64)


def class_histogram(
    X: UInt8Array,
    y: Int32Array,
    node: Int32Array,
    *,
    n_bins: Int32Array,
    weight: UInt16Array | None = None,
    onto: Int64Array,
) -> Int64Array:
    """Counts rows, or adds up their weights, by open node, by feature and bin, and by
    class.

    Args:
        X: PRIVATE bins, uint8 ``(n_features, n_rows)``, one feature after another.
        y: PRIVATE class codes, int32 ``(n_rows,)``.
        node: PRIVATE node of this level that each row reached, int32 ``(n_rows,)``;
            rows of node −1 are not counted.
        n_bins: public; bins of every feature, int32 ``(n_features,)``, 1 to 256.
        weight: PRIVATE, uint16 ``(n_rows,)``, at most :data:`boosting.UNIT`; ``None``
            counts every row once.
        onto: PRIVATE sums of other rows, or :func:`no_sums`, int64 ``(n_nodes,
            sum(n_bins), n_classes)``: the bins of feature 0, the bins of feature 1, ….
            Rows are added to this array, so many parts of the rows need one array.

    Returns:
        ``onto``.

    Raises:
        ValueError: a type, a shape or a code out of its range. Some rows may have been
            added.
    """
    joint_histogram(
        X, y, (node, _NO_CODES), n_bins=n_bins, weight=weight, onto=onto[:, np.newaxis]
    )
    return onto


def joint_histogram(
    X: UInt8Array,
    y: Int32Array,
    place: tuple[Int32Array, UInt8Array],
    *,
    n_bins: Int32Array,
    weight: UInt16Array | None = None,
    onto: Int64Array,
) -> Int64Array:
    """Counts as :func:`class_histogram` does, and tells the rows of a node apart by
    their codes in one column.

    Args:
        X: see :func:`class_histogram`.
        y: see :func:`class_histogram`.
        place: PRIVATE; the nodes, as there, and the codes of the column, uint8
            ``(n_rows,)``.
        n_bins: see :func:`class_histogram`.
        weight: see :func:`class_histogram`.
        onto: as there, int64 ``(n_nodes, n_own, sum(n_bins), n_classes)``.

    Returns:
        ``onto``.

    Raises:
        ValueError: as there.
    """
    node, own = place
    X = require(X, np.uint8, shape=(None, None), name="X")
    n_features, n_rows = X.shape
    y = require(y, np.int32, shape=(n_rows,), name="y")
    node = require(node, np.int32, shape=(n_rows,), name="node")
    if weight is None:
        weight = _UNWEIGHTED
    else:
        weight = require(weight, np.uint16, shape=(n_rows,), name="weight")
    if own is not _NO_CODES:
        own = require(own, np.uint8, shape=(n_rows,), name="own")
    n_bins = require(n_bins, np.int32, shape=(n_features,), name="n_bins")
    require_range(n_bins, lowest=1, below=257, name="n_bins")
    total_bins = int(n_bins.sum(dtype=np.int64))
    n_nodes, n_own, _, n_classes = onto.shape
    require_result(
        onto, np.int64, shape=(n_nodes, n_own, total_bins, n_classes), name="onto"
    )
    if onto.size > MAX_CELLS:
        raise ValueError("the histogram has too many cells")
    if not onto.size:  # the loop adds 0 to the first node for rows that are not counted
        return onto
    first_bins = np.cumsum(n_bins, dtype=np.int64) - n_bins
    bins = np.column_stack((first_bins, n_bins)).astype(np.int64)
    limits = (n_nodes, n_own, n_classes, UNIT if weight.size else 1)
    if not _loops().class_histogram(
        X, (y, node), (own, weight), bins, limits, onto.reshape(-1)
    ):
        raise ValueError("a code, a class, a node or a weight is out of range")
    return onto


def leaf_histogram(
    leaf: Int32Array,
    y: Int32Array,
    *,
    n_leaves: int,
    n_classes: int,
    weight: UInt16Array | None = None,
) -> Int64Array:
    """Counts rows, or adds up their weights, by leaf and class.

    Args:
        leaf: PRIVATE leaf that the row reached, int32 ``(n_rows,)``; rows of leaf −1
            are left out.
        y: PRIVATE class codes, int32 ``(n_rows,)``.
        n_leaves: public.
        n_classes: public.
        weight: PRIVATE, uint16 ``(n_rows,)``, at most :data:`boosting.UNIT`; ``None``
            counts every row once.

    Returns:
        PRIVATE int64 ``(n_leaves, n_classes)``.

    Raises:
        ValueError: a type, a shape or a code out of its range.
    """
    leaf = require(leaf, np.int32, shape=(None,), name="leaf")
    y = require(y, np.int32, shape=leaf.shape, name="y")
    require_range(y, lowest=0, below=n_classes, name="y")
    if weight is None:
        weight = _UNWEIGHTED
    else:
        weight = require(weight, np.uint16, shape=leaf.shape, name="weight")
    require_range(weight, lowest=0, below=UNIT + 1, name="weight")
    require_range(leaf, lowest=-1, below=n_leaves, name="leaf")
    counts = np.zeros((n_leaves + 1, n_classes), dtype=np.int64)
    _loops().leaf_histogram(leaf, y, weight, counts)
    return counts[:n_leaves]


def leaf_gradients(
    leaf: Int32Array, gradients: Int32Array, *, count: int, n_leaves: int
) -> Int64Array:
    """Adds up gradients by leaf, and ``count`` for every row.

    Args:
        leaf: PRIVATE leaf that the row reached, int32 ``(n_rows,)``.
        gradients: PRIVATE int32 ``(n_rows, n_scores)``.
        count: public; the number that a row adds to its leaf's count.
        n_leaves: public.

    Returns:
        PRIVATE int64 ``(n_leaves, n_scores + 1)``: gradient sums, then the count.

    Raises:
        ValueError: a type, a shape or a leaf out of its range.
    """
    gradients = require(gradients, np.int32, shape=(None, None), name="gradients")
    leaf = require(leaf, np.int32, shape=(gradients.shape[0],), name="leaf")
    require_range(leaf, lowest=0, below=n_leaves, name="leaf")
    sums = np.zeros((n_leaves, gradients.shape[1] + 1), dtype=np.int64)
    _loops().leaf_gradients(leaf, gradients, count, sums)
    return sums


def add_leaf_scores(
    scores: Int64Array,
    reached: Int32Array,
    leaf_scores: Int32Array,
) -> None:
    """Adds the integer scores of the leaves that rows reached to the scores of the
    rows, in place.

    Args:
        scores: int64 ``(n_rows, n_scores)``, contiguous, in units of 2⁻¹⁶; PRIVATE
            where ``reached`` is.
        reached: leaf of every tree that the row reached, int32 ``(n_trees, n_rows)``.
        leaf_scores: public; int32 ``(n_trees, n_leaves, n_scores)``.

    Raises:
        ValueError: a type, a shape or a leaf out of its range.
    """
    leaf_scores = require(
        leaf_scores, np.int32, shape=(None, None, None), name="leaf_scores"
    )
    reached = require(
        reached, np.int32, shape=(leaf_scores.shape[0], None), name="reached"
    )
    require_range(reached, lowest=0, below=leaf_scores.shape[1], name="reached")
    require_result(
        scores, np.int64, shape=(reached.shape[1], leaf_scores.shape[2]), name="scores"
    )
    _loops().add_leaf_scores(reached, leaf_scores, scores)
