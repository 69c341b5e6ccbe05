"""Adds trees to an ONNX graph: splits on values, the leaf of a row in each tree, sums
of leaf values, probabilities.

Splits on bins become node modes and thresholds on the values of ``columns``. An
ensemble returns leaf numbers, and a separate table holds leaf values: a leaf of
ai.onnx.ml 5 has a single number, so the ensemble would otherwise need every tree once
per class. All numbers are doubles, so no threshold is rounded.

Layers of a stacked forest follow each other in the graph, with feature values shifted
between them. Votes, weights, ticks and shifts are whole numbers, and their products and
sums stay below 2⁵³. Doubles hold such numbers exactly, so the graph and
``grovekeeper_forests.algorithms.bms_rf.layers`` assign a row to the same bins.

The class probabilities are those of ``grovekeeper_forests.trees.leaf_read_out`` and of
the read-outs of the boosted family.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from onnx import TensorProto, numpy_helper

from grovekeeper_forests.algorithms.bms_rf import layers
from grovekeeper_forests.algorithms.bms_rf.read import StackedSums
from grovekeeper_forests.algorithms.nbrt.read import CALIBRATED, LOGISTIC, TIE_BREAK
from grovekeeper_forests.algorithms.nbrt.scales import loss_of
from grovekeeper_forests.array_types import (
    BoolArray,
    Float64Array,
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt16Array,
    UInt64Array,
)
from grovekeeper_forests.data.encoding import to_numbers
from grovekeeper_forests.data.schema import Feature, Schema
from grovekeeper_forests.releases.forest.onnx import columns
from grovekeeper_forests.releases.forest.onnx.columns import (
    FIRST_CODE,
    TREES_DOMAIN,
    Columns,
    Graph,
)
from grovekeeper_forests.trees import leaf_read_out

AT_MOST: Final = 0
EQUAL: Final = 4
MEMBER: Final = 6
"""Modes of ai.onnx.ml 5: a row goes left if its value is at most the node's, equal to
the node's, or in its set.
"""

_CODES: Final = 256


@dataclass(frozen=True, eq=False)
class Splits:
    """The splits of complete trees; a row goes left where the mode's test is true.

    The nodes of a tree are in the order of :func:`preorder`. The ONNX standard lists
    sets in the order of nodes, and its reference evaluator reads sets in the order of a
    depth-first walk; in preorder the two orders are equal.

    Attributes:
        feature: int64 ``(n_trees, n_nodes)``, columns of the matrix.
        mode: uint8, same shape.
        value: float64, same shape; the number that the test compares with; 0 for a set.
        members: float64 ``(…,)``: the sets in the order of the nodes, with a NaN after
            each set.
    """

    feature: Int64Array
    mode: UInt8Array
    value: Float64Array
    members: Float64Array


def preorder(n_nodes: int) -> Int64Array:
    """Heap numbers of a complete tree's nodes in preorder: a node, then its left
    subtree, then its right subtree.
    """
    order = list[int]()
    pending = [0]
    while pending:
        node = pending.pop()
        if node < n_nodes:
            order.append(node)
            pending += [2 * node + 2, 2 * node + 1]
    return np.array(order, dtype=np.int64)


def of_thresholds(
    columns: Columns,
    *,
    feature: Int32Array,
    threshold: UInt8Array,
    equals: BoolArray,
) -> Splits:
    """Converts splits in heap order: rows go right above the threshold or, if
    ``equals``, off the threshold.
    """
    order = preorder(feature.shape[1])
    feature = feature[:, order]
    threshold = threshold[:, order]
    equals = equals[:, order]
    assert columns.is_coded[feature[equals]].all(), (
        "growth splits numbers at thresholds only"
    )
    value = np.where(equals, threshold + FIRST_CODE, columns.cuts[feature, threshold])
    mode = np.where(equals, EQUAL, AT_MOST).astype(np.uint8)
    return Splits(columns.place[feature], mode, value, np.empty(0))


def of_masks(columns: Columns, *, feature: Int32Array, right: UInt64Array) -> Splits:
    """Converts splits in heap order with a mask of 256 bits per node: bit c sends bin c
    to the right.
    """
    order = preorder(feature.shape[1])
    feature = feature[:, order]
    right = right[:, order]
    mode = np.full(feature.shape, AT_MOST, dtype=np.uint8)
    value = np.empty(feature.shape)
    members: list[Float64Array] = []
    for tree, (features, masks) in enumerate(zip(feature, right, strict=True)):
        last = np.isfinite(columns.cuts[features]).sum(axis=1)[:, np.newaxis]
        goes_left = ~_bits(masks) & (np.arange(_CODES) <= last)
        n_left = goes_left.sum(axis=1)
        is_threshold = goes_left.argmin(axis=1) == n_left % _CODES
        assert (is_threshold | columns.is_coded[features]).all(), (
            "growth splits numbers at thresholds only"
        )
        mode[tree, ~is_threshold] = MEMBER
        value_of_last = np.where(
            n_left > 0, columns.cuts[features, n_left - 1], -np.inf
        )
        value[tree] = np.where(is_threshold, value_of_last, 0.0)
        members += [
            np.append(np.flatnonzero(bins) + FIRST_CODE, np.nan)
            for bins in goes_left[~is_threshold]
        ]
    return Splits(
        columns.place[feature], mode, value, np.concatenate([np.empty(0), *members])
    )


def _bits(masks: UInt64Array) -> BoolArray:
    """Unpacks words of 64 bits to bool ``(n_nodes, 256)``."""
    return np.unpackbits(
        masks.astype("<u8").view(np.uint8), axis=1, bitorder="little"
    ).astype(np.bool_)


# trees whose leaf values are looked up together: bounds memory to rows × 16 × classes
# doubles
_TREES_AT_ONCE = 16

SUM: Final = 1
"""Targets of an ensemble are sums of leaf weights."""


def add_tree_sums(
    graph: Graph, matrix: str, splits: Splits, values: Float64Array
) -> str:
    """Adds the ensemble of trees and the table of leaf values.

    Args:
        matrix: double ``(n_rows, n_features)``.
        splits: the splits of every tree.
        values: the values of every leaf, float64 ``(n_trees, n_leaves, n_outputs)``.

    Returns:
        The sums of each row over all trees, double ``(n_rows, n_outputs)``.
    """
    n_trees, n_leaves, n_outputs = values.shape
    if n_leaves == 1:
        splits, values, n_leaves = *_deepened(n_trees, values), 2
    reached = graph.add("Cast", _leaves(graph, matrix, splits), to=TensorProto.INT64)
    first = np.arange(n_trees, dtype=np.int64)[np.newaxis] * n_leaves
    rows = graph.add("Add", reached, graph.constant(first))
    return add_values(graph, rows, n_trees, values.reshape(-1, n_outputs))


def add_values(graph: Graph, leaves: str, n_trees: int, values: Float64Array) -> str:
    """Adds the sums of leaf values over trees, double ``(n_rows, n_outputs)``.

    Args:
        leaves: the leaf of each row in each tree, int64 ``(n_rows, n_trees)``.
        n_trees: their number.
        values: of every leaf, float64 ``(n_leaves, n_outputs)``.
    """
    table = graph.constant(values)
    lengths = [
        min(_TREES_AT_ONCE, n_trees - start)
        for start in range(0, n_trees, _TREES_AT_ONCE)
    ]
    over_trees = graph.constant(np.array([1], dtype=np.int64))
    sums = [
        graph.add(
            "ReduceSum", graph.add("Gather", table, piece), over_trees, keepdims=0
        )
        for piece in graph.split(leaves, lengths)
    ]
    return graph.add("Sum", *sums)


def _deepened(n_trees: int, values: Float64Array) -> tuple[Splits, Float64Array]:
    """Writes trees of a single leaf as a split that sends every row left: an ensemble
    has no tree without a node.
    """
    node = (n_trees, 1)
    always = Splits(
        np.zeros(node, dtype=np.int64),
        np.full(node, AT_MOST, dtype=np.uint8),
        np.full(node, np.inf),
        np.empty(0),
    )
    return always, np.repeat(values, 2, axis=1)


def _leaves(graph: Graph, matrix: str, splits: Splits) -> str:
    """Adds the number of the leaf that each row reaches in each tree, double ``(n_rows,
    n_trees)``.
    """
    n_trees, n_nodes = splits.feature.shape
    n_leaves = n_nodes + 1
    tree = np.arange(n_trees)[:, np.newaxis]
    is_leaf, left, right = (
        np.broadcast_to(side, (n_trees, n_nodes)) for side in _children(n_nodes)
    )
    first = np.where(is_leaf, tree * n_leaves, tree * n_nodes)
    leaf_flags = is_leaf.astype(np.int64)
    members = {}
    if splits.members.size:
        members = {"membership_values": numpy_helper.from_array(splits.members)}
    return graph.add(
        "TreeEnsemble",
        matrix,
        domain=TREES_DOMAIN,
        n_targets=n_trees,
        aggregate_function=SUM,
        tree_roots=tree * n_nodes,
        nodes_featureids=splits.feature,
        nodes_modes=numpy_helper.from_array(splits.mode.ravel()),
        nodes_splits=numpy_helper.from_array(splits.value.ravel()),
        nodes_truenodeids=first + left,
        nodes_falsenodeids=first + right,
        nodes_trueleafs=leaf_flags,
        nodes_falseleafs=leaf_flags,
        leaf_targetids=np.repeat(tree, n_leaves),
        leaf_weights=numpy_helper.from_array(
            np.tile(np.arange(n_leaves, dtype=np.float64), n_trees)
        ),
        **members,
    )


def _children(
    n_nodes: int,
) -> tuple[BoolArray, Int64Array, Int64Array]:
    """For each node in preorder: whether its children are leaves, and their numbers
    among nodes or leaves.
    """
    heap = preorder(n_nodes)
    number = np.empty(2 * n_nodes + 1, dtype=np.int64)
    number[heap] = np.arange(n_nodes)
    number[n_nodes:] = np.arange(n_nodes + 1)
    return 2 * heap + 1 >= n_nodes, number[2 * heap + 1], number[2 * heap + 2]


def add_stacked_sums(graph: Graph, forest: StackedSums) -> str:
    """Adds every layer; each later layer reads the matrix that the votes of earlier
    layers have shifted.

    Returns:
        The sums of each row over all trees, double ``(n_rows, n_classes)``.
    """
    n_classes = forest.schema.n_classes
    declared = Columns.of(forest.layers[0].encoding)
    matrix = columns.add_values(graph, forest.layers[0].encoding)
    shifted_matrix = _ShiftedMatrix(graph, forest.schema, matrix, declared)
    sums = list[str]()
    for index, layer in enumerate(forest.layers):
        layer_splits = of_thresholds(
            Columns.of(layer.encoding),
            feature=layer.arrays["feature"],
            threshold=layer.arrays["threshold"],
            equals=layer.arrays["equals"],
        )
        worth_and_votes = add_tree_sums(graph, matrix, layer_splits, layer.values)
        worth, votes = graph.split(worth_and_votes, [n_classes, n_classes])
        sums.append(worth)
        if index < len(forest.projection):
            matrix = shifted_matrix.by(
                votes, weights=forest.projection[index], shift=forest.shift
            )
    return graph.add("Sum", *sums)


class _ShiftedMatrix:
    """Builds the matrix of each layer after the first: the shifted features, and
    unordered categories as declared.
    """

    def __init__(
        self, graph: Graph, schema: Schema, matrix: str, declared: Columns
    ) -> None:
        """Adds the ticks of the declared columns.

        Args:
            schema: the declared schema.
            matrix: the matrix of the first layer.
            declared: the columns of that matrix.
        """
        self._graph = graph
        numbered = list(enumerate(schema.features))
        numbers = [
            (index, feature)
            for index, feature in numbered
            if not feature.is_categorical
        ]
        ordered = [
            (index, feature)
            for index, feature in numbered
            if feature.is_categorical and feature.ordered
        ]
        rest = [index for index, feature in numbered if not layers.is_moved(feature)]
        self._order = [index for index, _ in (*numbers, *ordered)]
        parts = []
        if numbers:
            parts = [_ticks(graph, matrix, declared.place, numbers)]
        if ordered:
            encoded = [
                columns.add_encoder(graph, feature, _ticks_of_codes(feature))
                for _, feature in ordered
            ]
            parts.append(columns.joined(graph, encoded))
        self._ticks = graph.add("Concat", *parts, axis=1) if parts else None
        self._rest = None
        if rest:
            self._rest = graph.add(
                "Gather", matrix, graph.constant(declared.place[rest]), axis=1
            )

    def by(self, votes: str, *, weights: UInt16Array, shift: int) -> str:
        """Adds the matrix after a layer's votes, double ``(n_rows, n_features)``."""
        graph = self._graph
        parts = list[str]()
        if self._ticks is not None:
            drift = graph.add(
                "MatMul",
                votes,
                graph.constant(weights[:, self._order].astype(np.float64)),
            )
            # the product has at most 48 bits
            share = graph.constant(np.array(shift / layers.TICKS**2))
            shifted = graph.add(
                "Add", self._ticks, graph.add("Floor", graph.add("Mul", drift, share))
            )
            by_feature = graph.constant(np.argsort(np.array(self._order)))
            parts.append(graph.add("Gather", shifted, by_feature, axis=1))
        if self._rest is not None:
            parts.append(self._rest)
        return graph.add("Concat", *parts, axis=1)


def _ticks(
    graph: Graph,
    matrix: str,
    place: Int64Array,
    numbers: list[tuple[int, Feature]],
) -> str:
    """Adds the ticks of numbers, counted from their origin: ``layers.ticks`` as
    operations on doubles.
    """
    raw = graph.add(
        "Gather", matrix, graph.constant(place[[index for index, _ in numbers]]), axis=1
    )
    lower, width = np.array([layers.halves(feature) for _, feature in numbers]).T[
        :, np.newaxis
    ]
    above = graph.add(
        "Sub",
        graph.add("Div", raw, graph.constant(np.array(2.0))),
        graph.constant(lower),
    )
    share = graph.add("Div", above, graph.constant(width))
    steps = graph.add(
        "Floor", graph.add("Mul", share, graph.constant(np.array(float(layers.TICKS))))
    )
    origins = np.array([[float(layers.origin(feature)) for _, feature in numbers]])
    return graph.add("Add", steps, graph.constant(origins))


def _ticks_of_codes(feature: Feature) -> Float64Array:
    """The tick of each code of an ordered category; MISSING is above all other codes."""
    codes = np.arange(len(feature.categories) + 2, dtype=np.int32)
    assert layers.origin(feature) == 0
    steps = layers.ticks(feature, codes)
    steps[np.isnan(to_numbers(feature, codes))] = math.inf
    return steps


def add_probabilities(graph: Graph, sums: str, *, read_out: str, n_outputs: int) -> str:
    """Adds the class probabilities of a read-out.

    Args:
        sums: double ``(n_rows, n_outputs)``.
        read_out: any read-out of a family except ``pa``, whose probabilities equal
            those of ``ta``.
        n_outputs: one per class, or 1: the logit of the second of two classes.

    Returns:
        double ``(n_rows, n_classes)``; rows sum to 1.
    """
    if read_out not in (leaf_read_out.LOGARITHMIC, CALIBRATED, LOGISTIC):
        return _normalised(graph, sums, n_classes=n_outputs)
    if n_outputs > 1:
        return graph.add("Softmax", sums, axis=1)
    zeros = graph.add("Sub", sums, sums)
    softmax = graph.add("Softmax", graph.add("Concat", zeros, sums, axis=1), axis=1)
    if read_out == CALIBRATED:
        return _calibrated(graph, softmax)
    return softmax


def _normalised(graph: Graph, sums: str, *, n_classes: int) -> str:
    """Adds the shares of a row's total; uniform where the total is zero."""
    total = graph.add(
        "ReduceSum", sums, graph.constant(np.array([1], dtype=np.int64)), keepdims=1
    )
    is_positive = graph.add("Greater", total, graph.constant(np.array(0.0)))
    return graph.add(
        "Where",
        is_positive,
        graph.add("Div", sums, total),
        graph.constant(np.array(1.0 / n_classes)),
    )


def _calibrated(graph: Graph, softmax: str) -> str:
    """Adds the correction for clipped gradients of two classes; see
    ``algorithms.nbrt.read.calibrated``.
    """
    clip = float(loss_of(2).clip)

    def number(value: float) -> str:
        return graph.constant(np.array(value))

    larger = graph.add(
        "ReduceMax", softmax, graph.constant(np.array([1], dtype=np.int64)), keepdims=1
    )
    doubt = graph.add(
        "Sub", number(clip + 1.0), graph.add("Max", larger, number(1.0 - clip))
    )
    share = graph.add("Div", number(clip), doubt)
    is_larger = graph.add("Equal", softmax, larger)
    shares = graph.add("Where", is_larger, share, graph.add("Sub", number(1.0), share))
    mixed = graph.add("Mul", number(1.0 - TIE_BREAK), shares)
    return graph.add("Add", mixed, graph.add("Mul", number(TIE_BREAK), softmax))
