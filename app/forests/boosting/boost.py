"""Growth of boosted random trees: release, score, go on."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from app.forests.boosting.event import Parts
from app.forests.boosting.scales import SCALE_BITS, Scales
from app.forests.boosting.scores import leaf_scores, start_scores
from app.forests.boosting.trees import Trees, joined, no_trees, random_trees
from app.forests.encoding import Encoding
from app.forests.plan import Plan

if TYPE_CHECKING:
    from app.forests.boosting.rows import BoostedRows
    from app.forests.randomness import Randomness

BATCH: Final = 4
"""Trees on the same gradients: a quarter of the passes over the rows, and no loss of accuracy."""


def boost(
    plan: Plan,
    encoding: Encoding,
    rows: BoostedRows,
    randomness: Randomness,
    *,
    on_tree_done: Callable[[], None],
) -> tuple[NDArray[np.int64], Trees, NDArray[np.int32]]:
    """Releases the start and the trees of a plan. One call is one release, at the loss of those parts of the event.

    Args:
        plan: what was priced; every noise scale is taken from its event.
        encoding: public or released bins.
        rows: PRIVATE, wherever they are.
        randomness: source of every draw.
        on_tree_done: told after each tree.

    Returns:
        Start scores, structures, and leaf scores int32 ``(n_trees, n_leaves, n_scores)``.
    """
    parts, depth = Parts.of(plan.event), int(plan.parameters["max_depth"])
    start = start_scores(_class_counts(plan, parts, rows, randomness))
    if parts.tree == 0:
        for _ in range(plan.n_trees):
            on_tree_done()
        return start, no_trees(plan.n_trees), np.zeros((plan.n_trees, 1, len(start)), dtype=np.int32)
    scales = Scales.of(parts.tree, n_trees=plan.n_trees, n_classes=encoding.schema.n_classes)
    rows.start(start, scales)
    batches, scores = list[Trees](), list[NDArray[np.int32]]()
    for first in range(0, plan.n_trees, BATCH):
        n_batch = min(BATCH, plan.n_trees - first)
        trees = random_trees(encoding, n_trees=n_batch, depth=depth, randomness=randomness)
        sums = rows.sums(trees)
        released = leaf_scores(sums + randomness.rounded_gaussian(sums.shape, scale_bits=SCALE_BITS), scales)
        rows.add_scores(released)
        batches.append(trees)
        scores.append(released)
        for _ in range(n_batch):
            on_tree_done()
    return start, joined(batches), np.concatenate(scores)


def _class_counts(plan: Plan, parts: Parts, rows: BoostedRows, randomness: Randomness) -> NDArray[np.int64]:
    """Noisy class counts in units of 2^-24 deviations of their noise: of a profile, or released here."""
    if plan.profile is not None:
        return np.array(plan.profile.prior, dtype=np.int64)
    exact = isqrt(parts.start) * rows.class_counts()
    return exact + randomness.rounded_gaussian(exact.shape, scale_bits=SCALE_BITS)
