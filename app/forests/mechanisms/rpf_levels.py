"""One tree of the reweighted forest with one split per level: its growth on PRIVATE weighted rows."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from app.forests.encoding import Encoding
from app.forests.leaf_scores import UNREACHED
from app.forests.mechanisms import boxes, rpf_tree
from app.forests.mechanisms.rpf_event import PathScales
from app.forests.mechanisms.rpf_tree import ReweightedTree
from app.forests.reweighted import ReweightedRows

if TYPE_CHECKING:
    from app.forests.randomness import Randomness


def grow(scales: PathScales, encoding: Encoding, rows: ReweightedRows, randomness: Randomness) -> ReweightedTree:
    """Selects one split for all nodes of a level, level by level on the PRIVATE rows; then releases every leaf.

    The utility of a split is its sum over the nodes of the level. A row is in one of them, so the sum moves as one
    node's does, while what a good split gains on all rows stands against the noise of a single selection. From level 1
    on "stop" competes; it ends the whole tree. No split is taken twice; leaves that no row can reach are released too.

    Args:
        scales: as priced.
        encoding: public or released bins.
        rows: PRIVATE, at the root; left at the leaves.
        randomness: source of every draw.

    Returns:
        The released tree. One call is one release.
    """
    depth, candidates = len(scales.levels), encoding.candidates
    chosen: list[int | None] = []
    alive = np.ones(len(candidates), dtype=np.bool_)
    n_selections = n_splits = 0
    for level, scale in enumerate(scales.levels):
        choice = None
        if n_splits == level and alive.any():
            choice = _select(level, scale, encoding, alive, rows=rows, randomness=randomness)
            n_selections += 1
        if choice is not None:
            alive[choice] = False
            n_splits += 1
        of_level = [choice] * (1 << level)
        feature, threshold, equals = boxes.splits(candidates, of_level)
        rows.descend(feature=feature, threshold=threshold, equals=equals)
        chosen += of_level
    selections = np.full(1 << depth, UNREACHED, dtype=np.uint8)
    selections[:: 1 << (depth - n_splits)] = n_selections
    counts = rpf_tree.noisy_weights(scales, selections, rows, randomness)
    return ReweightedTree(*boxes.splits(candidates, chosen), counts, selections)


def _select(
    level: int,
    scale: Fraction,
    encoding: Encoding,
    alive: NDArray[np.bool_],
    *,
    rows: ReweightedRows,
    randomness: Randomness,
) -> int | None:
    """The released choice of a level: a candidate, or ``None`` to stop."""
    splitting, stopping = rpf_tree.split_utilities(rows, encoding, np.arange(1 << level, dtype=np.int32))
    own = np.flatnonzero(alive)
    utilities = splitting.sum(axis=0)[own] - rpf_tree.handicaps(encoding, scale)[own]
    if level >= rpf_tree.FIRST_LEVEL_WITH_STOP:
        utilities = np.append(utilities, stopping.sum())
    choice = randomness.permute_and_flip(utilities, inverse_scale=scale)
    return int(own[choice]) if choice < len(own) else None
