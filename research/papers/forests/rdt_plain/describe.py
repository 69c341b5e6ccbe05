"""Describes ``rdt-plain-mv``, ``rdt-plain-ta`` and ``rdt-plain-pa``, random decision
trees without privacy.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from grovekeeper_forests.contract.algorithm import Parameter
from research.papers.forests import parameters as shared
from research.papers.forests.contract import Reference


class _RandomTrees(Reference):
    """Complete trees of one height with uniform columns and thresholds, whose leaves
    hold the shares of their rows.
    """

    source = "Bojarski, Choromanska, Choromanski and LeCun (2014), Algorithm 1"
    about = (
        "Every node draws a uniform column and a uniform threshold in its declared range, at every depth anew; a "
        "leaf without rows has uniform random shares. A subtree that no row enters is one leaf, which changes the "
        "joint law of such shares but not the law of one prediction. The paper has two classes and chooses k and h "
        "by a validation set; here are any number of classes, and its largest k and h are the defaults."
    )
    parameters = (
        replace(shared.N_ESTIMATORS, description="Number of trees: k.", default=21),
        Parameter(
            "max_depth",
            "integer",
            "Height of every tree: h.",
            default=15,
            minimum=Fraction(0),
            maximum=Fraction(48),
        ),
    )


class VotingTrees(_RandomTrees):
    """Random trees that vote."""

    slug = "rdt-plain-mv"
    title = "Random decision trees without privacy, majority vote"
    read_outs = ("mv", "ta", "pa")


class AveragedTrees(_RandomTrees):
    """Random trees whose class shares are averaged."""

    slug = "rdt-plain-ta"
    title = "Random decision trees without privacy, threshold averaging"
    read_outs = ("ta", "mv", "pa")


class DrawnTrees(_RandomTrees):
    """Random trees whose labels are drawn by averaged class shares."""

    slug = "rdt-plain-pa"
    title = "Random decision trees without privacy, probabilistic averaging"
    read_outs = ("pa", "mv", "ta")
