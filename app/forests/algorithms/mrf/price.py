"""The multinomial random forest, repaired: public candidates, depth-only stopping, noisy leaves.

Li et al., "Multinomial random forest: toward consistency and privacy-preservation" (preprint), and Bai et al.,
"Multinomial random forest" (2022). What was wrong with the papers' rules, and the proof of this version, stand in
docs/proofs/mrf.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from app.core import amounts
from app.forests.bins import tree_bins
from app.forests.contract.about import About, at_epsilon_one
from app.forests.contract.algorithm import Parameters, PublicFacts, ReleasedTree
from app.forests.contract.family import Family
from app.forests.contract.parameters import Parameter, Value
from app.forests.data.encoding import Encoding
from app.forests.trees import common, greedy, leaves, selections, utilities
from app.forests.trees.histograms import TreeHistograms
from app.forests.trees.label_read_out import ChosenLeafFamily
from app.forests.trees.selections import Selection
from app.forests.trees.tree_price import TreePrice
from app.privacy import accountants
from app.privacy.adjacency import Adjacency
from app.privacy.events import Event

if TYPE_CHECKING:
    from app.forests.noise.randomness import Randomness

JOINT, TWO_STAGE = "joint", "two_stage"

USUAL_STRUCTURE_SHARE = "0.6"

_ALL_RANDOM = (
    "Every split is random (exploration is 1), so what is charged for choosing splits buys nothing; see rdt-ta."
)

_OWN_PARAMETERS = (
    Parameter(
        "structure_share",
        "number",
        "Share of each tree's ε that its selections of splits get; the rest goes to its leaves. Without effect where "
        "se is hash: each part of the rows is then worth all of the tree's ε. By default 0.6, and 0.85 on accounts "
        "with a δ where leaves release counts.",
        minimum=Fraction(1, 100),
        maximum=Fraction(99, 100),
        only_with=(common.SEPARATION.name, common.NONE),
    ),
    Parameter(
        "selection",
        "choice",
        "Choose feature and threshold in one draw, or the feature first, each stage at its own budget.",
        default=JOINT,
        choices=(JOINT, TWO_STAGE),
    ),
    Parameter(
        "feature_share",
        "number",
        "Share of a selection's ε that choosing the feature gets, where the feature is chosen first.",
        default="0.5",
        minimum=Fraction(1, 100),
        maximum=Fraction(99, 100),
        only_with=("selection", TWO_STAGE),
    ),
    Parameter(
        "utility",
        "choice",
        "What a good split lowers: the count Gini, or the rows that are not of their side's most common class.",
        default=utilities.GINI,
        choices=(utilities.GINI, utilities.MISCOUNT),
    ),
    Parameter(
        "leaf",
        "choice",
        "What a leaf releases: noisy counts of every class, or one label.",
        default=leaves.COUNTS,
        choices=(leaves.COUNTS, leaves.LABEL),
    ),
    common.SEPARATION,
    Parameter(
        "structure_rows",
        "number",
        "Where se is hash, the expected share of rows in the structure part.",
        default="0.5",
        minimum=Fraction(1, 100),
        maximum=Fraction(99, 100),
        only_with=(common.SEPARATION.name, common.HASH),
    ),
    Parameter(
        "exploration",
        "number",
        "Probability that a node takes a random feature and a random split of it, without looking at rows.",
        default="0",
        minimum=Fraction(0),
        maximum=Fraction(1),
    ),
)


_ABOUT = About(
    claimed=(
        "ε-differential privacy of trees whose splits and labels are drawn by exponential mechanisms on normalised "
        "utilities, and consistency."
    ),
    wrong=(
        "Split values lie halfway between values present, and a stop looks at an exact count: the loss is infinite. "
        "Normalised utilities make the labels of 64 trees at ε = 1 nearly coins, at most 51.2 % right on two "
        "classes, so the reported accuracy is not that of the mechanism. Labels that are drawn anew for every "
        "prediction cost every time."
    ),
    here=(
        "The same trees with public candidates, and counts as utilities at the price of what one row moves; a fixed "
        "depth; labels or counts are released once. Every mode of the papers is a parameter. Consistency is not "
        "claimed."
    ),
    proof="docs/proofs/mrf.md",
    results="docs/results/papers.md",
    accuracy=at_epsilon_one("84.1 91.8 99.7 89.4 86.4"),
)


@dataclass(frozen=True)
class MultinomialForest:
    """Trees whose splits are selected at random by a utility of class counts, with noisy counts or labels in leaves.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. Each node chooses among public candidates,
        in one selection or in two (lemma L2, or L1 on accounts in ρ and μ²), by a utility whose range sensitivity is
        2^(q+1) for the count Gini and 1 for the miscount; the nodes of a level hold disjoint rows, so a path pays
        Σ_l ε_l (lemma L4). Leaf counts have L1 sensitivity 1 (lemma L3), a label is a selection among them. A tree
        costs Σ_l ε_l + ε_leaf, or the larger of the two where a keyed hash parts the rows for structure from those for
        leaves (lemma L5); sequential trees add, sharded trees count at their largest. Random splits cost nothing
        (lemma L0). Trees stop at the public depth only. *Not covered:* running time.

    Source:
        Bai et al., "Multinomial random forest", Pattern Recognition (2022), Theorem 2, which does not hold as stated;
        repaired in Theorem 1 of docs/proofs/mrf.md. Permute-and-flip: McKenna and Sheldon 2020.
    """

    slug: str = "mrf"
    title: str = "Multinomial random forest, repaired"
    source: str = "Bai et al. (2022), Multinomial random forest, Pattern Recognition; repaired"
    about: About = _ABOUT
    accountants: tuple[str, ...] = accountants.NAMES
    adjacency: Adjacency = Adjacency.ADD_REMOVE_ONE
    read_outs: tuple[str, ...] = ("log", "ta", "mv")
    family: Family = ChosenLeafFamily()  # noqa: RUF009 - it has no state
    parameters: tuple[Parameter, ...] = (
        common.N_ESTIMATORS,
        common.MAX_DEPTH,
        common.N_BINS,
        common.ASSIGNMENT,
        *_OWN_PARAMETERS,
    )

    def settle(self, asked: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in the shares of a tree, and the number and depth of trees from the public size, ε and the schema."""
        settled = dict(asked)
        common.settle_structure_share(settled, facts, usual=USUAL_STRUCTURE_SHARE)
        settled, warnings = greedy.settle(settled, facts)
        if settled["exploration"] == "1" and int(settled["max_depth"]) > 0:
            warnings = (*warnings, _ALL_RANDOM)
        return settled, warnings

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """T trees, one after another or on disjoint rows; a tree is the selections of a path, then its leaves."""
        n_trees, depth = int(parameters["n_estimators"]), int(parameters["max_depth"])
        apart = parameters["se"] == common.HASH
        per_tree = common.loss_per_tree(parameters, facts.epsilon)
        share = common.structure_share(parameters)
        for_levels, for_leaves = (per_tree, per_tree) if apart else (share * per_tree, (1 - share) * per_tree)
        encoding = tree_bins.encoding_of(facts.schema, parameters["n_bins"], facts.profile)
        price = TreePrice(
            tuple(_node(loss, parameters, encoding, facts) for loss in common.level_losses(for_levels, depth)),
            leaves.priced(str(parameters["leaf"]), for_leaves, depth, facts),
            apart=apart,
        )
        return price.forest_event(n_trees, sharded=common.is_sharded(parameters))

    def check(self, event: Event, parameters: Parameters) -> None:
        """See ``Mechanism.check``."""
        price = TreePrice.of(event)
        sensitivity = Fraction(utilities.RANGE_SENSITIVITIES[str(parameters["utility"])])
        n_selections = 1 if parameters["selection"] == JOINT else 2
        price.require(
            depth=int(parameters["max_depth"]),
            selections=[sensitivity] * n_selections,
            apart=parameters["se"] == common.HASH,
        )
        leaves.require(str(parameters["leaf"]), price.leaves)

    def grow_tree(
        self,
        event: Event,
        parameters: Parameters,
        *,
        encoding: Encoding,
        rows: TreeHistograms,
        randomness: Randomness,
    ) -> ReleasedTree:
        """Selects splits level by level on the PRIVATE rows, then releases the leaves.

        Args:
            event: what was priced; every noise scale is taken from it.
            parameters: settled.
            encoding: public bins and candidates.
            rows: PRIVATE rows of this tree.
            randomness: source of all draws.

        Returns:
            The released tree. One call is one release, at the loss of one part of ``event``.
        """
        rule = greedy.SplitRule(str(parameters["utility"]), amounts.parse(parameters["exploration"]))
        return greedy.grow_tree(event, rule, encoding=encoding, rows=rows, randomness=randomness)


def _node(loss: Fraction, parameters: Parameters, encoding: Encoding, facts: PublicFacts) -> tuple[Selection, ...]:
    """The selections of one node, which together may cost ``loss``."""
    sensitivity = utilities.RANGE_SENSITIVITIES[str(parameters["utility"])]
    if parameters["selection"] == JOINT:
        n_candidates = len(encoding.candidates)
        return (selections.priced(loss, facts, range_sensitivity=sensitivity, max_candidates=n_candidates),)
    share = amounts.parse(parameters["feature_share"])
    per_feature = np.unique(encoding.candidates.feature, return_counts=True)[1]
    return (
        selections.priced(share * loss, facts, range_sensitivity=sensitivity, max_candidates=len(per_feature)),
        selections.priced(
            (1 - share) * loss, facts, range_sensitivity=sensitivity, max_candidates=int(per_feature.max())
        ),
    )
