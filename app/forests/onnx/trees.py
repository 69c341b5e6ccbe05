"""Adds trees to an ONNX graph: an ensemble that finds the leaf of a row in each tree, then sums of leaf values.

The ensemble returns leaf numbers, and a separate table holds leaf values: a leaf of ai.onnx.ml 5 has a single number,
so the ensemble would otherwise need every tree once per class. All numbers are doubles, so no threshold is rounded.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from app.forests.onnx.graph import TREES_DOMAIN, Graph
from app.forests.onnx.splits import AT_MOST, Splits, preorder

_TREES_AT_ONCE = 16
"""Trees whose leaf values are looked up together: bounds memory to rows × 16 × classes doubles."""

SUM: Final = 1
"""Targets of an ensemble are sums of leaf weights."""


def add_sums(graph: Graph, matrix: str, splits: Splits, values: NDArray[np.float64]) -> str:
    """Adds the ensemble of trees and the table of leaf values.

    Args:
        graph: receives the nodes.
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


def add_values(graph: Graph, leaves: str, n_trees: int, values: NDArray[np.float64]) -> str:
    """Adds the sums of leaf values over trees, double ``(n_rows, n_outputs)``.

    Args:
        graph: receives the nodes.
        leaves: the leaf of each row in each tree, int64 ``(n_rows, n_trees)``.
        n_trees: their number.
        values: of every leaf, float64 ``(n_leaves, n_outputs)``.
    """
    table = graph.constant(values)
    lengths = [min(_TREES_AT_ONCE, n_trees - start) for start in range(0, n_trees, _TREES_AT_ONCE)]
    over_trees = graph.constant(np.array([1], dtype=np.int64))
    sums = [
        graph.add("ReduceSum", graph.add("Gather", table, piece), over_trees, keepdims=0)
        for piece in graph.split(leaves, lengths)
    ]
    return graph.add("Sum", *sums)


def _deepened(n_trees: int, values: NDArray[np.float64]) -> tuple[Splits, NDArray[np.float64]]:
    """Writes trees of a single leaf as a split that sends every row left: an ensemble has no tree without a node."""
    node = (n_trees, 1)
    always = Splits(
        np.zeros(node, dtype=np.int64), np.full(node, AT_MOST, dtype=np.uint8), np.full(node, np.inf), np.empty(0)
    )
    return always, np.repeat(values, 2, axis=1)


def _leaves(graph: Graph, matrix: str, splits: Splits) -> str:
    """Adds the number of the leaf that each row reaches in each tree, double ``(n_rows, n_trees)``."""
    n_trees, n_nodes = splits.feature.shape
    n_leaves = n_nodes + 1
    tree = np.arange(n_trees)[:, np.newaxis]
    is_leaf, left, right = (np.broadcast_to(side, (n_trees, n_nodes)) for side in _children(n_nodes))
    first = np.where(is_leaf, tree * n_leaves, tree * n_nodes)
    leaf_flags = is_leaf.astype(np.int64)
    members = {"membership_values": numpy_helper.from_array(splits.members)} if splits.members.size else {}
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
        leaf_weights=numpy_helper.from_array(np.tile(np.arange(n_leaves, dtype=np.float64), n_trees)),
        **members,
    )


def _children(n_nodes: int) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
    """For each node in preorder: whether its children are leaves, and their numbers among nodes or leaves."""
    heap = preorder(n_nodes)
    number = np.empty(2 * n_nodes + 1, dtype=np.int64)
    number[heap] = np.arange(n_nodes)
    number[n_nodes:] = np.arange(n_nodes + 1)
    return 2 * heap + 1 >= n_nodes, number[2 * heap + 1], number[2 * heap + 2]
