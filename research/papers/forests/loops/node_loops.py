"""Walks down trees of any shape in compiled loops: a node compares a column, or a
weighted sum of columns.
"""

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.compiler import compiled, compiled_for, read, triple, written


@compiled
def _weighted_sum(
    row: NDArray[np.float32],
    terms: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]],
    projection: int,
) -> float:
    first_term, column, weight = terms
    total = 0.0
    for term in range(first_term[projection], first_term[projection + 1]):
        total += np.float64(row[column[term]]) * np.float64(weight[term])
    return total


@compiled_for(
    read("float32", 2),
    read("int64", 1),
    triple(read("int32", 1), read("float64", 1), read("int32", 1)),
    triple(read("int64", 1), read("int32", 1), read("float32", 1)),
    read("float32", 2),
    written("float64", 2),
)
def add_leaf_values(
    X: NDArray[np.float32],
    root: NDArray[np.int64],
    nodes: tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int32]],
    terms: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]],
    values: NDArray[np.float32],
    sums: NDArray[np.float64],
) -> None:
    """Adds the values of the leaves that rows reach, tree by tree; see
    ``trees.node_routing``.
    """
    feature, threshold, right = nodes
    n_columns, n_outputs = X.shape[1], values.shape[1]
    for tree in range(root.size - 1):
        for row in range(X.shape[0]):
            node = root[tree]
            while feature[node] >= 0:
                if feature[node] < n_columns:
                    value: float = np.float64(X[row, feature[node]])
                else:
                    value = _weighted_sum(X[row], terms, feature[node] - n_columns)
                if value <= threshold[node]:
                    node += 1
                else:
                    node = root[tree] + right[node]
            leaf = right[node]
            for output in range(n_outputs):
                sums[row, output] += values[leaf, output]
