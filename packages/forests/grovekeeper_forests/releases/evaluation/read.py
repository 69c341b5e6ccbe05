"""Reads the released tables of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grovekeeper_forests.array_types import Float64Array, Int64Array
from grovekeeper_forests.bins import noisy_counts
from grovekeeper_forests.json_types import JsonObject
from grovekeeper_forests.privacy.events import UnknownPrivacyEvent
from grovekeeper_forests.releases.evaluation.price import (
    BEST,
    SUMS,
    TABLES,
    EvaluationInvalid,
    EvaluationPlan,
)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The released numbers of an evaluation, and no other fact about the rows.

    Attributes:
        best: index of the chosen model, where the plan chooses a model.
        tables: by release; int64 in the units of ``releases.release_counts``.
            ``accuracy``: correct, incorrect. ``confusion``: ``(true class, answered
            class)``, row by row. ``auroc``: the score bins of the first class, then the
            score bins of the second. Where the label is a number, one sum each.
    """

    plan: EvaluationPlan
    best: int | None
    tables: dict[str, Int64Array]

    def to_json(self) -> JsonObject:
        """Counts as text, because they may have more than 53 bits."""
        tables = {
            name: list(map(str, table.tolist())) for name, table in self.tables.items()
        }
        return {"plan": self.plan.to_json(), "best": self.best, "tables": tables}

    @classmethod
    def from_json(cls, value: object) -> Evaluation:
        """Inverse of :meth:`to_json`; checks everything that a reader relies on.

        Raises:
            EvaluationInvalid: the value is not a valid evaluation.
        """
        try:
            match value:
                case {
                    "plan": planned,
                    "best": best,
                    "tables": dict(tables),
                    **rest,
                } if not rest:
                    arrays = {
                        name: np.array(list(map(int, table)), dtype=np.int64)
                        for name, table in tables.items()
                    }
                    read = cls(EvaluationPlan.from_json(planned), best, arrays)
                    if read.to_json() == value and _is_whole(read):
                        return read
        except (ArithmeticError, KeyError, TypeError, ValueError) as error:
            raise EvaluationInvalid from error
        raise EvaluationInvalid

    def in_rows(self, released: str) -> Float64Array:
        """A table in rows, or in the largest contributions of rows; may be negative."""
        return noisy_counts.in_rows(self.tables[released], self.plan.event_of(released))


def _is_whole(read: Evaluation) -> bool:
    plan = read.plan
    chosen = BEST in plan.releases
    named = [table for table in plan.releases if table != BEST]
    known: tuple[str, ...] = TABLES
    if plan.scale is not None:
        known = SUMS
    if set(read.tables) != set(named) or not set(named) <= set(known):
        return False
    try:
        is_priced = all(
            noisy_counts.per_row(plan.event_of(table)) > 0 for table in named
        )
    except UnknownPrivacyEvent:
        return False
    if not chosen:
        has_best = read.best is None
    else:
        has_best = type(read.best) is int and 0 <= read.best < plan.n_models
    return (
        is_priced
        and has_best
        and all(len(read.tables[table]) == plan.n_cells(table) for table in named)
    )
