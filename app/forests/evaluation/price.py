"""Price an evaluation of released models on rows that they were not trained on. No row is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from app.core import limits
from app.core.errors import GrovekeeperError, InvalidRequest
from app.forests.bins import noisy_counts
from app.forests.contract.facts import PublicFacts
from app.forests.trees import selections
from app.privacy import events
from app.privacy.accountants import pure
from app.privacy.calibration import fitted
from app.privacy.events import Event, ExponentialMechanism, Part, Sequential, UnknownPrivacyEvent

ACCURACY, CONFUSION, AUROC, BEST = "accuracy", "confusion", "auroc", "best"


TABLES = (ACCURACY, CONFUSION, AUROC)
"""What can be released of one model, in the order of release. A confusion matrix tells the accuracy too."""

CORRECT_SENSITIVITY = 1
"""A row adds 0 or 1 to the number of correct answers of every model: range sensitivity 1, and monotone."""

WINNER_SHARE = Fraction(1, 2)
"""Share of the price for the winner's accuracy, if it is asked for."""


class EvaluationInvalid(GrovekeeperError):
    """Stored bytes that are no evaluation of a known form."""

    def __str__(self) -> str:
        return "not an evaluation of a known form"


@dataclass(frozen=True)
class EvaluationPlan:
    """What an evaluation will release, priced before any row is read.

    Attributes:
        releases: ``accuracy`` or ``confusion``, and ``auroc``, of one model; or ``best`` of several, and then perhaps
            ``accuracy`` of the winner. One part of the event each, in this order.
        n_models: 1, or the candidates of ``best``.
        n_classes: of their schema.
        score_bins: cells of the score of ``auroc``.
        event: all releases, one after another.
    """

    releases: tuple[str, ...]
    n_models: int
    n_classes: int
    score_bins: int
    event: Sequential

    def to_json(self) -> dict[str, object]:
        """Exact."""
        return {
            "releases": list(self.releases),
            "n_models": self.n_models,
            "n_classes": self.n_classes,
            "score_bins": self.score_bins,
            "event": self.event.to_json(),
        }

    @classmethod
    def from_json(cls, value: object) -> EvaluationPlan:
        """Inverse of :meth:`to_json`.

        Raises:
            EvaluationInvalid: not of that form.
        """
        match value:
            case {
                "releases": [*releases],
                "n_models": int(n_models),
                "n_classes": int(n_classes),
                "score_bins": int(score_bins),
                "event": event,
                **rest,
            } if not rest and all(isinstance(each, str) for each in releases):
                read = events.from_json(event)
                if isinstance(read, Sequential) and len(read.parts) == len(releases):
                    return cls(tuple(releases), n_models, n_classes, score_bins, read)
        raise EvaluationInvalid

    def event_of(self, released: str) -> Event:
        """The part of the event that a release was priced at."""
        return self.event.parts[self.releases.index(released)].event

    def n_cells(self, released: str) -> int:
        """Cells of a table."""
        sizes = {ACCURACY: 2, CONFUSION: self.n_classes**2, AUROC: 2 * self.score_bins}
        return sizes[released]


def plan_tables(metrics: Sequence[str], facts: PublicFacts, *, score_bins: int) -> EvaluationPlan:
    """Prices the evaluation of one model: equal shares for each table. Touches no row and draws nothing.

    Raises:
        InvalidRequest: a metric that this number of classes does not have, or a share too small to be drawn with.
    """
    n_classes = facts.schema.n_classes
    if AUROC in metrics and n_classes != 2:
        raise InvalidRequest.at("/metrics", "needs-two-classes")
    if CONFUSION in metrics and n_classes > limits.MAX_CONFUSION_CLASSES:
        raise InvalidRequest.at("/metrics", "too-many-classes")
    wanted = set(metrics) - ({ACCURACY} if CONFUSION in metrics else set())
    releases = tuple(each for each in TABLES if each in wanted)
    empty = EvaluationPlan(releases, 1, n_classes, score_bins, Sequential(()))
    part = facts.part(Fraction(1, len(releases)))
    parts = tuple(
        Part(1, noisy_counts.priced(part.epsilon, part.budget, coordinates=empty.n_cells(each))) for each in releases
    )
    return _covered(EvaluationPlan(releases, 1, n_classes, score_bins, Sequential(parts)), facts)


def plan_best(n_models: int, facts: PublicFacts, *, winner_accuracy: bool) -> EvaluationPlan:
    """Prices the choice of the best of several models: one charge, however many there are.

    Raises:
        InvalidRequest: a share too small to be drawn with.
    """
    share = 1 - WINNER_SHARE if winner_accuracy else Fraction(1)
    parts = [Part(1, _selection(facts.part(share), n_models))]
    releases = [BEST]
    if winner_accuracy:
        part = facts.part(WINNER_SHARE)
        parts.append(Part(1, noisy_counts.priced(part.epsilon, part.budget, coordinates=2)))
        releases.append(ACCURACY)
    plan = EvaluationPlan(tuple(releases), n_models, facts.schema.n_classes, 2, Sequential(tuple(parts)))
    return _covered(plan, facts)


def _selection(facts: PublicFacts, n_models: int) -> selections.Selection:
    def at(epsilon: Fraction) -> selections.Selection:
        return selections.priced(epsilon, facts, range_sensitivity=CORRECT_SENSITIVITY, max_candidates=n_models)

    if facts.budget.accountant == pure.NAME:
        return at(facts.epsilon)
    event = fitted(facts.budget, at, start=Fraction(1))
    if not isinstance(event, ExponentialMechanism):
        raise UnknownPrivacyEvent("not the event of a choice among models")
    return event


def _covered(plan: EvaluationPlan, facts: PublicFacts) -> EvaluationPlan:
    facts.require_covered(plan.event)
    return plan
