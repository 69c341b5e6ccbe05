"""Sums and differences of two ordered columns, in bins: oblique splits, without a release of their own.

Every column of a pair counts its bins from 0 to one less than a common number m, the larger of the two numbers of bins
but at most :data:`MAX_PLACES`; then the sum and the difference are columns of 2m − 1 codes. A row's codes are a
function of that row, the declaration and bins that are public or released before (lemma L6, docs/proofs/lemmas.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.forests.data.schema import Feature, Schema

Pair: TypeAlias = tuple[int, int]
"""Two features, by number."""

MAX_ORDERED: Final = 32
"""Ordered columns of a schema whose pairs are tabulated: at most 496 pairs, 992 columns."""

MAX_PLACES: Final = 32

COLUMNS_PER_PAIR: Final = 2
"""The sum, then the difference."""


def of_schema(schema: Schema) -> tuple[Pair, ...]:
    """Every pair of numbers and ordered categories, in the order of the declaration."""
    return tuple(combinations(ordered(schema), 2))


def ordered(schema: Schema) -> list[int]:
    """The columns with an order in which something can be split."""
    return [index for index, feature in enumerate(schema.features) if _is_ordered(feature)]


def _is_ordered(feature: Feature) -> bool:
    if feature.is_categorical:
        return feature.ordered and len(feature.categories) > 1
    return feature.lower < feature.upper


def n_codes(own: NDArray[np.int32], pairs: Sequence[Pair]) -> NDArray[np.int32]:
    """Codes of the columns of pairs, int32 ``(2 · n_pairs,)``, from those of the features."""
    found = [2 * n_places(own, pair) - 1 for pair in pairs]
    return np.repeat(np.array(found, dtype=np.int32), COLUMNS_PER_PAIR)


def n_places(own: NDArray[np.int32], pair: Pair) -> int:
    """What both columns of a pair are counted in."""
    return min(int(max(own[pair[0]], own[pair[1]])), MAX_PLACES)


def columns(
    X: NDArray[np.uint8], own: NDArray[np.int32], pairs: Sequence[Pair], wanted: Sequence[int]
) -> NDArray[np.uint8]:
    """Some columns of a table and of its pairs.

    Args:
        X: PRIVATE or a caller's own; codes of the features, uint8 ``(n_features, n_rows)``.
        own: public or released; codes per feature, int32 ``(n_features,)``.
        pairs: public.
        wanted: numbers of columns: features first, then sum and difference of every pair.

    Returns:
        uint8 ``(len(wanted), n_rows)``.
    """
    found = np.empty((len(wanted), X.shape[1]), dtype=np.uint8)
    for row, index in enumerate(wanted):
        if index < len(own):
            found[row] = X[index]
            continue
        which, is_difference = divmod(index - len(own), COLUMNS_PER_PAIR)
        pair = pairs[which]
        common = n_places(own, pair)
        first, second = (places(X[each], int(own[each]), common) for each in pair)
        found[row] = first + (common - 1 - second if is_difference else second)
    return found


def places(codes: NDArray[np.uint8], n_own: int, common: int) -> NDArray[np.int32]:
    """Codes counted in ``common`` places: the place in which the middle of the bin lies."""
    wide = codes.astype(np.int32)
    return wide if n_own == common else (2 * wide + 1) * common // (2 * n_own)
