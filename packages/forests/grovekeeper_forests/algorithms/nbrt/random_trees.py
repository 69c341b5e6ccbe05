"""Draws random trees without rows: uniform features, uniform thresholds, categories in
random order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grovekeeper_forests.array_types import Int32Array, UInt64Array
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.kernels.boosting import MASK_WORDS
from grovekeeper_forests.noise.randomness import Randomness

FEWEST_FEATURES = 3
"""A tree draws half of the features, rounded up, but at least this number, or all if
the schema has fewer.
"""

_BITS = 64


@dataclass(frozen=True)
class Trees:
    """Complete trees of one depth in heap layout, public.

    Attributes:
        feature: int32 ``(n_trees, 2^depth − 1)``.
        right: uint64 ``(n_trees, 2^depth − 1, 4)``: bit c of a node's 256 sends code c
            to the right.
    """

    feature: Int32Array
    right: UInt64Array

    @property
    def depth(self) -> int:
        """Splits on every path."""
        return int(self.feature.shape[1] + 1).bit_length() - 1

    def equals(self, other: Trees) -> bool:
        """Whether the trees are the same."""
        return self is other or (
            np.array_equal(self.feature, other.feature)
            and np.array_equal(self.right, other.right)
        )

    @property
    def n_leaves(self) -> int:
        """Leaves of every tree."""
        return int(self.feature.shape[1]) + 1


def no_trees(n_trees: int, *, depth: int = 0) -> Trees:
    """Trees that send every row left; at depth 0, trees of a single leaf."""
    n_nodes = 2**depth - 1
    return Trees(
        np.zeros((n_trees, n_nodes), dtype=np.int32),
        np.zeros((n_trees, n_nodes, MASK_WORDS), dtype=np.uint64),
    )


def joined(parts: Sequence[Trees]) -> Trees:
    """All trees of several sequences of trees, in order."""
    return Trees(
        np.concatenate([trees.feature for trees in parts]),
        np.concatenate([trees.right for trees in parts]),
    )


def random_tree(encoding: Encoding, *, depth: int, randomness: Randomness) -> Trees:
    """Draws one complete random tree. Reads no row; the draws are public.

    A tree draws ⌈d/2⌉ features. Each node draws a feature uniformly from the drawn
    features that can still split the node's box, and a uniform threshold inside the
    box. Each tree orders the categories of an unordered feature by a uniform random
    permutation; OTHER takes the place of one category, so that no threshold separates
    OTHER alone. A node whose box cannot be split sends every row left.

    Args:
        encoding: public bins.
        depth: at least 0.
        randomness: source of the public structure.
    """
    tree = no_trees(1, depth=depth)
    _draw_tree(encoding, tree.feature[0], tree.right[0], randomness)
    return tree


def _draw_tree(
    encoding: Encoding,
    feature: Int32Array,
    right: UInt64Array,
    randomness: Randomness,
) -> None:
    """Fills one tree, depth first. A box maps each feature that the path splits to its
    (lowest, highest) rank.
    """
    n_places = [_n_places(encoding, f) for f in range(len(encoding.n_codes))]
    drawn = [f for f in _some_features(len(n_places), randomness) if n_places[f] > 1]
    ranks: dict[int, list[int]] = {}
    pending: list[tuple[int, list[int], dict[int, tuple[int, int]]]] = (
        [(0, drawn, {})] if len(feature) else []
    )
    while pending:
        node, alive, box = pending.pop()
        if not alive:
            continue
        chosen = alive[randomness.uniform(len(alive))]
        low, high = box.get(chosen, (0, n_places[chosen] - 1))
        threshold = low + randomness.uniform(high - low)
        if chosen not in ranks:
            ranks[chosen] = _ranks(encoding, chosen, randomness)
        feature[node] = chosen
        right[node] = _mask(ranks[chosen], threshold)
        if 2 * node + 2 < len(feature):
            for child, interval in (
                (2 * node + 2, (threshold + 1, high)),
                (2 * node + 1, (low, threshold)),
            ):
                left_over = alive
                if interval[0] >= interval[1]:
                    left_over = [f for f in alive if f != chosen]
                pending.append((child, left_over, {**box, chosen: interval}))


def _some_features(n_features: int, randomness: Randomness) -> list[int]:
    """Draws ⌈d/2⌉ features, at least ``FEWEST_FEATURES``, uniformly without replacement
    (Fisher and Yates).
    """
    order = list(range(n_features))
    n_drawn = min(max((n_features + 1) // 2, FEWEST_FEATURES), n_features)
    for place in range(n_drawn):
        other = place + randomness.uniform(n_features - place)
        order[place], order[other] = order[other], order[place]
    return sorted(order[:n_drawn])


def _n_places(encoding: Encoding, feature: int) -> int:
    """The number of ranks: one per code except OTHER, which shares the rank of a
    category.
    """
    return int(encoding.n_codes[feature]) - _has_codes(encoding, feature)


def _has_codes(encoding: Encoding, feature: int) -> bool:
    """Whether each category of a feature has a code; many ordered categories are binned
    as numbers are.
    """
    return encoding.edges[feature] is None


def _ranks(encoding: Encoding, feature: int, randomness: Randomness) -> list[int]:
    """The rank of every code: in declared order, or in random order for unordered
    categories.

    OTHER has the rank of the highest ordered category, or of a random unordered
    category.
    """
    declared, n_places = encoding.schema.features[feature], _n_places(encoding, feature)
    places = list(range(n_places))
    if not _has_codes(encoding, feature):
        return places
    n_categories, with_other = len(declared.categories), len(declared.categories) - 1
    if not declared.ordered:
        for place in range(n_places - 1):
            other = place + randomness.uniform(n_places - place)
            places[place], places[other] = places[other], places[place]
        with_other = randomness.uniform(n_categories)
    return [*places[:n_categories], places[with_other], *places[n_categories:]]


def _mask(ranks: list[int], threshold: int) -> list[int]:
    bits = sum(1 << code for code, rank in enumerate(ranks) if rank > threshold)
    return [bits >> _BITS * word & (2**_BITS - 1) for word in range(MASK_WORDS)]
