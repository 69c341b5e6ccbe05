"""A trained forest: public structure and released noisy counts, and nothing else."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.forests.plan import Plan


@dataclass(frozen=True, eq=False)
class Forest:
    """Complete binary trees of one public depth in heap layout (children of node i: 2i + 1 and 2i + 2).

    Every field is public configuration, a released selection or a released noisy count: no exact count, no impurity,
    no node size, no timing.

    Attributes:
        plan: what was planned and priced; holds the parameters and the noise scales.
        feature: int32 ``(n_trees, 2^depth − 1)``.
        threshold: uint8 ``(n_trees, 2^depth − 1)``.
        equals: bool ``(n_trees, 2^depth − 1)``: right iff the code is not the threshold, else iff it is above.
        counts: int64 ``(n_trees, 2^depth, n_classes)``: noisy class counts of every leaf, empty ones too.
    """

    plan: Plan
    feature: NDArray[np.int32]
    threshold: NDArray[np.uint8]
    equals: NDArray[np.bool_]
    counts: NDArray[np.int64]

    @property
    def depth(self) -> int:
        """Splits on the way to a leaf."""
        return int(self.counts.shape[1]).bit_length() - 1
