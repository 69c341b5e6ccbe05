"""Prices ``maxtree``: greedy trees by the maximal vote after Liu et al. (2018), without their bootstrap.

docs/proofs/maxtree.md shows the error of the paper and proves the guarantee of this version.
"""

from __future__ import annotations

from fractions import Fraction

from app.core import amounts
from app.forests.contract.about import About
from app.forests.contract.algorithm import Algorithm, Parameters
from app.forests.contract.facts import PublicFacts
from app.forests.contract.parameters import Parameter, Value, share
from app.forests.trees import leaf_prices, shapes, tree_parameters, tree_price, utilities
from app.forests.trees.tree_price import TreePrice
from app.privacy.events import Event

_RANGE_SENSITIVITY = utilities.RANGE_SENSITIVITIES[utilities.MISCOUNT]


_ABOUT = About(
    claimed="ε-differential privacy of greedy trees by the maximal vote, in an ensemble of bootstrap samples.",
    wrong=(
        "The vote's sensitivity of 1 is right; a bootstrap's tree at ε = 1 loses 2.42 or more where a row is added."
    ),
    here=(
        "The paper's greedy trees in outline, with every row in a tree once. The paper's division of the budget and "
        "its way of voting are not reproduced."
    ),
    proof="docs/proofs/maxtree.md",
    results="docs/results/papers.md",
)


class MaximalVoteTrees(Algorithm):
    """Trees whose splits are selected to leave the fewest rows outside the most common class of their side."""

    slug = "maxtree"
    title = "Greedy maximal-vote trees, without bootstrap"
    source = "Liu et al. (2018), Applied Soft Computing, in its outline; repaired"
    about = _ABOUT
    read_outs = ("log", "ta", "mv")
    parameters = (
        tree_parameters.N_ESTIMATORS,
        tree_parameters.MAX_DEPTH,
        tree_parameters.N_BINS,
        tree_parameters.ASSIGNMENT,
        share(
            "structure_share",
            "Share of each tree's ε that its selections of splits get; the rest goes to leaf counts. By default 0.5, "
            "and 0.85 on accounts with a δ.",
        ),
        Parameter(
            "level_ratio",
            "number",
            "What a level's selections get of ε, as a multiple of what the level above gets.",
            default="1",
            minimum=Fraction(1, 2),
            maximum=Fraction(2),
        ),
    )

    def settle(self, requested: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in the shares of each tree's ε, and the number and depth of trees, from public facts."""
        settled = dict(requested)
        tree_parameters.settle_structure_share(settled, facts, usual="0.5")
        return shapes.fill_greedy_sizes(settled, facts)

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """T trees, sequential or on disjoint rows; a tree is one selection per node of a path, then counts."""
        n_trees, depth = int(parameters["n_estimators"]), int(parameters["max_depth"])
        per_tree = tree_price.loss_per_tree(parameters, facts.epsilon)
        share = tree_parameters.structure_share(parameters)
        n_candidates = len(shapes.encoding_of(facts.schema, parameters["n_bins"], facts.profile).candidates)
        losses = tree_price.geometric_losses(share * per_tree, depth, amounts.parse(parameters["level_ratio"]))
        levels = tuple(
            (
                tree_price.selection_event(
                    loss, facts, range_sensitivity=_RANGE_SENSITIVITY, max_candidates=n_candidates
                ),
            )
            for loss in losses
        )
        price = TreePrice(levels, leaf_prices.priced(leaf_prices.COUNTS, (1 - share) * per_tree, depth, facts))
        return price.forest_event(n_trees, sharded=tree_parameters.is_sharded(parameters))

    def check(self, event: Event, parameters: Parameters) -> None:
        """See ``Algorithm.check``."""
        price = TreePrice.of(event)
        price.require(depth=int(parameters["max_depth"]), selections=[Fraction(_RANGE_SENSITIVITY)], apart=False)
        leaf_prices.require(leaf_prices.COUNTS, price.leaves)
