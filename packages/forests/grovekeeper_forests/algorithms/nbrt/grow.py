"""Grows boosted random trees: each tree releases noisy sums of the gradients at the
scores of earlier trees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.algorithms.nbrt import boosted_rows, read, targets
from grovekeeper_forests.algorithms.nbrt.boosted_rows import (
    BoostedRows,
    LocalBoostedRows,
    LocalNumberRows,
)
from grovekeeper_forests.algorithms.nbrt.price import PricedDraws
from grovekeeper_forests.algorithms.nbrt.random_trees import (
    Trees,
    joined,
    no_trees,
    random_tree,
)
from grovekeeper_forests.algorithms.nbrt.read import (
    leaf_scores,
    start_at_reading,
    start_scores,
)
from grovekeeper_forests.algorithms.nbrt.scales import Scales, loss_of
from grovekeeper_forests.array_types import Int32Array, Int64Array
from grovekeeper_forests.bins import quantile_bins, releases
from grovekeeper_forests.bins.noisy_counts import SCALE_BITS
from grovekeeper_forests.contract.plan import Forest, Plan
from grovekeeper_forests.data.coded_rows import TrainingRows, parts_of
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.schema import Label, Schema
from grovekeeper_forests.noise.randomness import Randomness


def grow_forest(
    plan: Plan,
    schema: Schema,
    rows: TrainingRows,
    randomness: Randomness,
    *,
    on_tree_done: Callable[[], None],
) -> Forest:
    """Releases bins and class counts, then trees one by one, then the table of margins.
    One call is one release.

    Privacy:
        Under add/remove, μ-GDP with μ² at most the request's amount on a ``gdp``
        account, ρ-zCDP with ρ at most the amount on a ``zcdp`` one; replace-one costs
        4μ², or 4ρ. Trees are drawn without rows. A row adds to one leaf of a tree an
        integer gradient γ with ‖γ‖² ≤ C², checked row by row, and the integer count m:
        squared L2 sensitivity C² + m² against normal noise of deviation 2^24, rounded
        to integers. To the class counts, or the class counts of the sides of a first
        split, and to the table of margins, a row adds one integer in one cell. Its
        contribution is a bit-exact function of the row and of earlier releases (lemma
        L6), so trees compose adaptively (Theorem L (b) and (c)). Bins of numbers are
        chosen before by the exponential mechanism (Theorem 1 of docs/proofs/bins.md),
        and so is a first split, whose utility a row raises by 0 or 1 (lemma L1). Scores
        and the temperature are post-processing (lemma L7). *Not covered:* running time.

        Where the label is a number, its median and its spread are chosen by the
        exponential mechanism, with utilities of range sensitivity 2, and to two
        means a row adds what it adds to a leaf.

    Source:
        Theorems 1 and 2 of docs/proofs/nbrt.md. Random structures: Geurts, Ernst and Wehenkel
        2006; Gaussian differential privacy: Dong, Roth and Su 2022.
    """
    parts = PricedDraws.of(plan.event)
    cuts = releases.cuts(parts.bins, schema, rows, randomness, reused=plan.profile)
    encoding = quantile_bins.encoding(schema, cuts, plan.grid)
    form = LocalBoostedRows
    if schema.label.is_number:
        form = LocalNumberRows
    boosted = BoostedRows(parts_of(rows, encoding, form))
    releases_of_trees = boost(
        plan, encoding, boosted, randomness, on_tree_done=on_tree_done
    )
    return Forest(plan, {"cuts": cuts, **releases_of_trees.arrays()})


@dataclass(frozen=True)
class Boosted:
    """All releases of one growth except the bins.

    Attributes:
        start: scores before the first tree, int64 ``(n_scores,)``; of a label that is
            a number, the code of the start and the spread, int64 ``(2,)``.
        trees: structures of all trees.
        scores: leaf scores, int32 ``(n_trees, n_leaves, n_scores)``.
        temperature: int64 ``(1,)`` in units of 2^-16, or ``None`` if no table of
            margins was released.
    """

    start: Int64Array
    trees: Trees
    scores: Int32Array
    temperature: Int64Array | None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The releases by array name in an artifact."""
        arrays: dict[str, NDArray[Any]] = {
            "start": self.start,
            "feature": self.trees.feature,
            "right": self.trees.right,
            "scores": self.scores,
        }
        if self.temperature is not None:
            arrays["temperature"] = self.temperature
        return arrays


def boost(
    plan: Plan,
    encoding: Encoding,
    rows: BoostedRows,
    randomness: Randomness,
    *,
    on_tree_done: Callable[[], None],
) -> Boosted:
    """Releases the start, trees and margins of a plan. One call is one release, at the
    loss of these parts.

    Args:
        plan: the priced plan, whose event fixes every noise scale.
        encoding: public or released bins.
        rows: PRIVATE, on this machine or on other machines.
    """
    parts, depth = PricedDraws.of(plan.event), int(plan.parameters["max_depth"])
    schema = encoding.schema
    if parts.tree == 0:
        start = _start(plan, schema, rows, randomness)
        n_scores = loss_of(schema.n_classes).n_scores
        for _ in range(plan.n_trees):
            on_tree_done()
        return Boosted(
            start,
            no_trees(plan.n_trees),
            np.zeros((plan.n_trees, 1, n_scores), dtype=np.int32),
            None,
        )
    trees, scores = list[Trees](), list[Int32Array]()
    if parts.split:
        start, first_tree, first_scores = _first_split(
            parts, encoding, rows, randomness, depth=depth
        )
        trees.append(first_tree)
        scores.append(first_scores)
    else:
        start = _start(plan, schema, rows, randomness)
    n_random = plan.n_trees - len(trees)
    scales = Scales.of(parts.tree, n_trees=n_random, n_classes=schema.n_classes)
    rows.start(start, scales)
    if parts.split:
        rows.add_scores(first_tree, first_scores)
        on_tree_done()
    for _ in range(n_random):
        tree = random_tree(encoding, depth=depth, randomness=randomness)
        sums = rows.sums(tree)
        released = leaf_scores(
            sums + randomness.rounded_gaussian(sums.shape, scale_bits=SCALE_BITS),
            scales,
        )
        rows.add_scores(tree, released)
        trees.append(tree)
        scores.append(released)
        on_tree_done()
    fitted = None
    if parts.tally and schema.label.is_number:
        start = _moved(
            start,
            targets.mean_scales(parts.tally),
            rows,
            randomness,
            prior_variance=targets.AFTER_TREES,
        )
    elif parts.tally:
        # Margins are those of the read-out, which starts elsewhere than growth.
        shift = start_at_reading(start) - start
        fitted = _temperature(parts, shift, rows, randomness)
    return Boosted(start, joined(trees), np.stack(scores), fitted)


def _first_split(
    parts: PricedDraws,
    encoding: Encoding,
    rows: BoostedRows,
    randomness: Randomness,
    *,
    depth: int,
) -> tuple[Int64Array, Trees, Int32Array]:
    """Releases a first split and class counts on its sides: start scores, the first
    tree and its leaf scores.
    """
    utilities = boosted_rows.first_split_utilities(
        encoding, partial(rows.code_counts, n_codes=encoding.n_codes)
    )
    choice = None
    if len(utilities):
        choice = randomness.select_exponential(utilities, inverse_scale=parts.split)
    tree = boosted_rows.first_tree(encoding, choice, depth=depth)
    # A row adds this integer to one cell, so its square is at most the priced
    # sensitivity.
    count = isqrt(parts.start)
    sides = boosted_rows.sides_of_first_split(tree.n_leaves)
    exact = count * rows.leaf_counts(tree)[sides]
    released = exact + randomness.rounded_gaussian(exact.shape, scale_bits=SCALE_BITS)
    start, scores = boosted_rows.scores_of_first_tree(
        released, count, n_leaves=tree.n_leaves
    )
    return start, tree, scores


def _temperature(
    parts: PricedDraws,
    shift: Int64Array,
    rows: BoostedRows,
    randomness: Randomness,
) -> Int64Array:
    """Releases a noisy table of margins and fits the temperature of the default
    read-out.
    """
    count = isqrt(parts.tally)
    exact = count * rows.tally(shift)
    released = exact + randomness.rounded_gaussian(exact.shape, scale_bits=SCALE_BITS)
    return np.array([read.fitted_temperature(released, count)], dtype=np.int64)


def _start(
    plan: Plan, schema: Schema, rows: BoostedRows, randomness: Randomness
) -> Int64Array:
    """The start of all rows: from noisy class counts, in units of 2^-24 deviations of
    their noise, which are those of the profile or released; or that of a number.
    """
    parts = PricedDraws.of(plan.event)
    if schema.label.is_number:
        return _start_of_number(parts, schema.label, rows, randomness)
    if plan.profile is not None:
        return start_scores(np.array(plan.profile.prior, dtype=np.int64))
    exact = isqrt(parts.start) * rows.class_counts()
    return start_scores(
        exact + randomness.rounded_gaussian(exact.shape, scale_bits=SCALE_BITS)
    )


def _start_of_number(
    parts: PricedDraws, label: Label, rows: BoostedRows, randomness: Randomness
) -> Int64Array:
    """Releases the start and the spread of a label that is a number: a median, a spread
    around it, and a mean of residuals.
    """
    start = releases.release_start(
        label,
        (parts.middle, parts.spread),
        target_counts=rows.target_counts,
        select=randomness.select_exponential,
    )
    scales = targets.mean_scales(parts.start)
    rows.start(start, scales)
    return _moved(start, scales, rows, randomness, prior_variance=targets.BEFORE_TREES)


def _moved(
    start: Int64Array,
    scales: Scales,
    rows: BoostedRows,
    randomness: Randomness,
    *,
    prior_variance: Fraction,
) -> Int64Array:
    """Releases a mean of the residuals, and moves the start of a number by it."""
    exact = rows.residual_sums(scales)
    released = exact + randomness.rounded_gaussian(exact.shape, scale_bits=SCALE_BITS)
    return targets.moved(start, released, scales, prior_variance=prior_variance)
