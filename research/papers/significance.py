"""Computes average ranks and significance tests of classifiers as the papers print
them.

The papers follow Demšar, "Statistical comparisons of classifiers over multiple data
sets", JMLR 7 (2006).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

LEVEL = 0.05
"""Level of every test of the papers."""

BETTER, WORSE, NEITHER = "better", "worse", ""
"""Marks of a method beside another: significantly more accurate, less accurate, or
neither.
"""


def average_ranks(accuracies: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean ranks of methods over datasets, the best method of a dataset having rank 1;
    ties share the mean rank.

    Args:
        accuracies: float64 ``(n_datasets, n_methods)``.

    Returns:
        float64 ``(n_methods,)``; the ranks add up to n(n + 1)/2 for n methods.
    """
    return np.asarray(stats.rankdata(-accuracies, axis=1).mean(axis=0))


def signed_rank_mark(
    ours: Sequence[float], theirs: Sequence[float], *, level: float = LEVEL
) -> str:
    """The mark of ``ours`` beside ``theirs`` by Wilcoxon's signed-rank test on pairs,
    two-sided.

    Args:
        ours: accuracies on folds.
        theirs: accuracies on the same folds.
        level: of the test.
    """
    differences = np.round(np.subtract(ours, theirs), 9)
    differences = differences[differences != 0]
    ranks = stats.rankdata(np.abs(differences))
    return _mark(
        signed_rank_probability(differences),
        float(ranks @ np.sign(differences)),
        level,
    )


def signed_rank_probability(differences: NDArray[np.float64]) -> float:
    """Wilcoxon's two-sided probability: of a sum of signed ranks as far from zero, or
    farther, if signs are coins.

    Exact for equal ranks, too, which accuracies on few test rows often have.

    Args:
        differences: without zeros, float64 ``(n_pairs,)``.
    """
    # whole numbers, as ties share ranks
    ranks = np.rint(2 * stats.rankdata(np.abs(differences))).astype(np.int64)
    total = int(ranks.sum())
    chances = np.zeros(total + 1)  # of the sum of the ranks of positive differences
    chances[0] = 1.0
    for rank in ranks:
        chances[rank:], chances[:rank] = (
            (chances[rank:] + chances[: total + 1 - rank]) / 2,
            chances[:rank] / 2,
        )
    seen = abs(2 * int(ranks[differences > 0].sum()) - total)
    return float(chances[np.abs(2 * np.arange(total + 1) - total) >= seen].sum())


def rank_sum_mark(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """The mark of ``ours`` beside ``theirs`` by the Mann–Whitney U test, two-sided at
    :data:`LEVEL`.
    """
    test = stats.mannwhitneyu(ours, theirs, alternative="two-sided")
    return _mark(
        float(test.pvalue), float(test.statistic) - len(ours) * len(theirs) / 2
    )


def _mark(probability: float, direction: float, level: float = LEVEL) -> str:
    if not probability < level or direction == 0:
        return NEITHER
    return BETTER if direction > 0 else WORSE
