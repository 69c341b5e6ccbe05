"""Computes binned sums and differences of two ordered columns, which give oblique splits without any further release.

The bins of both columns of a pair are mapped to places 0 … m − 1, where m is the larger number of bins but at most
:data:`MAX_PLACES`. The sum and the difference are then columns of 2m − 1 codes. A row's codes are a function of the
row, the declaration and bins that are public or released (lemma L6, docs/proofs/lemmas.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.forests.data.schema import Feature, Schema

Pair: TypeAlias = tuple[int, int]
"""Two features, by index."""

MAX_ORDERED: Final = 32
"""Ordered columns of a schema whose pairs are tabulated: at most 496 pairs, 992 columns."""

MAX_PLACES: Final = 32

COLUMNS_PER_PAIR: Final = 2
"""The sum, then the difference of the two features."""


def of_schema(schema: Schema) -> tuple[Pair, ...]:
    """Every pair of numbers and ordered categories, in the order of the declaration."""
    return tuple(combinations(ordered(schema), 2))


def ordered(schema: Schema) -> list[int]:
    """Indices of the ordered columns that have a split."""
    return [index for index, feature in enumerate(schema.features) if _is_ordered(feature)]


def _is_ordered(feature: Feature) -> bool:
    if feature.is_categorical:
        return feature.ordered and len(feature.categories) > 1
    return feature.lower < feature.upper


def n_codes(n_feature_codes: NDArray[np.int32], pairs: Sequence[Pair]) -> NDArray[np.int32]:
    """Number of codes of each column of pairs, int32 ``(2 · n_pairs,)``, from the numbers of the features."""
    sizes = [2 * n_places(n_feature_codes, pair) - 1 for pair in pairs]
    return np.repeat(np.array(sizes, dtype=np.int32), COLUMNS_PER_PAIR)


def n_places(n_feature_codes: NDArray[np.int32], pair: Pair) -> int:
    """Number of places that both columns of a pair are mapped to."""
    return min(int(max(n_feature_codes[pair[0]], n_feature_codes[pair[1]])), MAX_PLACES)


def columns(
    X: NDArray[np.uint8], n_feature_codes: NDArray[np.int32], pairs: Sequence[Pair], indices: Sequence[int]
) -> NDArray[np.uint8]:
    """The requested columns of a table and of its pairs.

    Args:
        X: PRIVATE, or a caller's; codes of the features, uint8 ``(n_features, n_rows)``.
        n_feature_codes: public or released; codes per feature, int32 ``(n_features,)``.
        pairs: public.
        indices: indices of columns: features first, then the sum and the difference of every pair.

    Returns:
        uint8 ``(len(indices), n_rows)``.
    """
    result = np.empty((len(indices), X.shape[1]), dtype=np.uint8)
    for row, index in enumerate(indices):
        if index < len(n_feature_codes):
            result[row] = X[index]
            continue
        which, is_difference = divmod(index - len(n_feature_codes), COLUMNS_PER_PAIR)
        pair = pairs[which]
        common = n_places(n_feature_codes, pair)
        first, second = (places(X[feature], int(n_feature_codes[feature]), common) for feature in pair)
        result[row] = first + (common - 1 - second if is_difference else second)
    return result


def places(codes: NDArray[np.uint8], n_own: int, common: int) -> NDArray[np.int32]:
    """Codes mapped to ``common`` places: the place that contains the middle of the bin."""
    wide = codes.astype(np.int32)
    return wide if n_own == common else (2 * wide + 1) * common // (2 * n_own)
