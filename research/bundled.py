"""Offers three tables of scikit-learn as benchmark datasets, for users without a data
folder.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from grovekeeper_forests.data.schema import Feature, Label, Schema
from research.datasets import Dataset

LOADERS: Mapping[str, Callable[[], Any]] = {
    "iris": load_iris,
    "wine": load_wine,
    "wdbc": load_breast_cancer,
}
"""scikit-learn's functions by the name of the dataset; ``iris`` differs from UCI's file
in two rows.
"""


def read(name: str) -> Dataset:
    """The table of that name. Bounds are 0 and the power of two above the largest
    value: assumed public.
    """
    bunch = LOADERS[name]()
    X, y = (
        np.asarray(bunch.data, dtype=np.float64),
        np.asarray(bunch.target, dtype=np.int32),
    )
    uppers = np.exp2(np.ceil(np.log2(X.max(axis=0))))
    features = tuple(
        Feature(f"x{place}", "numeric", 0.0, float(upper))
        for place, upper in enumerate(uppers, start=1)
    )
    schema = Schema(
        features, Label("class", tuple(str(target) for target in bunch.target_names))
    )
    return Dataset(
        name, schema, tuple(np.ascontiguousarray(column) for column in X.T), y
    )
