"""Grows a tree of the reweighted forest with one split per level on PRIVATE weighted rows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from app.forests.algorithms.rpf import joint_limits, joint_splits, node_splits
from app.forests.algorithms.rpf.leaf_scores import UNREACHED
from app.forests.algorithms.rpf.node_splits import ReweightedTree
from app.forests.algorithms.rpf.path_event import PathScales, stages
from app.forests.algorithms.rpf.reweighted_rows import ReweightedRows
from app.forests.data.encoding import Encoding
from app.forests.kernels import fourth_roots
from app.forests.noise.randomness import Randomness
from app.forests.trees import boxes


class LevelTrees:
    """Grows trees with one split for all nodes of a level, chosen level by level or two levels at once.

    The utility of a split is the sum of its utilities over the nodes of the level. A row is in one node, so a row
    changes the sum by no more than it changes one node's utility. A split's gain on all rows is thus compared under the
    noise of a single selection. From level 1 on, "stop" is a candidate, too; it ends the whole tree. No split is chosen
    twice. Noise is added to every leaf at the tree's final depth, even if no row can reach the leaf.
    """

    def __init__(self, scales: PathScales, encoding: Encoding, *, depth: int, at_once: int, joint_columns: int) -> None:
        """Keeps the public and released facts that all trees share.

        Args:
            scales: as priced; one inverse scale per selection.
            encoding: public or released bins.
            depth: of every tree.
            at_once: the number of levels whose splits one selection chooses, 1 or 2.
            joint_columns: number of columns, counted from the first, whose splits compete in joint selections.
        """
        self._scales, self._encoding, self._depth = scales, encoding, depth
        self._stages, self._joint_columns = stages(depth, at_once), joint_columns

    def grow(self, rows: ReweightedRows, randomness: Randomness) -> ReweightedTree:
        """Selects the splits on the PRIVATE rows, root first; then releases every leaf. One call is one release.

        Args:
            rows: at the root before the call, in the leaves after it.
            randomness: source of every draw.
        """
        candidates = self._encoding.candidates
        alive = np.ones(len(candidates), dtype=np.bool_)
        chosen: list[int] = []
        n_selections, goes_on = 0, True
        for n_splits, scale in zip(self._stages, self._scales.levels, strict=True):
            if not goes_on or not alive.any():
                break
            picked = self._select(n_splits, scale, alive, level=len(chosen), rows=rows, randomness=randomness)
            n_selections += 1
            goes_on = len(picked) == n_splits
            for choice in picked:
                alive[choice] = False
                self._descend(rows, len(chosen), choice)
                chosen.append(choice)
        for level in range(len(chosen), self._depth):
            self._descend(rows, level, None)
        selections = np.full(1 << self._depth, UNREACHED, dtype=np.uint8)
        selections[:: 1 << (self._depth - len(chosen))] = n_selections
        counts = node_splits.noisy_weights(self._scales, selections, rows, randomness)
        padded = [*chosen, *[None] * (self._depth - len(chosen))]
        per_node = [choice for level, choice in enumerate(padded) for _ in range(1 << level)]
        return ReweightedTree(*boxes.splits(candidates, per_node), counts, selections)

    def _descend(self, rows: ReweightedRows, level: int, choice: int | None) -> None:
        feature, threshold, equals = boxes.splits(self._encoding.candidates, [choice] * (1 << level))
        rows.descend(feature=feature, threshold=threshold, equals=equals)

    def _select(
        self,
        n_splits: int,
        scale: Fraction,
        alive: NDArray[np.bool_],
        *,
        level: int,
        rows: ReweightedRows,
        randomness: Randomness,
    ) -> tuple[int, ...]:
        """The released choice of one selection: one candidate per level, or an empty tuple for "stop".

        If fewer than two splits are left on the columns for joint selections, a single split is chosen.
        """
        competing = np.flatnonzero(alive)
        n_on_columns = joint_limits.n_candidates(self._encoding, self._joint_columns)
        on_columns = competing[competing < n_on_columns]
        handicaps = node_splits.handicaps(self._encoding, scale)
        if 2 == n_splits <= len(on_columns):
            first, second = np.triu_indices(len(on_columns), 1)
            sets = np.stack((on_columns[first], on_columns[second]), axis=1)
            of_two = joint_splits.utilities(rows, self._encoding, self._joint_columns, n_nodes=1 << level)
            gains = of_two[sets[:, 0], sets[:, 1]]
        else:
            sets = competing[:, np.newaxis]
            splitting, _ = node_splits.split_utilities(rows, self._encoding, np.arange(1 << level, dtype=np.int32))
            gains = splitting.sum(axis=0)[competing]
        utilities = gains - handicaps[sets].sum(axis=1)
        if level >= node_splits.FIRST_LEVEL_WITH_STOP:
            stopping = fourth_roots.norms(rows.leaf_histogram())
            utilities = np.append(utilities, stopping.sum())
        choice = randomness.permute_and_flip(utilities, inverse_scale=scale)
        return tuple(sets[choice].tolist()) if choice < len(gains) else ()
