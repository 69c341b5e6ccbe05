"""Plans and prices median trees on accounts that protect labels alone."""

from dataclasses import replace
from fractions import Fraction
from math import ceil, log2

from app.core import amounts, limits
from app.forests.contract.algorithm import Parameters
from app.forests.contract.facts import PublicFacts
from app.forests.contract.parameters import Parameter, Value
from app.forests.data.encoding import Encoding
from app.forests.trees import leaf_prices, shapes, tree_parameters
from app.forests.trees.tree_price import TreePrice
from app.privacy.events import Adjacency, Event

ROWS_OF_A_LEAF = 8
"""Labelled rows times ε that the rules aim for in a leaf of a tree: four times the noise scale of leaf counts."""

DEEPEST_BY_RULE = 10


MIN_ROWS = Parameter(
    "min_rows",
    "integer",
    "A node with fewer rows is not split; sizes are public where labels alone are protected. By default a rule of "
    "ε, the number of trees and labelled_share.",
    minimum=Fraction(2),
    maximum=Fraction(limits.MAX_ROWS_PER_DATASET),
)


LABELLED_SHARE = Parameter(
    "labelled_share",
    "number",
    "Estimated share of the rows with a known label: a public estimate, never counted from rows. A smaller share "
    "leads to larger leaves.",
    default="1",
    minimum=Fraction(1, 1000),
    maximum=Fraction(1),
)


def settle(settled: dict[str, Value], facts: PublicFacts, *, n_noisy_trees: int) -> tuple[str, ...]:
    """Sets the smallest node that is split and the depth of trees, by public rules.

    Args:
        settled: with ``n_estimators``, ``n_bins`` and ``labelled_share``; gains ``min_rows`` and ``max_depth``.
        facts: public.
        n_noisy_trees: trees among which the labels, or ε, are divided.

    Returns:
        Warnings.
    """
    share = amounts.parse(settled["labelled_share"])
    of_a_leaf = ROWS_OF_A_LEAF * n_noisy_trees / (facts.epsilon * share)
    settled.setdefault("min_rows", min(max(ceil(2 * of_a_leaf), 2), limits.MAX_ROWS_PER_DATASET))
    depth = min(max(ceil(log2(max(float(facts.size / of_a_leaf), 1.0))), 1), DEEPEST_BY_RULE)
    encoding = Encoding.of(facts.schema, int(settled["n_bins"]))
    return shapes.settle_depth(settled, depth, encoding, tables=True)


N_BINS = replace(tree_parameters.N_BINS, default=255)
"""Splits are chosen at no privacy cost, so the default is the largest number of bins."""


def label_event(parameters: Parameters, facts: PublicFacts, *, kind: str, n_trees: int) -> Event:
    """The event of trees whose only private releases are their leaves."""
    sharded = tree_parameters.is_sharded(parameters)
    per_tree = facts.epsilon if sharded else facts.epsilon / n_trees
    price = TreePrice((), leaf_prices.priced(kind, per_tree, int(parameters["max_depth"]), facts))
    return price.forest_event(n_trees, sharded=sharded)


def require_label_event(event: Event, *, kind: str) -> None:
    """Checks the event of a stored plan; see ``Algorithm.check``."""
    price = TreePrice.of(event)
    price.require(depth=0, selections=[], apart=False)
    leaf_prices.require(kind, price.leaves, adjacency=Adjacency.LABEL)
