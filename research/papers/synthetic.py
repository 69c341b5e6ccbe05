"""Generates stand-ins for the synthetic datasets of Huang, Lei and Kabán, whose seed
the paper does not print.
"""

from collections.abc import Sequence

import numpy as np
from sklearn.datasets import make_classification

from grovekeeper_forests.data.schema import Feature, Label, Schema
from research.datasets import Dataset

N_ROWS, WIDTHS, N_SEEDS = 3_000, (5, 10, 15), 3
"""Rows and numbers of attributes of section 6, and the number of seeds that stand for
the one of the paper.
"""


def names(width: int) -> Sequence[str]:
    """Names of the datasets with so many attributes, one for each seed: ``syn5d-0`` and
    so on.
    """
    return tuple(f"syn{width}d-{seed}" for seed in range(N_SEEDS))


def read(name: str) -> Dataset:
    """The dataset of a name: two classes of normal clusters by ``make_classification``
    with its default settings.

    The public bounds of a column are −2^k and 2^k, the smallest that hold every value.
    """
    width, _, seed = name.removeprefix("syn").partition("d-")
    X, y = make_classification(N_ROWS, int(width), random_state=int(seed))
    bounds = np.exp2(np.ceil(np.log2(np.abs(X).max(axis=0))))
    features = tuple(
        Feature(f"x{place}", "numeric", -float(bound), float(bound))
        for place, bound in enumerate(bounds, start=1)
    )
    columns = tuple(np.ascontiguousarray(column) for column in X.T)
    return Dataset(
        name, Schema(features, Label("class", ("0", "1"))), columns, y.astype(np.int32)
    )
