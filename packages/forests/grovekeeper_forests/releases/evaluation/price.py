"""Prices an evaluation of a released model on held-out rows. No row is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from grovekeeper_forests import limits
from grovekeeper_forests.contract.algorithm import PublicFacts
from grovekeeper_forests.errors import GrovekeeperError, ParameterInvalid
from grovekeeper_forests.json_types import JsonObject
from grovekeeper_forests.privacy import events
from grovekeeper_forests.privacy.events import Event, Sequential
from grovekeeper_forests.releases.contract import counts_at

ACCURACY = "accuracy"
CONFUSION = "confusion"
AUROC = "auroc"
BEST = "best"


TABLES = (ACCURACY, CONFUSION, AUROC)
"""The tables of one model, in the order of release. A confusion matrix also gives the
accuracy.
"""


ROWS, ABSOLUTE, SQUARED = "rows", "absolute", "squared"
CENTRED, SPREAD = "centred", "spread"

SUMS = (ROWS, ABSOLUTE, SQUARED, CENTRED, SPREAD)
"""The tables of one model that predicts a number, in the order of release. Each is one
sum: of the rows, of the sizes of the errors, of their squares, of the distances of the
labels from a centre, and of the squares of these.
"""


class EvaluationInvalid(GrovekeeperError):
    """Stored bytes that are not a valid evaluation."""

    sentence = "not an evaluation of a known form"


@dataclass(frozen=True)
class ErrorScale:
    """What clamps the errors of a model that predicts a number; public.

    Attributes:
        largest: an error, and the distance of a label from ``centre``, is clamped to
            this size, in the unit of the label.
        centre: the number that distances of labels are taken from.
    """

    largest: float
    centre: float

    def to_json(self) -> dict[str, float]:
        """Exact."""
        return {"largest": self.largest, "centre": self.centre}

    @classmethod
    def from_json(cls, value: object) -> ErrorScale:
        """Inverse of :meth:`to_json`.

        Raises:
            EvaluationInvalid: the value is not a valid scale.
        """
        match value:
            case {
                "largest": float() | int() as largest,
                "centre": float() | int() as centre,
                **rest,
            } if not rest:
                if 0 < largest < math.inf and math.isfinite(centre):
                    return cls(float(largest), float(centre))
        raise EvaluationInvalid


@dataclass(frozen=True)
class EvaluationPlan:
    """The releases of an evaluation, priced before any row is read.

    Attributes:
        releases: ``accuracy`` or ``confusion``, and ``auroc``, of one model; or
            ``best`` of several models and optionally ``accuracy`` of the winner. Of
            models that predict a number: some of :data:`SUMS` in place of these tables.
            The event has one part for each, in this order.
        n_models: 1, or the candidates of ``best``.
        n_classes: number of classes in the models' schema; 0 where the label is a
            number.
        score_bins: number of score bins of ``auroc``.
        event: all releases, in sequence.
        scale: of the errors where the label is a number, else ``None``.
    """

    releases: tuple[str, ...]
    n_models: int
    n_classes: int
    score_bins: int
    event: Sequential
    scale: ErrorScale | None = None

    def to_json(self) -> JsonObject:
        """Exact."""
        value: JsonObject = {
            "releases": list(self.releases),
            "n_models": self.n_models,
            "n_classes": self.n_classes,
            "score_bins": self.score_bins,
            "event": self.event.to_json(),
        }
        # plans of classes have no such member, and keep their bytes
        if self.scale is not None:
            value["scale"] = self.scale.to_json()
        return value

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
            } if rest.keys() <= {"scale"} and all(
                isinstance(name, str) for name in releases
            ):
                read = events.from_json(event)
                scale = ErrorScale.from_json(rest["scale"]) if rest else None
                if isinstance(read, Sequential) and len(read.parts) == len(releases):
                    return cls(
                        tuple(releases), n_models, n_classes, score_bins, read, scale
                    )
        raise EvaluationInvalid

    def event_of(self, released: str) -> Event:
        """The part of the event that prices a release."""
        return self.event.parts[self.releases.index(released)].event

    def n_cells(self, released: str) -> int:
        """Number of cells of a table."""
        if self.scale is not None:
            return 1
        sizes = {ACCURACY: 2, CONFUSION: self.n_classes**2, AUROC: 2 * self.score_bins}
        return sizes[released]


def plan_tables(
    metrics: Sequence[str], facts: PublicFacts, *, score_bins: int
) -> EvaluationPlan:
    """Prices the evaluation of one model: equal shares for each table. Reads no row and
    draws nothing.

    Raises:
        ParameterInvalid: a metric that is undefined for this number of classes, or a
            share too small for any draw.
    """
    releases = _tables(metrics, facts.schema.n_classes)
    empty = EvaluationPlan(
        releases, 1, facts.schema.n_classes, score_bins, Sequential(())
    )
    share = Fraction(1, len(releases))
    parts = tuple(
        counts_at(share, facts, coordinates=empty.n_cells(table)) for table in releases
    )
    plan = replace(empty, event=Sequential(parts))
    facts.require_covered(plan.event)
    return plan


def _tables(metrics: Sequence[str], n_classes: int) -> tuple[str, ...]:
    """The tables of some metrics, in the order of release; a confusion matrix also
    gives the accuracy.
    """
    if not set(metrics) <= set(TABLES):
        raise ParameterInvalid.named("metrics", "not-for-classes", accepted=TABLES)
    if AUROC in metrics and n_classes != 2:
        raise ParameterInvalid.named("metrics", "needs-two-classes")
    if CONFUSION in metrics and n_classes > limits.MAX_CONFUSION_CLASSES:
        raise ParameterInvalid.named(
            "metrics", "too-many-classes", limit=limits.MAX_CONFUSION_CLASSES
        )
    tables = set(metrics) - ({ACCURACY} if CONFUSION in metrics else set())
    return tuple(table for table in TABLES if table in tables)
