"""Prices random decision trees: the structure reads no row, and every leaf count gets noise.

Bojarski et al. 2014 ("Differentially- and non-differentially-private random decision trees"); the guarantee and its
proof are in docs/proofs/rdt.md.
"""

from __future__ import annotations

import math

from app.forests.contract.about import About
from app.forests.contract.algorithm import Algorithm, Parameters
from app.forests.contract.facts import PublicFacts
from app.forests.contract.parameters import Value
from app.forests.trees import leaf_prices, shapes, tree_parameters, tree_price
from app.privacy.events import Event, Parallel, Part, Sequential

_ABOUT = About(
    claimed=(
        "ε-differential privacy of random trees with Laplace noise on the class counts of their leaves, in three "
        "ways of reading them."
    ),
    wrong=(
        "No error for a row that is added or removed, if bounds are public. Replacing a row costs 2ε. Number and "
        "height of trees were chosen by accuracy on the private rows, which no budget paid for."
    ),
    here=(
        "The paper's release with integer noise; number and depth of trees follow public rules. All three read-outs "
        "are free once it is paid for."
    ),
    proof="docs/proofs/rdt.md",
    results="docs/results/first-families.md",
)


class RandomDecisionTrees(Algorithm):
    """Trees drawn from public randomness, with noise on every (leaf, class) count of every tree."""

    source = "Bojarski, Choromanska, Choromanski, LeCun (2014)"
    about = _ABOUT
    parameters = (
        tree_parameters.N_ESTIMATORS,
        tree_parameters.MAX_DEPTH,
        tree_parameters.N_BINS,
        tree_parameters.ASSIGNMENT,
    )

    def settle(self, requested: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in the number and depth of trees from the public size, ε and the schema."""
        settled = dict(requested)
        encoding = shapes.encoding_of(facts.schema, settled["n_bins"], facts.profile)
        settled.setdefault("n_estimators", default_n_trees(facts))
        depth = default_depth(facts, int(settled["n_estimators"]))
        warnings = shapes.settle_depth(settled, depth, encoding, tables=False)
        return settled, warnings

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """T noisy histograms, sequential or on disjoint rows."""
        n_trees, depth = int(parameters["n_estimators"]), int(parameters["max_depth"])
        per_tree = tree_price.loss_per_tree(parameters, facts.epsilon)
        parts = (Part(n_trees, leaf_prices.priced(leaf_prices.COUNTS, per_tree, depth, facts)),)
        return Parallel("trees", parts) if tree_parameters.is_sharded(parameters) else Sequential(parts)

    def check(self, event: Event, parameters: Parameters) -> None:
        """See ``Algorithm.check``."""
        leaf_prices.require(leaf_prices.COUNTS, tree_price.tree_event(event))


class VotingTrees(RandomDecisionTrees):
    """Random decision trees read by majority vote."""

    slug = "rdt-mv"
    title = "Random decision trees, majority vote"
    read_outs = ("mv", "ta", "pa")


class AveragedTrees(RandomDecisionTrees):
    """Random decision trees read by averages of class shares."""

    slug = "rdt-ta"
    title = "Random decision trees, threshold averaging"
    read_outs = ("ta", "mv", "pa")


class DrawnTrees(RandomDecisionTrees):
    """Random decision trees whose labels are drawn by averages of class shares."""

    slug = "rdt-pa"
    title = "Random decision trees, probabilistic averaging"
    read_outs = ("pa", "mv", "ta")


def default_n_trees(facts: PublicFacts) -> int:
    """The default number of trees, from the public size and ε: more trees average better, but each has more noise."""
    trees: float = 0.8 * (facts.size * float(facts.epsilon)) ** 0.35
    return min(max(round(trees), 3), 64)


def default_depth(facts: PublicFacts, n_trees: int) -> int:
    """The default depth: an average leaf holds about twice as many rows as the scale of its noise."""
    strength = max(facts.size * float(facts.epsilon) / n_trees, 1.0)
    return min(max(round(math.log2(strength) - 1), 1), 10)
