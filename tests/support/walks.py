"""Walks rows down complete trees in NumPy, one level at a time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def leaves(
    X: NDArray[np.uint8],
    *,
    feature: NDArray[Any],
    threshold: NDArray[Any],
    equals: NDArray[Any],
    depth: int,
) -> NDArray[np.int64]:
    """The leaf that every row reaches in every tree, ``(n_trees, n_rows)``, from 0 on
    the left.

    Args:
        X: codes, ``(n_features, n_rows)``.
        feature: ``(n_trees, 2**depth - 1)``, nodes in heap order.
        threshold: of the same shape.
        equals: of the same shape; a row goes right if its code differs from the
            threshold, otherwise if it is above.
        depth: of every tree.
    """
    reached = np.zeros((len(feature), X.shape[1]), dtype=np.int64)
    tree, row = np.arange(len(feature))[:, np.newaxis], np.arange(X.shape[1])
    for level in range(depth):
        node = 2**level - 1 + reached
        code = X[feature[tree, node], row]
        goes_right = np.where(
            equals[tree, node],
            code != threshold[tree, node],
            code > threshold[tree, node],
        )
        reached = 2 * reached + goes_right
    return reached
