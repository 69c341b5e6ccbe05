"""Converts ordered categories to numbers."""

import numpy as np
from numpy.typing import NDArray

from app.forests.data.schema import Feature


def as_number(feature: Feature) -> Feature:
    """The numeric feature by which the grid represents a number or an ordered category."""
    if not feature.is_categorical:
        return feature
    assert feature.ordered
    top = float(len(feature.categories) - 1)
    return Feature(feature.name, "integer", lower=0.0, upper=top, missing=feature.missing)


def numbers(feature: Feature, column: NDArray[np.float64] | NDArray[np.int32]) -> NDArray[np.float64]:
    """A sanitised column as numbers: OTHER counts as the highest category, MISSING is NaN. Record-wise (lemma L6).

    Args:
        feature: public.
        column: PRIVATE, or a caller's; float64 numbers, or int32 codes of ordered categories.
    """
    if not feature.is_categorical:
        return column.astype(np.float64, copy=False)
    codes = np.minimum(column, len(feature.categories) - 1).astype(np.float64)
    codes[column == feature.missing_code] = np.nan
    return codes
