"""Prices ``sspe-1``: median trees with splits from an unlabelled dataset and leaf counts from a labelled dataset.

Huang, Lei and Kabán, "Noise-efficient learning of differentially private partitioning machine ensembles", Algorithm 3
in its first setting. docs/proofs/sspe-1.md shows the error of the paper and proves the guarantee of this version.
"""

from __future__ import annotations

from fractions import Fraction

from app.forests.contract.about import About
from app.forests.contract.algorithm import Parameters, TwoDatasetAlgorithm
from app.forests.contract.facts import PublicFacts
from app.forests.contract.parameters import Value
from app.forests.trees import leaf_prices, median_prices, shapes, tree_parameters, tree_price
from app.forests.trees.tree_price import TreePrice
from app.privacy.events import Event

_ABOUT = About(
    claimed=(
        "ε-differential privacy where trees are built on unlabelled rows at ε and leaves counted on labelled rows at ε."
    ),
    wrong=(
        "The guarantee holds only if nobody is in both datasets: a person in both loses the sum. Ranges and the "
        "stop on an exact count are those of spe: an infinite loss."
    ),
    here="Two datasets and two accounts, each of which pays for its own part, both or neither; medians as in spe.",
    proof="docs/proofs/sspe-1.md",
    results="docs/results/semi-supervised.md",
)


class SemiSupervisedTrees(TwoDatasetAlgorithm):
    """Trees of ``spe`` with private medians of an unlabelled dataset and leaf counts of a labelled dataset.

    Each account pays for the releases about its dataset: the unlabelled dataset's ε pays for all medians, the labelled
    dataset's ε for all leaf counts.
    """

    slug = "sspe-1"
    title = "Median trees from an unlabelled and a labelled dataset"
    source = "Huang, Lei and Kabán, semi-supervised private ensemble; repaired"
    about = _ABOUT
    read_outs = ("log", "sum", "ta", "mv")
    parameters = (
        tree_parameters.TEN_TREES,
        tree_parameters.MAX_DEPTH,
        tree_parameters.N_BINS,
        tree_parameters.SHARDED_ASSIGNMENT,
    )

    def settle(self, requested: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in the smaller of the default depths for the two public sizes and ε."""
        settled = dict(requested)
        n_trees = int(settled["n_estimators"])
        rule = min(median_prices.default_depth(part, n_trees) for part in (facts, facts.of_unlabelled))
        encoding = shapes.encoding_of(facts.schema, settled["n_bins"], facts.profile)
        return settled, shapes.settle_depth(settled, rule, encoding, tables=True)

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """The event of the labelled dataset: counts of every leaf of T trees."""
        depth, n_trees = int(parameters["max_depth"]), int(parameters["n_estimators"])
        per_tree = tree_price.loss_per_tree(parameters, facts.epsilon)
        price = TreePrice((), leaf_prices.priced(leaf_prices.COUNTS, per_tree, depth, facts))
        return price.forest_event(n_trees, sharded=tree_parameters.is_sharded(parameters))

    def structure_event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """The event of the unlabelled dataset: one private median per level of T trees."""
        depth, n_trees = int(parameters["max_depth"]), int(parameters["n_estimators"])
        per_tree = tree_price.loss_per_tree(parameters, facts.epsilon)
        widest = median_prices.most_splits(shapes.encoding_of(facts.schema, parameters["n_bins"], facts.profile))
        levels = tuple(
            (
                tree_price.selection_event(
                    loss, facts, range_sensitivity=median_prices.RANGE_SENSITIVITY, max_candidates=widest
                ),
            )
            for loss in tree_price.geometric_losses(per_tree, depth, median_prices.LEVEL_RATIO)
        )
        return tree_price.structure_event(levels, n_trees, sharded=tree_parameters.is_sharded(parameters))

    def check(self, event: Event, parameters: Parameters) -> None:
        """See ``Algorithm.check``."""
        price = TreePrice.of(event)
        price.require(depth=0, selections=[], apart=False)
        leaf_prices.require(leaf_prices.COUNTS, price.leaves)

    def check_structure(self, event: Event, parameters: Parameters) -> None:
        """See ``TwoDatasetAlgorithm.check_structure``."""
        levels = tree_price.levels_of(event)
        tree_price.require_levels(levels, int(parameters["max_depth"]), [Fraction(median_prices.RANGE_SENSITIVITY)])
