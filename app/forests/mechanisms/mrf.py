"""The multinomial random forest, repaired: public candidates, depth-only stopping, noisy counts in every leaf.

Li et al., "Multinomial random forest: toward consistency and privacy-preservation" (preprint), and Bai et al.,
"Multinomial random forest" (2022). What was wrong with the papers' rules, and the proof of this version, stand in
docs/proofs/mrf.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from app.core import amounts
from app.forests.encoding import Encoding
from app.forests.families.counts import CountFamily
from app.forests.families.family import Family
from app.forests.histograms import TreeHistograms
from app.forests.mechanisms import boxes, common, shapes, utilities
from app.forests.mechanisms.mechanism import Parameters, PublicFacts, Tree, draw_scale
from app.forests.mechanisms.parameters import Parameter, Value
from app.privacy import accountants
from app.privacy.adjacency import Adjacency
from app.privacy.events import DiscreteLaplace, Event, Parallel, Part, PermuteAndFlip, Sequential

if TYPE_CHECKING:
    from app.forests.randomness import Randomness

_OWN_PARAMETERS = (
    Parameter(
        "structure_share",
        "number",
        "Share of each tree's ε that its selections of splits get; the rest goes to leaf counts.",
        default="0.6",
        minimum=Fraction(1, 100),
        maximum=Fraction(99, 100),
    ),
    Parameter(
        "selection",
        "choice",
        "Choose feature and threshold in one draw, or the feature first.",
        default="joint",
        choices=("joint", "two_stage"),
        built=("joint",),
    ),
    Parameter(
        "utility",
        "choice",
        "What a good split lowers.",
        default="gini",
        choices=("gini", "miscount"),
        built=("gini",),
    ),
    Parameter(
        "leaf",
        "choice",
        "What a leaf releases: noisy counts of every class, or one label.",
        default="counts",
        choices=("counts", "label"),
        built=("counts",),
    ),
    Parameter(
        "se",
        "choice",
        "Split each tree's rows into a structure part and an estimation part by keyed hash, or not.",
        default="none",
        choices=("none", "hash"),
        built=("none",),
    ),
)


@dataclass(frozen=True)
class MultinomialForest:
    """Trees whose splits are drawn by permute-and-flip on the count Gini, with noisy counts in every leaf.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. Each node chooses among public candidates by
        permute-and-flip (lemma L2) with a utility of range sensitivity 2^(q+1); the nodes of a level hold disjoint
        rows, so a path pays Σ_l ε_l (lemma L4); leaf counts have L1 sensitivity 1 (lemma L3). A tree costs
        Σ_l ε_l + ε_leaf; sequential trees add, sharded trees count at their largest (lemma L5). Trees stop at the
        public depth only. *Not covered:* running time.

    Source:
        Bai et al., "Multinomial random forest", Pattern Recognition (2022), Theorem 2, which does not hold as stated;
        repaired in Theorem 1 of docs/proofs/mrf.md. Permute-and-flip: McKenna and Sheldon 2020.
    """

    slug: str = "mrf"
    title: str = "Multinomial random forest, repaired"
    source: str = "Bai et al. (2022), Multinomial random forest, Pattern Recognition; repaired"
    accountants: tuple[str, ...] = accountants.NAMES
    read_outs: tuple[str, ...] = ("log", "ta", "mv")
    family: Family = CountFamily()  # noqa: RUF009 - it has no state
    parameters: tuple[Parameter, ...] = (
        common.N_ESTIMATORS,
        common.MAX_DEPTH,
        common.N_BINS,
        common.ASSIGNMENT,
        *_OWN_PARAMETERS,
    )

    def settle(self, asked: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in the number and depth of trees from the public size, ε and the schema."""
        settled = dict(asked)
        encoding = Encoding.of(facts.schema, int(settled["n_bins"]))
        settled.setdefault("n_estimators", default_n_trees(facts))
        depth = default_depth(facts, int(settled["n_estimators"]))
        warnings = shapes.settle_depth(settled, depth, encoding, tables=True)
        return settled, warnings

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """T trees, one after another or on disjoint rows; a tree is one selection per node of a path, then counts."""
        n_trees, depth = int(parameters["n_estimators"]), int(parameters["max_depth"])
        sharded = parameters["assignment"] == common.SHARDED
        per_tree = facts.epsilon if sharded else facts.epsilon / n_trees
        share = amounts.parse(parameters["structure_share"]) if depth > 0 else Fraction(0)
        n_candidates = len(Encoding.of(facts.schema, int(parameters["n_bins"])).candidates)
        levels = tuple(
            Part(1, Parallel("nodes", (Part(2**level, _selection(loss, n_candidates)),)))
            for level, loss in enumerate(common.level_losses(share * per_tree, depth))
        )
        leaves = DiscreteLaplace(
            Adjacency.ADD_REMOVE_ONE,
            l1_sensitivity=Fraction(1),
            inverse_scale=draw_scale((1 - share) * per_tree, 1),
            coordinates=2**depth * facts.schema.n_classes,
        )
        parts = (Part(n_trees, Sequential((*levels, Part(1, leaves)))),)
        return Parallel("trees", parts) if sharded else Sequential(parts)

    def check(self, event: Event, parameters: Parameters) -> None:
        """See ``Mechanism.check``."""
        common.leaf_scale(event)

    def grow_tree(
        self,
        event: Event,
        parameters: Parameters,
        *,
        encoding: Encoding,
        rows: TreeHistograms,
        randomness: Randomness,
    ) -> Tree:
        """Selects splits level by level on the PRIVATE rows, then releases noisy leaf counts.

        Args:
            event: what was priced; every noise scale is taken from it.
            parameters: settled.
            encoding: public bins and candidates.
            rows: PRIVATE rows of this tree.
            randomness: source of all draws.

        Returns:
            The released tree. One call is one release, at the loss of one part of ``event``.
        """
        candidates, chosen = encoding.candidates, list[int | None]()
        level_boxes = [boxes.root(candidates)]
        for scale in common.level_scales(event):
            utility = split_utilities(rows, encoding, n_nodes=len(level_boxes))
            level: list[int | None] = []
            for box, own in zip(level_boxes, utility, strict=True):
                alive = np.flatnonzero(box)
                picked = randomness.permute_and_flip(own[alive], inverse_scale=scale) if len(alive) else None
                level.append(None if picked is None else int(alive[picked]))
            feature, threshold, equals = boxes.splits(candidates, level)
            rows.descend(feature=feature, threshold=threshold, equals=equals)
            pairs = zip(level_boxes, level, strict=True)
            level_boxes = [child for box, choice in pairs for child in boxes.children(candidates, box, choice)]
            chosen += level
        exact = rows.leaf_histogram()
        noise = randomness.discrete_laplace(exact.shape, inverse_scale=common.leaf_scale(event))
        return Tree(*boxes.splits(candidates, chosen), exact + noise)


def _selection(loss: Fraction, n_candidates: int) -> PermuteAndFlip:
    return PermuteAndFlip(
        Adjacency.ADD_REMOVE_ONE,
        range_sensitivity=Fraction(utilities.GINI_RANGE_SENSITIVITY),
        inverse_scale=draw_scale(loss, utilities.GINI_RANGE_SENSITIVITY),
        max_candidates=n_candidates,
    )


def split_utilities(rows: TreeHistograms, encoding: Encoding, *, n_nodes: int) -> NDArray[np.int64]:
    """Utility of every public candidate in every node of the current level.

    Returns:
        PRIVATE int64 ``(n_nodes, n_candidates)``; larger is better.
    """
    candidates = encoding.candidates
    utility = np.empty((n_nodes, len(candidates)), dtype=np.int64)
    for block in shapes.feature_blocks(encoding, n_nodes):
        histogram = rows.class_histogram(block)
        end = 0
        for feature in range(block.start, block.stop):
            begin, end = end, end + int(encoding.n_codes[feature])
            mine = slice(*np.searchsorted(candidates.feature, [feature, feature + 1]))
            codes = candidates.threshold[mine]
            if len(codes) == 0:
                continue
            counts = histogram[:, begin:end]
            total = counts.sum(axis=1, keepdims=True)
            side = counts if candidates.equals[mine][0] else counts.cumsum(axis=1)
            utility[:, mine] = utilities.split_gini(side[:, codes], total - side[:, codes])
    return utility


def default_n_trees(facts: PublicFacts) -> int:
    """Number of trees by a public rule of the size, ε and the number of classes."""
    factor = 1.6 if facts.schema.n_classes == 2 else 3.0
    trees: float = factor * float(facts.epsilon) ** 0.6 * (facts.size / 10_000) ** 0.4
    return min(max(round(trees), 1), 16)


def default_depth(facts: PublicFacts, n_trees: int) -> int:
    """Depth by a public rule of the size, ε, the number of classes and of trees."""
    strength = math.log2(max(facts.size * float(facts.epsilon) / n_trees, 4.0))
    return min(max(round(0.55 * strength - 0.75 + 0.35 * math.log2(facts.schema.n_classes / 2)), 1), 8)
