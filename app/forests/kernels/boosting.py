"""Integer boosting over private rows: which leaf, which gradient, which sums. Never a decision, never a random draw."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.forests.algorithms.nbrt.scales import LARGEST_SQUARED_LENGTH, PROBABILITY_BITS, Scales
from app.forests.kernels import exponential
from app.forests.kernels.arrays import MAX_FEATURES, require, require_range, require_result

MAX_LEAVES: Final = 2**16
"""A row's leaf has two bytes."""

MASK_WORDS: Final = 4
"""Words of 64 codes that say which codes go right."""


def gradients(scores: NDArray[np.int64], y: NDArray[np.int32], scales: Scales) -> NDArray[np.int32]:
    """What each row adds to the gradient sums of its leaves: γ, with ‖γ‖² ≤ C² checked row by row.

    A row's result is a function of its own scores and class, of nothing else, and has the same bits on every machine.

    Args:
        scores: PRIVATE int64 ``(n_rows, n_scores)`` in units of 2^-16.
        y: PRIVATE class codes, int32 ``(n_rows,)``.
        scales: public.

    Returns:
        PRIVATE int32 ``(n_rows, n_scores)``.

    Raises:
        ValueError: a type, a shape or a class out of its range.
    """
    from app.forests.kernels.loops import boosting as loops

    y = require(y, np.int32, shape=(None,), name="y")
    scores = require(scores, np.int64, shape=(y.size, scales.n_scores), name="scores")
    require_range(y, lowest=0, below=max(scales.n_scores, 2), name="y")
    if not 0 < scales.squared_length <= LARGEST_SQUARED_LENGTH or not 0 < scales.clip <= 2**PROBABILITY_BITS:
        raise ValueError("scales are out of range")
    found = np.empty(scores.shape, dtype=np.int32)
    loop = loops.gradients_of_two if scales.n_scores == 1 else loops.gradients_of_many
    limits = np.array([scales.clip, scales.length, scales.squared_length], dtype=np.uint64)
    loop(scores, y, *exponential.tables(), limits, found)
    return found


def leaves(
    X: NDArray[np.uint8], *, feature: NDArray[np.int32], right: NDArray[np.uint64], depth: int
) -> NDArray[np.uint16]:
    """The leaf that every row reaches in every tree.

    Args:
        X: PRIVATE or a caller's codes, uint8 ``(n_rows, n_features)``, one row after another.
        feature: public; int32 ``(n_trees, 2**depth − 1)`` in heap order.
        right: public; uint64 ``(n_trees, 2**depth − 1, 4)``: bit c of a node's 256 sends code c to the right.
        depth: public; 0 to 16.

    Returns:
        uint16 ``(n_trees, n_rows)``.

    Raises:
        ValueError: a type, a shape or a feature out of its range.
    """
    from app.forests.kernels.loops import boosting as loops

    X = require(X, np.uint8, shape=(None, None), name="X")
    if X.shape[1] > MAX_FEATURES or not 0 <= depth <= MAX_LEAVES.bit_length() - 1:
        raise ValueError("X has too many features, or the trees are too deep")
    feature = require(feature, np.int32, shape=(None, 2**depth - 1), name="feature")
    require_range(feature, lowest=0, below=X.shape[1], name="feature")
    right = require(right, np.uint64, shape=(*feature.shape, MASK_WORDS), name="right")
    reached = np.empty((feature.shape[0], X.shape[0]), dtype=np.uint16)
    loops.leaves(X, feature, right, depth, reached)
    return reached


def sum_gradients(
    leaf: NDArray[np.uint16], gradients: NDArray[np.int32], *, count: int, n_leaves: int
) -> NDArray[np.int64]:
    """Sums of what rows add to each leaf of a tree: integers, so any cut of the rows gives the same total.

    Args:
        leaf: PRIVATE leaf that the row reached, uint16 ``(n_rows,)``.
        gradients: PRIVATE int32 ``(n_rows, n_scores)``.
        count: public; what a row adds to its leaf's count.
        n_leaves: public.

    Returns:
        PRIVATE int64 ``(n_leaves, n_scores + 1)``.

    Raises:
        ValueError: a type, a shape or a leaf out of its range.
    """
    from app.forests.kernels.loops import boosting as loops

    gradients = require(gradients, np.int32, shape=(None, None), name="gradients")
    leaf = require(leaf, np.uint16, shape=(gradients.shape[0],), name="leaf")
    require_range(leaf, lowest=0, below=n_leaves, name="leaf")
    sums = np.zeros((n_leaves, gradients.shape[1] + 1), dtype=np.int64)
    loops.sum_gradients(leaf, gradients, count, sums)
    return sums


def add_scores(scores: NDArray[np.int64], reached: NDArray[np.uint16], leaf_scores: NDArray[np.int32]) -> None:
    """Adds the scores of their leaves to the scores of all rows, in place.

    Args:
        scores: int64 ``(n_rows, n_scores)``, contiguous.
        reached: uint16 ``(n_trees, n_rows)``.
        leaf_scores: public; int32 ``(n_trees, n_leaves, n_scores)``.

    Raises:
        ValueError: a type, a shape or a leaf out of its range.
    """
    from app.forests.kernels.loops import boosting as loops

    leaf_scores = require(leaf_scores, np.int32, shape=(None, None, None), name="leaf_scores")
    reached = require(reached, np.uint16, shape=(leaf_scores.shape[0], None), name="reached")
    require_range(reached, lowest=0, below=leaf_scores.shape[1], name="reached")
    require_result(scores, np.int64, shape=(reached.shape[1], leaf_scores.shape[2]), name="scores")
    loops.add_scores(reached, leaf_scores, scores)
