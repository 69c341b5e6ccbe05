"""Turns the released noisy weights of a reweighted tree into leaf scores: post-processing (lemma L7)."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.forests.kernels.exponential import SCORE_BITS
from app.forests.kernels.reweighting import UNIT

UNREACHED: Final = 255
"""Stored instead of the number of selections for a leaf that no row can reach, below a node that stopped early."""

LATER_STEP: Final = 0.8
"""Factor on the scores of every tree after the first."""

SHRINKAGE: Final = 2.5
"""Smoothing adds this many standard deviations of a leaf's noise, plus one, as rows of the class prior."""


NEIGHBOUR: Final = 0.2
"""Weight, in a leaf's neighbourhood, of a leaf on the other side of one split; of k splits, its k-th power."""


def of_tree(
    counts: NDArray[np.int64],
    selections: NDArray[np.uint8],
    scales: Sequence[Fraction],
    *,
    is_first: bool,
    by_level: bool = False,
) -> NDArray[np.int32]:
    """Class scores of one tree's leaves, in units of 2⁻¹⁶.

    A leaf's class proportions are shrunk toward the tree's class prior, or toward the proportions of neighbouring
    leaves, which are shrunk toward that prior; more noise means more shrinkage. The first tree scores log p. A later
    tree scores log p − log prior, because it corrects the scores of earlier trees on reweighted rows.

    Args:
        counts: released noisy weights in units of 1/256, int64 ``(n_leaves, n_classes)``.
        selections: released; selections on the path to each leaf, uint8 ``(n_leaves,)``, or :data:`UNREACHED`.
        scales: public; inverse scale of the noise on a leaf's weights, by number of selections.
        is_first: whether this tree is the first of the forest.
        by_level: whether all nodes of a level share a split; if so, leaves are shrunk toward their neighbourhood.

    Returns:
        int32 ``(n_leaves, n_classes)``; the mean over classes is about 0; 0 in leaves that no row can reach.
    """
    is_reached = selections != UNREACHED
    evidence = counts[is_reached] / UNIT
    noise = np.array([float(1 / (UNIT * scale)) for scale in scales])[selections[is_reached]]
    prior = np.maximum(evidence.sum(axis=0), 0.0) + np.sqrt(2.0 * np.square(noise).sum())
    prior /= prior.sum()
    around = _neighbourhood(evidence, noise, prior) if by_level else prior
    shares = _shrunk(evidence, np.sqrt(2.0) * noise, around)
    real = np.log(shares) if is_first else LATER_STEP * (np.log(shares) - np.log(prior))
    real -= real.mean(axis=1, keepdims=True)
    scores = np.zeros(counts.shape, dtype=np.int32)
    scores[is_reached] = np.rint(real * 2**SCORE_BITS)
    return scores


def _neighbourhood(
    evidence: NDArray[np.float64], noise: NDArray[np.float64], prior: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Class shares around every leaf of a tree with one split per level, float64 ``(n_leaves, n_classes)``.

    Bit k of a leaf's index is its side of one level's split. For each bit, the weights of the leaf with that bit
    flipped are added, times :data:`NEIGHBOUR`. So a leaf that differs in k bits has weight :data:`NEIGHBOUR` ** k.
    """
    spread, n_bits = evidence, len(evidence).bit_length() - 1
    for bit in range(n_bits):
        halves = spread.reshape(-1, 2, 1 << bit, evidence.shape[1])
        spread = (halves + NEIGHBOUR * halves[:, ::-1]).reshape(evidence.shape)
    deviation = np.sqrt(2.0 * (1.0 + NEIGHBOUR**2) ** n_bits) * noise
    return _shrunk(spread, deviation, prior)


def _shrunk(
    evidence: NDArray[np.float64], deviation: NDArray[np.float64], prior: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Class shares of leaves, shrunk toward ``prior``; a larger standard deviation of the noise shrinks more."""
    shares = np.maximum(evidence, 0.0) + (1.0 + SHRINKAGE * deviation[:, np.newaxis]) * prior
    shares /= shares.sum(axis=1, keepdims=True)
    return shares
