"""Trees of private medians on hashed shards, with noisy leaf counts: the supervised private ensemble.

Huang, Lei and Kabán, "Noise-efficient learning of differentially private partitioning machine ensembles". What was
wrong with their candidates and their stopping rule, and the proof of this version, stand in docs/proofs/spe.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from app.forests.bins import tree_bins
from app.forests.contract.about import About, at_epsilon_one
from app.forests.contract.algorithm import Parameters, PublicFacts, ReleasedTree
from app.forests.contract.family import Family
from app.forests.contract.parameters import Parameter, Value
from app.forests.data.encoding import Encoding
from app.forests.trees import common, leaves, selections, shapes, structure
from app.forests.trees.count_read_out import CountFamily
from app.forests.trees.histograms import TreeHistograms
from app.forests.trees.selections import Selection
from app.forests.trees.tree_price import TreePrice
from app.privacy import accountants
from app.privacy.adjacency import Adjacency
from app.privacy.events import Event

if TYPE_CHECKING:
    from app.forests.noise.randomness import Randomness

LEVEL_RATIO = Fraction(3, 2)
"""What a level's selections get of ε, as a multiple of what the level above gets (the paper's equation 7)."""

RANGE_SENSITIVITY = 2
"""An added row moves the utility of every split by 1, of some up and of others down."""

DEFAULT_TREES = 10


_ABOUT = About(
    claimed="ε-differential privacy of trees of private medians on disjoint subsets, with noisy leaf counts.",
    wrong=(
        "Medians are drawn between the smallest and the largest value present, and a stop looks at an exact count: "
        "the loss is infinite. Subsets of fixed sizes cost up to 3ε."
    ),
    here=(
        "Medians among public cuts, a fixed depth, each row's tree by a keyed hash of its id; the paper's budgets "
        "per level."
    ),
    proof="docs/proofs/spe.md",
    results="docs/results/papers.md",
    accuracy=at_epsilon_one("81.1 91.2 96.5 88.4 86.3"),
)


@dataclass(frozen=True)
class MedianTrees:
    """Each node takes a random feature and selects the split that parts its rows most evenly; labels play no part.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. The feature of a node is drawn from those
        that its public box can still split. The candidates are that feature's public splits, never values between the
        smallest and largest present. The utility −|2·#{rows on one side} − #{rows}| changes by ±1 with a row: range
        sensitivity 2, not monotone (lemma L2, or L1 on accounts in ρ and μ²). A path pays Σ_l ε_l (lemma L4), leaf
        counts have L1 sensitivity 1 (lemma L3), depth is the only stopping rule. Sharded trees, the default, see
        disjoint rows by a keyed hash and count at their largest (lemma L5); sequential trees add. *Not covered:*
        running time.

    Source:
        Huang, Lei and Kabán, Algorithms 1 and 2, whose guarantee does not hold as stated; repaired in Theorem 1 of
        docs/proofs/spe.md.
    """

    slug: str = "spe"
    title: str = "Supervised private ensemble of median trees"
    source: str = "Huang, Lei and Kabán, differentially private partitioning machine ensembles; repaired"
    about: About = _ABOUT
    accountants: tuple[str, ...] = accountants.NAMES
    adjacency: Adjacency = Adjacency.ADD_REMOVE_ONE
    read_outs: tuple[str, ...] = ("log", "sum", "ta", "mv")
    family: Family = CountFamily()  # noqa: RUF009 - it has no state
    parameters: tuple[Parameter, ...] = (
        common.N_ESTIMATORS,
        common.MAX_DEPTH,
        common.N_BINS,
        common.SHARDED_ASSIGNMENT,
        Parameter(
            "structure_share",
            "number",
            "Share of each tree's ε that its private medians get; the rest goes to leaf counts.",
            default="0.5",
            minimum=Fraction(1, 100),
            maximum=Fraction(99, 100),
        ),
    )

    def settle(self, asked: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in ten trees and, from the public size and ε, their depth."""
        settled = dict(asked)
        settled.setdefault("n_estimators", DEFAULT_TREES)
        encoding = tree_bins.encoding_of(facts.schema, settled["n_bins"], facts.profile)
        warnings = shapes.settle_depth(
            settled, default_depth(facts, int(settled["n_estimators"])), encoding, tables=True
        )
        return settled, warnings

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """T trees on disjoint rows, or one after another; a tree is one private median per level, then counts."""
        n_trees, depth = int(parameters["n_estimators"]), int(parameters["max_depth"])
        per_tree = common.loss_per_tree(parameters, facts.epsilon)
        share = common.structure_share(parameters)
        widest = most_splits(tree_bins.encoding_of(facts.schema, parameters["n_bins"], facts.profile))
        levels = tuple(
            (selections.priced(loss, facts, range_sensitivity=RANGE_SENSITIVITY, max_candidates=widest),)
            for loss in common.geometric_losses(share * per_tree, depth, LEVEL_RATIO)
        )
        price = TreePrice(levels, leaves.priced(leaves.COUNTS, (1 - share) * per_tree, depth, facts))
        return price.forest_event(n_trees, sharded=common.is_sharded(parameters))

    def check(self, event: Event, parameters: Parameters) -> None:
        """See ``Mechanism.check``."""
        price = TreePrice.of(event)
        price.require(depth=int(parameters["max_depth"]), selections=[Fraction(RANGE_SENSITIVITY)], apart=False)
        leaves.require(leaves.COUNTS, price.leaves)

    def grow_tree(
        self,
        event: Event,
        parameters: Parameters,
        *,
        encoding: Encoding,
        rows: TreeHistograms,
        randomness: Randomness,
    ) -> ReleasedTree:
        """Selects private medians level by level on the PRIVATE rows, then releases noisy leaf counts.

        Args:
            event: what was priced; every noise scale is taken from it.
            parameters: settled.
            encoding: public bins and candidates.
            rows: PRIVATE rows of this tree.
            randomness: source of the public features and of all private draws.

        Returns:
            The released tree. One call is one release, at the loss of one part of ``event``.
        """
        price = TreePrice.of(event)

        def choose(level: int, level_boxes: list[NDArray[np.bool_]]) -> list[int | None]:
            (own,) = price.levels[level]
            return choose_medians(own, encoding, rows, level_boxes=level_boxes, randomness=randomness)

        splits = structure.grow_levels(encoding.candidates, len(price.levels), rows, choose)
        return leaves.release(splits, price.leaves, rows, randomness)


def choose_medians(
    own: Selection,
    encoding: Encoding,
    rows: TreeHistograms,
    *,
    level_boxes: list[NDArray[np.bool_]],
    randomness: Randomness,
) -> list[int | None]:
    """The released split of every node of a level: a random feature, then its private median in the node's box.

    Args:
        own: the selection of a node, as priced.
        encoding: public.
        rows: PRIVATE, in the nodes of the level.
        level_boxes: public; the candidates of every node.
        randomness: source of features and draws.
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
        picked.append(int(group[selections.draw(own, scores, randomness)]))
    return picked


def _random_feature(encoding: Encoding, box: NDArray[np.bool_], randomness: Randomness) -> NDArray[np.int64]:
    """The box's splits of a feature drawn uniformly among those that it can split; none if it can split none."""
    alive = np.flatnonzero(box)
    if len(alive) == 0:
        return alive
    groups = structure.by_feature(encoding.candidates, alive)
    return groups[randomness.uniform(len(groups))]


def most_splits(encoding: Encoding) -> int:
    """Public splits of the feature that has most of them: among so many a median is selected at most."""
    return int(np.bincount(encoding.candidates.feature, minlength=1).max())


def split_evenness(rows: TreeHistograms, encoding: Encoding, feature: int) -> NDArray[np.int64]:
    """−|2·#{left} − #{rows}| for every public split of one feature, in every node of the current level.

    Returns:
        PRIVATE int64 ``(n_nodes, n_splits)``; larger is better. An added row changes each by +1 or −1.
    """
    candidates = encoding.candidates
    mine = slice(*np.searchsorted(candidates.feature, [feature, feature + 1]))
    per_code = rows.class_histogram(slice(feature, feature + 1)).sum(axis=2)
    left = per_code if candidates.equals[mine][0] else per_code.cumsum(axis=1)
    result: NDArray[np.int64] = -np.abs(2 * left[:, candidates.threshold[mine]] - per_code.sum(axis=1, keepdims=True))
    return result


def default_depth(facts: PublicFacts, n_trees: int) -> int:
    """Depth by a public rule of the size, ε and the number of trees: about eight rows over ε in a leaf.

    The paper takes the number of features, whatever the size; with many features that leaves no rows, with few it stops
    too early.
    """
    strength = max(facts.size * float(facts.epsilon) / n_trees, 1.0)
    return min(max(round(math.log2(strength)) - 3, 1), 10)
