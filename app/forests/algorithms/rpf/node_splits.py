"""Grows a tree of the reweighted forest with one split per node on PRIVATE weighted rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from app.forests.algorithms.rpf.leaf_scores import UNREACHED
from app.forests.algorithms.rpf.path_event import PathScales
from app.forests.algorithms.rpf.reweighted_rows import ReweightedRows
from app.forests.data.encoding import Encoding
from app.forests.kernels import fourth_roots
from app.forests.noise.randomness import Randomness
from app.forests.trees import boxes, shapes

FIRST_LEVEL_WITH_STOP = 1
"""The first level at which "stop" is a candidate; the root always splits if its box has a split."""


@dataclass(frozen=True)
class ReweightedTree:
    """One released tree in heap layout.

    Attributes:
        feature: int32 ``(2^depth − 1,)``.
        threshold: uint8 ``(2^depth − 1,)``; ``boxes.NO_SPLIT`` at and below a stopped node, where all rows go left.
        equals: bool ``(2^depth − 1,)``.
        counts: int64 ``(2^depth, n_classes)``: noisy weights in units of 1/256; 0 in leaves marked ``UNREACHED``.
        selections: uint8 ``(2^depth,)``: selections on the path to the leaf, or ``UNREACHED``.
    """

    feature: NDArray[np.int32]
    threshold: NDArray[np.uint8]
    equals: NDArray[np.bool_]
    counts: NDArray[np.int64]
    selections: NDArray[np.uint8]


def grow(scales: PathScales, encoding: Encoding, rows: ReweightedRows, randomness: Randomness) -> ReweightedTree:
    """Selects splits level by level on the PRIVATE rows, then releases the noisy weights of every leaf.

    Each open node chooses among the splits of its public box by permute-and-flip on ‖left‖₄ + ‖right‖₄. From level 1
    on, "stop" is a candidate, too, with utility ‖node‖₄. A node whose box has no split becomes a leaf without a draw.

    Args:
        scales: as priced.
        encoding: public or released bins.
        rows: PRIVATE; at the root before the call, in the leaves after it.
        randomness: source of every draw.

    Returns:
        The released tree. One call is one release.
    """
    depth, candidates = len(scales.levels), encoding.candidates
    assert depth == 0 or len(candidates) > 0  # a plan has levels only where the root can split
    chosen: list[int | None] = []
    selections = np.full(1 << depth, UNREACHED, dtype=np.uint8)
    open_boxes = {0: boxes.root(candidates)}
    for level, scale in enumerate(scales.levels):
        for node in [node for node, box in open_boxes.items() if not box.any()]:
            selections[node << (depth - level)] = level
            del open_boxes[node]
        picked = _select(level, scale, encoding, open_boxes, rows=rows, randomness=randomness)
        below: dict[int, NDArray[np.bool_]] = {}
        for node, choice in picked.items():
            if choice is None:
                selections[node << (depth - level)] = level + 1
            else:
                below[2 * node], below[2 * node + 1] = boxes.children(candidates, open_boxes[node], choice)
        splits = [picked.get(node) for node in range(1 << level)]
        feature, threshold, equals = boxes.splits(candidates, splits)
        rows.descend(feature=feature, threshold=threshold, equals=equals)
        chosen += splits
        open_boxes = below
    selections[list(open_boxes)] = depth
    counts = noisy_weights(scales, selections, rows, randomness)
    return ReweightedTree(*boxes.splits(candidates, chosen), counts, selections)


def _select(
    level: int,
    scale: Fraction,
    encoding: Encoding,
    open_boxes: dict[int, NDArray[np.bool_]],
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
    for (node, box), of_splits, stop in zip(open_boxes.items(), splitting, stopping, strict=True):
        alive = np.flatnonzero(box)
        utilities = of_splits[alive] if level < FIRST_LEVEL_WITH_STOP else np.append(of_splits[alive], stop)
        choice = randomness.permute_and_flip(utilities, inverse_scale=scale)
        picked[node] = int(alive[choice]) if choice < len(alive) else None
    return picked


def split_utilities(
    rows: ReweightedRows, encoding: Encoding, nodes: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Utilities of every public candidate, and of stopping, in the given nodes of the current level.

    Returns:
        PRIVATE int64 ``(n_nodes, n_candidates)`` and ``(n_nodes,)``. An added row raises every utility of its
        node by an integer from 0 to 256, and no utility of another node.
    """
    candidates = encoding.candidates
    splitting = np.empty((len(nodes), len(candidates)), dtype=np.int64)
    stopping = np.empty(len(nodes), dtype=np.int64)
    for block in shapes.feature_blocks(encoding, len(nodes)):
        histogram = rows.class_histogram(block, nodes)
        in_block = slice(*np.searchsorted(candidates.feature, [block.start, block.stop]))
        splitting[:, in_block] = fourth_roots.split_norms(
            histogram,
            n_codes=encoding.n_codes[block],
            splits=(
                candidates.feature[in_block] - np.int32(block.start),
                candidates.threshold[in_block],
                candidates.equals[in_block],
            ),
        )
        stopping[:] = fourth_roots.norms(histogram[:, : int(encoding.n_codes[block.start])].sum(axis=1))
    return splitting, stopping


def handicaps(encoding: Encoding, scale: Fraction) -> NDArray[np.int64]:
    """The amount subtracted from every candidate's utility before a selection: int64 ``(n_candidates,)``; reads no row.

    If splits on pairs of columns far outnumber splits on single columns, noise alone makes a pair the likely choice.
    The utility of each split on a pair is lowered by the logarithm of that ratio over the inverse scale. On rows
    without signal, all splits on pairs together are then about as likely as all splits on single columns.

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
    scales: PathScales, selections: NDArray[np.uint8], rows: ReweightedRows, randomness: Randomness
) -> NDArray[np.int64]:
    """Releases the weights of every leaf that is not marked ``UNREACHED``; 0 for others. One call is one release."""
    exact = rows.leaf_histogram()
    released = np.zeros_like(exact)
    for n_selections in np.unique(selections[selections != UNREACHED]).tolist():
        alike = np.flatnonzero(selections == n_selections)
        shape = (len(alike), exact.shape[1])
        released[alike] = exact[alike] + randomness.discrete_laplace(shape, inverse_scale=scales.leaves[n_selections])
    return released
