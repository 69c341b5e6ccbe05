"""Routes training rows down trees, and sums rows by cell, in compiled loops. Callers
check every index.

A split is stored as the interval of codes [low, low + span] that goes left: [0,
threshold] for an ordered split, [threshold, threshold] for a category split. A row goes
right if (code − low) mod 256 > span. This needs one word per node and no branch; the
processor would mispredict half of such branches.

Cell numbers are unsigned, so that the compiler tests no sign. An empty array of weights
means weight 1 for every row.
"""

import numpy as np

from grovekeeper_forests.array_types import (
    BoolArray,
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt16Array,
    UInt32Array,
)
from grovekeeper_forests.compiler import (
    compiled,
    compiled_for,
    integer,
    integers,
    pair,
    read,
    written,
)

_NOWHERE = np.int32(-1)
_LOWEST_BYTE = np.uint32(255)
_ONE_BYTE = np.uint32(8)
_TWO_BYTES = np.uint32(16)


@compiled
def _split(feature: np.int32, threshold: np.uint8, equals: np.bool_) -> np.uint32:
    """Packs feature, low and span of a node in one word."""
    number = np.uint32(feature) << _TWO_BYTES
    bin_ = np.uint32(threshold)
    return np.uint32(number | (bin_ << _ONE_BYTE if equals else bin_))


@compiled
def _goes_right(bin_: np.uint8, split: np.uint32) -> np.uint32:
    low = split >> _ONE_BYTE
    return np.uint32(((np.uint32(bin_) - low) & _LOWEST_BYTE) > (split & _LOWEST_BYTE))


@compiled_for(
    read("uint8", 2),
    read("int32", 1),
    read("int32", 1),
    read("uint8", 1),
    read("boolean", 1),
    written("int32", 1),
)
def descend(
    X: UInt8Array,
    node: Int32Array,
    feature: Int32Array,
    threshold: UInt8Array,
    equals: BoolArray,
    child: Int32Array,
) -> None:
    """Fills ``child`` with the nodes of the next level; ``X`` is ``(n_features,
    n_rows)`` and indices were checked.
    """
    splits = np.empty(feature.size, dtype=np.uint32)
    for v in range(feature.size):
        splits[v] = _split(feature[v], threshold[v], equals[v])
    for i in range(node.size):
        if node[i] < 0:
            child[i] = _NOWHERE
        else:
            split = splits[node[i]]
            child[i] = 2 * node[i] + _goes_right(X[split >> _TWO_BYTES, i], split)


@compiled_for(read("int32", 2), read("int32", 3), written("int64", 2))
def add_leaf_scores(
    reached: Int32Array,
    leaf_scores: Int32Array,
    scores: Int64Array,
) -> None:
    """Adds the scores of every row's leaves to ``scores`` ``(n_rows, n_scores)``;
    indices were checked.
    """
    n_trees, n_rows = reached.shape
    n_scores = scores.shape[1]
    for tree in range(n_trees):
        for i in range(n_rows):
            leaf = np.uint32(reached[tree, i])
            for k in range(n_scores):
                scores[i, k] += leaf_scores[tree, leaf, k]


_SUMMED_AT_ONCE = 2**13


@compiled
def _largest(column: UInt8Array) -> int:
    largest = np.uint8(0)
    for i in range(column.size):
        largest = max(largest, column[i])
    return int(largest)


@compiled
def _fill_base(
    y: Int32Array,
    node: Int32Array,
    own: UInt8Array,
    limits: tuple[int, int, int],
    slot_cells: int,
    base: UInt32Array,
) -> bool:
    """Fills ``base`` with the part of each row's cell number that does not depend on a
    feature.

    Args:
        own: codes that are treated as nodes; empty for none.
        limits: nodes, codes of ``own`` (1 for none), classes.
        slot_cells: cells of a node and code.
        base: the result, one number per row; that of the first node for rows of node
            −1.

    Returns:
        Whether every class, node and code is inside its limit.
    """
    n_nodes, n_own, n_classes = limits
    is_valid = True
    for i in range(base.size):
        code = np.int64(own[i]) if own.size else 0
        if not (-1 <= node[i] < n_nodes and code < n_own and 0 <= y[i] < n_classes):
            is_valid = False
        slot = max(node[i], 0) * n_own + code
        base[i] = np.uint32(slot) * np.uint32(slot_cells) + np.uint32(y[i])
    return is_valid


@compiled
def _fill_added(
    node: Int32Array,
    weight: UInt16Array,
    largest: int,
    added: UInt32Array,
) -> bool:
    """Fills ``added`` with the weight of every row, 0 for rows of node −1; so the loop
    over cells needs no branch.

    Returns:
        Whether every weight is at most ``largest``.
    """
    is_valid = True
    for i in range(node.size):
        own = np.uint32(weight[i]) if weight.size else np.uint32(1)
        added[i] = own if node[i] >= 0 else np.uint32(0)
        if own > largest:
            is_valid = False
    return is_valid


@compiled_for(
    read("uint8", 2),
    pair(read("int32", 1), read("int32", 1)),
    pair(read("uint8", 1), read("uint16", 1)),
    read("int64", 2),
    integers(4),
    written("int64", 1),
)
def class_histogram(
    X: UInt8Array,
    y_and_node: tuple[Int32Array, Int32Array],
    own_and_weight: tuple[UInt8Array, UInt16Array],
    bins: Int64Array,
    limits: tuple[int, int, int, int],
    sums: Int64Array,
) -> bool:
    """Adds rows to ``sums`` ``(n_nodes · n_own, n_all_bins, n_classes)``; rows of node
    −1 add 0 to the first node.

    The part of a cell number that does not depend on the feature is computed once per
    row, for blocks of rows that fit in the core's cache. Features are added in twos,
    which reads that part and the weight half as often.

    Args:
        X: ``(n_features, n_rows)``.
        y_and_node: classes, and nodes of the level.
        own_and_weight: codes of one column, each of which is treated as a node, empty
            for none; and weights, empty for weight 1.
        bins: first bin and number of bins of every feature.
        limits: nodes, at least 1; codes of the column (1 for none); classes; largest
            weight.
        sums: added to.

    Returns:
        Whether every code, class, node and weight is inside its limit; if not, the sums
        are incomplete.
    """
    (y, node), (own, weight) = y_and_node, own_and_weight
    n_nodes, n_own, n_classes, largest = limits
    n_features, n_rows = X.shape
    slot_cells = bins[:, 1].sum() * n_classes
    step = np.uint32(n_classes)
    base = np.empty(min(n_rows, _SUMMED_AT_ONCE), dtype=np.uint32)
    added = np.empty(base.size, dtype=np.uint32)
    for start in range(0, n_rows, _SUMMED_AT_ONCE):
        end = min(start + _SUMMED_AT_ONCE, n_rows)
        slots = (n_nodes, n_own, n_classes)
        is_valid = _fill_base(
            y[start:end],
            node[start:end],
            own[start:end],
            slots,
            slot_cells,
            base[: end - start],
        )
        is_valid &= _fill_added(node[start:end], weight[start:end], largest, added)
        for f in range(n_features):
            is_valid &= _largest(X[f, start:end]) < bins[f, 1]
        # Before anything of the block is added: a compiled loop checks no index, and would
        # write beyond the array.
        if not is_valid:
            return False
        for f in range(0, n_features - 1, 2):
            column, other = X[f, start:end], X[f + 1, start:end]
            first = np.uint32(bins[f, 0]) * step
            first_of_other = np.uint32(bins[f + 1, 0]) * step
            for i in range(end - start):
                sums[base[i] + first + column[i] * step] += added[i]
                sums[base[i] + first_of_other + other[i] * step] += added[i]
        if n_features % 2:
            column = X[n_features - 1, start:end]
            first = np.uint32(bins[n_features - 1, 0]) * step
            for i in range(end - start):
                sums[base[i] + first + column[i] * step] += added[i]
    return True


@compiled_for(
    read("int32", 1), read("int32", 1), read("uint16", 1), written("int64", 2)
)
def leaf_histogram(
    leaf: Int32Array,
    y: Int32Array,
    weight: UInt16Array,
    counts: Int64Array,
) -> None:
    """Adds every row to ``counts`` ``(n_leaves + 1, n_classes)``; rows of leaf −1 go to
    the last one.
    """
    n_slots, n_classes = counts.shape
    cells = counts.reshape(counts.size)
    for i in range(leaf.size):
        slot = leaf[i] if leaf[i] >= 0 else n_slots - 1
        cells[np.uint64(slot * n_classes + y[i])] += (
            weight[i] if weight.size else np.uint16(1)
        )


@compiled_for(read("int32", 1), read("int32", 2), integer, written("int64", 2))
def leaf_gradients(
    leaf: Int32Array,
    gradients: Int32Array,
    count: int,
    sums: Int64Array,
) -> None:
    """Adds every row's gradient and ``count`` to its leaf in ``sums`` ``(n_leaves,
    n_scores + 1)``.
    """
    n_rows, n_scores = gradients.shape
    for i in range(n_rows):
        cell = np.uint32(leaf[i])
        for k in range(n_scores):
            sums[cell, k] += gradients[i, k]
        sums[cell, n_scores] += count
