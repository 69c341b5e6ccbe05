"""Computes the errors of predicted numbers from released sums: post-processing (lemma L7,
docs/proofs/lemmas.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from grovekeeper_forests.bins import noisy_counts
from grovekeeper_forests.releases.evaluation.metrics import LEVEL
from grovekeeper_forests.releases.evaluation.price import (
    ABSOLUTE,
    CENTRED,
    ROWS,
    SPREAD,
    SQUARED,
    EvaluationPlan,
)
from grovekeeper_forests.releases.evaluation.read import Evaluation


@dataclass(frozen=True)
class MeanError:
    """A mean of errors, in the unit of the label.

    Attributes:
        estimate: from the noisy sums; ``None`` where the noise outweighs the rows or
            their errors, so that no mean of errors has these sums.
        low: lower end of an interval that contains the exact number on the evaluated
            rows, with errors clamped, with probability 0.95. The interval covers noise
            and rounding to steps alone.
        high: upper end of that interval.
    """

    estimate: float | None
    low: float
    high: float


@dataclass(frozen=True)
class Explained:
    """The share of the spread of the labels that predictions explain.

    Attributes:
        estimate: ``None`` where the noise outweighs the spread or the errors.
        low: lower end of an interval as that of :class:`MeanError`; ``None``: unbounded.
        high: upper end of that interval.
    """

    estimate: float | None
    low: float | None
    high: float


def mae(evaluation: Evaluation) -> MeanError | None:
    """The mean absolute error, in the unit of the label."""
    if ABSOLUTE not in evaluation.tables:
        return None
    return _in_units(_mean(evaluation, ABSOLUTE), evaluation)


def rmse(evaluation: Evaluation) -> MeanError | None:
    """The root of the mean squared error, in the unit of the label."""
    if SQUARED not in evaluation.tables:
        return None
    mean = _mean(evaluation, SQUARED)
    estimate = None
    if mean.estimate is not None:
        estimate = math.sqrt(mean.estimate)
    root = MeanError(
        estimate,
        math.sqrt(mean.low),
        math.sqrt(mean.high),
    )
    return _in_units(root, evaluation)


def r2(evaluation: Evaluation) -> Explained | None:
    """1 − Σe² / Σ(d − d̄)²: the share of the spread of the labels that predictions
    explain. At most 1, 0 for predicting the mean of the evaluated labels, and below 0
    for what is worse.
    """
    if SPREAD not in evaluation.tables:
        return None
    rows = _Sum.of(evaluation, ROWS, n_sums=4)
    errors = _Sum.rounded(evaluation, SQUARED, rows, n_sums=4)
    spread = _spread(evaluation, rows)
    estimate = None
    low = None
    high = 1.0
    if spread.value > 0.0 and errors.value > 0.0:
        estimate = 1.0 - errors.value / spread.value
    if spread.low > 0.0:
        low = 1.0 - max(errors.high, 0.0) / spread.low
    if spread.high > 0.0:
        high = 1.0 - max(errors.low, 0.0) / spread.high
    return Explained(estimate, low, high)


def _spread(evaluation: Evaluation, rows: _Sum) -> _Sum:
    """Σ(d − d̄)², which may be 0 or less where noise outweighs it."""
    if rows.low < 1.0:  # perhaps no row at all
        return _Sum(-math.inf, -math.inf, math.inf)
    squares = _Sum.rounded(evaluation, SPREAD, rows, n_sums=4)
    distances = _Sum.rounded(evaluation, CENTRED, rows, n_sums=4)
    ends = (distances.low**2, distances.high**2)
    smallest = min(ends)
    if distances.low <= 0.0 <= distances.high:
        smallest = 0.0
    return _Sum(
        squares.value - distances.value**2 / rows.value,
        squares.low - max(ends) / rows.low,
        squares.high - smallest / rows.high,
    )


@dataclass(frozen=True)
class _Sum:
    """A noisy sum, in contributions of one row, with its interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(
        cls,
        evaluation: Evaluation,
        name: str,
        *,
        n_sums: int,
    ) -> _Sum:
        """A sum, with an interval that holds for ``n_sums`` sums together with
        probability :data:`LEVEL` (Bonferroni).
        """
        value = float(evaluation.in_rows(name)[0])
        level = 1.0 - (1.0 - LEVEL) / n_sums
        off = noisy_counts.noise_bound(evaluation.plan.event_of(name), level=level)
        return cls(value, value - off, value + off)

    @classmethod
    def rounded(
        cls, evaluation: Evaluation, name: str, rows: _Sum, *, n_sums: int
    ) -> _Sum:
        """A sum as before what each row adds was rounded to steps: by half of one, at
        most.
        """
        noisy = cls.of(evaluation, name, n_sums=n_sums)
        steps = noisy_counts.per_row(evaluation.plan.event_of(name))
        off = rows.high / (2.0 * steps)
        return cls(noisy.value, noisy.low - off, noisy.high + off)


def _mean(evaluation: Evaluation, name: str) -> MeanError:
    """The mean of what rows add to a sum, as a part of the largest."""
    rows = _Sum.of(evaluation, ROWS, n_sums=2)
    if rows.low < 1.0:  # perhaps no row at all
        return MeanError(None, 0.0, 1.0)
    total = _Sum.rounded(evaluation, name, rows, n_sums=2)
    estimate = total.value / rows.value
    # Both numbers are at least 0, so these are the ends of the quotient.
    return MeanError(
        estimate if 0.0 < estimate <= 1.0 else None,
        _share(total.low / rows.high),
        _share(total.high / rows.low),
    )


def _share(part: float) -> float:
    return min(max(part, 0.0), 1.0)


def _in_units(error: MeanError, evaluation: Evaluation) -> MeanError:
    """Parts of the largest error in the unit of the label."""
    assert evaluation.plan.scale is not None
    unit = evaluation.plan.scale.largest
    estimate = None if error.estimate is None else unit * error.estimate
    return MeanError(estimate, unit * error.low, unit * error.high)


def half_width_before(plan: EvaluationPlan, size: int | None) -> float | None:
    """The 95 % half width of the mean absolute error, known before it is paid for, in
    the unit of the label.

    Args:
        size: the declared number of rows that the request reads.

    Returns:
        ``None`` where no mean absolute error is released, nobody declared the number of
        rows, or the noise is as large as it.
    """
    if plan.scale is None or ABSOLUTE not in plan.releases or size is None:
        return None
    level = (1.0 + LEVEL) / 2.0
    n_width, width = (
        noisy_counts.noise_bound(plan.event_of(name), level=level)
        for name in (ROWS, ABSOLUTE)
    )
    # The widest case: all errors are the largest.
    if size > n_width:
        half_width = (width + n_width) / (size - n_width)
    else:
        half_width = math.inf
    if half_width < 1.0:
        return plan.scale.largest * half_width
    return None
