"""Describes ``comprf-c`` and ``comprf-i``, comparison-based random forests, without
privacy.
"""

from __future__ import annotations

from dataclasses import replace

from research.papers.forests import parameters as shared
from research.papers.forests.contract import Reference

_DISTANCE = (
    "The rows of a node divide by which of two pivots, rows of the node, is closer in Euclidean distance over the "
    "columns as they are. After six pairs without a legal split the node is a leaf."
)


class _Forest(Reference):
    source = (
        "Haghiri, Garreau and von Luxburg, Comparison-Based Random Forests, ICML 2018"
    )
    read_outs = shared.READ_OUTS


class ConsistentComparisons(_Forest):
    """Pivots drawn from structure points without regard to their classes; estimation
    points fill the leaves.
    """

    slug = "comprf-c"
    title = "Comparison-based random forest, consistent version"
    about = (
        f"{_DISTANCE} The pivots are any two structure points of the node. A split leaves the smallest number of "
        "estimation points on both sides, and a node of one class is a leaf. The parts and the smallest leaf are those "
        "of Bai et al. (2022), section 5.1."
    )
    parameters = (
        shared.N_ESTIMATORS,
        shared.MIN_SAMPLES_LEAF,
        shared.STRUCTURE_SHARE,
    )


class SupervisedComparisons(_Forest):
    """Pivots of different classes, drawn from all rows of the node."""

    slug = "comprf-i"
    title = "Comparison-based random forest, supervised version"
    about = (
        f"{_DISTANCE} The pivots are a random pair of rows of different classes; every tree sees all rows. A node of "
        "at most n0 rows is a leaf; n0 is five as in Bai et al. (2022), and one in the authors' experiments. They grow "
        "a forest for every pair of classes and average the labels of all leaves; here one forest has all classes and "
        "its trees vote, as in Bai et al."
    )
    parameters = (
        shared.N_ESTIMATORS,
        replace(
            shared.MIN_SAMPLES_LEAF,
            name="max_samples_leaf",
            description="Largest number of rows of a node that is not split: n0.",
        ),
    )
