"""Prices ``rdt-jagannathan``: random decision trees with the default numbers of Jagannathan et al.

Jagannathan, Pillaipakkamnatt and Wright, "A practical differentially private random decision tree classifier" (2009;
Transactions on Data Privacy 5, 2012). The mechanism is the mechanism of docs/proofs/rdt.md, with other default numbers.
"""

from __future__ import annotations

import math

from app.forests.algorithms.rdt.price import RandomDecisionTrees
from app.forests.contract.about import About
from app.forests.contract.facts import PublicFacts
from app.forests.contract.parameters import Value
from app.forests.trees import shapes, tree_parameters

_ABOUT = About(
    claimed="ε-differential privacy of ten random trees with Laplace noise on the class counts of their leaves.",
    wrong=("No error for a row that is added or removed, if leaves that no row reached get noise like the others."),
    here="The paper's release with integer noise; the depth follows the number of features.",
    proof="docs/proofs/rdt.md",
    results="docs/results/papers.md",
)


class JagannathanTrees(RandomDecisionTrees):
    """Ten random decision trees, of depth half the number of features unless the public size is small.

    Empty leaves are released, too: an omitted leaf would reveal that no row reaches it.
    """

    slug = "rdt-jagannathan"
    title = "Random decision trees, depth by features"
    read_outs = ("ta", "sum", "mv")
    source = "Jagannathan, Pillaipakkamnatt and Wright (2009, 2012)"
    about = _ABOUT
    parameters = (tree_parameters.TEN_TREES, *RandomDecisionTrees.parameters[1:])

    def settle(self, requested: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in the depth from the number of features and the public size."""
        settled = dict(requested)
        encoding = shapes.encoding_of(facts.schema, settled["n_bins"], facts.profile)
        warnings = shapes.settle_depth(settled, default_depth_by_features(facts), encoding, tables=False)
        return settled, warnings


def default_depth_by_features(facts: PublicFacts) -> int:
    """min(⌈d/2⌉, ⌊log2 n⌋ − 1) for d features and the public size n; at least 1."""
    by_features = math.ceil(len(facts.schema.features) / 2)
    return max(min(by_features, facts.size.bit_length() - 2), 1)
