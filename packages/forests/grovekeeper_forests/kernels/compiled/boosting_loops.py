"""Computes weights and gradients of rows and walks trees in compiled integer loops,
with equal bits on every machine.

The weight of a row does not depend on other rows. In gradients, signed quantities are
split into a sign and an unsigned magnitude, so that every division rounds toward zero
and no operation mixes signed and unsigned integers.
"""

import numpy as np

from grovekeeper_forests.array_types import (
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt16Array,
    UInt64Array,
)
from grovekeeper_forests.compiler import compiled, compiled_for, integer, read, written
from grovekeeper_forests.kernels.arrays import FINE_BITS, UNIT_BITS

_SIGNED_FINE_MASK = 2**FINE_BITS - 1


@compiled_for(
    read("int64", 2),
    read("int32", 1),
    read("int64", 1),
    read("int64", 1),
    read("int64", 1),
    written("uint16", 1),
)
def weights(
    sums: Int64Array,
    y: Int32Array,
    coarse: Int64Array,
    fine: Int64Array,
    margin: Int64Array,
    result: UInt16Array,
) -> None:
    """Fills ``result`` with min(256, ⌊256 · (1 − p_y) / margin⌋), p the softmax of a
    row's sums.

    exp(−d / 2¹⁶) is the product of two table entries, both at most 2³¹, shifted back to
    at most 2³¹. With at most 2¹⁰ classes the total is at most 2⁴¹, so no number exceeds
    2⁵⁷.
    """
    last = coarse.size * fine.size - 1
    n_classes = sums.shape[1]
    for i in range(y.size):
        largest = sums[i, 0]
        for k in range(1, n_classes):
            largest = max(largest, sums[i, k])
        others, of_label = np.int64(0), np.int64(0)
        for k in range(n_classes):
            gap = min(largest - sums[i, k], last)
            share = (
                coarse[gap >> FINE_BITS] * fine[gap & _SIGNED_FINE_MASK]
            ) >> UNIT_BITS
            if k == y[i]:
                of_label = share
            else:
                others += share
        # Not 0, because the largest sum has gap 0 and so a share of 2³¹.
        total = others + of_label
        result[i] = min(np.int64(256), 256 * others * margin[1] // (margin[0] * total))


_SCORE_FINE_BITS = np.uint64(FINE_BITS)
_FINE_MASK = np.uint64(2**FINE_BITS - 1)
_UNIT_BITS = np.uint64(UNIT_BITS)
_RECIPROCAL = np.uint64(2**62)
_PROBABILITY_SHIFT = np.uint64(38)
_PROBABILITY_ONE = np.uint64(2**24)
_GAIN_BITS = np.uint64(31)
_SIX = np.uint64(6)
_SIXTY_THREE = np.uint64(63)
_GROUP = 8
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_LARGEST_ROOT = np.uint64(2**25)
_SIGNED_GAIN_BITS = 31
_TARGET_BITS = 24
_SCORE_TO_TARGET_BITS = 8
_LARGEST_SCORE = np.int64(2**50)


@compiled
def _exponential(gap: np.uint64, coarse: UInt64Array, fine: UInt64Array) -> np.uint64:
    """exp(−gap · 2⁻¹⁶) in units of 2⁻³¹."""
    step = gap >> _SCORE_FINE_BITS
    if step >= np.uint64(coarse.size):
        return _ZERO
    return np.uint64((coarse[step] * fine[gap & _FINE_MASK]) >> _UNIT_BITS)


@compiled
def _root_up(square: np.uint64) -> np.uint64:
    """The square root, rounded up, of a number up to 2⁵⁰, by Newton's method from
    above.
    """
    root = _LARGEST_ROOT
    while True:
        following = (root + square // root) >> _ONE
        if following >= root:
            break
        root = following
    return np.uint64(root + _ONE if root * root < square else root)


@compiled
def _shortened(magnitude: np.uint64, gain: np.uint64) -> np.int64:
    return np.int64((magnitude * gain) >> _GAIN_BITS)


_of_gradients = compiled_for(
    read("int64", 2),
    read("int32", 1),
    read("uint64", 1),
    read("uint64", 1),
    read("uint64", 1),
    written("int32", 2),
)


@_of_gradients
def gradients_of_two(
    scores: Int64Array,
    y: Int32Array,
    coarse: UInt64Array,
    fine: UInt64Array,
    limits: UInt64Array,
    gradients: Int32Array,
) -> None:
    """Fills ``gradients`` ``(n_rows, 1)`` with the clipped y − p, p the logistic
    function of the only score.

    ``limits`` holds the clip, the length of a clipped gradient and the largest square
    of a contribution.
    """
    clip, length, squared_length = limits
    gain = (length << _GAIN_BITS) // clip
    for i in range(y.size):
        score = scores[i, 0]
        rival = _exponential(np.uint64(abs(score)), coarse, fine)
        best = _ONE << _UNIT_BITS
        of_one = best if score >= 0 else rival
        p = (of_one * (_RECIPROCAL // (best + rival))) >> _PROBABILITY_SHIFT
        doubt = _PROBABILITY_ONE - p if y[i] == 1 else p
        gradient = _shortened(min(doubt, clip), gain)
        # The length that is paid for holds even if the arithmetic above were wrong.
        if np.uint64(gradient) * np.uint64(gradient) > squared_length:
            gradient = np.int64(0)
        gradients[i, 0] = gradient if y[i] == 1 else -gradient


@_of_gradients
def gradients_of_many(
    scores: Int64Array,
    y: Int32Array,
    coarse: UInt64Array,
    fine: UInt64Array,
    limits: UInt64Array,
    gradients: Int32Array,
) -> None:
    """Fills ``gradients`` ``(n_rows, n_classes)`` with the clipped onehot(y) −
    softmax(scores).

    Every p_k is rounded down, so Σ p_k ≤ 2²⁴ and the unclipped gradient's square is at
    most 2 · 2⁴⁸. A magnitude is at most the divisor, so its product with the gain is at
    most length · 2³¹ < 2⁵⁷.
    """
    clip, length, squared_length = limits
    n_classes = scores.shape[1]
    magnitudes = np.empty(n_classes, dtype=np.uint64)
    for i in range(y.size):
        largest = scores[i, 0]
        for k in range(1, n_classes):
            largest = max(largest, scores[i, k])
        total = _ZERO
        for k in range(n_classes):
            magnitudes[k] = _exponential(
                np.uint64(largest - scores[i, k]), coarse, fine
            )
            total += magnitudes[k]
        reciprocal = _RECIPROCAL // total
        square = _ZERO
        for k in range(n_classes):
            p = (magnitudes[k] * reciprocal) >> _PROBABILITY_SHIFT
            magnitudes[k] = _PROBABILITY_ONE - p if k == y[i] else p
            square += magnitudes[k] * magnitudes[k]
        # Rounded so that gradients get shorter, never longer: the root up, the quotient
        # down.
        divisor = clip if square <= clip * clip else _root_up(square)
        gain = (length << _GAIN_BITS) // divisor
        square = _ZERO
        for k in range(n_classes):
            gradient = _shortened(magnitudes[k], gain)
            square += np.uint64(gradient) * np.uint64(gradient)
            gradients[i, k] = gradient if k == y[i] else -gradient
        # As in ``gradients_of_two``: the paid length holds in any case.
        if square > squared_length:
            for k in range(n_classes):
                gradients[i, k] = 0


@compiled_for(
    read("int64", 2),
    read("int32", 1),
    read("int64", 1),
    read("int64", 1),
    written("int32", 2),
)
def gradients_of_numbers(
    scores: Int64Array,
    y: Int32Array,
    start: Int64Array,
    limits: Int64Array,
    gradients: Int32Array,
) -> None:
    """Fills ``gradients`` ``(n_rows, 1)`` with the clipped (y − start) / spread − score.

    ``start`` holds the start and the spread, ``limits`` those of ``gradients_of_two``.
    The first term, in units of 2⁻²⁴, is at most 2⁵⁴. A score is bounded to 2⁵⁰, in
    units of 2⁻¹⁶, which no longer fits into any clip, so that the difference stays below
    2⁵⁹. A clip is at most 2²⁸ and a length below 2²³, so products stay below 2⁵⁵.
    """
    middle, spread = start
    clip, length, squared_length = limits
    gain = (length << _SIGNED_GAIN_BITS) // clip
    for i in range(y.size):
        above = np.int64(y[i]) - middle
        target = (abs(above) << _TARGET_BITS) // spread
        if above < 0:
            target = -target
        score = min(max(scores[i, 0], -_LARGEST_SCORE), _LARGEST_SCORE)
        residual = target - (score << _SCORE_TO_TARGET_BITS)
        gradient = (min(abs(residual), clip) * gain) >> _SIGNED_GAIN_BITS
        # As in ``gradients_of_two``: the paid length holds in any case.
        if gradient * gradient > squared_length:
            gradient = np.int64(0)
        gradients[i, 0] = gradient if residual >= 0 else -gradient


@compiled
def _child(
    x: UInt8Array,
    feature: Int32Array,
    right: UInt64Array,
    node: np.uint64,
) -> np.uint64:
    """The child of a node to which a row goes."""
    code = np.uint64(x[feature[node]])
    return np.uint64(
        (node << _ONE)
        + _ONE
        + ((right[node, code >> _SIX] >> (code & _SIXTY_THREE)) & _ONE)
    )


@compiled_for(
    read("uint8", 2), read("int32", 2), read("uint64", 3), integer, written("int32", 2)
)
def leaves(
    X: UInt8Array,
    feature: Int32Array,
    right: UInt64Array,
    depth: int,
    reached: Int32Array,
) -> None:
    """Fills ``reached`` ``(n_trees, n_rows)``. X is ``(n_rows, n_features)``; bit c of
    ``right`` sends code c right.

    Each step waits for a load from memory, so a group of rows goes down together. The
    last group may repeat rows.
    """
    n_trees, n_rows = reached.shape
    at = np.empty(_GROUP, dtype=np.uint64)
    if n_rows < _GROUP:
        for tree in range(n_trees):
            for i in range(n_rows):
                node = _ZERO
                for _ in range(depth):
                    node = _child(X[i], feature[tree], right[tree], node)
                reached[tree, i] = node - np.uint64(right.shape[1])
        return
    for tree in range(n_trees):
        splits, masks = feature[tree], right[tree]
        for group in range(0, n_rows, _GROUP):
            first = min(group, n_rows - _GROUP)
            at[:] = _ZERO
            for _ in range(depth):
                for i in range(_GROUP):
                    at[i] = _child(X[first + i], splits, masks, at[i])
            for i in range(_GROUP):
                reached[tree, first + i] = at[i] - np.uint64(right.shape[1])
