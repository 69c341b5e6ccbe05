"""Grows the reweighted forest: releases bins, then trees, each on rows weighted by the
scores of earlier trees.

A tree has one split per level or one split per node. A selection at the budget of two
levels chooses among about M²/2 sets of M splits. Its error from noise is smaller than
the error of two selections of one split each, and it finds splits that separate the
classes only together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import partial

import numpy as np

from grovekeeper_forests.algorithms.rpf import price, read
from grovekeeper_forests.algorithms.rpf.price import (
    BY_LEVEL,
    NumberScales,
    PathScales,
    by_sides,
    events_of,
    n_joint_candidates,
    stages,
    widest_encoding,
)
from grovekeeper_forests.algorithms.rpf.read import UNREACHED, encoding_of
from grovekeeper_forests.algorithms.rpf.reweighted_rows import (
    LocalResidualRows,
    LocalReweightedRows,
    ReweightedRows,
)
from grovekeeper_forests.array_types import (
    BoolArray,
    Int32Array,
    Int64Array,
    UInt8Array,
)
from grovekeeper_forests.bins import releases
from grovekeeper_forests.contract.plan import Forest, Plan
from grovekeeper_forests.data.coded_rows import TrainingRows, parts_of
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.kernels import fourth_roots
from grovekeeper_forests.noise.randomness import Randomness, forfeit
from grovekeeper_forests.privacy.events import DiscreteLaplace, PermuteAndFlip
from grovekeeper_forests.trees import tree_parameters


def grow_forest(
    plan: Plan,
    schema: Schema,
    rows: TrainingRows,
    randomness: Randomness,
    *,
    on_tree_done: Callable[[], None],
) -> Forest:
    """Releases bins, then grows the trees one after another on the PRIVATE rows. One
    call is one release.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. Bins of numbers are released first (Theorem
        1 of docs/proofs/bins.md). A row's weight, at most 256 units, is a bit-exact function of the row and of released
        scores (lemma L6). A row raises the utility ‖left‖₄ + ‖right‖₄, in whole units, of every candidate of its node
        by 0 to 256, and so their sum over a level: range sensitivity 256, so permute-and-flip at inverse scale ε_k/256
        is ε_k-DP (lemma L2). Sums and differences of columns are functions of the row. A row raises one weight of one
        leaf by at most 256: L1 sensitivity 256, so discrete Laplace noise at inverse scale ε_v/256 is ε_v-DP (lemma
        L3). If a node stops early, its leaf gets the budget that its path did not spend, so every path has the same
        loss (lemma L4). The losses of trees and bins add up. *Not covered:* running time.

        Where the label is a number, its median and its spread are chosen before by permute-and-flip, with utilities
        of range sensitivity 2, and a last noisy mean comes after the trees. A row then adds 256 units to the two sides
        of one leaf together (Theorem 2).

    Source:
        Theorems 1 and 2 of docs/proofs/rpf.md. Permute-and-flip: McKenna and Sheldon 2020; the
        max operator, the ℓ∞ relative of the utility: Breiman et al. 1984.
    """
    bins, scales = events_of(plan.event)
    cuts = releases.cuts(bins, schema, rows, randomness, reused=plan.profile)
    encoding = encoding_of(plan, by_sides(schema), cuts)
    is_number = schema.label.is_number
    form = LocalResidualRows if is_number else LocalReweightedRows
    weighted = ReweightedRows(parts_of(rows, encoding, form))
    if is_number:
        of_number = NumberScales.of(plan.event)
        start = releases.release_start(
            schema.label,
            (of_number.middle, of_number.spread),
            target_counts=weighted.target_counts,
            select=randomness.permute_and_flip,
        )
        weighted.start(start)
    by_level = plan.parameters["splits"] == BY_LEVEL
    grow: Callable[[ReweightedRows, Randomness], ReweightedTree] = partial(
        grow_by_node, scales, encoding
    )
    if by_level:
        grow = LevelTrees(
            scales,
            encoding,
            depth=int(plan.parameters["max_depth"]),
            at_once=int(plan.parameters["at_once"]),
            joint_columns=price.n_joint_columns(
                widest_encoding(plan.parameters, schema)
            ),
        ).grow
    score = read.scoring(plan, schema)
    trees: list[ReweightedTree] = []
    for _ in range(plan.n_trees):
        tree = grow(weighted, randomness)
        trees.append(tree)
        # weights are not read after the last tree, residuals are
        if len(trees) < plan.n_trees or is_number:
            is_first = len(trees) == 1
            weighted.finish_tree(score(tree.counts, tree.selections, is_first=is_first))
        on_tree_done()
    arrays = {
        field.name: np.stack([getattr(tree, field.name) for tree in trees])
        for field in fields(ReweightedTree)
    }
    if is_number:
        arrays["start"] = _moved(start, of_number.mean, weighted, randomness)
    return Forest(plan, {**arrays, "cuts": cuts})


def _moved(
    start: Int64Array,
    scale: Fraction,
    rows: ReweightedRows,
    randomness: Randomness,
) -> Int64Array:
    """Releases a mean of the residuals of rows at the root, and moves the start of a
    number by it.
    """
    exact = rows.mean_weights()
    noise = randomness.discrete_laplace(exact.shape, inverse_scale=scale)
    released = exact + noise
    return read.moved(start, released, scale)


class LevelTrees:
    """Grows trees with one split for all nodes of a level, chosen level by level or two
    levels at once.

    The utility of a split is the sum of its utilities over the nodes of the level. A
    row is in one node, so a row changes the sum by no more than it changes one node's
    utility. A split's gain on all rows is thus compared under the noise of a single
    selection. From level 1 on, "stop" is a candidate, too; it ends the whole tree. No
    split is chosen twice. Noise is added to every leaf at the tree's final depth, even
    if no row can reach the leaf.
    """

    def __init__(
        self,
        scales: PathScales,
        encoding: Encoding,
        *,
        depth: int,
        at_once: int,
        joint_columns: int,
    ) -> None:
        """Keeps the public and released facts that all trees share.

        Args:
            scales: as priced; one inverse scale per selection.
            encoding: public or released bins.
            depth: of every tree.
            at_once: the number of levels whose splits one selection chooses, 1 or 2.
            joint_columns: number of columns, counted from the first, whose splits
                compete in joint selections.
        """
        self._scales, self._encoding, self._depth = scales, encoding, depth
        self._stages, self._joint_columns = stages(depth, at_once), joint_columns

    def grow(self, rows: ReweightedRows, randomness: Randomness) -> ReweightedTree:
        """Selects the splits on the PRIVATE rows, root first; then releases every leaf.
        One call is one release.

        Args:
            rows: at the root before the call, in the leaves after it.
        """
        candidates = self._encoding.candidates
        alive = np.ones(len(candidates), dtype=np.bool_)
        chosen: list[int] = []
        n_selections, goes_on = 0, True
        for stage, (n_splits, scale) in enumerate(
            zip(self._stages, self._scales.levels, strict=True)
        ):
            goes_on = goes_on and bool(alive.any())
            n_leaves = 0
            if n_selections == stage and not goes_on:
                n_leaves = 1 << len(chosen)
            self._forfeit(stage, n_leaves, int(not goes_on), randomness)
            if not goes_on:
                continue
            picked = self._select(
                n_splits,
                scale,
                alive,
                level=len(chosen),
                rows=rows,
                randomness=randomness,
            )
            n_selections += 1
            goes_on = len(picked) == n_splits
            for choice in picked:
                alive[choice] = False
                self._descend(rows, len(chosen), choice)
                chosen.append(choice)
        n_leaves = 0
        if n_selections == len(self._stages):
            n_leaves = 1 << len(chosen)
        self._forfeit(len(self._stages), n_leaves, 0, randomness)
        for level in range(len(chosen), self._depth):
            self._descend(rows, level, None)
        # Below the last split all rows go left, so a path ends in the first leaf of its
        # subtree.
        selections = np.full(1 << self._depth, UNREACHED, dtype=np.uint8)
        selections[:: 1 << (self._depth - len(chosen))] = n_selections
        counts = noisy_weights(self._scales, selections, rows, randomness)
        per_node: list[int | None] = []
        for level in range(self._depth):
            of_level = chosen[level] if level < len(chosen) else None
            per_node += [of_level] * (1 << level)
        return ReweightedTree(*candidates.splits(per_node), counts, selections)

    def _forfeit(
        self, stage: int, n_leaves: int, n_forfeited: int, randomness: Randomness
    ) -> None:
        """Forfeits the leaves of a stage but the tree's ``n_leaves``, and the selection
        of a tree that has ended.
        """
        cells = (
            (1 << sum(self._stages[:stage])) - n_leaves
        ) * self._encoding.schema.n_classes
        forfeit_ends(self._scales, stage, cells, n_forfeited, randomness)

    def _descend(self, rows: ReweightedRows, level: int, choice: int | None) -> None:
        feature, threshold, equals = self._encoding.candidates.splits(
            [choice] * (1 << level)
        )
        rows.descend(feature=feature, threshold=threshold, equals=equals)

    def _select(
        self,
        n_splits: int,
        scale: Fraction,
        alive: BoolArray,
        *,
        level: int,
        rows: ReweightedRows,
        randomness: Randomness,
    ) -> tuple[int, ...]:
        """The released choice of one selection: one candidate per level, or an empty
        tuple for "stop".

        If fewer than two splits are left on the columns for joint selections, a single
        split is chosen.
        """
        competing = np.flatnonzero(alive)
        n_on_columns = price.n_joint_candidates(self._encoding, self._joint_columns)
        on_columns = competing[competing < n_on_columns]
        of_splits = handicaps(self._encoding, scale)
        if 2 == n_splits <= len(on_columns):
            first, second = np.triu_indices(len(on_columns), 1)
            sets = np.stack((on_columns[first], on_columns[second]), axis=1)
            of_two = joint_utilities(
                rows, self._encoding, self._joint_columns, n_nodes=1 << level
            )
            gains = of_two[sets[:, 0], sets[:, 1]]
        else:
            sets = competing[:, np.newaxis]
            splitting, _ = split_utilities(
                rows, self._encoding, np.arange(1 << level, dtype=np.int32)
            )
            gains = splitting.sum(axis=0)[competing]
        # Handicaps are public and equal on neighbours, so the range sensitivity stays.
        utilities = gains - of_splits[sets].sum(axis=1)
        if level >= FIRST_LEVEL_WITH_STOP:
            stopping = fourth_roots.norms(rows.leaf_histogram())
            utilities = np.append(utilities, stopping.sum())
        choice = randomness.permute_and_flip(utilities, inverse_scale=scale)
        if choice < len(gains):
            return tuple(sets[choice].tolist())
        return ()


def joint_utilities(
    rows: ReweightedRows, encoding: Encoding, columns: int, *, n_nodes: int
) -> Int64Array:
    """The utility of every two splits: the sum of the norms of the four parts of all
    nodes of the current level.

    Args:
        rows: PRIVATE.
        encoding: public or released bins.
        columns: public; see :func:`n_joint_columns`.
        n_nodes: of the current level.

    Returns:
        PRIVATE int64 ``(n_candidates, n_candidates)``: at ``[r, s]`` the utility of
        candidates r < s; other places are undefined. An added row raises each utility
        by an integer from 0 to 256.
    """
    candidates, n_splits = encoding.candidates, n_joint_candidates(encoding, columns)
    norms = np.zeros((n_splits, n_splits), dtype=np.int64)
    for one in np.unique(candidates.feature[:n_splits]).tolist():
        first = candidates.of(slice(one, one + 1))
        for others in _blocks(encoding, slice(one, columns), n_nodes):
            norms[first, candidates.of(others)] = fourth_roots.pair_norms(
                rows.joint_histogram(one, others),
                first=(candidates.threshold[first], candidates.equals[first]),
                n_codes=encoding.n_codes[others],
                splits=candidates.splits_on(others),
            )
    return norms


def _blocks(encoding: Encoding, others: slice, n_nodes: int) -> list[slice]:
    """Blocks of columns whose tables against the first column fit in working memory; at
    least one column per block.
    """
    tables = n_nodes * int(encoding.n_codes[others.start])
    blocks = tree_parameters.blocks(
        encoding.n_codes[others], cells=tables * encoding.schema.n_classes
    )
    return [
        slice(others.start + block.start, others.start + block.stop) for block in blocks
    ]


FIRST_LEVEL_WITH_STOP = 1
"""The first level at which "stop" is a candidate; the root always splits if its box has
a split.
"""


@dataclass(frozen=True)
class ReweightedTree:
    """One released tree in heap layout.

    Attributes:
        feature: int32 ``(2^depth − 1,)``.
        threshold: uint8 ``(2^depth − 1,)``; ``NO_SPLIT`` at and below a stopped node,
            where all rows go left.
        equals: bool ``(2^depth − 1,)``.
        counts: int64 ``(2^depth, n_classes)``: noisy weights in units of 1/256; 0 in
            leaves marked ``UNREACHED``.
        selections: uint8 ``(2^depth,)``: selections on the path to the leaf, or
            ``UNREACHED``.
    """

    feature: Int32Array
    threshold: UInt8Array
    equals: BoolArray
    counts: Int64Array
    selections: UInt8Array


def grow_by_node(
    scales: PathScales, encoding: Encoding, rows: ReweightedRows, randomness: Randomness
) -> ReweightedTree:
    """Selects splits level by level on the PRIVATE rows, then releases the noisy
    weights of every leaf.

    Each open node chooses among the splits of its public box by permute-and-flip on
    ‖left‖₄ + ‖right‖₄. From level 1 on, "stop" is a candidate, too, with utility
    ‖node‖₄. A node whose box has no split becomes a leaf without a draw.

    Args:
        scales: as priced.
        encoding: public or released bins.
        rows: PRIVATE; at the root before the call, in the leaves after it.

    Returns:
        The released tree. One call is one release.
    """
    depth, candidates = len(scales.levels), encoding.candidates
    # a plan has levels only where the root can split
    assert depth == 0 or len(candidates) > 0
    chosen: list[int | None] = []
    selections = np.full(1 << depth, UNREACHED, dtype=np.uint8)
    open_boxes = {0: candidates.root}
    for level, scale in enumerate(scales.levels):
        # A box follows from released splits, so it is public which paths end here.
        for node in [node for node, box in open_boxes.items() if not box.any()]:
            selections[node << (depth - level)] = level
            del open_boxes[node]
        n_leaves = int((selections == level).sum())
        cells = ((1 << level) - n_leaves) * encoding.schema.n_classes
        forfeit_ends(scales, level, cells, (1 << level) - len(open_boxes), randomness)
        picked = _select(
            level, scale, encoding, open_boxes, rows=rows, randomness=randomness
        )
        below: dict[int, BoolArray] = {}
        for node, choice in picked.items():
            if choice is None:
                selections[node << (depth - level)] = level + 1
            else:
                below[2 * node], below[2 * node + 1] = candidates.children(
                    open_boxes[node], choice
                )
        splits = list(map(picked.get, range(1 << level)))
        feature, threshold, equals = candidates.splits(splits)
        rows.descend(feature=feature, threshold=threshold, equals=equals)
        chosen += splits
        open_boxes = below
    selections[list(open_boxes)] = depth
    n_leaves = int((selections == depth).sum())
    forfeit_ends(
        scales,
        depth,
        ((1 << depth) - n_leaves) * encoding.schema.n_classes,
        0,
        randomness,
    )
    counts = noisy_weights(scales, selections, rows, randomness)
    return ReweightedTree(*candidates.splits(chosen), counts, selections)


def forfeit_ends(
    scales: PathScales,
    spent: int,
    cells: int,
    n_forfeited: int,
    randomness: Randomness,
) -> None:
    """Forfeits the alternatives that a tree does not take after ``spent`` selections on
    a path.

    An event pays for every end of every path; a path takes one end. The numbers follow
    from released choices.

    Args:
        scales: as priced.
        spent: number of selections on the paths.
        cells: numbers of leaves that no path ends in.
        n_forfeited: further selections of paths that have ended.
        randomness: of the job.
    """
    if spent > 0:  # a path without a selection ends only where it is the whole tree
        forfeit(
            randomness, DiscreteLaplace, inverse_scale=scales.leaves[spent], count=cells
        )
    if spent < len(scales.levels):
        forfeit(
            randomness,
            PermuteAndFlip,
            inverse_scale=scales.levels[spent],
            count=n_forfeited,
        )


def _select(
    level: int,
    scale: Fraction,
    encoding: Encoding,
    open_boxes: dict[int, BoolArray],
    *,
    rows: ReweightedRows,
    randomness: Randomness,
) -> dict[int, int | None]:
    """The released choice of every open node: a candidate, or ``None`` to stop."""
    if not open_boxes:
        return {}
    nodes = np.array(list(open_boxes), dtype=np.int32)
    splitting, stopping = split_utilities(rows, encoding, nodes)
    splitting -= handicaps(encoding, scale)
    picked: dict[int, int | None] = {}
    for (node, box), of_splits, stop in zip(
        open_boxes.items(), splitting, stopping, strict=True
    ):
        alive = np.flatnonzero(box)
        utilities = of_splits[alive]
        if level >= FIRST_LEVEL_WITH_STOP:
            utilities = np.append(utilities, stop)
        choice = randomness.permute_and_flip(utilities, inverse_scale=scale)
        picked[node] = int(alive[choice]) if choice < len(alive) else None
    return picked


def split_utilities(
    rows: ReweightedRows, encoding: Encoding, nodes: Int32Array
) -> tuple[Int64Array, Int64Array]:
    """Utilities of every public candidate, and of stopping, in the given nodes of the
    current level.

    Returns:
        PRIVATE int64 ``(n_nodes, n_candidates)`` and ``(n_nodes,)``. An added row
        raises every utility of its node by an integer from 0 to 256, and no utility of
        another node.
    """
    candidates = encoding.candidates
    splitting = np.empty((len(nodes), len(candidates)), dtype=np.int64)
    stopping = np.empty(len(nodes), dtype=np.int64)
    for block in tree_parameters.feature_blocks(encoding, len(nodes)):
        histogram = rows.class_histogram(block, nodes)
        splitting[:, candidates.of(block)] = fourth_roots.split_norms(
            histogram,
            n_codes=encoding.n_codes[block],
            splits=candidates.splits_on(block),
        )
        stopping[:] = fourth_roots.norms(
            histogram[:, : int(encoding.n_codes[block.start])].sum(axis=1)
        )
    return splitting, stopping


def handicaps(encoding: Encoding, scale: Fraction) -> Int64Array:
    """The amount subtracted from every candidate's utility before a selection: int64
    ``(n_candidates,)``; reads no row.

    If splits on pairs of columns far outnumber splits on single columns, noise alone
    makes a pair the likely choice. The utility of each split on a pair is lowered by
    the logarithm of that ratio over the inverse scale. On rows without signal, all
    splits on pairs together are then about as likely as all splits on single columns.

    Args:
        encoding: public or released bins.
        scale: public; inverse scale of the selection.
    """
    candidates, n_own = encoding.candidates, len(encoding.edges)
    is_paired = candidates.feature >= n_own
    n_paired = int(is_paired.sum())
    ratio = max(n_paired, 1) / max(len(candidates) - n_paired, 1)
    return is_paired * np.int64(max(math.log(ratio), 0.0) / float(scale))


def noisy_weights(
    scales: PathScales,
    selections: UInt8Array,
    rows: ReweightedRows,
    randomness: Randomness,
) -> Int64Array:
    """Releases the weights of every leaf that is not marked ``UNREACHED``; 0 for
    others. One call is one release.
    """
    exact = rows.leaf_weights()
    released = np.zeros_like(exact)
    for n_selections in np.unique(selections[selections != UNREACHED]).tolist():
        alike = np.flatnonzero(selections == n_selections)
        shape = (len(alike), exact.shape[1])
        released[alike] = exact[alike] + randomness.discrete_laplace(
            shape, inverse_scale=scales.leaves[n_selections]
        )
    return released
