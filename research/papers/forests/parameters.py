"""Defines the parameters that several algorithms without privacy share."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from app.core import limits
from grovekeeper_forests.contract.algorithm import Parameter, share
from grovekeeper_forests.trees import tree_parameters
from research.papers.forests.trees import split_trees

MAX_STRENGTH = 1_000
"""B1 and B2 of multinomial splits."""

READ_OUTS = ("mv", "ta", "pa")
"""Majority vote first: the papers' forests vote."""

N_ESTIMATORS = replace(tree_parameters.TEN_TREES, default=100)
MIN_SAMPLES_LEAF = Parameter(
    "min_samples_leaf",
    "integer",
    "Smallest number of rows in a leaf; where estimation points are apart, of estimation points.",
    default=5,
    minimum=Fraction(1),
    maximum=Fraction(limits.MAX_PUBLIC_SIZE),
)
STOP = Parameter(
    "stop",
    "choice",
    "Where k, the smallest leaf, counts: a node of more than k estimation points is split (node); the same, but both "
    "children are leaves unless both have more than k (children); or both sides of a split have at least k (leaves).",
    default=split_trees.NODE,
    choices=split_trees.STOPS,
)
MAX_FEATURES = Parameter(
    "max_features",
    "choice",
    "Columns that a split may choose among: the rounded-down square root of their number, or all.",
    default="sqrt",
    choices=("sqrt", "all"),
)
DRAWS = Parameter(
    "draws",
    "choice",
    "What a split draws: columns, of which every value of a category is one, or features with all their values.",
    default="columns",
    choices=("columns", "features"),
)
FIRST, DRAWN = "first", "drawn"
TIES = Parameter(
    "ties",
    "choice",
    "Which of several classes with the most votes a forest answers: the first, or a random one.",
    default=FIRST,
    choices=(FIRST, DRAWN),
)
CANDIDATES = replace(
    MAX_FEATURES,
    name="candidates",
    description="Columns that a split chooses among: the rounded-down square root of their number, or one.",
    choices=("sqrt", "one"),
)
REDRAW = Parameter(
    "redraw",
    "choice",
    "Whether further columns are drawn where none of the candidates has a split, or the node is a leaf.",
    default="yes",
    choices=("yes", "no"),
)
STRUCTURE_SHARE = share(
    "structure_share",
    "Share of the rows of a tree that choose its splits; the others fill its leaves. The partition rate 1 is one half.",
    default="0.5",
)
B1 = Parameter(
    "b1", "number", "How sharply a split prefers the columns with the largest impurity decrease.",
    default="10", maximum=Fraction(MAX_STRENGTH),
)  # fmt: skip
B2 = replace(
    B1,
    name="b2",
    description="How sharply a split prefers the points with the largest impurity decrease.",
)
B3 = replace(
    B1, name="b3", default="0",
    description="How sharply the label of a leaf, drawn once, prefers the common classes; 0: none is drawn (B3 → ∞).",
)  # fmt: skip
MAX_DEPTH = Parameter(
    "max_depth",
    "integer",
    "Largest number of splits on a path; 0 for no limit.",
    default=0,
    minimum=Fraction(0),
    maximum=Fraction(1_000),
)
