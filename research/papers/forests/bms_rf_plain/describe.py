"""Describes ``bms-rf-plain``, a stacked multinomial forest with dropout, without
privacy.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from grovekeeper_forests.contract.algorithm import Parameter, share
from research.papers.forests import parameters as shared
from research.papers.forests.contract import Reference

MAX_LAYERS = 8


class StackedReference(Reference):
    """Layers of multinomial trees with dropout; the class shares of a layer shift the
    columns of the next layer.
    """

    slug = "bms-rf-plain"
    title = "Stacked multinomial forest with Bernoulli dropout, without privacy"
    source = "Song, Wang (2024), BMS-RF, Algorithms 1 and 2"
    about = (
        "A layer is mrf-plain on X + α Z W: Z are the mean class shares of the layer before, W has uniform weights "
        "from 0 to 1. Coins with p1 and p2 choose the columns and points that a split considers; where none is left, "
        "one is taken at random. All trees of all layers vote; with a B3, each leaf by one label, drawn with "
        "softmax(B3/2 · P) over its class shares. The paper adds layers while a test accuracy rises, and "
        "chooses p1 and p2 for every table; here they are parameters. Its theorem is about X in [0, 1]: the columns "
        "are scaled by their declared bounds."
    )
    read_outs = shared.READ_OUTS
    parameters = (
        replace(
            shared.N_ESTIMATORS,
            description="Number of trees of all layers together, M · N; the layers divide them as evenly as possible.",
            default=60,
        ),
        Parameter(
            "n_layers",
            "integer",
            "Number of layers: N.",
            default=2,
            minimum=Fraction(1),
            maximum=Fraction(MAX_LAYERS),
        ),
        shared.MIN_SAMPLES_LEAF,
        shared.STOP,
        shared.STRUCTURE_SHARE,
        shared.B1,
        shared.B2,
        shared.B3,
        share(
            "p1",
            "Probability that a split considers a column.",
            default="0.8",
            most=Fraction(1),
        ),
        share(
            "p2",
            "Probability that a split considers a point of its column.",
            default="0.8",
            most=Fraction(1),
        ),
        replace(shared.MAX_DEPTH, default=10),
        Parameter(
            "shift",
            "number",
            "Largest shift of a column by a layer, as a share of the column's declared range: α.",
            default="0.35",
            minimum=Fraction(0),
            maximum=Fraction(1),
        ),
        shared.TIES,
    )
