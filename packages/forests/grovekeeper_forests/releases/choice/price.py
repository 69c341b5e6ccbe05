"""Prices the choice of the best of several released models on held-out rows. No row is
read.
"""

from __future__ import annotations

from fractions import Fraction

from grovekeeper_forests.bins.quantile_bins import Selection
from grovekeeper_forests.contract.algorithm import PublicFacts
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.calibration import fitted
from grovekeeper_forests.privacy.events import (
    ExponentialMechanism,
    Part,
    Sequential,
    UnknownPrivacyEvent,
)
from grovekeeper_forests.releases.contract import counts_at
from grovekeeper_forests.releases.evaluation.error_price import (
    MAE,
    SUMS_OF,
    parts_of_sums,
)
from grovekeeper_forests.releases.evaluation.price import (
    ACCURACY,
    BEST,
    ErrorScale,
    EvaluationPlan,
)
from grovekeeper_forests.trees import tree_price

CORRECT_SENSITIVITY = 1
"""A row adds 0 or 1 to the number of correct answers of every model: range sensitivity
1, and monotone.
"""

CREDIT_STEPS = 2**8
"""Where models predict a number, a row adds from 0 to so many steps to the credit of
every model: range sensitivity of as much, and monotone.
"""


WINNER_SHARE = Fraction(1, 2)
"""Share of the price for the winner's accuracy or mean absolute error, if requested."""


def plan_best(
    n_models: int,
    facts: PublicFacts,
    *,
    winner_accuracy: bool,
    scale: ErrorScale | None = None,
) -> EvaluationPlan:
    """Prices the choice of the best of several models: one charge, whatever the number
    of models.

    Args:
        scale: of the errors where the label is a number, else ``None``.
    """
    share = 1 - WINNER_SHARE if winner_accuracy else Fraction(1)
    sensitivity = CORRECT_SENSITIVITY
    if scale is not None:
        sensitivity = CREDIT_STEPS
    selection = _selection(facts.part(share), n_models, sensitivity)
    parts = [Part(1, selection)]
    releases = [BEST]
    if winner_accuracy and scale is None:
        parts.append(counts_at(WINNER_SHARE, facts, coordinates=2))
        releases.append(ACCURACY)
    elif winner_accuracy:
        parts += parts_of_sums(SUMS_OF[MAE], facts.part(WINNER_SHARE))
        releases += SUMS_OF[MAE]
    plan = EvaluationPlan(
        tuple(releases),
        n_models,
        facts.schema.n_classes,
        2,
        Sequential(tuple(parts)),
        scale,
    )
    facts.require_covered(plan.event)
    return plan


def _selection(facts: PublicFacts, n_models: int, sensitivity: int) -> Selection:
    def at(epsilon: Fraction) -> Selection:
        return tree_price.selection_event(
            epsilon,
            facts,
            range_sensitivity=sensitivity,
            max_candidates=n_models,
        )

    if facts.budget.accountant == pure.NAME:
        return at(facts.epsilon)
    event = fitted(facts.budget, at, start=Fraction(1))
    if not isinstance(event, ExponentialMechanism):
        raise UnknownPrivacyEvent("not the event of a choice among models")
    return event
