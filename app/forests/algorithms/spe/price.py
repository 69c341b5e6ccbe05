"""Prices ``spe``, the supervised private ensemble: trees of private medians on hashed shards, with noisy leaf counts.

Huang, Lei and Kabán, "Noise-efficient learning of differentially private partitioning machine ensembles".
docs/proofs/spe.md shows the errors in the paper's candidates and stopping rule, and proves the guarantee of this
version.
"""

from __future__ import annotations

from fractions import Fraction

from app.forests.contract.about import About
from app.forests.contract.algorithm import Algorithm, Parameters
from app.forests.contract.facts import PublicFacts
from app.forests.contract.parameters import Value, share
from app.forests.trees import leaf_prices, shapes, tree_parameters, tree_price
from app.forests.trees.median_prices import LEVEL_RATIO, RANGE_SENSITIVITY, default_depth, most_splits
from app.forests.trees.tree_price import TreePrice
from app.privacy.events import Event

_ABOUT = About(
    claimed="ε-differential privacy of trees of private medians on disjoint subsets, with noisy leaf counts.",
    wrong=(
        "Medians are drawn between the smallest and the largest value present, and a stop reads an exact count: "
        "the loss is infinite. Where a row is added or removed, as in the paper, subsets of fixed sizes cost up to 3ε."
    ),
    here=(
        "Medians among public cuts, a fixed depth, each row's tree by a keyed hash of its id; the paper's budgets "
        "per level."
    ),
    proof="docs/proofs/spe.md",
    results="docs/results/papers.md",
)


class MedianTrees(Algorithm):
    """Each node draws a random feature and selects the split that divides its rows most evenly, without labels."""

    slug = "spe"
    title = "Supervised private ensemble of median trees"
    source = "Huang, Lei and Kabán, differentially private partitioning machine ensembles; repaired"
    about = _ABOUT
    read_outs = ("log", "sum", "ta", "mv")
    parameters = (
        tree_parameters.TEN_TREES,
        tree_parameters.MAX_DEPTH,
        tree_parameters.N_BINS,
        tree_parameters.SHARDED_ASSIGNMENT,
        share(
            "structure_share",
            "Share of each tree's ε that its private medians get; the rest goes to leaf counts.",
            default="0.5",
        ),
    )

    def settle(self, requested: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in the depth from the public size and ε."""
        settled = dict(requested)
        encoding = shapes.encoding_of(facts.schema, settled["n_bins"], facts.profile)
        warnings = shapes.settle_depth(
            settled, default_depth(facts, int(settled["n_estimators"])), encoding, tables=True
        )
        return settled, warnings

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """T trees on disjoint rows, or sequential; a tree is one private median per level, then counts."""
        n_trees, depth = int(parameters["n_estimators"]), int(parameters["max_depth"])
        per_tree = tree_price.loss_per_tree(parameters, facts.epsilon)
        share = tree_parameters.structure_share(parameters)
        widest = most_splits(shapes.encoding_of(facts.schema, parameters["n_bins"], facts.profile))
        levels = tuple(
            (tree_price.selection_event(loss, facts, range_sensitivity=RANGE_SENSITIVITY, max_candidates=widest),)
            for loss in tree_price.geometric_losses(share * per_tree, depth, LEVEL_RATIO)
        )
        price = TreePrice(levels, leaf_prices.priced(leaf_prices.COUNTS, (1 - share) * per_tree, depth, facts))
        return price.forest_event(n_trees, sharded=tree_parameters.is_sharded(parameters))

    def check(self, event: Event, parameters: Parameters) -> None:
        """See ``Algorithm.check``."""
        price = TreePrice.of(event)
        price.require(depth=int(parameters["max_depth"]), selections=[Fraction(RANGE_SENSITIVITY)], apart=False)
        leaf_prices.require(leaf_prices.COUNTS, price.leaves)
