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
from grovekeeper_forests.releases.evaluation.price import ACCURACY, BEST, EvaluationPlan
from grovekeeper_forests.trees import tree_price

CORRECT_SENSITIVITY = 1
"""A row adds 0 or 1 to the number of correct answers of every model: range sensitivity
1, and monotone.
"""


WINNER_SHARE = Fraction(1, 2)
"""Share of the price for the winner's accuracy, if requested."""


def plan_best(
    n_models: int, facts: PublicFacts, *, winner_accuracy: bool
) -> EvaluationPlan:
    """Prices the choice of the best of several models: one charge, whatever the number
    of models.
    """
    share = 1 - WINNER_SHARE if winner_accuracy else Fraction(1)
    parts = [Part(1, _selection(facts.part(share), n_models))]
    releases = [BEST]
    if winner_accuracy:
        parts.append(counts_at(WINNER_SHARE, facts, coordinates=2))
        releases.append(ACCURACY)
    plan = EvaluationPlan(
        tuple(releases), n_models, facts.schema.n_classes, 2, Sequential(tuple(parts))
    )
    facts.require_covered(plan.event)
    return plan


def _selection(facts: PublicFacts, n_models: int) -> Selection:
    def at(epsilon: Fraction) -> Selection:
        return tree_price.selection_event(
            epsilon,
            facts,
            range_sensitivity=CORRECT_SENSITIVITY,
            max_candidates=n_models,
        )

    if facts.budget.accountant == pure.NAME:
        return at(facts.epsilon)
    event = fitted(facts.budget, at, start=Fraction(1))
    if not isinstance(event, ExponentialMechanism):
        raise UnknownPrivacyEvent("not the event of a choice among models")
    return event
