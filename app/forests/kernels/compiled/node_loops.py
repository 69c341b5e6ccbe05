"""Walks down trees of any shape in compiled loops: every node has a column, a threshold and a right child."""

import numpy as np
from numpy.typing import NDArray

from app.forests.compilation.compiler import compiled_for, pair, read, written


@compiled_for(
    read("float32", 2),
    read("int64", 1),
    pair(read("int32", 1), read("int32", 1)),
    read("float64", 1),
    read("float32", 2),
    written("float64", 2),
)
def add_leaf_values(
    X: NDArray[np.float32],
    root: NDArray[np.int64],
    feature_and_right: tuple[NDArray[np.int32], NDArray[np.int32]],
    threshold: NDArray[np.float64],
    values: NDArray[np.float32],
    sums: NDArray[np.float64],
) -> None:
    """Adds the values of the leaves that rows reach, tree by tree."""
    feature, right = feature_and_right
    n_outputs = values.shape[1]
    for tree in range(root.size - 1):
        for row in range(X.shape[0]):
            node = root[tree]
            while feature[node] >= 0:
                if X[row, feature[node]] <= threshold[node]:
                    node += 1
                else:
                    node = root[tree] + right[node]
            leaf = right[node]
            for output in range(n_outputs):
                sums[row, output] += values[leaf, output]
