"""Computes clipped integer gradients of private rows, and the leaves that rows reach in trees with code masks."""

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from app.forests.kernels import exponential
from app.forests.kernels.arrays import MAX_FEATURES, require, require_range

MAX_DEPTH: Final = 16
"""Largest depth of a tree: its arrays then have 2^16 entries."""

MASK_WORDS: Final = 4
"""Words of 64 bits in a node's mask: one bit per code, set if the code goes right."""

PROBABILITY_BITS: Final = 24
"""Probabilities of rows are integers in units of 2^-24."""

LARGEST_SQUARED_LENGTH: Final = 2**46
"""Largest C²: μ² = 1/4 per tree, more than a sensible budget pays for; sums over 2^31 rows stay inside 63 bits."""


class GradientLimits(Protocol):
    """Public limits on the length of a row's gradient."""

    @property
    def n_scores(self) -> int:
        """Coordinates of a gradient: one per class, or a single one for two classes."""

    @property
    def clip(self) -> int:
        """Length, in units of 2^-24, to which longer gradients are shortened."""

    @property
    def length(self) -> int:
        """The length of a clipped gradient."""

    @property
    def squared_length(self) -> int:
        """C², the largest ‖γ‖² that a row may add."""


def gradients(scores: NDArray[np.int64], y: NDArray[np.int32], limits: GradientLimits) -> NDArray[np.int32]:
    """Computes the gradients γ of rows, and checks ‖γ‖² ≤ C² row by row.

    A row's gradient is a function of the row's scores and class alone, with the same bits on every machine.

    Args:
        scores: PRIVATE int64 ``(n_rows, n_scores)`` in units of 2^-16.
        y: PRIVATE class codes, int32 ``(n_rows,)``.
        limits: public.

    Returns:
        PRIVATE int32 ``(n_rows, n_scores)``.

    Raises:
        ValueError: a type, a shape or a class out of its range.
    """
    from app.forests.kernels.compiled import boosting_loops as loops

    y = require(y, np.int32, shape=(None,), name="y")
    scores = require(scores, np.int64, shape=(y.size, limits.n_scores), name="scores")
    require_range(y, lowest=0, below=max(limits.n_scores, 2), name="y")
    if not 0 < limits.squared_length <= LARGEST_SQUARED_LENGTH or not 0 < limits.clip <= 2**PROBABILITY_BITS:
        raise ValueError("limits are out of range")
    result = np.empty(scores.shape, dtype=np.int32)
    loop = loops.gradients_of_two if limits.n_scores == 1 else loops.gradients_of_many
    loop(
        scores,
        y,
        *exponential.tables(),
        np.array([limits.clip, limits.length, limits.squared_length], dtype=np.uint64),
        result,
    )
    return result


def leaves(
    X: NDArray[np.uint8], *, feature: NDArray[np.int32], right: NDArray[np.uint64], depth: int
) -> NDArray[np.int32]:
    """Finds the leaf that every row reaches in every tree.

    Args:
        X: PRIVATE or a caller's codes, uint8 ``(n_rows, n_features)``, one row after another.
        feature: public; int32 ``(n_trees, 2**depth − 1)`` in heap order.
        right: public; uint64 ``(n_trees, 2**depth − 1, 4)``: bit c of a node's 256 sends code c to the right.
        depth: public; 0 to 16.

    Returns:
        int32 ``(n_trees, n_rows)``.

    Raises:
        ValueError: a type, a shape or a feature out of its range.
    """
    from app.forests.kernels.compiled import boosting_loops as loops

    X = require(X, np.uint8, shape=(None, None), name="X")
    if X.shape[1] > MAX_FEATURES or not 0 <= depth <= MAX_DEPTH:
        raise ValueError("X has too many features, or the trees are too deep")
    feature = require(feature, np.int32, shape=(None, 2**depth - 1), name="feature")
    require_range(feature, lowest=0, below=X.shape[1], name="feature")
    right = require(right, np.uint64, shape=(*feature.shape, MASK_WORDS), name="right")
    reached = np.empty((feature.shape[0], X.shape[0]), dtype=np.int32)
    loops.leaves(X, feature, right, depth, reached)
    return reached
