"""Implements the sampler of rounded normal numbers in integer arithmetic on 64-bit words, after Karney 2016.

A normal number is never formed. Its whole part is drawn, then the digits of its fraction are revealed one by one
until every comparison that decides about it is decided; the result is the integer nearest to the number times a power
of two, read off its leading digits. The conventions are those of ``app.forests.noise.draws``: inner functions take
the window and a position and return the position behind the words they used, a read behind the window gives all ones,
and a result that used such a word is thrown away. Compiled code is renewed with its own file only, so the two helpers
that both files need stand in both.

A *number* here is a uniform real between 0 and 1, a row of ``numbers``: its count of revealed digits, then the digits
(64 bits each), most significant first. Digits are revealed when a comparison needs them and stay what they are.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.forests.compilation.compiler import compiled, compiled_for, read, unsigned, written
from app.forests.noise.tape import TapeExhausted

MAX_DIGITS: Final = 16
"""Digits of a number. A comparison that they do not decide (chance 2⁻¹⁰²⁴) counts as a broken source of words."""

N_NUMBERS: Final = 4
"""The fraction x, two numbers of a descending chain in turn, and one that x is compared with."""

_X, _CHAIN, _OTHER_CHAIN, _RIVAL = range(N_NUMBERS)

_HALF_BITS = np.uint64(32)
_SIGN_BIT = np.uint64(63)
_LOW_HALF = np.uint64(2**32 - 1)
_UNITY = np.uint64(2**32)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_LAST_DIGIT = np.uint64(MAX_DIGITS)
_ALL_ONES = np.uint64(2**64 - 1)

_WORDS = read("uint64", 1)
_CURSOR = written("int64", 1)


@compiled
def _read(words: NDArray[np.uint64], position: int) -> np.uint64:
    """The word at a position; all ones behind the window."""
    return words[position] if position < words.size else _ALL_ONES


@compiled
def _below(words: NDArray[np.uint64], position: int, n: np.uint64, half: np.uint64) -> tuple[np.uint64, int]:
    """Uniform on 0 … n − 1 for n ≤ 2³², from ``half``, a uniform 32-bit number (Lemire 2019, algorithm 5)."""
    product = half * n
    if (product & _LOW_HALF) < n:
        refused = (_UNITY - n) % n
        while (product & _LOW_HALF) < refused:
            product = (_read(words, position) >> _HALF_BITS) * n
            position += 1
    return product >> _HALF_BITS, position


@compiled
def _accepts_half(words: NDArray[np.uint64], position: int) -> tuple[bool, int]:
    """Bernoulli(exp(−1/2)): runs k = 1, 2, … until a Bernoulli(1 / 2k) fails; whether that k is odd.

    Each round uses a word, so 2k ≤ 2²¹ in the largest window.
    """
    n = _TWO
    odd = True
    while True:
        outcome, position = _below(words, position + 1, n, _read(words, position) >> _HALF_BITS)
        if outcome != _ZERO:
            return odd, position
        n += _TWO
        odd = not odd


@compiled
def _whole_part(words: NDArray[np.uint64], position: int) -> tuple[np.uint64, int]:
    """Pr[k] ∝ exp(−k² / 2), k ≥ 0: k successes of exp(−1/2), kept if k·(k − 1) more succeed (N1 and N2).

    A flip accepts behind the window, so both loops look at the window's end themselves. k ≤ 2²⁰.
    """
    k = _ZERO
    while position < words.size:
        accepted, position = _accepts_half(words, position)
        if accepted:
            k += _ONE
            continue
        left = k * (k - _ONE)  # for k = 0 the wrapped factor meets a zero
        while left != _ZERO and position <= words.size:
            accepted, position = _accepts_half(words, position)
            if not accepted:
                break
            left -= _ONE
        if left == _ZERO:
            return k, position
        k = _ZERO
    return _ZERO, words.size + 1


@compiled
def _is_below(
    words: NDArray[np.uint64], position: int, numbers: NDArray[np.uint64], one: int, other: int
) -> tuple[bool, int]:
    """Whether one number is below another, revealing as many digits of both as it takes."""
    digit = _ONE
    while digit <= _LAST_DIGIT:
        if numbers[one, _ZERO] < digit:
            numbers[one, _ZERO] = digit
            numbers[one, digit] = _read(words, position)
            position += 1
        if numbers[other, _ZERO] < digit:
            numbers[other, _ZERO] = digit
            numbers[other, digit] = _read(words, position)
            position += 1
        if numbers[one, digit] != numbers[other, digit]:
            return numbers[one, digit] < numbers[other, digit], position
        digit += _ONE
    return False, words.size + 1


@compiled
def _accepts_fraction(
    words: NDArray[np.uint64], position: int, numbers: NDArray[np.uint64], k: np.uint64
) -> tuple[bool, int]:
    """Bernoulli(exp(−x · (2k + x) / (2k + 2))) for the number x (Karney 2016, algorithms B and C).

    A chain of fresh numbers x > z₁ > z₂ > … goes on, each time with probability (2k + x) / (2k + 2); whether the chain
    that ends has an even length. That probability is 0, that of a fresh number below x, or 1, for outcomes 0, 1
    and the 2k others of a uniform draw.
    """
    last, fresh, spare = _X, _CHAIN, _OTHER_CHAIN
    even = True
    while True:
        numbers[fresh, _ZERO] = _ZERO
        goes_on, position = _is_below(words, position, numbers, fresh, last)
        if not goes_on:
            return even, position
        half = _read(words, position) >> _HALF_BITS
        outcome, position = _below(words, position + 1, _TWO * (k + _ONE), half)
        if outcome == _ZERO:
            return even, position
        if outcome == _ONE:
            numbers[_RIVAL, _ZERO] = _ZERO
            goes_on, position = _is_below(words, position, numbers, _RIVAL, _X)
            if not goes_on:
                return even, position
        last, fresh, spare = fresh, spare, fresh
        even = not even


@compiled
def _rounded_normal(
    words: NDArray[np.uint64], position: int, numbers: NDArray[np.uint64], scale_bits: np.uint64
) -> tuple[np.int64, int]:
    """The integer nearest to 2^scale_bits · Z (Karney 2016, algorithm N).

    |Z| = k + x: x is kept with probability exp(−x · (2k + x) / 2), in k + 1 equal factors, or all starts over. The
    leading scale_bits + 1 bits of x, the last of them for rounding, stand in its first digit, which the first
    factor has revealed.
    """
    while position < words.size:
        k, position = _whole_part(words, position)
        numbers[_X, _ZERO] = _ZERO
        left = k + _ONE
        while left != _ZERO and position <= words.size:
            accepted, position = _accepts_fraction(words, position, numbers, k)
            if not accepted:
                break
            left -= _ONE
        if left != _ZERO:
            continue
        negative = (_read(words, position) >> _SIGN_BIT) == _ONE
        leading = numbers[_X, _ONE] >> (_SIGN_BIT - scale_bits)
        magnitude = np.int64((k << scale_bits) + (leading >> _ONE) + (leading & _ONE))
        return (-magnitude if negative else magnitude), position + 1
    return np.int64(0), words.size + 1


@compiled_for(_WORDS, _CURSOR, unsigned, written("uint64", 2), written("int64", 1), written("int64", 1))
def rounded_gaussian(
    words: NDArray[np.uint64],
    cursor: NDArray[np.int64],
    scale_bits: np.uint64,
    numbers: NDArray[np.uint64],
    noise: NDArray[np.int64],
    finished: NDArray[np.int64],
) -> None:
    """Fills ``noise`` with independent draws; ``finished`` starts as 0 and says how many are done.

    ``numbers`` is room for one draw, uint64 ``(N_NUMBERS, MAX_DIGITS + 1)``; nothing in it outlives the draw.
    """
    while finished[0] < noise.size:
        value, position = _rounded_normal(words, cursor[0], numbers, scale_bits)
        if position > words.size:
            raise TapeExhausted
        noise[finished[0]] = value
        finished[0] += 1
        cursor[0] = position
