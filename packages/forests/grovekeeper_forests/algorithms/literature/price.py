"""Prices the forests of published papers: a level rule, a release of leaves, and
default sizes by public rules.

==================  ==============================================  ==================  ==========================
slug                splits of a tree                                a leaf releases     proof
==================  ==============================================  ==================  ==========================
``mrf``             private selections by Gini or miscount          counts or a label   docs/proofs/mrf.md
``rdt-…``           random, without rows                            counts              docs/proofs/rdt.md
``srt``             random, without rows                            a label             docs/proofs/srt.md
``maxtree``         private selections by miscount                  counts              docs/proofs/maxtree.md
``spe``             private medians                                 counts              docs/proofs/spe.md
``sspe-1``          private medians of an unlabelled dataset        counts              docs/proofs/sspe-1.md
``sspe-2``          cuts closest to public medians                  counts or a label   docs/proofs/sspe-2.md
``pte``             cuts closest to public medians                  counts              docs/proofs/pte.md
==================  ==============================================  ==================  ==========================

The last two are in :mod:`grovekeeper_forests.algorithms.literature.label_price`. Each
proof page shows the errors of the paper and proves the guarantee of this version.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from grovekeeper_forests import amounts
from grovekeeper_forests.contract.algorithm import (
    About,
    Algorithm,
    Parameter,
    Parameters,
    PublicFacts,
    TwoDatasetAlgorithm,
    Value,
    share,
)
from grovekeeper_forests.contract.plan import encoding_of
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.privacy.events import Event, Parallel, Part, Sequential
from grovekeeper_forests.trees import tree_parameters, tree_price
from grovekeeper_forests.trees.tree_price import Levels, TreePrice

MEDIAN_RANGE_SENSITIVITY = 2
"""An added row changes the utility of every split by +1 or −1, not by the same sign for
all splits.
"""

LEVEL_RATIO = Parameter(
    "level_ratio",
    "number",
    "What a level's selections get of ε, as a multiple of what the level above gets.",
    default="1",
    minimum=Fraction(1, 2),
    maximum=Fraction(2),
)
MEDIAN_LEVEL_RATIO = replace(
    LEVEL_RATIO,
    description="What a level's private medians get of ε, as a multiple of what the level above gets. In the "
    "paper 1.5; at 1 every level gets as much.",
    default="1.5",
)
"""By default the ratio of equation 7 of Huang, Lei and Kabán."""

DEEPEST_BY_RULE = 10


class MultinomialForest(Algorithm):
    """Trees whose splits are selected at random by a utility of class counts, with
    noisy counts or labels in leaves.

    Li et al., "Multinomial random forest: toward consistency and privacy-preservation"
    (preprint), and Bai et al., "Multinomial random forest" (2022), with public
    candidates, depth-only stopping and noisy leaves.
    """

    slug = "mrf"
    title = "Multinomial random forest, repaired"
    source = (
        "Bai et al. (2022), Multinomial random forest, Pattern Recognition; repaired"
    )
    about = About(
        claimed=(
            "ε-differential privacy of trees whose splits and labels are drawn by exponential mechanisms on normalised "
            "utilities, and consistency."
        ),
        wrong=(
            "Split values are values present, or in the code halfway between numbers, and a stop reads an exact count: "
            "the loss is infinite. A label is drawn by its share, which is at most 1, so that 64 trees at ε = 1 are "
            "nearly a coin: right at most 51.3 % of the time on two classes, in the mean over the draws. The preprint "
            "draws labels anew for every prediction, which costs budget every time."
        ),
        here=(
            "The same trees with public candidates, and counts as utilities at the price of what one row moves; a "
            "fixed depth; labels or counts are released once. Consistency is not claimed."
        ),
        proof="docs/proofs/mrf.md",
        results="docs/results/papers.md",
    )
    read_outs = ("log", "ta", "mv")
    parameters = (
        *tree_price.MULTINOMIAL_PARAMETERS,
        Parameter(
            "exploration",
            "number",
            "Probability that a node takes a random feature and a random split of it, without looking at rows.",
            default="0",
            minimum=Fraction(0),
            maximum=Fraction(1),
        ),
    )

    def fill_defaults(
        self, settled: dict[str, Value], facts: PublicFacts
    ) -> tuple[str, ...]:
        """Fills in the shares of each tree's ε, and the number and depth of trees, from
        public facts.
        """
        tree_parameters.fill_structure_share(
            settled, facts, usual=tree_price.USUAL_STRUCTURE_SHARE
        )
        warnings = tree_parameters.fill_greedy_sizes(settled, facts)
        if settled["exploration"] == "1" and int(settled["max_depth"]) > 0:
            all_random = "Every split is random (exploration is 1), so what is charged for choosing splits buys nothing"
            warnings = (*warnings, f"{all_random}; see rdt-ta.")
        return warnings

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """T trees, sequential or on disjoint rows; a tree is the selections of a path,
        then its leaves.
        """
        return tree_price.multinomial_event(parameters, facts)


class RandomDecisionTrees(Algorithm):
    """Trees drawn from public randomness, with noise on every (leaf, class) count of
    every tree.

    Bojarski et al. 2014, "Differentially- and non-differentially-private random
    decision trees".
    """

    source = "Bojarski, Choromanska, Choromanski, LeCun (2014)"
    about = About(
        claimed=(
            "ε-differential privacy of random trees with Laplace noise on the class counts of their leaves, in three "
            "ways of reading them."
        ),
        wrong=(
            "No error for a row that is added or removed, if bounds are public. Replacing a row costs 2ε. Number and "
            "height of trees were chosen by accuracy on the private rows, which no budget paid for."
        ),
        here=(
            "The paper's release with integer noise; number and depth of trees follow public rules. All three "
            "read-outs are free once it is paid for."
        ),
        proof="docs/proofs/rdt.md",
        results="docs/results/first-families.md",
    )
    parameters = (
        tree_parameters.N_ESTIMATORS,
        tree_parameters.MAX_DEPTH,
        tree_parameters.N_BINS,
        tree_parameters.ASSIGNMENT,
    )

    def fill_defaults(
        self, settled: dict[str, Value], facts: PublicFacts
    ) -> tuple[str, ...]:
        """Fills in the number and depth of trees from the public size, ε and the
        schema.

        More trees average better, but each has more noise. An average leaf holds about
        twice as many rows as the scale of its noise.
        """
        strength = facts.size * float(facts.epsilon)
        settled.setdefault("n_estimators", min(max(round(0.8 * strength**0.35), 3), 64))
        of_a_tree = max(strength / int(settled["n_estimators"]), 1.0)
        depth = min(max(round(math.log2(of_a_tree) - 1), 1), DEEPEST_BY_RULE)
        return fill_depth(settled, depth, facts, tables=False)

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """T noisy histograms, sequential or on disjoint rows."""
        n_trees = int(parameters["n_estimators"])
        depth = int(parameters["max_depth"])
        per_tree = tree_price.loss_per_tree(parameters, facts.epsilon)
        parts = (
            Part(
                n_trees,
                tree_price.price_leaves(tree_price.COUNTS, per_tree, depth, facts),
            ),
        )
        if tree_parameters.is_sharded(parameters):
            return Parallel("trees", parts)
        return Sequential(parts)


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


class JagannathanTrees(RandomDecisionTrees):
    """Ten random decision trees, of depth half the number of features unless the public
    size is small.

    Jagannathan, Pillaipakkamnatt and Wright, "A practical differentially private random
    decision tree classifier" (2009; Transactions on Data Privacy 5, 2012). The
    mechanism is that of docs/proofs/rdt.md, with other default numbers. Empty leaves
    are released, too: an omitted leaf would reveal that no row reaches it.
    """

    slug = "rdt-jagannathan"
    title = "Random decision trees, depth by features"
    source = "Jagannathan, Pillaipakkamnatt and Wright (2009, 2012)"
    about = About(
        claimed="ε-differential privacy of ten random trees with Laplace noise on the class counts of their leaves.",
        wrong="No error for a row that is added or removed, if leaves that no row reached get noise like the others.",
        here="The paper's release with integer noise; the depth follows the number of features.",
        proof="docs/proofs/rdt.md",
        results="docs/results/papers.md",
    )
    read_outs = ("ta", "sum", "mv")
    parameters = (tree_parameters.TEN_TREES, *RandomDecisionTrees.parameters[1:])

    def fill_defaults(
        self, settled: dict[str, Value], facts: PublicFacts
    ) -> tuple[str, ...]:
        """Fills in the depth: min(⌈d/2⌉, ⌊log2 n⌋ − 1) for d features and the public
        size n, at least 1.
        """
        by_features = math.ceil(len(facts.schema.features) / 2)
        depth = max(min(by_features, facts.size.bit_length() - 2), 1)
        return fill_depth(settled, depth, facts, tables=False)


class PathForest(Algorithm):
    """A forest of trees that are priced alike: one selection per level of a path, then
    the leaves.

    Attributes:
        range_sensitivity: of the utility by which a level's splits are selected;
            ``None`` where splits cost no budget.
    """

    range_sensitivity: int | None = None

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """T trees on disjoint rows, or sequential; a tree is one selection per node of
        a path, then its leaves.
        """
        n_trees = self._n_noisy_trees(parameters)
        share = self._structure_share(parameters)
        sharded = tree_parameters.is_sharded(parameters)
        per_tree = facts.epsilon if sharded else facts.epsilon / n_trees
        kind = self._leaf(parameters)
        depth = int(parameters["max_depth"])
        price = TreePrice(
            self._levels(share * per_tree, parameters, facts) if share else (),
            tree_price.price_leaves(kind, (1 - share) * per_tree, depth, facts),
        )
        return price.forest_event(n_trees, sharded=sharded)

    def _levels(
        self, loss: Fraction, parameters: Parameters, facts: PublicFacts
    ) -> Levels:
        """The selection of each level, root first, at ``loss`` in total."""
        encoding = encoding_of(facts.schema, parameters["n_bins"], facts.profile)
        ratio = amounts.parse(parameters[LEVEL_RATIO.name])
        losses = tree_price.geometric_losses(loss, int(parameters["max_depth"]), ratio)
        return tuple(
            (
                tree_price.selection_event(
                    loss_of_level,
                    facts,
                    range_sensitivity=self.range_sensitivity or 0,
                    max_candidates=self._n_candidates(encoding),
                ),
            )
            for loss_of_level in losses
        )

    def _n_candidates(self, encoding: Encoding) -> int:
        """Largest number of public splits of one feature: a median has at most that
        many candidates.
        """
        return int(np.bincount(encoding.candidates.feature, minlength=1).max())

    def _structure_share(self, parameters: Parameters) -> Fraction:
        if self.range_sensitivity is None:
            return Fraction(0)
        return tree_parameters.structure_share(parameters)

    def _n_noisy_trees(self, parameters: Parameters) -> int:
        return int(parameters["n_estimators"])

    def _leaf(self, parameters: Parameters) -> str:
        return str(parameters.get(tree_price.LEAF.name, tree_price.COUNTS))


class LabelledRandomTrees(PathForest):
    """Trees drawn from public randomness, on disjoint rows, each leaf releasing a label
    by permute-and-flip.

    Fletcher and Islam, "Differentially private random decision forests using smooth
    sensitivity" (2017), without smooth sensitivity. Trees are binary: a split on
    categories separates one category from the rest, where the paper has one branch
    each.
    """

    slug = "srt"
    title = "Random trees with private labels"
    source = "Fletcher and Islam (2017), smooth random trees; repaired"
    about = About(
        claimed=(
            "ε-differential privacy of one label per leaf, drawn by the exponential mechanism scaled by a smooth "
            "sensitivity."
        ),
        wrong=(
            "No theorem covers this selection: at a claim of 1 the loss has no bound, whether a row is added, removed "
            "or replaced. The smooth sensitivity is also too small; ranges and categories are read off the rows, and "
            "the code publishes exact statistics."
        ),
        here=(
            "Random trees on hashed parts of the rows; labels by permute-and-flip on counts. Smooth sensitivity, a "
            "child for every category, ranges of the values present and, on 13 datasets, up to five levels are "
            "dropped, at a cost of 5 points at ε = 2 in their mean; which of these costs it is not measured."
        ),
        proof="docs/proofs/srt.md",
        results="docs/results/papers.md",
    )
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

    def fill_defaults(
        self, settled: dict[str, Value], facts: PublicFacts
    ) -> tuple[str, ...]:
        """Fills in the depth by the paper's rule, from the public features of the
        schema; beside numbers the paper's code takes one level more.

        For m numeric features, the rule takes the smallest d for which a path of d
        random features is expected to leave at most half of the m untested, m(1 −
        1/m)^d ≤ m/2, and adds half of the number of categorical features.
        """
        n_categorical = sum(feature.is_categorical for feature in facts.schema.features)
        n_numbers = len(facts.schema.features) - n_categorical
        depth = 0
        untested = float(n_numbers)
        while untested > n_numbers / 2:
            depth += 1
            untested *= 1 - 1 / n_numbers
        depth = min(max(depth + n_categorical // 2, 1), DEEPEST_BY_RULE)
        return fill_depth(settled, depth, facts, tables=False)

    def _leaf(self, parameters: Parameters) -> str:
        return tree_price.LABEL


class MaximalVoteTrees(PathForest):
    """Trees whose splits are selected to leave the fewest rows outside the most common
    class of their side.

    Liu et al. (2018), without their bootstrap.
    """

    slug = "maxtree"
    title = "Greedy maximal-vote trees, without bootstrap"
    source = "Liu et al. (2018), Applied Soft Computing, in its outline; repaired"
    about = About(
        claimed="ε-differential privacy of greedy trees by the maximal vote, in an ensemble of bootstrap samples.",
        wrong=(
            "The vote's sensitivity of 1 is right; a bootstrap's tree at ε = 1 loses 2.42 or more where a row is added."
        ),
        here=(
            "The paper's greedy trees in outline, with every row in a tree once. The paper's division of the budget "
            "and its way of voting are not reproduced."
        ),
        proof="docs/proofs/maxtree.md",
        results="docs/results/papers.md",
    )
    range_sensitivity = tree_price.RANGE_SENSITIVITIES[tree_price.MISCOUNT]
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
        LEVEL_RATIO,
    )

    def fill_defaults(
        self, settled: dict[str, Value], facts: PublicFacts
    ) -> tuple[str, ...]:
        """Fills in the shares of each tree's ε, and the number and depth of trees, from
        public facts.
        """
        tree_parameters.fill_structure_share(settled, facts, usual="0.5")
        return tree_parameters.fill_greedy_sizes(settled, facts)

    def _n_candidates(self, encoding: Encoding) -> int:
        return len(encoding.candidates)


class MedianTrees(PathForest):
    """Each node draws a random feature and selects the split that divides its rows most
    evenly, without labels.

    The supervised private ensemble of Huang, Lei and Kabán, "Noise-efficient learning
    of differentially private partitioning machine ensembles", with public candidates
    and a fixed depth.
    """

    slug = "spe"
    title = "Supervised private ensemble of median trees"
    source = "Huang, Lei and Kabán, differentially private partitioning machine ensembles; repaired"
    about = About(
        claimed="ε-differential privacy of trees of private medians on disjoint subsets, with noisy leaf counts.",
        wrong=(
            "Medians are drawn between the smallest and the largest value present, and a stop reads an exact count: "
            "the loss is infinite. Where a row is added or removed, as in the paper, its disjoint subsets cost up to "
            "3ε if they have fixed sizes, which the text leaves open."
        ),
        here=(
            "Medians among public cuts, a fixed depth, each row's tree by a keyed hash of its id; the paper's budgets "
            "per level, or others by `level_ratio`."
        ),
        proof="docs/proofs/spe.md",
        results="docs/results/papers.md",
    )
    range_sensitivity = MEDIAN_RANGE_SENSITIVITY
    read_outs = ("log", "sum", "ta", "mv")
    parameters: tuple[Parameter, ...] = (
        tree_parameters.TEN_TREES,
        tree_parameters.MAX_DEPTH,
        tree_parameters.N_BINS,
        tree_parameters.SHARDED_ASSIGNMENT,
        MEDIAN_LEVEL_RATIO,
        share(
            "structure_share",
            "Share of each tree's ε that its private medians get; the rest goes to leaf counts.",
            default="0.5",
        ),
    )

    def fill_defaults(
        self, settled: dict[str, Value], facts: PublicFacts
    ) -> tuple[str, ...]:
        """Fills in the depth from the public size and ε: about eight rows over ε in a
        leaf.

        The paper sets the depth to the number of features, whatever the size: too deep
        with many features, too shallow with few. Where two datasets are learned from,
        the smaller of their depths is taken.
        """
        if facts.unlabelled is None:
            paying = [facts]
        else:
            paying = [facts, facts.unlabelled]
        strength = min(part.size * float(part.epsilon) for part in paying) / int(
            settled["n_estimators"]
        )
        depth = min(max(round(math.log2(max(strength, 1.0))) - 3, 1), DEEPEST_BY_RULE)
        return fill_depth(settled, depth, facts, tables=True)


class SemiSupervisedTrees(MedianTrees, TwoDatasetAlgorithm):
    """Trees of ``spe`` with private medians of an unlabelled dataset and leaf counts of
    a labelled dataset.

    Algorithm 3 of Huang, Lei and Kabán in its first setting. Each account pays for the
    releases about its dataset: the unlabelled dataset's ε pays for all medians, the
    labelled dataset's ε for all leaf counts.
    """

    slug = "sspe-1"
    title = "Median trees from an unlabelled and a labelled dataset"
    source = "Huang, Lei and Kabán, semi-supervised private ensemble; repaired"
    about = About(
        claimed=(
            "ε-differential privacy where trees are built on unlabelled rows at ε and leaves counted on labelled rows "
            "at ε."
        ),
        wrong=(
            "The guarantee holds only if nobody is in both datasets: a person in both loses the sum. Ranges and the "
            "stop on an exact count are those of spe: an infinite loss."
        ),
        here="Two datasets and two accounts, each of which pays for its own part, both or neither; medians as in spe.",
        proof="docs/proofs/sspe-1.md",
        results="docs/results/semi-supervised.md",
    )
    parameters = MedianTrees.parameters[:-1]

    def structure_event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """The event of the unlabelled dataset: one private median per level of T trees."""
        levels = self._levels(
            tree_price.loss_per_tree(parameters, facts.epsilon), parameters, facts
        )
        n_trees = int(parameters["n_estimators"])
        sharded = tree_parameters.is_sharded(parameters)
        return tree_price.structure_event(levels, n_trees, sharded=sharded)

    def _structure_share(self, parameters: Parameters) -> Fraction:
        """None of the labelled dataset's ε, which pays for leaves alone."""
        return Fraction(0)


def fill_depth(
    settled: dict[str, Value], depth: int, facts: PublicFacts, *, tables: bool
) -> tuple[str, ...]:
    """Sets ``max_depth`` by a rule on the bins of the plan; see
    :func:`tree_parameters.fill_depth`.
    """
    encoding = encoding_of(facts.schema, settled["n_bins"], facts.profile)
    return tree_parameters.fill_depth(settled, depth, encoding, tables=tables)
