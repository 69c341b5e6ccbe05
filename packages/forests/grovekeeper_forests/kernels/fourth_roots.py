"""Computes ℓ4 norms of class weights in exact integers: the utility of splits. The
results are PRIVATE.
"""

from functools import cache
from types import ModuleType

import numpy as np

from grovekeeper_forests.array_types import (
    BoolArray,
    Int32Array,
    Int64Array,
    UInt8Array,
)
from grovekeeper_forests.kernels.arrays import (
    Splits,
    require,
    require_range,
    require_splits,
)

MAX_TOTAL = 2**39
"""Upper bound, exclusive, on the sum of a vector of weights: 2³¹ rows of weight 256,
more than a dataset may have.
"""


@cache
def _loops() -> ModuleType:
    """The compiled loops, which load the compiler: 0.5 s of CPU."""
    from grovekeeper_forests.kernels.compiled import fourth_root_loops

    return fourth_root_loops


def norms(weights: Int64Array) -> Int64Array:
    """Computes ⌊(Σ_k w_k⁴)^(1/4)⌋ of every vector of class weights.

    Raising one coordinate by an integer δ raises the result by an integer from 0 to δ:
    the real norm rises by at most δ (triangle inequality), and ⌊x + δ⌋ = ⌊x⌋ + δ.

    Args:
        weights: PRIVATE int64 ``(…, n_classes)``, non-negative.

    Returns:
        PRIVATE int64 ``(…)``.

    Raises:
        ValueError: a type, a negative weight, or weights that sum to :data:`MAX_TOTAL`
            or more.
    """
    flat = require(
        weights.reshape(-1, weights.shape[-1]),
        np.int64,
        shape=(None, None),
        name="weights",
    )
    _require_totals(flat)
    result = np.empty(len(flat), dtype=np.int64)
    _loops().norms(flat, result)
    return result.reshape(weights.shape[:-1])


def split_norms(
    histogram: Int64Array, *, n_codes: Int32Array, splits: Splits
) -> Int64Array:
    """Computes the norm of the left side plus the norm of the right side, for every
    split in every node.

    Args:
        histogram: PRIVATE int64 ``(n_nodes, Σ n_codes, n_classes)``: weights by code of
            every feature.
        n_codes: public; codes of every feature, int32 ``(n_features,)``.
        splits: public; feature (counted from 0 as in ``n_codes``), threshold and
            ``equals`` of every candidate, by ascending feature and threshold. Where
            ``equals``, a row goes right if its code differs from the threshold, else if
            its code is above it.

    Returns:
        PRIVATE int64 ``(n_nodes, n_candidates)``.

    Raises:
        ValueError: a type, a shape, an order or a value out of its range.
    """
    first_code = _first_codes(n_codes)
    histogram = require(
        histogram, np.int64, shape=(None, int(first_code[-1]), None), name="histogram"
    )
    feature, threshold, equals = _require_in_order(splits, n_codes)
    if n_codes.size:
        _require_totals(histogram[:, : int(n_codes[0])].sum(axis=1))
        require_range(histogram, lowest=0, below=MAX_TOTAL, name="histogram")
    result = np.empty((len(histogram), feature.size), dtype=np.int64)
    _loops().split_norms(histogram, first_code, feature, threshold, equals, result)
    return result


def pair_norms(
    histogram: Int64Array,
    *,
    first: tuple[UInt8Array, BoolArray],
    n_codes: Int32Array,
    splits: Splits,
) -> Int64Array:
    """Computes, for every two splits, the sum over all nodes of the norms of the four
    parts of a node.

    Args:
        histogram: PRIVATE int64 ``(n_nodes, n_own_codes, Σ n_codes, n_classes)``:
            weights by code of the first feature and code of every other feature. The
            other features may include the first.
        first: public; threshold and ``equals`` of every candidate on the first feature,
            by ascending threshold.
        n_codes: public; codes of every other feature, int32 ``(n_features,)``.
        splits: public; the candidates on the other features, as in :func:`split_norms`.

    Returns:
        PRIVATE int64 ``(n_first, n_candidates)``.

    Raises:
        ValueError: a type, a shape, an order or a value out of its range.
    """
    first_code = _first_codes(n_codes)
    histogram = require(
        histogram,
        np.int64,
        shape=(None, None, int(first_code[-1]), None),
        name="histogram",
    )
    feature, threshold, equals = _require_in_order(splits, n_codes)
    first_threshold, one_against_rest = first
    first_threshold = require(first_threshold, np.uint8, shape=(None,), name="first")
    one_against_rest = require(
        one_against_rest, np.bool_, shape=first_threshold.shape, name="first"
    )
    if np.any(np.diff(first_threshold.astype(np.int64)) <= 0) or np.any(
        first_threshold >= histogram.shape[1]
    ):
        raise ValueError("splits are out of order or out of range")
    result = np.zeros((first_threshold.size, feature.size), dtype=np.int64)
    if n_codes.size:
        _require_totals(histogram[:, :, : int(n_codes[0])].sum(axis=(1, 2)))
        require_range(histogram, lowest=0, below=MAX_TOTAL, name="histogram")
        splits_of_first, splits_of_others = (
            np.column_stack(parts).astype(np.int64)
            for parts in (
                (first_threshold, one_against_rest),
                (feature, threshold, equals),
            )
        )
        _loops().pair_norms(
            histogram, splits_of_first, first_code, splits_of_others, result
        )
    return result


def _first_codes(n_codes: Int32Array) -> Int64Array:
    """First code of every feature, then the number of all codes."""
    n_codes = require(n_codes, np.int32, shape=(None,), name="n_codes")
    require_range(n_codes, lowest=1, below=257, name="n_codes")
    first_code = np.zeros(n_codes.size + 1, dtype=np.int64)
    np.cumsum(n_codes, out=first_code[1:])
    return first_code


def _require_in_order(splits: Splits, n_codes: Int32Array) -> Splits:
    feature, threshold, equals = require_splits(
        splits, shape=(None,), n_features=n_codes.size
    )
    require_range(feature, lowest=0, below=n_codes.size, name="feature")
    order = feature.astype(np.int64) * 256 + threshold
    if feature.size and (
        np.any(np.diff(order) <= 0) or np.any(threshold >= n_codes[feature])
    ):
        raise ValueError("splits are out of order or out of range")
    return feature, threshold, equals


def _require_totals(weights: Int64Array) -> None:
    require_range(weights, lowest=0, below=MAX_TOTAL, name="weights")
    require_range(weights.sum(axis=-1), lowest=0, below=MAX_TOTAL, name="weights")
