"""Prices the evaluation of models that predict a number. No row is read."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from grovekeeper_forests.bins import noisy_counts
from grovekeeper_forests.contract.algorithm import PublicFacts
from grovekeeper_forests.data.schema import Label
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.privacy.events import Part, Sequential
from grovekeeper_forests.releases.evaluation.price import (
    ABSOLUTE,
    CENTRED,
    ROWS,
    SPREAD,
    SQUARED,
    SUMS,
    ErrorScale,
    EvaluationPlan,
)

MAE, RMSE, R2 = "mae", "rmse", "r2"

SUMS_OF: Final = MappingProxyType(
    {
        MAE: (ROWS, ABSOLUTE),
        RMSE: (ROWS, SQUARED),
        R2: (ROWS, SQUARED, CENTRED, SPREAD),
    }
)
"""The sums that each metric follows from."""

_WEIGHTS: Final = MappingProxyType(
    {ROWS: 1, ABSOLUTE: 3, SQUARED: 3, CENTRED: 1, SPREAD: 3}
)
"""Weights of the shares of a price. Errors are small parts of the largest error, and
distances of the mean label from the centre are, too, so the noise of rows and distances
moves a metric little.
"""


def error_scale(label: Label, largest: float | None, centre: float) -> ErrorScale:
    """What clamps the errors of predictions of a label.

    Args:
        label: a number.
        largest: as requested; ``None``: the range of the label.
        centre: a released number near the labels, or the middle of their bounds.

    Raises:
        ParameterInvalid: the largest error is not above zero, or above the range.
    """
    assert label.bounds is not None
    lower, upper = label.bounds
    size = upper - lower
    if largest is None:
        largest = size
    if not 0 < largest <= size:
        problem = "too-large" if largest > size else "too-small"
        accepted = [f"above 0, at most {size}".removesuffix(".0")]
        raise ParameterInvalid.named("largest_error", problem, accepted=accepted)
    return ErrorScale(largest, min(max(centre, lower), upper))


def metrics_of(sums: Sequence[str]) -> tuple[str, ...]:
    """The metrics that some sums tell; :func:`plan_errors` releases these sums for
    them.
    """
    return tuple(
        metric for metric, needed in SUMS_OF.items() if set(needed) <= set(sums)
    )


def plan_errors(
    metrics: Sequence[str], facts: PublicFacts, scale: ErrorScale, *, score_bins: int
) -> EvaluationPlan:
    """Prices the evaluation of one model that predicts a number. Reads no row and draws
    nothing.

    Raises:
        ParameterInvalid: a metric of classes, or a share too small for any draw.
    """
    if not set(metrics) <= SUMS_OF.keys():
        raise ParameterInvalid.named("metrics", "not-for-numbers", accepted=SUMS_OF)
    needed = {name for metric in metrics for name in SUMS_OF[metric]}
    sums = tuple(name for name in SUMS if name in needed)
    parts = parts_of_sums(sums, facts)
    plan = EvaluationPlan(sums, 1, 0, score_bins, Sequential(parts), scale)
    facts.require_covered(plan.event)
    return plan


def parts_of_sums(
    sums: Sequence[str],
    facts: PublicFacts,
) -> tuple[Part, ...]:
    """The events of sums that share a price by :data:`_WEIGHTS`."""
    total = sum(_WEIGHTS[name] for name in sums)
    parts = []
    for name in sums:
        share = facts.part(Fraction(_WEIGHTS[name], total))
        finest = noisy_counts.finest_steps(share.epsilon)
        steps = 1 if name == ROWS else finest
        event = noisy_counts.priced(
            share.epsilon, share.budget, coordinates=1, steps=steps
        )
        parts.append(Part(1, event))
    return tuple(parts)
