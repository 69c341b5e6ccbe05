"""Prices an evaluation of released models on held-out rows, and reads the released tables. No row is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from app.core import limits
from app.core.errors import GrovekeeperError, InvalidRequest
from app.forests.bins import noisy_counts
from app.forests.contract.algorithm import PublicFacts
from app.forests.trees import tree_price
from app.privacy import events
from app.privacy.accountants import pure
from app.privacy.calibration import fitted
from app.privacy.events import Event, ExponentialMechanism, Part, Sequential, UnknownPrivacyEvent

ACCURACY, CONFUSION, AUROC, BEST = "accuracy", "confusion", "auroc", "best"


TABLES = (ACCURACY, CONFUSION, AUROC)
"""The tables of one model, in the order of release. A confusion matrix also gives the accuracy."""

CORRECT_SENSITIVITY = 1
"""A row adds 0 or 1 to the number of correct answers of every model: range sensitivity 1, and monotone."""

WINNER_SHARE = Fraction(1, 2)
"""Share of the price for the winner's accuracy, if requested."""


class EvaluationInvalid(GrovekeeperError):
    """Stored bytes that are not a valid evaluation."""

    sentence = "not an evaluation of a known form"


@dataclass(frozen=True)
class EvaluationPlan:
    """The releases of an evaluation, priced before any row is read.

    Attributes:
        releases: ``accuracy`` or ``confusion``, and ``auroc``, of one model; or ``best`` of several models and
            optionally ``accuracy`` of the winner. The event has one part for each, in this order.
        n_models: 1, or the candidates of ``best``.
        n_classes: number of classes in the models' schema.
        score_bins: number of score bins of ``auroc``.
        event: all releases, in sequence.
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
            EvaluationInvalid: the value is not a valid plan.
        """
        match value:
            case {
                "releases": [*releases],
                "n_models": int(n_models),
                "n_classes": int(n_classes),
                "score_bins": int(score_bins),
                "event": event,
                **rest,
            } if not rest and all(isinstance(name, str) for name in releases):
                read = events.from_json(event)
                if isinstance(read, Sequential) and len(read.parts) == len(releases):
                    return cls(tuple(releases), n_models, n_classes, score_bins, read)
        raise EvaluationInvalid

    def event_of(self, released: str) -> Event:
        """The part of the event that prices a release."""
        return self.event.parts[self.releases.index(released)].event

    def n_cells(self, released: str) -> int:
        """Number of cells of a table."""
        sizes = {ACCURACY: 2, CONFUSION: self.n_classes**2, AUROC: 2 * self.score_bins}
        return sizes[released]


def plan_tables(metrics: Sequence[str], facts: PublicFacts, *, score_bins: int) -> EvaluationPlan:
    """Prices the evaluation of one model: equal shares for each table. Reads no row and draws nothing.

    Raises:
        InvalidRequest: a metric that is undefined for this number of classes, or a share too small for any draw.
    """
    releases = _tables(metrics, facts.schema.n_classes)
    empty = EvaluationPlan(releases, 1, facts.schema.n_classes, score_bins, Sequential(()))
    part = facts.part(Fraction(1, len(releases)))
    parts = tuple(
        Part(1, noisy_counts.priced(part.epsilon, part.budget, coordinates=empty.n_cells(table))) for table in releases
    )
    plan = replace(empty, event=Sequential(parts))
    facts.require_covered(plan.event)
    return plan


def _tables(metrics: Sequence[str], n_classes: int) -> tuple[str, ...]:
    """The tables of some metrics, in the order of release; a confusion matrix also gives the accuracy."""
    if AUROC in metrics and n_classes != 2:
        raise InvalidRequest.at("/metrics", "needs-two-classes")
    if CONFUSION in metrics and n_classes > limits.MAX_CONFUSION_CLASSES:
        raise InvalidRequest.at("/metrics", "too-many-classes", limit=limits.MAX_CONFUSION_CLASSES)
    tables = set(metrics) - ({ACCURACY} if CONFUSION in metrics else set())
    return tuple(table for table in TABLES if table in tables)


def plan_best(n_models: int, facts: PublicFacts, *, winner_accuracy: bool) -> EvaluationPlan:
    """Prices the choice of the best of several models: one charge, whatever the number of models."""
    share = 1 - WINNER_SHARE if winner_accuracy else Fraction(1)
    parts = [Part(1, _selection(facts.part(share), n_models))]
    releases = [BEST]
    if winner_accuracy:
        part = facts.part(WINNER_SHARE)
        parts.append(Part(1, noisy_counts.priced(part.epsilon, part.budget, coordinates=2)))
        releases.append(ACCURACY)
    plan = EvaluationPlan(tuple(releases), n_models, facts.schema.n_classes, 2, Sequential(tuple(parts)))
    facts.require_covered(plan.event)
    return plan


def _selection(facts: PublicFacts, n_models: int) -> tree_price.Selection:
    def at(epsilon: Fraction) -> tree_price.Selection:
        return tree_price.selection_event(
            epsilon, facts, range_sensitivity=CORRECT_SENSITIVITY, max_candidates=n_models
        )

    if facts.budget.accountant == pure.NAME:
        return at(facts.epsilon)
    event = fitted(facts.budget, at, start=Fraction(1))
    if not isinstance(event, ExponentialMechanism):
        raise UnknownPrivacyEvent("not the event of a choice among models")
    return event


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The released numbers of an evaluation, and no other fact about the rows.

    Attributes:
        best: index of the chosen model, where the plan chooses a model.
        tables: by release; int64 in the units of ``releases.release_counts``. ``accuracy``: correct, incorrect.
            ``confusion``: ``(true class, answered class)``, row by row. ``auroc``: the score bins of the first class,
            then the score bins of the second.
    """

    plan: EvaluationPlan
    best: int | None
    tables: dict[str, NDArray[np.int64]]

    def to_json(self) -> dict[str, object]:
        """Counts as text, because they may have more than 53 bits."""
        tables = {name: [str(count) for count in table.tolist()] for name, table in self.tables.items()}
        return {"plan": self.plan.to_json(), "best": self.best, "tables": tables}

    @classmethod
    def from_json(cls, value: object) -> Evaluation:
        """Inverse of :meth:`to_json`; checks everything that a reader relies on.

        Raises:
            EvaluationInvalid: the value is not a valid evaluation.
        """
        try:
            match value:
                case {"plan": planned, "best": best, "tables": dict(tables), **rest} if not rest:
                    arrays = {name: np.array([int(n) for n in table], dtype=np.int64) for name, table in tables.items()}
                    read = cls(EvaluationPlan.from_json(planned), best, arrays)
                    if read.to_json() == value and _is_whole(read):
                        return read
        except (ArithmeticError, KeyError, TypeError, ValueError) as error:
            raise EvaluationInvalid from error
        raise EvaluationInvalid

    def in_rows(self, released: str) -> NDArray[np.float64]:
        """A table in rows; counts may be negative."""
        return noisy_counts.in_rows(self.tables[released], self.plan.event_of(released))


def _is_whole(read: Evaluation) -> bool:
    plan = read.plan
    chosen = BEST in plan.releases
    named = [table for table in plan.releases if table != BEST]
    if set(read.tables) != set(named) or not set(named) <= set(TABLES):
        return False
    try:
        is_priced = all(noisy_counts.per_row(plan.event_of(table)) > 0 for table in named)
    except UnknownPrivacyEvent:
        return False
    has_best = read.best is None if not chosen else type(read.best) is int and 0 <= read.best < plan.n_models
    return is_priced and has_best and all(len(read.tables[table]) == plan.n_cells(table) for table in named)
