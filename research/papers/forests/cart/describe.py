"""Describes ``cart`` and ``rpart``, trees by scikit-learn, and settles their
parameters.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from grovekeeper_forests.contract.algorithm import Parameter, Parameters
from research.papers.forests import parameters as shared
from research.papers.forests.contract import Reference


class _OneTree(Reference):
    """A single tree of scikit-learn."""

    read_outs = ("ta", "pa")

    def n_trees(self, parameters: Parameters) -> int:
        """One."""
        return 1


class GreedyTree(_OneTree):
    """One tree on all rows, the best split at every node, Gini impurity, no pruning."""

    slug = "cart"
    title = "Classification tree"
    source = "Breiman, Friedman, Olshen and Stone, CART (1984); scikit-learn's DecisionTreeClassifier"
    about = "scikit-learn grows the tree, without pruning. Every value of an unordered category is a column."
    parameters = (replace(shared.MIN_SAMPLES_LEAF, default=1), shared.MAX_DEPTH)


class PrunedTree(_OneTree):
    """One tree by the rules of R's rpart, pruned by cost complexity."""

    slug = "rpart"
    title = "Pruned classification tree"
    source = "Therneau and Atkinson, rpart (1997 to 2023): rpart.control's defaults; scikit-learn's pruning"
    about = (
        "The tree that Bojarski et al. compare with, at rpart's defaults: at least 20 rows to split, 7 in a leaf, "
        "depth 30, cp 0.01. rpart prunes by the number of wrong rows relative to the root, and so does this version: "
        "scikit-learn prunes by Gini impurity, so the tree is pruned here. rpart splits a category into two sets of "
        "values; here a split separates one value from the others."
    )
    parameters = (
        replace(shared.MIN_SAMPLES_LEAF, default=7),
        replace(
            shared.MIN_SAMPLES_LEAF,
            name="min_samples_split",
            description="Smallest number of rows in a node that may be split.",
            default=20,
        ),
        replace(shared.MAX_DEPTH, default=30),
        Parameter(
            "cp",
            "number",
            "Share of the root's wrong rows that a split must save, per leaf that it adds.",
            default="0.01",
            minimum=Fraction(0),
            maximum=Fraction(1),
        ),
    )
