"""Releases an evaluation of models on PRIVATE rows. Only the child process of a job
imports this module.
"""

import json
from collections.abc import Sequence

import numpy as np

from grovekeeper_forests.array_types import Int64Array
from grovekeeper_forests.bins import releases
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.noise.randomness import PaidRandomness, Randomness
from grovekeeper_forests.releases.choice.draw import choose
from grovekeeper_forests.releases.drawing import Drawing
from grovekeeper_forests.releases.evaluation.answers import answers
from grovekeeper_forests.releases.evaluation.error_sums import exact_sums
from grovekeeper_forests.releases.evaluation.price import (
    AUROC,
    BEST,
    CONFUSION,
    EvaluationInvalid,
    EvaluationPlan,
)
from grovekeeper_forests.releases.evaluation.read import Evaluation
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.predictor import Predictor


def draw(job: Drawing) -> bytes:
    """Draws an evaluation; see :data:`grovekeeper_forests.releases.drawing.Draw`. The
    models are in the job's folder.
    """
    models = [
        released_forest.loads(job.model(model["digest"])).predictor
        for model in job.work["models"]
    ]
    released = release(
        EvaluationPlan.from_json(job.work["plan"]), models, job.values(), job.randomness
    )
    return json.dumps(released.to_json()).encode("utf-8")


def release(
    plan: EvaluationPlan,
    models: Sequence[Predictor],
    rows: SanitisedRows,
    randomness: Randomness,
) -> Evaluation:
    """Evaluates released models. One call is one release and costs what was priced.

    Args:
        plan: the priced plan, whose event holds every noise scale.
        models: released; ``plan.n_models`` models, all with the features and classes of
            the rows' declaration.
        rows: PRIVATE, sanitised.

    Privacy:
        The loss of ``plan.event`` under add/remove, twice that (four times, in ρ and
        μ²) under replace-one. A released model's answer for a row is a bit-exact
        function of the row (lemma L6), so a row is counted in one cell of a table and
        in no other: L1 and L2 sensitivity 1 (Theorem 1 of docs/proofs/evaluation.md).
        In the choice it adds 0 or 1 to every model's utility, all upward: range
        sensitivity 1 (Theorem 2, lemmas L1 and L2). Releases follow one another
        (Theorem L). *Not covered:* running time.

    Source:
        docs/proofs/evaluation.md.
    """
    if len(models) != plan.n_models:
        raise EvaluationInvalid
    paid = PaidRandomness(randomness, plan.event)
    best = None
    judged = models[0]
    if BEST in plan.releases:
        best = choose(plan, models, rows, paid)
        judged = models[best]
    if plan.scale is None:
        tables = {
            table: releases.release_counts(
                _exact(table, plan, judged, rows), plan.event_of(table), paid
            )
            for table in plan.releases
            if table != BEST
        }
    else:
        tables = {
            table: releases.release_sums(exact, plan.event_of(table), paid)
            for table, exact in exact_sums(plan, judged, rows).items()
        }
    paid.note_unused()
    return Evaluation(plan, best, tables)


def _exact(
    released: str, plan: EvaluationPlan, model: Predictor, rows: SanitisedRows
) -> Int64Array:
    """PRIVATE exact counts of a table."""
    counts = np.zeros(plan.n_cells(released), dtype=np.int64)
    read_out = _score_read_out(model) if released == AUROC else None
    for y, shares in answers(model, rows, read_out=read_out):
        if released == AUROC:
            bins = np.minimum(
                (shares[:, 1] * plan.score_bins).astype(np.int64), plan.score_bins - 1
            )
            cells = y * plan.score_bins + bins
        elif released == CONFUSION:
            cells = y * plan.n_classes + shares.argmax(axis=1)
        else:
            cells = (shares.argmax(axis=1) != y).astype(np.int64)
        counts += np.bincount(cells, minlength=len(counts))
    return counts


def _score_read_out(model: Predictor) -> str | None:
    """``logistic`` where a model offers it: the ranking is unchanged, and scores spread
    over more bins.
    """
    return "logistic" if "logistic" in model.read_outs else None
