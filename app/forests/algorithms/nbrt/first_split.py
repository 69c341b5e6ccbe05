"""Computes the utilities of a first split and turns the chosen split into the first tree of a forest.

Random trees learn a single rule slowly: each tree splits at other thresholds, and steps are shrunk because of noise. A
private selection on all rows therefore chooses the split that best separates the classes. Noisy class counts on its two
sides replace the noisy class counts of all rows. Random trees start from the scores of this first tree.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from math import isqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.forests.algorithms.nbrt.event_parts import N_SIDES
from app.forests.algorithms.nbrt.random_trees import Trees, no_trees
from app.forests.algorithms.nbrt.scales import SCORE_LIMIT, SCORE_UNIT
from app.forests.algorithms.nbrt.start_scores import centred_logs, start_scores
from app.forests.bins.noisy_counts import SCALE_BITS
from app.forests.data.encoding import Encoding
from app.forests.kernels import fourth_roots
from app.forests.kernels.boosting import MASK_WORDS

_STEP: Final = Decimal("0.75")
"""Step from the class prior toward a side's class proportions; random trees correct the rest."""

_SHRINKAGE: Final = Decimal("2.5")
"""Each side gets this many standard deviations of its noise, plus one, as rows of the class prior."""

_BLOCK: Final = 16
"""Number of features that are tabulated at once."""

_DEVIATION: Final = 2**SCALE_BITS
_DIGITS: Final = 40
_WORD_BITS: Final = 64


def utilities(encoding: Encoding, code_counts: Callable[[slice], NDArray[np.int64]]) -> NDArray[np.int64]:
    """The utility ‖left‖₄ + ‖right‖₄, in whole rows, of every split that the bins allow.

    Args:
        encoding: public or released bins.
        code_counts: PRIVATE rows by code of consecutive features and class, int64 ``(Σ n_codes, n_classes)``; called
            for a few features at a time, so that public numbers bound the memory.

    Returns:
        PRIVATE int64 ``(n_candidates,)``. An added row raises each utility by 0 or 1: the row adds one to a coordinate
        of one side, so the norm of that side, and its integer part, rise by at most 1.
    """
    candidates, norms = encoding.candidates, [np.zeros(0, dtype=np.int64)]
    for first in range(0, len(encoding.n_codes), _BLOCK):
        features = slice(first, min(first + _BLOCK, len(encoding.n_codes)))
        in_block = slice(*np.searchsorted(candidates.feature, [features.start, features.stop]))
        splits = (
            candidates.feature[in_block] - np.int32(first),
            candidates.threshold[in_block],
            candidates.equals[in_block],
        )
        counts = code_counts(features)[np.newaxis]
        norms.append(fourth_roots.split_norms(counts, n_codes=encoding.n_codes[features], splits=splits)[0])
    return np.concatenate(norms)


def tree(encoding: Encoding, choice: int | None, *, depth: int) -> Trees:
    """The chosen split as a tree of the forest's depth; below the root, or without a choice, all rows go left.

    Args:
        encoding: public or released bins.
        choice: released; the index of a candidate, or ``None``.
        depth: at least 1.
    """
    trees = no_trees(1, depth=depth)
    if choice is not None:
        candidates = encoding.candidates
        threshold = int(candidates.threshold[choice])
        every = (1 << _WORD_BITS * MASK_WORDS) - 1
        mask = every & ~(1 << threshold) if candidates.equals[choice] else every >> threshold + 1 << threshold + 1
        trees.feature[0, 0] = candidates.feature[choice]
        trees.right[0, 0] = [mask >> _WORD_BITS * word & (2**_WORD_BITS - 1) for word in range(MASK_WORDS)]
    return trees


def sides(n_leaves: int) -> list[int]:
    """The two leaves of a first tree that rows reach: left and right of the split."""
    return [0, n_leaves // N_SIDES]


def scores(released: NDArray[np.int64], count: int, *, n_leaves: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Start scores and leaf scores of the first tree: post-processing (lemma L7), equal on every machine.

    The class proportions of a side are shrunk toward the class proportions of all rows.

    Args:
        released: int64 ``(2, n_classes)``: class counts of the sides times ``count``, with noise of deviation 2^24.
        count: the integer that one row adds.
        n_leaves: number of leaves of the tree.

    Returns:
        int64 ``(n_scores,)`` and int32 ``(n_leaves, n_scores)``, in units of 2^-16.
    """
    together = released.sum(axis=0)
    deviation = isqrt(N_SIDES * _DEVIATION**2)
    start = start_scores(together, deviation=deviation)
    prior = [max(rows, 0) + deviation for rows in together.tolist()]
    values = np.zeros((n_leaves, len(start)), dtype=np.int32)
    with localcontext() as context:
        context.prec = _DIGITS
        added = (count + _SHRINKAGE * _DEVIATION) / sum(prior)
        base = centred_logs([Decimal(rows) for rows in prior])
        for leaf, side in zip(sides(n_leaves), released.tolist(), strict=True):
            logs = centred_logs([max(rows, 0) + added * share for rows, share in zip(side, prior, strict=True)])
            steps = [_STEP * (log - base_log) * SCORE_UNIT for log, base_log in zip(logs, base, strict=True)]
            limit = SCORE_LIMIT * SCORE_UNIT
            values[leaf] = [min(max(int(step.to_integral_value(ROUND_HALF_EVEN)), -limit), limit) for step in steps]
    return start, values
