"""Random decision trees with noisy leaf counts: the structure never looks at a row.

Bojarski et al. 2014 ("Differentially- and non-differentially-private random decision trees"); the guarantee and its
proof stand in docs/proofs/rdt.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from app.forests.bins import tree_bins
from app.forests.contract.about import About, at_epsilon_one
from app.forests.contract.algorithm import Parameters, PublicFacts, ReleasedTree
from app.forests.contract.family import Family
from app.forests.contract.parameters import Parameter, Value
from app.forests.data.encoding import Encoding
from app.forests.trees import common, leaves, shapes
from app.forests.trees.count_read_out import CountFamily
from app.forests.trees.histograms import TreeHistograms
from app.forests.trees.structure import drop, random_structure
from app.privacy import accountants
from app.privacy.adjacency import Adjacency
from app.privacy.events import Event, Parallel, Part, Sequential

if TYPE_CHECKING:
    from app.forests.noise.randomness import Randomness


_ABOUT = About(
    claimed=(
        "ε-differential privacy of random trees with Laplace noise on the class counts of their leaves, in three "
        "ways of reading them."
    ),
    wrong=(
        "Nothing, for a row that is added or removed and bounds that are public. Replacing a row costs 2ε. Number "
        "and height of trees were chosen by accuracy on the private rows, which no budget paid for."
    ),
    here=(
        "The paper's release with integer noise; number and depth of trees follow public rules. All three read-outs "
        "are free once it is paid for."
    ),
    proof="docs/proofs/rdt.md",
    results="docs/results/first-families.md",
    accuracy=(),
)

_PERCENTS = {
    "rdt-mv": "76.8 84.5 93.4 86.1 79.9",
    "rdt-ta": "76.9 90.3 95.1 89.6 85.8",
    "rdt-pa": "68.2 68.0 75.4 41.0 33.4",
}


@dataclass(frozen=True)
class RandomDecisionTrees:
    """Trees drawn from public randomness; noise on every (leaf, class) count of every tree.

    The three slugs are one mechanism: they differ only in the read-out that prediction takes by default.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. One row adds one to one count of one tree's
        (leaf, class) histogram, so that histogram has L1 sensitivity 1. Sequential trees all see every row: the losses
        ε/T of T trees add up. Sharded trees see disjoint rows by a keyed hash of the row id: the largest tree's loss is
        the forest's. Empty leaves are released like any other. *Not covered:* running time.

    Source:
        Bojarski, Choromanska, Choromanski, LeCun 2014, Algorithm 2 in its three versions; Theorem 1 of
        docs/proofs/rdt.md.
    """

    slug: str
    title: str
    read_outs: tuple[str, ...]
    family: Family = CountFamily()  # noqa: RUF009 - it has no state
    source: str = "Bojarski, Choromanska, Choromanski, LeCun (2014)"
    accountants: tuple[str, ...] = accountants.NAMES
    adjacency: Adjacency = Adjacency.ADD_REMOVE_ONE
    parameters: tuple[Parameter, ...] = (common.N_ESTIMATORS, common.MAX_DEPTH, common.N_BINS, common.ASSIGNMENT)

    @property
    def about(self) -> About:
        """See ``Mechanism.about``."""
        return replace(_ABOUT, accuracy=at_epsilon_one(_PERCENTS[self.slug]))

    def settle(self, asked: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in the number and depth of trees from the public size, ε and the schema."""
        settled = dict(asked)
        encoding = tree_bins.encoding_of(facts.schema, settled["n_bins"], facts.profile)
        settled.setdefault("n_estimators", default_n_trees(facts))
        depth = default_depth(facts, int(settled["n_estimators"]))
        warnings = shapes.settle_depth(settled, depth, encoding, tables=False)
        return settled, warnings

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """T noisy histograms, one after another or on disjoint rows."""
        n_trees, depth = int(parameters["n_estimators"]), int(parameters["max_depth"])
        per_tree = common.loss_per_tree(parameters, facts.epsilon)
        parts = (Part(n_trees, leaves.priced(leaves.COUNTS, per_tree, depth, facts)),)
        return Parallel("trees", parts) if common.is_sharded(parameters) else Sequential(parts)

    def check(self, event: Event, parameters: Parameters) -> None:
        """See ``Mechanism.check``."""
        leaves.require(leaves.COUNTS, common.tree_event(event))

    def grow_tree(
        self,
        event: Event,
        parameters: Parameters,
        *,
        encoding: Encoding,
        rows: TreeHistograms,
        randomness: Randomness,
    ) -> ReleasedTree:
        """Draws a structure, drops the PRIVATE rows through it and releases noisy counts.

        Args:
            event: what was priced; the noise scale is taken from it.
            parameters: settled.
            encoding: public bins.
            rows: PRIVATE rows of this tree.
            randomness: source of the public structure and of the noise.

        Returns:
            The released tree. One call is one release, at the loss of one part of ``event``.
        """
        splits = random_structure(encoding.candidates, int(parameters["max_depth"]), randomness)
        drop(rows, splits)
        return leaves.release(splits, common.tree_event(event), rows, randomness)


def default_n_trees(facts: PublicFacts) -> int:
    """Number of trees by a public rule of the size and ε: averaging helps while every tree still hears its rows."""
    trees: float = 0.8 * (facts.size * float(facts.epsilon)) ** 0.35
    return min(max(round(trees), 3), 64)


def default_depth(facts: PublicFacts, n_trees: int) -> int:
    """Depth by a public rule: an average leaf holds about twice the scale of its counts' noise."""
    strength = max(facts.size * float(facts.epsilon) / n_trees, 1.0)
    return min(max(round(math.log2(strength) - 1), 1), 10)
