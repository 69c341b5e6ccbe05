"""Computes ℓ4 norms of class weights in compiled loops, exact to the last unit.

A fourth power of a weight below 2³⁹ has up to 156 bits. It is formed modulo 2¹²⁸, in
two 64-bit words, and that is enough: a floating-point root is a guess within 2 of the
exact root, so the difference between the sum S of fourth powers and the fourth power of
the guess (or of a neighbour) is below 2¹²⁷ in size, and its sign is the top bit of the
difference modulo 2¹²⁸. The result is the integer r with r⁴ ≤ S < (r + 1)⁴ for every
guess.

Most roots need no 128-bit arithmetic: the relative error of the guess is below 2⁻⁴³, so
if both ends of that interval round down to the same integer, that integer is the root.
"""

import math

import numpy as np

from grovekeeper_forests.array_types import (
    BoolArray,
    Float64Array,
    Int32Array,
    Int64Array,
    UInt8Array,
)
from grovekeeper_forests.compiler import compiled, compiled_for, read, written

_HALF_BITS = np.uint64(32)
_LOW_HALF = np.uint64(2**32 - 1)
_SIGN_BIT = np.uint64(63)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_LOWEST_SHARE, _HIGHEST_SHARE = 1.0 - 2.0**-43, 1.0 + 2.0**-43


@compiled
def _square_high(x: np.uint64) -> np.uint64:
    """The high word of x²."""
    low, high = x & _LOW_HALF, x >> _HALF_BITS
    middle = low * high
    carry = ((low * low) >> _HALF_BITS) + (middle & _LOW_HALF) + (middle & _LOW_HALF)
    return np.uint64(
        high * high
        + (middle >> _HALF_BITS)
        + (middle >> _HALF_BITS)
        + (carry >> _HALF_BITS)
    )


@compiled
def _fourth_power(x: np.uint64) -> tuple[np.uint64, np.uint64]:
    """x⁴ modulo 2¹²⁸: high word, low word. x² = h · 2⁶⁴ + l, so x⁴ = 2 · h · l · 2⁶⁴ +
    l² there.
    """
    low, high = x * x, _square_high(x)
    return np.uint64(_square_high(low) + (high * low + high * low)), np.uint64(
        low * low
    )


@compiled
def _is_below(high: np.uint64, low: np.uint64, root: np.uint64) -> bool:
    """Whether the sum is below root⁴; the difference between the two must be less than
    2¹²⁷.
    """
    power_high, power_low = _fourth_power(root)
    borrow = _ONE if low < power_low else _ZERO
    return bool(((high - power_high - borrow) >> _SIGN_BIT) == _ONE)


@compiled
def _exact_norm(weights: Int64Array | Float64Array) -> np.int64:
    """⌊(Σ w⁴)^(1/4)⌋ of non-negative whole weights that sum to less than 2³⁹."""
    high, low = _ZERO, _ZERO
    guess = 0.0
    for k in range(weights.size):
        power_high, power_low = _fourth_power(np.uint64(weights[k]))
        low = np.uint64(low + power_low)
        high = np.uint64(high + power_high + (_ONE if low < power_low else _ZERO))
        square = float(weights[k]) * float(weights[k])
        guess += square * square
    root = np.uint64(math.sqrt(math.sqrt(guess)))
    while _is_below(high, low, root):
        root = np.uint64(root - _ONE)
    while not _is_below(high, low, np.uint64(root + _ONE)):
        root = np.uint64(root + _ONE)
    return np.int64(root)


@compiled
def _certain_root(total: float) -> np.int64:
    """The fourth root of a sum of fourth powers, rounded down; −1 where floats do not
    decide it.
    """
    root = math.sqrt(math.sqrt(total))
    lowest = np.int64(root * _LOWEST_SHARE)
    return lowest if lowest == np.int64(root * _HIGHEST_SHARE) else np.int64(-1)


@compiled
def _norm(weights: Int64Array) -> np.int64:
    """⌊(Σ w⁴)^(1/4)⌋ of non-negative weights that sum to less than 2³⁹."""
    total = 0.0
    for k in range(weights.size):
        square = float(weights[k]) * float(weights[k])
        total += square * square
    root = _certain_root(total)
    return root if root >= 0 else _exact_norm(weights)


@compiled_for(read("int64", 2), written("int64", 1))
def norms(weights: Int64Array, result: Int64Array) -> None:
    """Fills ``result`` with the norm of every row of ``weights``."""
    for i in range(result.size):
        result[i] = _norm(weights[i])


@compiled_for(
    read("int64", 3),
    read("int64", 1),
    read("int32", 1),
    read("uint8", 1),
    read("boolean", 1),
    written("int64", 2),
)
def split_norms(
    histogram: Int64Array,
    first_code: Int64Array,
    feature: Int32Array,
    threshold: UInt8Array,
    equals: BoolArray,
    result: Int64Array,
) -> None:
    """Fills ``result`` ``(n_nodes, n_candidates)`` with the norm of the left side plus
    the norm of the right side.

    Thresholds ascend within a feature, so the left side of an ordered split grows from
    one candidate to the next.
    """
    n_nodes, _, n_classes = histogram.shape
    n_features = first_code.size - 1
    total = np.empty(n_classes, dtype=np.int64)
    left = np.empty(n_classes, dtype=np.int64)
    right = np.empty(n_classes, dtype=np.int64)
    for node in range(n_nodes):
        candidate = 0
        for f in range(n_features):
            start, stop = first_code[f], first_code[f + 1]
            total[:] = 0
            for code in range(start, stop):
                for k in range(n_classes):
                    total[k] += histogram[node, code, k]
            left[:] = 0
            code = start
            while candidate < feature.size and feature[candidate] == f:
                last = start + threshold[candidate]
                if equals[candidate]:
                    for k in range(n_classes):
                        left[k] = histogram[node, last, k]
                else:
                    while code <= last:
                        for k in range(n_classes):
                            left[k] += histogram[node, code, k]
                        code += 1
                for k in range(n_classes):
                    right[k] = total[k] - left[k]
                result[node, candidate] = _norm(left) + _norm(right)
                candidate += 1


@compiled
def _left_parts(
    table: Int64Array,
    first_code: Int64Array,
    splits: Int64Array,
    result: Float64Array,
) -> None:
    """Fills ``result`` ``(n_classes, n_candidates)`` with the weights left of every
    split in one table of codes.
    """
    for k in range(table.shape[1]):
        code, running, f = np.int64(0), np.int64(0), np.int64(-1)
        for r in range(len(splits)):
            if splits[r, 0] != f:
                f = splits[r, 0]
                code, running = first_code[f], np.int64(0)
            last = first_code[f] + splits[r, 1]
            if splits[r, 2]:
                running = table[last, k]
            else:
                while code <= last:
                    running += table[code, k]
                    code += 1
            result[k, r] = running


@compiled
def _add(
    parts: Float64Array,
    whole: Float64Array,
    sums: Float64Array,
    of_sums: Float64Array,
) -> None:
    """Adds parts of splits to ``sums`` and their whole to ``of_sums``; shapes as in
    :func:`_add_roots`.

    Loops, because numba takes a second to compile the check of shapes in ``sums +=
    parts``.
    """
    for k in range(whole.size):
        of_sums[k] += whole[k]
        for r in range(parts.shape[1]):
            sums[k, r] += parts[k, r]


@compiled
def _subtract(
    parts: Float64Array,
    whole: Float64Array,
    sums: Float64Array,
    of_sums: Float64Array,
) -> None:
    """Subtracts what :func:`_add` adds."""
    for k in range(whole.size):
        of_sums[k] -= whole[k]
        for r in range(parts.shape[1]):
            sums[k, r] -= parts[k, r]


@compiled
def _add_fourth_powers(
    parts: Float64Array,
    whole: float,
    of_parts: Float64Array,
    of_rests: Float64Array,
) -> None:
    """Adds the fourth powers of parts to ``of_parts``, and the fourth powers of the
    other parts to ``of_rests``.
    """
    for r in range(parts.size):
        square = parts[r] * parts[r]
        of_parts[r] += square * square
        rest = (whole - parts[r]) * (whole - parts[r])
        of_rests[r] += rest * rest


@compiled
def _add_roots(
    sums: Float64Array,
    parts: Float64Array,
    whole: Float64Array,
    result: Int64Array,
) -> None:
    """Adds to ``result`` the norms of ``whole`` minus each column of ``parts``, or of
    the columns themselves.

    Args:
        sums: sums of fourth powers, ``(n_candidates,)``.
        parts: ``(n_classes, n_candidates)``.
        whole: ``(n_classes,)``; all zero for the norms of the columns themselves.
        result: ``(n_candidates,)``.
    """
    part = np.empty(whole.size)
    for r in range(result.size):
        root = _certain_root(sums[r])
        if root < 0:
            n_present, root = 0, np.int64(0)
            for k in range(part.size):
                part[k] = abs(whole[k] - parts[k, r])
                if part[k] > 0.0:
                    n_present += 1
                    root = np.int64(part[k])
            if n_present > 1:
                root = _exact_norm(part)
        result[r] += root


@compiled_for(
    read("int64", 4),
    read("int64", 2),
    read("int64", 1),
    read("int64", 2),
    written("int64", 2),
)
def pair_norms(
    histogram: Int64Array,
    first: Int64Array,
    first_code: Int64Array,
    splits: Int64Array,
    result: Int64Array,
) -> None:
    """Adds to ``result`` ``(n_first, n_candidates)`` the norms of the four parts of
    every node under two splits.

    Rows of ``first`` are threshold and equality of the splits on one feature, those of
    ``splits`` feature, threshold and equality of the others. Weights below 2³⁹ and
    their sums are exact as floating-point numbers. Thresholds ascend, so the left side
    of an ordered split grows from one candidate to the next. For one split in
    ``first``, ``left`` holds the weights that are left of it and left of each other
    split; ``right`` holds the weights that are right of it and left of each other
    split. ``first_code`` is the place of the first code of each other feature in
    ``histogram``, then the number of places, so the first of these features has
    ``first_code[1]`` codes.
    """
    n_nodes, n_own_codes, _, n_classes = histogram.shape
    by_code = np.empty((n_own_codes, n_classes, len(splits)))
    left, right = np.empty((n_classes, len(splits))), np.empty((n_classes, len(splits)))
    counts = np.empty((n_own_codes, n_classes))
    of_left, of_right, none = (
        np.empty(n_classes),
        np.empty(n_classes),
        np.zeros(n_classes),
    )
    sums = np.empty((4, len(splits)))
    for node in range(n_nodes):
        left[:], of_left[:] = 0.0, 0.0
        right[:], of_right[:] = 0.0, 0.0
        for code in range(n_own_codes):
            _left_parts(histogram[node, code], first_code, splits, by_code[code])
            counts[code] = 0.0
            for other in range(first_code[1]):
                for k in range(n_classes):
                    counts[code, k] += histogram[node, code, other, k]
            _add(by_code[code], counts[code], right, of_right)
        code = 0
        for r in range(len(first)):
            if first[r, 1]:
                _add(left, of_left, right, of_right)
                left[:], of_left[:] = 0.0, 0.0
                code = first[r, 0]
            while code <= first[r, 0]:
                _add(by_code[code], counts[code], left, of_left)
                _subtract(by_code[code], counts[code], right, of_right)
                code += 1
            sums[:] = 0.0
            for k in range(n_classes):
                _add_fourth_powers(left[k], of_left[k], sums[0], sums[1])
                _add_fourth_powers(right[k], of_right[k], sums[2], sums[3])
            _add_roots(sums[0], left, none, result[r])
            _add_roots(sums[1], left, of_left, result[r])
            _add_roots(sums[2], right, none, result[r])
            _add_roots(sums[3], right, of_right, result[r])
