"""Chooses the best of several released models on PRIVATE rows. Only the child process
of a job imports this module.
"""

from collections.abc import Sequence

import numpy as np

from grovekeeper_forests.bins.quantile_bins import Selection
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.noise.randomness import PaidRandomness
from grovekeeper_forests.privacy.events import UnknownPrivacyEvent
from grovekeeper_forests.releases.choice.price import CREDIT_STEPS
from grovekeeper_forests.releases.evaluation.answers import answers
from grovekeeper_forests.releases.evaluation.error_sums import credit_of
from grovekeeper_forests.releases.evaluation.price import (
    BEST,
    ErrorScale,
    EvaluationPlan,
)
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.trees import tree_growth


def choose(
    plan: EvaluationPlan,
    models: Sequence[Predictor],
    rows: SanitisedRows,
    paid: PaidRandomness,
) -> int:
    """Chooses one of several models, and returns its index. One call is one release,
    which the plan's event of ``best`` prices.

    Privacy:
        A row adds 0 or 1 to every model's utility, all upward: range sensitivity 1. If
        models predict a number, it adds 0 to ``CREDIT_STEPS``, which is the range
        sensitivity then (Theorem 2 of docs/proofs/evaluation.md).
    """
    event = plan.event_of(BEST)
    if not isinstance(event, Selection):
        raise UnknownPrivacyEvent("not the event of a choice among models")
    utilities = [_utility(plan.scale, model, rows) for model in models]
    exact = np.array(utilities, dtype=np.int64)
    return tree_growth.select(event, exact, paid)


def _utility(scale: ErrorScale | None, model: Predictor, rows: SanitisedRows) -> int:
    """PRIVATE measure of how good a model's answers are."""
    if scale is None:
        return _correct(model, rows)
    return credit_of(scale, model, rows, steps=CREDIT_STEPS)


def _correct(model: Predictor, rows: SanitisedRows) -> int:
    """PRIVATE number of rows whose most probable class equals their label."""
    return sum(
        int((shares.argmax(axis=1) == y).sum())
        for y, shares in answers(model, rows, read_out=None)
    )
