"""Computes accuracy and AUROC from released counts: post-processing (lemma L7,
docs/proofs/lemmas.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from grovekeeper_forests.array_types import Float64Array
from grovekeeper_forests.bins import noisy_counts
from grovekeeper_forests.releases.evaluation.price import ACCURACY, AUROC, CONFUSION
from grovekeeper_forests.releases.evaluation.read import Evaluation

LEVEL = 0.95


@dataclass(frozen=True)
class Accuracy:
    """A share of correct answers.

    Attributes:
        estimate: correct / (correct + incorrect), both clamped at 0; ``None`` where
            both are 0.
        low: lower end of an interval that contains the exact accuracy on the evaluated
            rows with probability 0.95. The interval covers noise alone.
        high: upper end of that interval.
        population_low: lower end of an interval for the accuracy on the distribution of
            the evaluated rows. The interval covers noise and sampling error, each with
            probability 0.95.
        population_high: upper end of that interval.
    """

    estimate: float | None
    low: float
    high: float
    population_low: float
    population_high: float


@dataclass(frozen=True)
class Auroc:
    """The probability that a row of the second class gets a higher score than a row of
    the first class.

    Attributes:
        estimate: from the noisy histogram, clamped at 0; rows of one bin are ties.
            ``None`` where a class is empty.
        noise_sd: standard deviation of the estimate from noise, to first order;
            ``None`` where the estimate is.
    """

    estimate: float | None
    noise_sd: float | None


def accuracy(evaluation: Evaluation) -> Accuracy | None:
    """The accuracy, from the released accuracy table or the confusion matrix."""
    if ACCURACY in evaluation.tables:
        table = evaluation.in_rows(ACCURACY)
        correct = np.array([True, False])
        event = evaluation.plan.event_of(ACCURACY)
    elif CONFUSION in evaluation.tables:
        table = evaluation.in_rows(CONFUSION)
        event = evaluation.plan.event_of(CONFUSION)
        correct = np.eye(evaluation.plan.n_classes, dtype=np.bool_).ravel()
    else:
        return None
    right = float(table[correct].sum())
    wrong = float(table[~correct].sum())
    # Each sum is within its bound with probability (1 + LEVEL) / 2, so both are with
    # probability LEVEL.
    right_off, wrong_off = (
        noisy_counts.noise_bound(
            event, level=(1.0 + LEVEL) / 2.0, n_counts=int(cells.sum())
        )
        for cells in (correct, ~correct)
    )
    low = _share(right - right_off, wrong + wrong_off, otherwise=0.0)
    high = _share(right + right_off, wrong - wrong_off, otherwise=1.0)
    n_rows = max(right + wrong - right_off - wrong_off, 1.0)
    z = NormalDist().inv_cdf((1.0 + LEVEL) / 2.0)
    estimate = None
    if right > 0 or wrong > 0:
        estimate = _share(right, wrong, otherwise=0.0)
    return Accuracy(
        estimate,
        low,
        high,
        _lowest(low, n_rows, z),
        1.0 - _lowest(1.0 - high, n_rows, z),
    )


def majority(counts: Sequence[float]) -> tuple[int, float] | None:
    """The largest class and its share of the rows, from noisy counts by class clamped
    at 0; ``None`` if all are 0.
    """
    rows = np.maximum(np.asarray(counts, dtype=np.float64), 0.0)
    largest = int(rows.argmax())
    if rows.sum() == 0:
        return None
    return (largest, float(rows[largest] / rows.sum()))


def auroc(evaluation: Evaluation) -> Auroc | None:
    """The area under the ROC curve of the noisy histogram."""
    if AUROC not in evaluation.tables:
        return None
    first, second = np.maximum(evaluation.in_rows(AUROC).reshape(2, -1), 0.0)
    n_first = float(first.sum())
    n_second = float(second.sum())
    if n_first == 0.0 or n_second == 0.0:
        return Auroc(None, None)
    below = first.cumsum() - first / 2.0
    above = second[::-1].cumsum()[::-1] - second / 2.0
    area = float((second * below).sum()) / (n_first * n_second)
    by_second = below / (n_first * n_second) - area / n_second
    by_first = above / (n_first * n_second) - area / n_first
    slope: Float64Array = np.concatenate((by_first, by_second))
    noise = noisy_counts.noise_sd(evaluation.plan.event_of(AUROC))
    return Auroc(area, noise * float(np.sqrt(np.square(slope).sum())))


def _share(right: float, wrong: float, *, otherwise: float) -> float:
    right = max(right, 0.0)
    wrong = max(wrong, 0.0)
    return right / (right + wrong) if right + wrong > 0 else otherwise


def _lowest(share: float, n_rows: float, z: float) -> float:
    """The lower end of Wilson's interval, which has positive width even where every
    answer is correct or none is.

    The lower end rises with the share and with the number of rows, so lower bounds of
    both give a lower bound.
    """
    around = z * math.sqrt(share * (1.0 - share) / n_rows + (z / (2.0 * n_rows)) ** 2)
    return share**2 / (share + z**2 / (2.0 * n_rows) + around)
