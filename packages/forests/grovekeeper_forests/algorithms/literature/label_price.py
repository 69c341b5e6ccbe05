"""Prices the forests of Huang, Lei and Kabán that protect labels alone: features and
membership are public.

See the table in :mod:`grovekeeper_forests.algorithms.literature.price`.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil, log2

from grovekeeper_forests import amounts, limits
from grovekeeper_forests.algorithms.literature.price import (
    DEEPEST_BY_RULE,
    PathForest,
    fill_depth,
)
from grovekeeper_forests.contract.algorithm import (
    About,
    Parameter,
    Parameters,
    PublicFacts,
    Value,
)
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.trees import tree_parameters, tree_price

ROWS_OF_A_LEAF = 8
"""Labelled rows times ε that the rules for accounts of labels aim for in a leaf: four
times the scale of its noise.
"""

MAX_DEPTH_OF_LABELS = replace(
    tree_parameters.MAX_DEPTH,
    description="Splits on a path at most; min_rows may end it earlier. By default a public rule of the schema, the "
    "size and ε.",
)

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

N_BINS_OF_LABELS = replace(tree_parameters.N_BINS, default=255)
"""Splits are chosen at no privacy cost, so the default is the largest number of bins."""

DEFAULT_TEACHERS, DEFAULT_PUPILS = 10, 50


class LabelMedianTrees(PathForest):
    """Each node splits a random feature at the public cut closest to its median; each
    leaf releases noisy label counts or one label.

    Algorithm 3 of Huang, Lei and Kabán in its second setting. Structure comes from
    public features, noise is on labels only. Rows without a known label, the paper's
    unlabelled set, are used for the structure. No profile is needed: features are
    public, so the cut among 255 equal steps costs no budget.
    """

    slug = "sspe-2"
    title = "Median trees for labels alone"
    source = "Huang, Lei and Kabán, semi-supervised private ensemble, label privacy; repaired"
    about = About(
        claimed=(
            "ε-differential privacy of labels, features being public: exact medians, Laplace noise of scale 1/ε on "
            "leaf counts."
        ),
        wrong=(
            "Where a label is added or removed, right if the tree of each label is drawn on its own; up to 3ε if "
            "portions have fixed sizes, which the text leaves open. 2ε where one changes, which moves two counts."
        ),
        here=(
            "The public cut closest to a median, and noise for two counts; only on accounts whose owner published "
            "features and membership. It protects labels and nothing else."
        ),
        proof="docs/proofs/sspe-2.md",
        results="docs/results/semi-supervised.md",
    )
    adjacency = Adjacency.LABEL
    reuses_profiles = False
    reads_values = True
    read_outs: tuple[str, ...] = ("log", "sum", "ta", "mv")
    parameters: tuple[Parameter, ...] = (
        tree_parameters.TEN_TREES,
        MAX_DEPTH_OF_LABELS,
        N_BINS_OF_LABELS,
        tree_parameters.SHARDED_ASSIGNMENT,
        tree_price.LEAF,
        MIN_ROWS,
        LABELLED_SHARE,
    )

    def fill_defaults(
        self, settled: dict[str, Value], facts: PublicFacts
    ) -> tuple[str, ...]:
        """Fills in the fewest rows of a node that splits and, from the public size and
        ε, the depth.
        """
        share = amounts.parse(settled["labelled_share"])
        of_a_leaf = (
            ROWS_OF_A_LEAF * self._n_noisy_trees(settled) / (facts.epsilon * share)
        )
        settled.setdefault(
            "min_rows", min(max(ceil(2 * of_a_leaf), 2), limits.MAX_ROWS_PER_DATASET)
        )
        depth = min(
            max(ceil(log2(max(float(facts.size / of_a_leaf), 1.0))), 1), DEEPEST_BY_RULE
        )
        return fill_depth(settled, depth, facts, tables=True)


class TransductiveEnsemble(LabelMedianTrees):
    """Median trees with noisy label counts, then median trees with exact counts of the
    labels that these predict.

    Algorithm 4 of Huang, Lei and Kabán. Only the small ensemble on private labels costs
    budget, not the larger one on its predictions: docs/proofs/pte.md shows why the
    second noise is not needed.
    """

    slug = "pte"
    title = "Transductive ensemble of median trees for labels alone"
    source = "Huang, Lei and Kabán, private transductive ensemble; repaired"
    about = About(
        claimed=(
            "ε-differential privacy of a first ensemble that labels further rows, and of a second one that learns from "
            "those labels."
        ),
        wrong=(
            "The text contradicts itself on whether features are private. If so, both ensembles read the rows again: "
            "the price is a multiple. If not, the first ensemble costs what `sspe-2` as printed costs, and the second "
            "needs no noise."
        ),
        here=(
            "Only on accounts that protect labels: the first ensemble costs budget, the second reads the first "
            "ensemble's labels and public features at no cost."
        ),
        proof="docs/proofs/pte.md",
        results="docs/results/semi-supervised.md",
    )
    read_outs = ("ta", "mv")
    parameters = (
        replace(
            tree_parameters.N_ESTIMATORS,
            description="Trees of both ensembles together. By default the teachers and fifty more.",
        ),
        Parameter(
            "n_teachers",
            "integer",
            "Trees of the first ensemble, which divide the labels or ε; the other trees learn from the labels that the "
            "first ensemble predicts. By default ten, or all trees if there are fewer.",
            minimum=Fraction(1),
            maximum=Fraction(limits.MAX_TREES),
        ),
        MAX_DEPTH_OF_LABELS,
        N_BINS_OF_LABELS,
        tree_parameters.SHARDED_ASSIGNMENT,
        MIN_ROWS,
        LABELLED_SHARE,
    )

    def fill_defaults(
        self, settled: dict[str, Value], facts: PublicFacts
    ) -> tuple[str, ...]:
        """Fills in ten and fifty trees, the fewest rows of a node that splits and, from
        public facts, the depth.

        Raises:
            ParameterInvalid: more teachers than trees.
        """
        if "n_estimators" in settled:
            settled.setdefault(
                "n_teachers", min(DEFAULT_TEACHERS, int(settled["n_estimators"]))
            )
        settled.setdefault("n_teachers", DEFAULT_TEACHERS)
        settled.setdefault(
            "n_estimators",
            min(int(settled["n_teachers"]) + DEFAULT_PUPILS, limits.MAX_TREES),
        )
        if int(settled["n_teachers"]) > int(settled["n_estimators"]):
            raise ParameterInvalid.named(
                "n_teachers", "too-large", limit=int(settled["n_estimators"])
            )
        return super().fill_defaults(settled, facts)

    def _n_noisy_trees(self, parameters: Parameters) -> int:
        """The first ensemble's trees: the second costs nothing."""
        return int(parameters["n_teachers"])
