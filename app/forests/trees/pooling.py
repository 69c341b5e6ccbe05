"""Turns released noisy counts into leaf values, and sums of leaf values into probabilities: post-processing (lemma L7).

==========  =====================================================================================================
read-out    a row's class probabilities, from the leaves it reaches in each tree
==========  =====================================================================================================
``mv``      share of trees whose leaf has its largest noisy count at the class
``ta``      mean over trees of θ_c = max(ñ_c, 0) / Σ, uniform where no count is positive
``pa``      probabilities as for ``ta``; a label is drawn from them instead of being the most probable class
``sum``     share of the class in the sum over trees of max(ñ_c, 0)
``log``     geometric mean over trees of θ shrunk toward the forest's class proportions, normalised
==========  =====================================================================================================
"""

import numpy as np
from numpy.typing import NDArray

from app.forests.kernels.prediction import normalised, softmax

VOTE, AVERAGE, DRAW, SUM, LOGARITHMIC = "mv", "ta", "pa", "sum", "log"

SHRINKAGE = 1.0
"""Rows of pseudo-evidence per unit of noise scale under ``log``; results are flat between 1 and 7."""


def leaf_values(counts: NDArray[np.int64], read_out: str, *, noise_scale: float) -> NDArray[np.float64]:
    """The values of leaves, which prediction sums over the leaves that a row reaches.

    Args:
        counts: int64 ``(n_trees, n_leaves, n_classes)``, released.
        read_out: see above.
        noise_scale: 1 / inverse scale of the counts' noise; public.

    Returns:
        float64, of the same shape.
    """
    evidence = counts.astype(np.float64)
    values: NDArray[np.float64]
    if read_out == VOTE:
        values = np.eye(counts.shape[-1])[evidence.argmax(axis=-1)]
    elif read_out == LOGARITHMIC:
        prior = class_proportions(evidence, noise_scale)
        values = np.log(normalised(np.maximum(evidence, 0.0) + SHRINKAGE * noise_scale * prior))
    elif read_out == SUM:
        return np.maximum(evidence, 0.0)  # whole numbers, so sums are exact in any order
    else:
        values = normalised(np.maximum(evidence, 0.0))
    values /= len(counts)
    return values


def to_probabilities(sums: NDArray[np.float64], read_out: str) -> NDArray[np.float64]:
    """Class probabilities of rows from the sums of their leaves' values; rows sum to 1."""
    return softmax(sums) if read_out == LOGARITHMIC else normalised(sums)


def class_proportions(evidence: NDArray[np.float64], noise_scale: float) -> NDArray[np.float64]:
    """Class proportions of the whole forest, from its noisy counts; never zero.

    The sum over all cells of a class carries noise of standard deviation √(2 · cells) · scale. One standard deviation
    is added to every class, so that noise does not exclude a rare class.
    """
    n_cells = evidence.shape[0] * evidence.shape[1]
    return normalised(np.maximum(evidence.sum(axis=(0, 1)), 0.0) + np.sqrt(2.0 * n_cells) * noise_scale)
