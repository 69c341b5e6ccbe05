"""Compiled ℓ4 norms of class weights, exact to the last unit.

A fourth power of a weight below 2³⁹ has up to 156 bits. It is formed modulo 2¹²⁸, in two 64-bit words, and that is
enough: a floating-point root is a guess within 2 of the exact one, so the difference between the sum S of fourth powers
and the fourth power of the guess (or a neighbour of it) is below 2¹²⁷ in size, and its sign is the top bit of the
difference modulo 2¹²⁸. The root returned is the integer r with r⁴ ≤ S < (r + 1)⁴, whatever the guess was.
"""

import math

import numpy as np
from numpy.typing import NDArray

from app.forests.kernels.compiler import compiled, compiled_for, read, written

_HALF_BITS = np.uint64(32)
_LOW_HALF = np.uint64(2**32 - 1)
_SIGN_BIT = np.uint64(63)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)


@compiled
def _square_high(x: np.uint64) -> np.uint64:
    """The high word of x²."""
    low, high = x & _LOW_HALF, x >> _HALF_BITS
    middle = low * high
    carry = ((low * low) >> _HALF_BITS) + (middle & _LOW_HALF) + (middle & _LOW_HALF)
    return np.uint64(high * high + (middle >> _HALF_BITS) + (middle >> _HALF_BITS) + (carry >> _HALF_BITS))


@compiled
def _fourth_power(x: np.uint64) -> tuple[np.uint64, np.uint64]:
    """x⁴ modulo 2¹²⁸: high word, low word. x² = h · 2⁶⁴ + l, so x⁴ = 2 · h · l · 2⁶⁴ + l² there."""
    low, high = x * x, _square_high(x)
    return np.uint64(_square_high(low) + (high * low + high * low)), np.uint64(low * low)


@compiled
def _is_below(high: np.uint64, low: np.uint64, root: np.uint64) -> bool:
    """Whether the sum is below root⁴, given that the two differ by less than 2¹²⁷."""
    power_high, power_low = _fourth_power(root)
    borrow = _ONE if low < power_low else _ZERO
    return bool(((high - power_high - borrow) >> _SIGN_BIT) == _ONE)


@compiled
def _norm(weights: NDArray[np.int64]) -> np.int64:
    """⌊(Σ w⁴)^(1/4)⌋ of non-negative weights that sum to less than 2³⁹."""
    high, low = _ZERO, _ZERO
    guess = 0.0
    for k in range(weights.size):
        power_high, power_low = _fourth_power(np.uint64(weights[k]))
        low = np.uint64(low + power_low)
        high = np.uint64(high + power_high + (_ONE if low < power_low else _ZERO))
        real = float(weights[k])
        guess += real * real * real * real
    root = np.uint64(math.sqrt(math.sqrt(guess)))
    while _is_below(high, low, root):
        root = np.uint64(root - _ONE)
    while not _is_below(high, low, np.uint64(root + _ONE)):
        root = np.uint64(root + _ONE)
    return np.int64(root)


@compiled_for(read("int64", 2), written("int64", 1))
def norms(weights: NDArray[np.int64], result: NDArray[np.int64]) -> None:
    """Fills ``result`` with the norm of every row of ``weights``."""
    for i in range(result.size):
        result[i] = _norm(weights[i])


@compiled_for(
    read("int64", 3), read("int64", 1), read("int32", 1), read("uint8", 1), read("boolean", 1), written("int64", 2)
)
def split_norms(
    histogram: NDArray[np.int64],
    first_code: NDArray[np.int64],
    feature: NDArray[np.int32],
    threshold: NDArray[np.uint8],
    equals: NDArray[np.bool_],
    result: NDArray[np.int64],
) -> None:
    """Fills ``result`` ``(n_nodes, n_candidates)`` with the norm of the left plus that of the right side.

    Thresholds ascend within a feature, so the left side of an ordered split grows from one candidate to the next.
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
                total += histogram[node, code]
            left[:] = 0
            code = start
            while candidate < feature.size and feature[candidate] == f:
                last = start + threshold[candidate]
                if equals[candidate]:
                    left[:] = histogram[node, last]
                else:
                    while code <= last:
                        left += histogram[node, code]
                        code += 1
                right[:] = total - left
                result[node, candidate] = _norm(left) + _norm(right)
                candidate += 1
