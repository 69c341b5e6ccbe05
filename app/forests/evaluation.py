"""Private evaluation of released models on rows that they were not trained on, and the choice of the best of several.

The proof stands in docs/proofs/evaluation.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.core import limits
from app.core.errors import GrovekeeperError, InvalidRequest
from app.forests import catalogue
from app.forests.bins import noisy_counts
from app.forests.contract.algorithm import PublicFacts
from app.forests.contract.forest import Forest
from app.forests.data.rows import SanitisedColumns, SanitisedRows
from app.forests.data.schema import Schema
from app.forests.predict import probabilities
from app.forests.trees import selections
from app.privacy import events
from app.privacy.accountants import pure
from app.privacy.calibration import Budget, fitted
from app.privacy.events import Event, ExponentialMechanism, Part, PermuteAndFlip, Sequential, UnknownPrivacyEvent

if TYPE_CHECKING:
    from app.forests.noise.randomness import Randomness

ACCURACY, CONFUSION, AUROC, BEST = "accuracy", "confusion", "auroc", "best"
TABLES = (ACCURACY, CONFUSION, AUROC)
"""What can be released of one model, in the order of release. A confusion matrix tells the accuracy too."""

CORRECT_SENSITIVITY = 1
"""A row adds 0 or 1 to the number of correct answers of every model: range sensitivity 1, and monotone."""

WINNER_SHARE = Fraction(1, 2)
"""Share of the price for the winner's accuracy, if it is asked for."""

BLOCK_ROWS = 8_192
"""Rows are answered in blocks of this size, the last one filled up: shapes and layouts do not depend on the rows."""

Model: TypeAlias = tuple[Forest, Schema]


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


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Released numbers; nothing else about the rows.

    Attributes:
        plan: what was priced.
        best: number of the chosen model, where one was chosen.
        tables: by release; int64 in the units of ``noisy_counts.release``. ``accuracy``: correct, incorrect.
            ``confusion``: ``(true class, answered class)``, row by row. ``auroc``: the first class's score bins, then
            those of the second.
    """

    plan: EvaluationPlan
    best: int | None
    tables: dict[str, NDArray[np.int64]]

    def to_json(self) -> dict[str, object]:
        """Counts as text: they may have more than 53 bits."""
        tables = {name: [str(count) for count in table.tolist()] for name, table in self.tables.items()}
        return {"plan": self.plan.to_json(), "best": self.best, "tables": tables}

    @classmethod
    def from_json(cls, value: object) -> Evaluation:
        """Inverse of :meth:`to_json`; checks everything that a reader takes for granted.

        Raises:
            EvaluationInvalid: not of that form.
        """
        try:
            return _read(value)
        except (ArithmeticError, KeyError, TypeError, ValueError) as error:
            raise EvaluationInvalid from error

    def in_rows(self, released: str) -> NDArray[np.float64]:
        """A table in rows; counts may be negative."""
        return noisy_counts.in_rows(self.tables[released], self.plan.event_of(released))


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
    share = Fraction(1, len(releases))
    parts = tuple(Part(1, noisy_counts.priced(facts, share, coordinates=empty.n_cells(each))) for each in releases)
    return _covered(EvaluationPlan(releases, 1, n_classes, score_bins, Sequential(parts)), facts)


def plan_best(n_models: int, facts: PublicFacts, *, winner_accuracy: bool) -> EvaluationPlan:
    """Prices the choice of the best of several models: one charge, however many there are.

    Raises:
        InvalidRequest: a share too small to be drawn with.
    """
    share = 1 - WINNER_SHARE if winner_accuracy else Fraction(1)
    parts = [Part(1, _selection(facts, share, n_models))]
    releases = [BEST]
    if winner_accuracy:
        parts.append(Part(1, noisy_counts.priced(facts, WINNER_SHARE, coordinates=2)))
        releases.append(ACCURACY)
    plan = EvaluationPlan(tuple(releases), n_models, facts.schema.n_classes, 2, Sequential(tuple(parts)))
    return _covered(plan, facts)


def release(plan: EvaluationPlan, models: Sequence[Model], rows: SanitisedRows, randomness: Randomness) -> Evaluation:
    """Evaluates released models. One call is one release and costs what was priced.

    Args:
        plan: what was priced; every noise scale is taken from its event.
        models: released; as many as the plan says, all with the features and classes of the rows' declaration.
        rows: PRIVATE, sanitised.
        randomness: source of every draw.

    Privacy:
        The loss of ``plan.event`` under add/remove, twice that (four times, in ρ and μ²) under replace-one. A released
        model's answer for a row is a bit-exact function of the row (lemma L6), so a row is counted in one cell of a
        table and in no other: L1 and L2 sensitivity 1 (Theorem 1 of docs/proofs/evaluation.md). In the choice it adds 0
        or 1 to every model's utility, all upward: range sensitivity 1 (Theorem 2, lemmas L1 and L2). Releases follow
        one another (Theorem L). *Not covered:* running time.

    Source:
        docs/proofs/evaluation.md.
    """
    if len(models) != plan.n_models:
        raise EvaluationInvalid
    best, judged = None, models[0]
    if BEST in plan.releases:
        event = plan.event_of(BEST)
        if not isinstance(event, PermuteAndFlip | ExponentialMechanism):
            raise UnknownPrivacyEvent("not the event of a choice among models")
        correct = np.array([_correct(model, rows) for model in models], dtype=np.int64)
        best = selections.draw(event, correct, randomness)
        judged = models[best]
    tables = {
        each: noisy_counts.release(_exact(each, plan, judged, rows), plan.event_of(each), randomness)
        for each in plan.releases
        if each != BEST
    }
    return Evaluation(plan, best, tables)


def _selection(facts: PublicFacts, share: Fraction, n_models: int) -> selections.Selection:
    def at(epsilon: Fraction) -> selections.Selection:
        return selections.priced(epsilon, facts, range_sensitivity=CORRECT_SENSITIVITY, max_candidates=n_models)

    if facts.budget.accountant == pure.NAME:
        return at(share * facts.epsilon)
    own = Budget(facts.budget.accountant, int(share * facts.budget.amount), facts.budget.adjacency)
    if own.amount == 0:
        raise InvalidRequest.at("/epsilon", "too-small")
    event = fitted(own, at, start=Fraction(1))
    if not isinstance(event, ExponentialMechanism):
        raise UnknownPrivacyEvent("not the event of a choice among models")
    return event


def _covered(plan: EvaluationPlan, facts: PublicFacts) -> EvaluationPlan:
    facts.require_covered(plan.event)
    return plan


def _exact(released: str, plan: EvaluationPlan, model: Model, rows: SanitisedRows) -> NDArray[np.int64]:
    """PRIVATE exact counts of a table."""
    counts = np.zeros(plan.n_cells(released), dtype=np.int64)
    for y, shares in _answers(model, rows, read_out=_score_read_out(model[0]) if released == AUROC else None):
        if released == AUROC:
            bins = np.minimum((shares[:, 1] * plan.score_bins).astype(np.int64), plan.score_bins - 1)
            cells = y * plan.score_bins + bins
        elif released == CONFUSION:
            cells = y * plan.n_classes + shares.argmax(axis=1)
        else:
            cells = (shares.argmax(axis=1) != y).astype(np.int64)
        counts += np.bincount(cells, minlength=len(counts))
    return counts


def _correct(model: Model, rows: SanitisedRows) -> int:
    """PRIVATE number of rows whose most probable class is their own."""
    return sum(int((shares.argmax(axis=1) == y).sum()) for y, shares in _answers(model, rows, read_out=None))


def _answers(
    model: Model, rows: SanitisedRows, *, read_out: str | None
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Classes of rows and a model's probabilities for them, block by block."""
    forest, schema = model
    for start in range(0, rows.features.n_rows, BLOCK_ROWS):
        y = rows.y[start : start + BLOCK_ROWS].astype(np.int64)
        columns = tuple(_block(column, start) for column in rows.features.columns)
        shares = probabilities(forest, schema, SanitisedColumns(columns, BLOCK_ROWS), read_out=read_out)
        yield y, shares[: len(y)]


def _block(column: NDArray[np.float64] | NDArray[np.int32], start: int) -> NDArray[np.float64] | NDArray[np.int32]:
    block = np.zeros(BLOCK_ROWS, dtype=column.dtype)
    own = column[start : start + BLOCK_ROWS]
    block[: len(own)] = own
    return block


def _score_read_out(forest: Forest) -> str | None:
    """``logistic`` where a model has it: the order is the same, and scores are spread over more bins."""
    return "logistic" if "logistic" in catalogue.read_outs(forest.plan.algorithm) else None


def _read(value: object) -> Evaluation:
    match value:
        case {"plan": planned, "best": best, "tables": dict(tables), **rest} if not rest:
            plan = EvaluationPlan.from_json(planned)
            read = Evaluation(
                plan,
                best,
                {name: np.array([int(count) for count in table], dtype=np.int64) for name, table in tables.items()},
            )
            if read.to_json() == value and _is_whole(read):
                return read
    raise EvaluationInvalid


def _is_whole(read: Evaluation) -> bool:
    plan = read.plan
    chosen = BEST in plan.releases
    named = [each for each in plan.releases if each != BEST]
    if set(read.tables) != set(named) or not set(named) <= set(TABLES):
        return False
    try:
        is_priced = all(noisy_counts.per_row(plan.event_of(each)) > 0 for each in named)
    except UnknownPrivacyEvent:
        return False
    has_best = read.best is None if not chosen else type(read.best) is int and 0 <= read.best < plan.n_models
    return is_priced and has_best and all(len(read.tables[each]) == plan.n_cells(each) for each in named)
