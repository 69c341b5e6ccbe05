"""Greedy trees by the maximal vote, in the manner of Liu et al. (2018), without their bootstrap.

What was wrong, and the proof of this version, stand in docs/proofs/maxtree.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from app.core import amounts
from app.forests.bins import tree_bins
from app.forests.contract.about import About, at_epsilon_one
from app.forests.contract.algorithm import Parameters, PublicFacts, ReleasedTree
from app.forests.contract.family import Family
from app.forests.contract.parameters import Parameter, Value
from app.forests.data.encoding import Encoding
from app.forests.trees import common, greedy, leaves, selections, utilities
from app.forests.trees.count_read_out import CountFamily
from app.forests.trees.histograms import TreeHistograms
from app.forests.trees.tree_price import TreePrice
from app.privacy import accountants
from app.privacy.adjacency import Adjacency
from app.privacy.events import Event

if TYPE_CHECKING:
    from app.forests.noise.randomness import Randomness

_RULE = greedy.SplitRule(utilities.MISCOUNT)
_RANGE_SENSITIVITY = utilities.RANGE_SENSITIVITIES[utilities.MISCOUNT]


_ABOUT = About(
    claimed="ε-differential privacy of greedy trees by the maximal vote, in an ensemble of bootstrap samples.",
    wrong=(
        "A row that a bootstrap draws m times counts m times, and m has no bound. The vote's sensitivity of 1 is right."
    ),
    here=(
        "The greedy trees in their outline, with every row in a tree once. How the paper divides its budget and "
        "votes is not reproduced."
    ),
    proof="docs/proofs/maxtree.md",
    results="docs/results/papers.md",
    accuracy=at_epsilon_one("82.0 91.3 99.2 89.0 88.0"),
)


@dataclass(frozen=True)
class MaximalVoteTrees:
    """Trees whose every split is selected for leaving the fewest rows outside their side's most common class.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. The utility −(miscount left + miscount
        right) is monotone with range sensitivity 1; a selection by it among public splits is ε_l-DP (lemma L2, or L1
        on accounts in ρ and μ²), and a path pays Σ_l ε_l (lemma L4). Leaf counts have L1 sensitivity 1 (lemma L3).
        Every row is in a tree once: there is no bootstrap, in which a row that is drawn m times would change a count
        by m. Sequential trees add, sharded trees count at their largest (lemma L5). *Not covered:* running time.

    Source:
        Liu, Li, Li and Chen, "Differentially private classification with decision tree ensemble", Applied Soft
        Computing (2018), as Huang, Lei and Kabán describe it; Theorem 1 of docs/proofs/maxtree.md.
    """

    slug: str = "maxtree"
    title: str = "Greedy maximal-vote trees, without bootstrap"
    source: str = "Liu et al. (2018), Applied Soft Computing, in its outline; repaired"
    about: About = _ABOUT
    accountants: tuple[str, ...] = accountants.NAMES
    adjacency: Adjacency = Adjacency.ADD_REMOVE_ONE
    read_outs: tuple[str, ...] = ("log", "ta", "mv")
    family: Family = CountFamily()  # noqa: RUF009 - it has no state
    parameters: tuple[Parameter, ...] = (
        common.N_ESTIMATORS,
        common.MAX_DEPTH,
        common.N_BINS,
        common.ASSIGNMENT,
        Parameter(
            "structure_share",
            "number",
            "Share of each tree's ε that its selections of splits get; the rest goes to leaf counts. By default 0.5, "
            "and 0.85 on accounts with a δ.",
            minimum=Fraction(1, 100),
            maximum=Fraction(99, 100),
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

    def settle(self, asked: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in the shares of a tree, and the number and depth of trees from the public size, ε and the schema."""
        settled = dict(asked)
        common.settle_structure_share(settled, facts, usual="0.5")
        return greedy.settle(settled, facts)

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """T trees, one after another or on disjoint rows; a tree is one selection per node of a path, then counts."""
        n_trees, depth = int(parameters["n_estimators"]), int(parameters["max_depth"])
        per_tree = common.loss_per_tree(parameters, facts.epsilon)
        share = common.structure_share(parameters)
        n_candidates = len(tree_bins.encoding_of(facts.schema, parameters["n_bins"], facts.profile).candidates)
        losses = common.geometric_losses(share * per_tree, depth, amounts.parse(parameters["level_ratio"]))
        levels = tuple(
            (selections.priced(loss, facts, range_sensitivity=_RANGE_SENSITIVITY, max_candidates=n_candidates),)
            for loss in losses
        )
        price = TreePrice(levels, leaves.priced(leaves.COUNTS, (1 - share) * per_tree, depth, facts))
        return price.forest_event(n_trees, sharded=common.is_sharded(parameters))

    def check(self, event: Event, parameters: Parameters) -> None:
        """See ``Mechanism.check``."""
        price = TreePrice.of(event)
        price.require(depth=int(parameters["max_depth"]), selections=[Fraction(_RANGE_SENSITIVITY)], apart=False)
        leaves.require(leaves.COUNTS, price.leaves)

    def grow_tree(
        self,
        event: Event,
        parameters: Parameters,
        *,
        encoding: Encoding,
        rows: TreeHistograms,
        randomness: Randomness,
    ) -> ReleasedTree:
        """Selects splits level by level on the PRIVATE rows, then releases noisy leaf counts.

        Args:
            event: what was priced; every noise scale is taken from it.
            parameters: settled.
            encoding: public bins and candidates.
            rows: PRIVATE rows of this tree, each of them once.
            randomness: source of all draws.

        Returns:
            The released tree. One call is one release, at the loss of one part of ``event``.
        """
        return greedy.grow_tree(event, _RULE, encoding=encoding, rows=rows, randomness=randomness)
