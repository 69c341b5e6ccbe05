"""Chooses the best of several released models on PRIVATE rows. Only the child process
of a job imports this module.
"""

from collections.abc import Sequence

import numpy as np

from grovekeeper_forests.bins.quantile_bins import Selection
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.noise.randomness import PaidRandomness
from grovekeeper_forests.privacy.events import Event, UnknownPrivacyEvent
from grovekeeper_forests.releases.evaluation.answers import answers
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.trees import tree_growth


def choose(
    event: Event, models: Sequence[Predictor], rows: SanitisedRows, paid: PaidRandomness
) -> int:
    """Chooses one of several models, and returns its index. One call is one release,
    which ``event`` prices.

    Privacy:
        A row adds 0 or 1 to every model's utility, all upward: range sensitivity 1
        (Theorem 2 of docs/proofs/evaluation.md).
    """
    if not isinstance(event, Selection):
        raise UnknownPrivacyEvent("not the event of a choice among models")
    correct = np.array([_correct(model, rows) for model in models], dtype=np.int64)
    return tree_growth.select(event, correct, paid)


def _correct(model: Predictor, rows: SanitisedRows) -> int:
    """PRIVATE number of rows whose most probable class equals their label."""
    return sum(
        int((shares.argmax(axis=1) == y).sum())
        for y, shares in answers(model, rows, read_out=None)
    )
