"""Converts ordered categories to numbers, and computes binned sums and differences of two ordered columns.

Sums and differences give oblique splits without any further release. The bins of both columns of a pair are mapped to
places 0 … m − 1, where m is the larger number of bins but at most :data:`MAX_PLACES`. The sum and the difference are
then columns of 2m − 1 codes. A row's codes are a function of the row, the declaration and bins that are public or
released (lemma L6, docs/proofs/lemmas.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.forests.data.schema import Feature, Schema
from app.forests.kernels.prediction import CodeSums


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


_EVERY_CODE: Final = np.arange(256, dtype=np.uint8)

Pair: TypeAlias = tuple[int, int]
"""Two features, by index."""

MAX_ORDERED: Final = 32
"""Ordered columns of a schema whose pairs are tabulated: at most 496 pairs, 992 columns."""

MAX_PLACES: Final = 32

COLUMNS_PER_PAIR: Final = 2
"""The sum, then the difference of the two features."""


def pairs_of_schema(schema: Schema) -> tuple[Pair, ...]:
    """Every pair of numbers and ordered categories, in the order of the declaration."""
    return tuple(combinations(ordered(schema), 2))


def ordered(schema: Schema) -> list[int]:
    """Indices of the ordered columns that have a split."""
    return [index for index, feature in enumerate(schema.features) if _is_ordered(feature)]


def _is_ordered(feature: Feature) -> bool:
    if feature.is_categorical:
        return feature.ordered and len(feature.categories) > 1
    return feature.lower < feature.upper


def n_pair_codes(n_feature_codes: NDArray[np.int32], pairs: Sequence[Pair]) -> NDArray[np.int32]:
    """Number of codes of each column of pairs, int32 ``(2 · n_pairs,)``, from the numbers of the features."""
    sizes = [2 * n_places(n_feature_codes, pair) - 1 for pair in pairs]
    return np.repeat(np.array(sizes, dtype=np.int32), COLUMNS_PER_PAIR)


def n_places(n_feature_codes: NDArray[np.int32], pair: Pair) -> int:
    """Number of places that both columns of a pair are mapped to."""
    return min(int(max(n_feature_codes[pair[0]], n_feature_codes[pair[1]])), MAX_PLACES)


def pair_columns(n_feature_codes: NDArray[np.int32], pairs: Sequence[Pair]) -> CodeSums:
    """The columns of pairs, as sums of two tabulated codes.

    Args:
        n_feature_codes: public or released; codes per feature, int32 ``(n_features,)``.
        pairs: public.

    Returns:
        For every pair the sum, then the difference, of uint8 codes ``(n_features, n_rows)``.
    """
    features, tables = list[Pair](), list[NDArray[np.int32]]()
    for pair in pairs:
        common = n_places(n_feature_codes, pair)
        own = (int(n_feature_codes[feature]) for feature in pair)
        first, second = (places(np.minimum(_EVERY_CODE, n - 1), n, common) for n in own)
        features += [pair] * COLUMNS_PER_PAIR
        tables += [np.stack((first, second)), np.stack((first, common - 1 - second))]
    return CodeSums(features, tables)


def places(codes: NDArray[np.uint8], n_own: int, common: int) -> NDArray[np.int32]:
    """Codes mapped to ``common`` places: the place that contains the middle of the bin."""
    wide = codes.astype(np.int32)
    return wide if n_own == common else (2 * wide + 1) * common // (2 * n_own)
