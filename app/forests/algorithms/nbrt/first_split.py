"""The first split: where one rule says most of what can be said, a forest begins with it.

Random trees learn a single rule slowly: each of them cuts elsewhere, and steps are shrunk for their noise. So the split
that parts the classes best is selected once, by all rows, and the class counts on its two sides are what a class prior
would otherwise be made of. It becomes the first tree of the forest; random trees go on from its scores.
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
from app.forests.bins.noise_prices import SCALE_BITS
from app.forests.data.encoding import Encoding
from app.forests.kernels import fourth_roots
from app.forests.kernels.boosting import MASK_WORDS

_STEP: Final = Decimal("0.75")
"""Share of the way from the class prior to a side's own proportions: random trees go the rest, or back."""

_SHRINKAGE: Final = Decimal("2.5")
"""Deviations of a side's noise that are added to it as rows of the class prior, beside one row."""

_BLOCK: Final = 16
"""Features that are tabulated at once."""

_DEVIATION: Final = 2**SCALE_BITS
_DIGITS: Final = 40
_WORD_BITS: Final = 64


def utilities(encoding: Encoding, code_counts: Callable[[slice], NDArray[np.int64]]) -> NDArray[np.int64]:
    """What is to be maximised, for every split that the bins allow.

    Args:
        encoding: public or released bins.
        code_counts: PRIVATE rows by code of some features and class, int64 ``(Σ n_codes, n_classes)``; asked for a few
            features at a time, which bounds memory by public numbers.

    Returns:
        PRIVATE int64 ``(n_candidates,)``. One row more raises each by 0 or 1: it adds one to a coordinate of one side,
        so that the side's norm rises by at most 1, and so does its whole part.
    """
    own, found = encoding.candidates, [np.zeros(0, dtype=np.int64)]
    for first in range(0, len(encoding.n_codes), _BLOCK):
        features = slice(first, min(first + _BLOCK, len(encoding.n_codes)))
        mine = slice(*np.searchsorted(own.feature, [features.start, features.stop]))
        splits = (own.feature[mine] - np.int32(first), own.threshold[mine], own.equals[mine])
        counts = code_counts(features)[np.newaxis]
        found.append(fourth_roots.split_norms(counts, n_codes=encoding.n_codes[features], splits=splits)[0])
    return np.concatenate(found)


def tree(encoding: Encoding, choice: int | None, *, depth: int) -> Trees:
    """The chosen split as a tree of the forest's depth, below which all rows go left; without a choice they always do.

    Args:
        encoding: public or released bins.
        choice: released; a candidate.
        depth: at least 1.
    """
    found = no_trees(1, depth=depth)
    if choice is not None:
        own = encoding.candidates
        threshold = int(own.threshold[choice])
        every = (1 << _WORD_BITS * MASK_WORDS) - 1
        mask = every & ~(1 << threshold) if own.equals[choice] else every >> threshold + 1 << threshold + 1
        found.feature[0, 0] = own.feature[choice]
        found.right[0, 0] = [mask >> _WORD_BITS * word & (2**_WORD_BITS - 1) for word in range(MASK_WORDS)]
    return found


def sides(n_leaves: int) -> list[int]:
    """The leaves of such a tree that rows reach: left of the split and right of it."""
    return [0, n_leaves // N_SIDES]


def scores(released: NDArray[np.int64], count: int, *, n_leaves: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Start scores, and what the first tree adds to them: post-processing (lemma L7), the same on every machine.

    A side's proportions are shrunk toward those of both sides together.

    Args:
        released: int64 ``(2, n_classes)``: class counts of the sides times ``count``, with noise of deviation 2^24.
        count: what one row adds.
        n_leaves: of the tree.

    Returns:
        int64 ``(n_scores,)`` and int32 ``(n_leaves, n_scores)``, in units of 2^-16.
    """
    together = released.sum(axis=0)
    deviation = isqrt(N_SIDES * _DEVIATION**2)
    start = start_scores(together, deviation=deviation)
    prior = [max(own, 0) + deviation for own in together.tolist()]
    found = np.zeros((n_leaves, len(start)), dtype=np.int32)
    with localcontext() as context:
        context.prec = _DIGITS
        added = (count + _SHRINKAGE * _DEVIATION) / sum(prior)
        base = centred_logs([Decimal(own) for own in prior])
        for leaf, side in zip(sides(n_leaves), released.tolist(), strict=True):
            own = centred_logs([max(rows, 0) + added * share for rows, share in zip(side, prior, strict=True)])
            steps = [_STEP * (mine - other) * SCORE_UNIT for mine, other in zip(own, base, strict=True)]
            limit = SCORE_LIMIT * SCORE_UNIT
            found[leaf] = [min(max(int(step.to_integral_value(ROUND_HALF_EVEN)), -limit), limit) for step in steps]
    return start, found
