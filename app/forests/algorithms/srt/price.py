"""Prices ``srt``: random trees whose leaves release one label each, without smooth sensitivity.

Fletcher and Islam, "Differentially private random decision forests using smooth sensitivity" (2017). docs/proofs/srt.md
shows that their rule for labels is not private and proves the rule used here.
"""

from __future__ import annotations

from dataclasses import replace

from app.forests.contract.about import About
from app.forests.contract.algorithm import Algorithm, Parameters
from app.forests.contract.facts import PublicFacts
from app.forests.contract.parameters import Value
from app.forests.data.schema import Schema
from app.forests.trees import leaf_prices, shapes, tree_parameters, tree_price
from app.forests.trees.tree_price import TreePrice
from app.privacy.events import Event

DEEPEST_BY_RULE = 10


_ABOUT = About(
    claimed=(
        "ε-differential privacy of one label per leaf, drawn by the exponential mechanism scaled by a smooth "
        "sensitivity."
    ),
    wrong=(
        "No theorem covers this selection: at a claim of 1 the loss has no bound. The smooth sensitivity is also "
        "too small; ranges and categories are read off the rows, and the code publishes exact statistics."
    ),
    here=(
        "Random trees on hashed parts of the rows; labels by permute-and-flip on counts, which reaches the accuracy "
        "that the paper aims for. Smooth sensitivity is dropped."
    ),
    proof="docs/proofs/srt.md",
    results="docs/results/papers.md",
)


class LabelledRandomTrees(Algorithm):
    """Trees drawn from public randomness, on disjoint rows, each leaf releasing a label by permute-and-flip.

    Trees are binary: a split on categories separates one category from the rest, where the paper has one branch each.
    """

    slug = "srt"
    title = "Random trees with private labels"
    source = "Fletcher and Islam (2017), smooth random trees; repaired"
    about = _ABOUT
    read_outs = ("mv",)
    parameters = (
        replace(
            tree_parameters.N_ESTIMATORS,
            description="Number of trees; each adds a vote and takes its share of the rows or ε.",
            default=20,
        ),
        replace(
            tree_parameters.MAX_DEPTH,
            description="Splits on every path. By default a rule of the features and the size.",
        ),
        tree_parameters.N_BINS,
        tree_parameters.SHARDED_ASSIGNMENT,
    )

    def settle(self, requested: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in the depth from the features of the schema."""
        settled = dict(requested)
        encoding = shapes.encoding_of(facts.schema, settled["n_bins"], facts.profile)
        warnings = shapes.settle_depth(settled, default_depth(facts.schema), encoding, tables=False)
        return settled, warnings

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """T trees on disjoint rows, or sequential; a tree is one label per leaf."""
        n_trees, depth = int(parameters["n_estimators"]), int(parameters["max_depth"])
        per_tree = tree_price.loss_per_tree(parameters, facts.epsilon)
        price = TreePrice((), leaf_prices.priced(leaf_prices.LABEL, per_tree, depth, facts))
        return price.forest_event(n_trees, sharded=tree_parameters.is_sharded(parameters))

    def check(self, event: Event, parameters: Parameters) -> None:
        """See ``Algorithm.check``."""
        price = TreePrice.of(event)
        price.require(depth=0, selections=[], apart=False)
        leaf_prices.require(leaf_prices.LABEL, price.leaves)


def default_depth(schema: Schema) -> int:
    """The default depth, by the paper's rule, from the public number of features.

    For m numeric features, the rule takes the smallest d for which a path of d random features is expected to leave at
    most half of the m untested, m(1 − 1/m)^d ≤ m/2, and adds half of the number of categorical features.
    """
    n_categorical = sum(feature.is_categorical for feature in schema.features)
    n_numbers = len(schema.features) - n_categorical
    depth, untested = 0, float(n_numbers)
    while untested > n_numbers / 2:
        depth += 1
        untested *= 1 - 1 / n_numbers
    return min(max(depth + n_categorical // 2, 1), DEEPEST_BY_RULE)
