"""Exports forests without privacy to ONNX: trees of any shape over the real columns of ``app.forests.data.design``.

The graph rounds columns to single precision, as prediction does, and compares them in double precision with the
thresholds of the artifact, so that both send every row to the same leaves.
"""

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from app.forests.data.design import Design, columns_of, number_of_missing
from app.forests.data.schema import Feature
from app.forests.kernels.node_routing import NodeTrees
from app.forests.onnx import columns, trees
from app.forests.onnx.graph import TREES_DOMAIN, Graph
from app.forests.onnx.splits import AT_MOST
from app.forests.trees.node_read_out import NodeReader


def add_sums(graph: Graph, reader: NodeReader) -> str:
    """Adds the leaf sums of a forest whose splits compare one column each.

    Returns:
        The sums of each row over all trees, double ``(n_rows, n_outputs)``.
    """
    assert reader.trees.projections.count == 0
    matrix, place = _add_matrix(graph, reader.design)
    reached = graph.add("Cast", _leaves(graph, matrix, place, reader.trees), to=TensorProto.INT64)
    return trees.add_values(graph, reached, len(reader.trees.root) - 1, reader.trees.values.astype(np.float64))


def _add_matrix(graph: Graph, design: Design) -> tuple[str, NDArray[np.int64]]:
    """Adds the columns of the design, numbers first, and returns the place of every column in the matrix."""
    features = design.schema.features
    parts, place, n_placed = list[str](), np.empty(design.n_columns, dtype=np.int64), 0
    numbers = [index for index, feature in enumerate(features) if not feature.is_categorical]
    if numbers:
        values = columns.add_numbers(graph, design.schema, empty=number_of_missing)
        parts.append(graph.add("Cast", values, to=TensorProto.FLOAT))
    for index in [*numbers, *(index for index in range(len(features)) if features[index].is_categorical)]:
        own = np.flatnonzero(design.feature == index)
        place[own] = n_placed + np.arange(len(own))
        n_placed += len(own)
        if features[index].is_categorical:
            parts.append(_category(graph, features[index]))
    return graph.add("Cast", graph.add("Concat", *parts, axis=1), to=TensorProto.DOUBLE), place


def _category(graph: Graph, feature: Feature) -> str:
    """Adds the code of an ordered category, or a column of 0 and 1 for every value; float ``(n_rows, …)``."""
    codes = np.arange(feature.missing_code + 1, dtype=np.float64)
    code = columns.add_encoder(graph, feature, codes)
    if columns_of(feature) == 1:
        return code
    is_value = graph.add("Equal", code, graph.constant(codes.astype(np.float32)[np.newaxis]))
    return graph.add("Cast", is_value, to=TensorProto.FLOAT)


def _leaves(graph: Graph, matrix: str, place: NDArray[np.int64], forest: NodeTrees) -> str:
    """Adds the leaf that each row reaches in each tree, double ``(n_rows, n_trees)``."""
    root, feature, threshold, right = _with_splits(forest)
    tree = np.repeat(np.arange(len(root) - 1), np.diff(root))
    is_leaf = feature < 0
    number = np.where(is_leaf, np.cumsum(is_leaf), np.cumsum(~is_leaf)) - 1  # among leaves, or among splits
    inner, leaf = np.flatnonzero(~is_leaf), np.flatnonzero(is_leaf)
    left_child, right_child = inner + 1, root[tree[inner]] + right[inner]
    return graph.add(
        "TreeEnsemble",
        matrix,
        domain=TREES_DOMAIN,
        n_targets=len(root) - 1,
        aggregate_function=trees.SUM,
        tree_roots=number[root[:-1]],
        nodes_featureids=place[feature[inner]],
        nodes_modes=numpy_helper.from_array(np.full(len(inner), AT_MOST, dtype=np.uint8)),
        nodes_splits=numpy_helper.from_array(threshold[inner]),
        nodes_truenodeids=number[left_child],
        nodes_falsenodeids=number[right_child],
        nodes_trueleafs=is_leaf[left_child].astype(np.int64),
        nodes_falseleafs=is_leaf[right_child].astype(np.int64),
        leaf_targetids=tree[leaf],
        leaf_weights=numpy_helper.from_array(right[leaf].astype(np.float64)),
    )


def _with_splits(
    forest: NodeTrees,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64], NDArray[np.int32]]:
    """Roots, columns, thresholds and right children; a tree of one leaf becomes a split that sends every row left."""
    size = np.diff(forest.root)
    copies = np.ones(len(forest.feature), dtype=np.int64)
    copies[forest.root[:-1][size == 1]] = 3
    feature, threshold = np.repeat(forest.feature, copies), np.repeat(forest.threshold, copies)
    right = np.repeat(forest.right, copies)
    root = np.concatenate([[0], np.cumsum(np.where(size == 1, 3, size))])
    added = root[:-1][size == 1]
    feature[added], threshold[added], right[added] = 0, np.inf, 2
    return root, feature, threshold, right
