"""Describes ``breiman``, Breiman's random forest by scikit-learn, and settles its
parameters.
"""

from __future__ import annotations

from grovekeeper_forests.contract.algorithm import Parameter
from research.papers.forests import parameters as shared
from research.papers.forests.contract import Reference


class RandomForest(Reference):
    """Trees on bootstrap samples, the best of a random subset of columns at every node,
    Gini impurity.
    """

    slug = "breiman"
    title = "Random forest"
    source = "Breiman, Random Forests, Machine Learning 45 (2001); scikit-learn's RandomForestClassifier"
    about = (
        "scikit-learn grows the trees. The smallest leaf has five rows and the forest votes, as in Bai et al. "
        "(2022), Multinomial random forest, section 5.1. Every value of an unordered category is a column. A row that "
        "the bootstrap draws twice counts once in a leaf, as in scikit-learn, or twice."
    )
    read_outs = shared.READ_OUTS
    parameters = (
        shared.N_ESTIMATORS,
        shared.MIN_SAMPLES_LEAF,
        shared.MAX_FEATURES,
        Parameter(
            "leaf_counts",
            "choice",
            "What the smallest leaf counts: rows, or draws of the bootstrap.",
            default="rows",
            choices=("rows", "draws"),
        ),
    )
