"""Describes the consistent forests of the papers and two ablations of ``mrf-plain``."""

from __future__ import annotations

from dataclasses import replace

from grovekeeper_forests.contract.algorithm import share
from research.papers.forests import parameters as shared
from research.papers.forests.contract import Reference

_FOREST = (shared.N_ESTIMATORS, shared.MIN_SAMPLES_LEAF)
_DRAWN_COLUMNS = (*_FOREST, shared.CANDIDATES, shared.REDRAW, shared.STRUCTURE_SHARE)
_TIES = (
    "A node whose structure points are of one class is a leaf. Ties of votes go to the first class, where the paper "
    "draws."
)
_STOP = (
    "A node with more than k estimation points is split, as in Algorithm 1, and a side without any takes the class "
    f"shares of the node, which the paper leaves open; or both sides have k, as in section 3.2. {_TIES}"
)
_LEAVES = (
    f"A split leaves the smallest number of estimation points on both sides. {_TIES}"
)


class _Forest(Reference):
    read_outs = shared.READ_OUTS


class MultinomialReference(_Forest):
    """Columns and split points drawn from two multinomial distributions over normalised
    impurity decreases.
    """

    slug = "mrf-plain"
    title = "Multinomial random forest, without privacy"
    source = "Bai et al., Multinomial random forest, Pattern Recognition 122 (2022), Algorithm 1"
    about = (
        "The column is drawn with softmax(B1/2 · Î) over the largest normalised decreases of all columns, the point "
        "with softmax(B2/2 · Î) over the normalised decreases of the column, and with a B3 the label of each leaf once "
        f"with softmax(B3/2 · P) over its class shares. {_STOP} With ties=drawn, it draws as well."
    )
    parameters = (
        *_FOREST,
        shared.STOP,
        shared.DRAWS,
        shared.STRUCTURE_SHARE,
        shared.B1,
        shared.B2,
        shared.B3,
        shared.MAX_DEPTH,
        shared.TIES,
    )


class GreedyOnStructure(_Forest):
    """Breiman's forest with structure and estimation points in place of the bootstrap
    sample.
    """

    slug = "breiman-se"
    title = "Random forest with structure and estimation points"
    source = "Bai et al. (2022), section 5.1: Breiman+SE"
    about = f"The best split of √D random columns by structure points; estimation points fill leaves. {_STOP}"
    parameters = (*_FOREST, shared.STOP, shared.DRAWS, shared.STRUCTURE_SHARE)


class MultinomialOnBootstrap(_Forest):
    """Breiman's forest with the two multinomial distributions in place of the best
    split.
    """

    slug = "breiman-m"
    title = "Random forest with multinomial splits"
    source = "Bai et al. (2022), section 5.1: Breiman+M"
    about = (
        "The splits of mrf-plain on bootstrap samples, whose draws are structure and estimation points at once. "
        f"{_STOP}"
    )
    parameters = (*_FOREST, shared.STOP, shared.DRAWS, shared.B1, shared.B2)


class PooledForest(_Forest):
    """A Poisson number of columns, and split points in the range of a pool of structure
    points.
    """

    slug = "denil14"
    title = "Denil's consistent random forest"
    source = "Denil, Matheson and de Freitas, Narrowing the gap, ICML 2014"
    about = (
        "Every split chooses among min(1 + Poisson(λ), D) columns. The range of m structure points bounds the split "
        "points of a column, of which the best is taken. λ = √D − 1, so that √D columns are expected as in Bai et al. "
        f"{_LEAVES}"
    )
    parameters = (
        *_DRAWN_COLUMNS,
        replace(
            shared.MIN_SAMPLES_LEAF,
            name="pool_size",
            description="Structure points of a node whose range bounds the split points.",
            default=1_000,
        ),
    )


class BernoulliForest(_Forest):
    """Two coins for every split: one random column instead of √D, and a random point
    instead of the best.
    """

    slug = "brf"
    title = "Bernoulli random forest"
    source = "Wang et al., Bernoulli random forests, IEEE TNNLS 29 (2018)"
    about = (
        "With chance p1 a split chooses among one random column, otherwise among √D; with chance p2 it takes a random "
        f"column of these and a random point, otherwise the best. {_LEAVES}"
    )
    parameters = (
        *_DRAWN_COLUMNS,
        share(
            "p1", "Chance that a split chooses among one column only.", default="0.05"
        ),
        share("p2", "Chance that a split takes a random point.", default="0.05"),
    )
