"""Chooses the number and depth of greedy trees by public rules."""

import math

from app.forests.contract.facts import PublicFacts
from app.forests.contract.parameters import Value
from app.forests.trees import shapes, tree_bins, tree_parameters


def settle(requested: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
    """Fills in the number and depth of trees by public rules; see ``Algorithm.settle``."""
    settled = dict(requested)
    encoding = tree_bins.encoding_of(facts.schema, settled["n_bins"], facts.profile)
    settled.setdefault("n_estimators", tree_parameters.default_n_trees(facts))
    depth = default_depth(facts, int(settled["n_estimators"]))
    warnings = shapes.settle_depth(settled, depth, encoding, tables=True)
    return settled, warnings


def default_depth(facts: PublicFacts, n_trees: int) -> int:
    """Depth by a public rule of the size, ε, the number of classes and the number of trees."""
    strength = math.log2(max(facts.size * float(facts.epsilon) / n_trees, 4.0))
    return min(max(round(0.55 * strength - 0.75 + 0.35 * math.log2(facts.schema.n_classes / 2)), 1), 8)
