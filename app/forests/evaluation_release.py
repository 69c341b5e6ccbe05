"""Releases an evaluation of models on PRIVATE rows. Only the child process of a job imports this module."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.forests import catalogue
from app.forests.bins import releases
from app.forests.contract.plan import Forest
from app.forests.data.sanitiser import SanitisedColumns, SanitisedRows
from app.forests.data.schema import Schema
from app.forests.evaluation import AUROC, BEST, CONFUSION, Evaluation, EvaluationInvalid, EvaluationPlan
from app.forests.noise.randomness import PaidRandomness, Randomness
from app.forests.released_forest import probabilities
from app.forests.trees import tree_growth
from app.privacy.events import ExponentialMechanism, PermuteAndFlip, UnknownPrivacyEvent

BLOCK_ROWS = 8_192
"""Rows are answered in blocks of this size, the last one filled up: shapes and layouts do not depend on the rows."""


Model: TypeAlias = tuple[Forest, Schema]


def release(plan: EvaluationPlan, models: Sequence[Model], rows: SanitisedRows, randomness: Randomness) -> Evaluation:
    """Evaluates released models. One call is one release and costs what was priced.

    Args:
        plan: the priced plan, whose event holds every noise scale.
        models: released; ``plan.n_models`` models, all with the features and classes of the rows' declaration.
        rows: PRIVATE, sanitised.

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
    paid = PaidRandomness(randomness, plan.event)
    best, judged = None, models[0]
    if BEST in plan.releases:
        event = plan.event_of(BEST)
        if not isinstance(event, PermuteAndFlip | ExponentialMechanism):
            raise UnknownPrivacyEvent("not the event of a choice among models")
        correct = np.array([_correct(model, rows) for model in models], dtype=np.int64)
        best = tree_growth.select(event, correct, paid)
        judged = models[best]
    tables = {
        table: releases.release_counts(_exact(table, plan, judged, rows), plan.event_of(table), paid)
        for table in plan.releases
        if table != BEST
    }
    paid.note_unused()
    return Evaluation(plan, best, tables)


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
    """PRIVATE number of rows whose most probable class equals their label."""
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
    values = column[start : start + BLOCK_ROWS]
    block[: len(values)] = values
    return block


def _score_read_out(forest: Forest) -> str | None:
    """``logistic`` where a model offers it: the ranking is unchanged, and scores spread over more bins."""
    return "logistic" if "logistic" in catalogue.read_outs(forest.plan.algorithm) else None
