"""From the released noisy weights of a reweighted tree to the scores of its leaves: post-processing (lemma L7)."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.forests.kernels.exponential import SCORE_BITS
from app.forests.kernels.reweighting import UNIT

UNREACHED: Final = 255
"""In place of a leaf's number of selections where no row can be: below a node that became a leaf early."""

LATER_STEP: Final = 0.8
"""Share of a later tree's score that is added; the first tree counts in full."""

SHRINKAGE: Final = 2.5
"""Standard deviations of a leaf's noise that its smoothing adds as rows of the class prior, beside one row."""


NEIGHBOUR: Final = 0.2
"""Weight in a leaf's neighbourhood of a leaf that one split tells from it; two splits count its square, and so on."""


def of_tree(
    counts: NDArray[np.int64],
    selections: NDArray[np.uint8],
    scales: Sequence[Fraction],
    *,
    is_first: bool,
    by_level: bool = False,
) -> NDArray[np.int32]:
    """Class scores of one tree's leaves, in units of 2⁻¹⁶.

    A leaf's proportions are shrunk toward the tree's class prior (or toward those of the leaves around it, which are
    themselves shrunk toward that prior) by as many rows as its noise calls for. The first
    tree scores log p; a later one log p − log prior, since it corrects what the earlier ones said of weighted rows.

    Args:
        counts: released noisy weights in units of 1/256, int64 ``(n_leaves, n_classes)``.
        selections: released; selections on the path to each leaf, uint8 ``(n_leaves,)``, or :data:`UNREACHED`.
        scales: public; inverse scale of the noise on a leaf's weights, by number of selections.
        is_first: whether no tree was released before.
        by_level: all nodes of a level have the same split: leaves are shrunk toward their neighbourhood.

    Returns:
        int32 ``(n_leaves, n_classes)``; every leaf's mean is about zero; 0 where no row can be.
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

    A leaf's number is the word of its answers to the splits. Adding, for each bit of it, :data:`NEIGHBOUR` times what
    stands at the other answer weighs all leaves by how many answers they share.
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
    """Class shares of leaves, shrunk toward others by as many rows as the noise calls for."""
    shares = np.maximum(evidence, 0.0) + (1.0 + SHRINKAGE * deviation[:, np.newaxis]) * prior
    shares /= shares.sum(axis=1, keepdims=True)
    return shares
