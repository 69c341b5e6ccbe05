"""Chooses the splits of a level at private medians of random features."""

import numpy as np
from numpy.typing import NDArray

from app.forests.data.encoding import Encoding
from app.forests.noise.randomness import Randomness
from app.forests.trees.grow import selecting, structure
from app.forests.trees.grow.histograms import TreeHistograms
from app.forests.trees.tree_price import Selection


def choose_medians(
    selection: Selection,
    encoding: Encoding,
    rows: TreeHistograms,
    *,
    level_boxes: list[NDArray[np.bool_]],
    randomness: Randomness,
) -> list[int | None]:
    """Releases the split of every node of a level: a random feature, cut at its private median in the node's box.

    Args:
        selection: the selection of a node, as priced.
        encoding: public bins and candidates.
        rows: PRIVATE; in the nodes of the level.
        level_boxes: public; the candidates of every node.
        randomness: source of the random features and of the selections.
    """
    candidates = encoding.candidates
    groups = [_random_feature(encoding, box, randomness) for box in level_boxes]
    features = {int(candidates.feature[group[0]]) for group in groups if len(group)}
    evenness = {feature: split_evenness(rows, encoding, feature) for feature in sorted(features)}
    picked: list[int | None] = []
    for node, group in enumerate(groups):
        if len(group) == 0:
            picked.append(None)
            continue
        feature = int(candidates.feature[group[0]])
        first = int(np.searchsorted(candidates.feature, feature))
        scores = evenness[feature][node, group - first]
        picked.append(int(group[selecting.draw(selection, scores, randomness)]))
    return picked


def _random_feature(encoding: Encoding, box: NDArray[np.bool_], randomness: Randomness) -> NDArray[np.int64]:
    """Draws a feature uniformly among those with a split in the box; returns its splits, or an empty array."""
    alive = np.flatnonzero(box)
    if len(alive) == 0:
        return alive
    groups = structure.by_feature(encoding.candidates, alive)
    return groups[randomness.uniform(len(groups))]


def split_evenness(rows: TreeHistograms, encoding: Encoding, feature: int) -> NDArray[np.int64]:
    """Computes −|2·#{left} − #{rows}| of every public split of one feature, in every node of the current level.

    Returns:
        PRIVATE int64 ``(n_nodes, n_splits)``; larger is better. An added row changes each number of its node by +1
        or −1.
    """
    candidates = encoding.candidates
    of_feature = slice(*np.searchsorted(candidates.feature, [feature, feature + 1]))
    per_code = rows.class_histogram(slice(feature, feature + 1)).sum(axis=2)
    left = per_code if candidates.equals[of_feature][0] else per_code.cumsum(axis=1)
    result: NDArray[np.int64] = -np.abs(
        2 * left[:, candidates.threshold[of_feature]] - per_code.sum(axis=1, keepdims=True)
    )
    return result
