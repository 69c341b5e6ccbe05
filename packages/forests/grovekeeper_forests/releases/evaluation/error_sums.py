"""Adds up the errors of predicted numbers on PRIVATE rows. Only the child process of a
job imports this module.
"""

from collections.abc import Iterator

import numpy as np

from grovekeeper_forests.array_types import Float64Array, Int64Array
from grovekeeper_forests.bins.noisy_counts import per_row
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.releases.evaluation.answers import numbers
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
from grovekeeper_forests.releases.forest.predictor import Predictor


def exact_sums(
    plan: EvaluationPlan, model: Predictor, rows: SanitisedRows
) -> dict[str, Int64Array]:
    """PRIVATE exact sums of a model's errors, int64 ``(1,)`` in steps, by table."""
    assert plan.scale is not None
    names = [name for name in plan.releases if name in SUMS]
    sums = {name: np.zeros(1, dtype=np.int64) for name in names}
    for added in _contributions(plan.scale, model, rows):
        for name in names:
            steps = per_row(plan.event_of(name))
            sums[name] += in_steps(added[name], steps).sum()
    return sums


def credit_of(
    scale: ErrorScale, model: Predictor, rows: SanitisedRows, *, steps: int
) -> int:
    """PRIVATE sum over the rows of ``steps`` for a prediction without error, less for
    one with an error, and 0 for one with the largest.
    """
    return sum(
        int(in_steps(1.0 - added[ABSOLUTE], steps).sum())
        for added in _contributions(scale, model, rows)
    )


def in_steps(
    parts: Float64Array,
    steps: int,
) -> Int64Array:
    """What rows add to a sum, in whole steps, from their parts of what a row may add."""
    # Neither rounding nor a number that is none may carry a row beyond the sensitivity
    # that the event states.
    whole = np.rint(parts * steps)
    finite = np.nan_to_num(whole)
    bounded = np.clip(finite, -steps, steps)
    in_integers: Int64Array = bounded.astype(np.int64)
    return in_integers


def _contributions(
    scale: ErrorScale, model: Predictor, rows: SanitisedRows
) -> Iterator[dict[str, Float64Array]]:
    """PRIVATE contributions of rows to each sum, block by block; between −1 and 1."""
    for labels, predicted in numbers(model, rows):
        errors = _clamped(predicted - labels, scale)
        distances = _clamped(labels - scale.centre, scale)
        yield {
            ROWS: np.ones(len(labels)),
            ABSOLUTE: np.abs(errors),
            SQUARED: errors**2,
            CENTRED: distances,
            SPREAD: distances**2,
        }


def _clamped(differences: Float64Array, scale: ErrorScale) -> Float64Array:
    """Differences in parts of the largest one."""
    parts: Float64Array = (
        np.clip(differences, -scale.largest, scale.largest) / scale.largest
    )
    return parts
