"""Compares equation (9) of Song and Wang, the bound of their Lemma 2 on the size of a
leaf, and p1 d ≈ √d of their section 2.4, with settings in which they can be computed.

The equation is that of Bernoulli random forests (Wang et al., 2018), where p1 and p2
are chances of a random feature and of a random split point. In BMS-RF they are chances
of keeping a candidate, so the bound does not carry over.
"""

from __future__ import annotations

import math

import numpy as np

from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Feature, Label, Schema
from research.papers.ablations import rates_of
from research.papers.forests import catalogue

STRENGTH = 10.0
"""B1 and B2 of the paper's runs."""

POSITIVE = 0.03
"""Share of the unit interval that is of the second class, at its lower end."""


def promised(p1: float, p2: float, n_features: int, levels: int = 1) -> float:
    """The bound (1 − p1 p2 / (4 d))^ω on the expected size of a feature, of 1 at the
    root, after ω levels.
    """
    return float((1 - p1 * p2 / (4 * n_features)) ** levels)


def expected_size(n_rows: int, n_trees: int, random: np.random.Generator) -> float:
    """Expected size of the only feature after one split with p1 = p2 = 1: of the part
    that a uniform test point falls in, a mean over the trees that split.

    The rows are uniform in [0, 1], and those below :data:`POSITIVE` are of the second
    class.
    """
    schema = Schema((Feature("x", "numeric", 0.0, 1.0),), Label("y", ("no", "yes")))
    x = random.random(n_rows)
    rows = SanitisedRows(
        SanitisedColumns((x,), n_rows),
        (x < POSITIVE).astype(np.int32),
        np.zeros((n_rows, 16), dtype=np.uint8),
    )
    settings = {"n_estimators": n_trees, "n_layers": 1, "p1": "1", "p2": "1"}
    plan = catalogue.plan("bms-rf-plain", {**settings, "max_depth": 1})
    forest = catalogue.grow(plan, schema, rows, on_tree_done=lambda: None)
    cut = forest.arrays["threshold"][forest.arrays["feature"] >= 0]
    return float((cut**2 + (1 - cut) ** 2).mean())


def least_size(p1: float, n_features: int) -> float:
    """Least expected size of an irrelevant feature after one level, beside n − 1 copies
    of a relevant one: the probability that it is not split.

    Kept copies have the normalised decrease 1 and the irrelevant feature has 0, so with
    k copies kept it is drawn with probability 1 / (1 + k e^(B1/2)), if it is kept.
    """
    n_copies = n_features - 1
    drawn = sum(
        math.comb(n_copies, kept)
        * p1**kept
        * (1 - p1) ** (n_copies - kept)
        / (1 + kept * math.exp(STRENGTH / 2))
        for kept in range(n_copies + 1)
    )
    return 1 - p1 * drawn


FEATURES = {
    "Zoo": 16, "Wpbc": 34, "Wdbc": 30, "Sonar": 60, "Movement_libras": 90, "Clean1": 166, "Australian": 14,
    "Vehicle": 18, "Banknote": 4, "WineQuality-red": 11, "Image": 19, "Wilt": 5, "WineQuality-White": 11,
    "Texture": 40,
}  # fmt: skip
"""Numbers of features in table 1 of the paper."""


def kept_over_root(dataset: str) -> float:
    """p1 d / √d at the p1 of table 5: section 2.4 says that it is about 1."""
    p1, _ = rates_of(dataset)
    return float(p1) * math.sqrt(FEATURES[dataset])
