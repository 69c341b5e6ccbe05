"""From released noisy counts to leaf values: post-processing, free of privacy cost (lemma L7).

A noisy count says little where its noise is larger than itself, and the scale of the noise is public. So a leaf's
proportions are shrunk toward the forest's own noisy class proportions with a weight that grows with the noise.
"""

import numpy as np
from numpy.typing import NDArray

SHRINKAGE = 2.5 * 2**0.5
"""Rows of pseudo-evidence per unit of noise scale; chosen on several datasets, flat between 1.5 and 5."""


def class_prior(counts: NDArray[np.float64], noise_scale: float) -> NDArray[np.float64]:
    """Class proportions of the whole forest, from its noisy counts; never zero.

    Args:
        counts: ``(n_trees, n_leaves, n_classes)`` released counts.
        noise_scale: 1 / inverse scale of their noise.
    """
    n_cells = counts.shape[0] * counts.shape[1]
    total = np.maximum(counts.sum(axis=(0, 1)), 0.0) + np.sqrt(2.0 * n_cells) * noise_scale + 1e-9
    result: NDArray[np.float64] = total / total.sum()
    return result


def proportions(counts: NDArray[np.float64], *, pseudo_rows: float, prior: NDArray[np.float64]) -> NDArray[np.float64]:
    """θ_c = (max(ñ_c, 0) + a·π_c) / Σ; the prior itself where nothing positive is left.

    Args:
        counts: ``(…, n_classes)`` released counts.
        pseudo_rows: a ≥ 0.
        prior: π, ``(n_classes,)``.
    """
    evidence = np.maximum(counts, 0.0) + pseudo_rows * prior
    total = evidence.sum(axis=-1, keepdims=True)
    result: NDArray[np.float64] = np.where(total > 0.0, evidence / np.where(total > 0.0, total, 1.0), prior)
    return result


def votes(theta: NDArray[np.float64]) -> NDArray[np.float64]:
    """One for the largest class of each leaf (the first of equals), zero for the others."""
    result: NDArray[np.float64] = np.eye(theta.shape[-1])[theta.argmax(axis=-1)]
    return result
