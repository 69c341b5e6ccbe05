"""Defines the parameters that several algorithms without privacy share."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from app.core import limits
from grovekeeper_forests.contract.algorithm import Parameter, share
from grovekeeper_forests.trees import tree_parameters

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
MAX_FEATURES = Parameter(
    "max_features",
    "choice",
    "Columns that a split may choose among: the rounded-down square root of their number, or all.",
    default="sqrt",
    choices=("sqrt", "all"),
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
