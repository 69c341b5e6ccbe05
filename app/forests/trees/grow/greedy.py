"""Grows trees by private selections of splits, among public candidates, with a utility of the class counts."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from app.forests.data.encoding import Candidates, Encoding
from app.forests.noise.randomness import Randomness
from app.forests.trees import shapes, utilities
from app.forests.trees.grow import leaves, selecting, structure
from app.forests.trees.grow.histograms import TreeHistograms
from app.forests.trees.grow.leaves import ReleasedTree
from app.forests.trees.tree_price import Selection, TreePrice
from app.privacy.events import Event


@dataclass(frozen=True)
class SplitRule:
    """How a node chooses among the splits of its public box.

    Attributes:
        utility: name of the cost that a good split lowers.
        exploration: public probability of a random split instead, whose law does not depend on rows. Such a mixture
            costs no budget (lemma L0).
        kept_features: public probability that a node keeps a feature; see :func:`surviving`.
        kept_splits: public probability that a node keeps a split of a kept feature.
    """

    utility: str
    exploration: Fraction = Fraction(0)
    kept_features: Fraction = Fraction(1)
    kept_splits: Fraction = Fraction(1)


def grow_tree(
    event: Event, rule: SplitRule, *, encoding: Encoding, rows: TreeHistograms, randomness: Randomness
) -> ReleasedTree:
    """Selects splits level by level on the PRIVATE rows, then releases the leaves: one release.

    Args:
        event: the priced event, which holds every noise scale.
        rule: public.
        encoding: public bins and candidates.
        rows: PRIVATE rows of this tree, each row once.
        randomness: source of all draws.
    """
    price = TreePrice.of(event)

    def choose(level: int, level_boxes: list[NDArray[np.bool_]]) -> list[int | None]:
        selections = price.levels[level]
        return choose_level(selections, rule, encoding, rows, level_boxes=level_boxes, randomness=randomness)

    splits = structure.grow_levels(encoding.candidates, len(price.levels), rows, choose)
    return leaves.release(splits, price.leaves, rows, randomness)


def choose_level(
    selections: tuple[Selection, ...],
    rule: SplitRule,
    encoding: Encoding,
    rows: TreeHistograms,
    *,
    level_boxes: list[NDArray[np.bool_]],
    randomness: Randomness,
) -> list[int | None]:
    """Releases the split of every node of a level.

    Args:
        selections: the selections of a node, as priced: of a split, or of a feature and then of its split.
        rule: public.
        encoding: public.
        rows: PRIVATE, in the nodes of the level.
        level_boxes: public; the candidates of every node.
        randomness: source of the draws.
    """
    utility = split_utilities(rows, encoding, n_nodes=len(level_boxes), utility=rule.utility)
    picked: list[int | None] = []
    for box, scores in zip(level_boxes, utility, strict=True):
        if rule.exploration > 0 and box.any() and randomness.bernoulli(rule.exploration):
            picked.append(structure.random_split(encoding.candidates, box, randomness))
        else:
            alive = surviving(encoding.candidates, np.flatnonzero(box), rule, randomness)
            picked.append(_select(selections, encoding.candidates, alive, scores, randomness))
    return picked


def surviving(
    candidates: Candidates, alive: NDArray[np.int64], rule: SplitRule, randomness: Randomness
) -> NDArray[np.int64]:
    """Bernoulli dropout: the candidates of a node's selection.

    An independent draw keeps or drops each feature, then each split of a kept feature. If all features are dropped, one
    feature is drawn uniformly; if all splits of a kept feature are dropped, one split is drawn uniformly. The draws are
    public and do not depend on rows, so the kept splits are public candidates. At least one split is kept if the box
    has a split.

    Args:
        candidates: public.
        alive: ascending indices of the splits of the node's public box.
        rule: public.
        randomness: source of the draws; unused where everything is kept.
    """
    if len(alive) == 0 or rule.kept_features == rule.kept_splits == 1:
        return alive
    groups = structure.by_feature(candidates, alive)
    kept_groups = [groups[place] for place in _places(len(groups), rule.kept_features, randomness)]
    return np.concatenate([group[_places(len(group), rule.kept_splits, randomness)] for group in kept_groups])


def _places(n_members: int, share: Fraction, randomness: Randomness) -> list[int]:
    """Bernoulli sample of the indices below ``n_members``; a single uniform index where the sample is empty."""
    places = [place for place in range(n_members) if share == 1 or randomness.bernoulli(share)]
    return places or [randomness.uniform(n_members)]


def _select(
    selections: tuple[Selection, ...],
    candidates: Candidates,
    alive: NDArray[np.int64],
    scores: NDArray[np.int64],
    randomness: Randomness,
) -> int | None:
    if len(alive) == 0:
        return None
    if len(selections) == 1:
        return int(alive[selecting.draw(selections[0], scores[alive], randomness)])
    of_feature, of_split = selections
    groups = structure.by_feature(candidates, alive)
    best = np.array([scores[group].max() for group in groups], dtype=np.int64)
    feature_splits = groups[selecting.draw(of_feature, best, randomness)]
    return int(feature_splits[selecting.draw(of_split, scores[feature_splits], randomness)])


def split_utilities(
    rows: TreeHistograms, encoding: Encoding, *, n_nodes: int, utility: str = utilities.GINI
) -> NDArray[np.int64]:
    """Utility of every public candidate in every node of the current level.

    Returns:
        PRIVATE int64 ``(n_nodes, n_candidates)``; larger is better.
    """
    candidates = encoding.candidates
    scores = np.empty((n_nodes, len(candidates)), dtype=np.int64)
    for block in shapes.feature_blocks(encoding, n_nodes):
        histogram = rows.class_histogram(block)
        end = 0
        for feature in range(block.start, block.stop):
            begin, end = end, end + int(encoding.n_codes[feature])
            of_feature = slice(*np.searchsorted(candidates.feature, [feature, feature + 1]))
            codes = candidates.threshold[of_feature]
            if len(codes) == 0:
                continue
            counts = histogram[:, begin:end]
            total = counts.sum(axis=1, keepdims=True)
            side = counts if candidates.equals[of_feature][0] else counts.cumsum(axis=1)
            scores[:, of_feature] = utilities.split_utility(side[:, codes], total - side[:, codes], utility)
    return scores
