"""Implements exact samplers as compiled loops: integer arithmetic on 64-bit words only.

Every function here is a deterministic function of the words from a position on. Inner functions take the window and
a position and return the position behind the words they used. Outer functions move ``cursor`` when a draw is finished
inside the window; otherwise they throw its result away and raise :class:`TapeExhausted`, and are called again on a
longer window that starts with the same words (see ``app.forests.noise.tape``). Inner functions do not raise: that
would cost five times the time of a draw.

All quantities are unsigned 64-bit integers: some versions of the compiler turn a sum of a signed and an unsigned one
into a float. A probability's parameter is a *rate* in units of 2⁻³², so that the low half of a word decides it without
a product; the high half of the same word serves for an independent decision. The bounds that keep each product below
2⁶⁴ are stated where the product stands.
"""

import numpy as np
from numpy.typing import NDArray

from app.forests.compilation.compiler import compiled, compiled_for, read, unsigned, written
from app.forests.noise.tape import TapeExhausted

_HALF_BITS = np.uint64(32)
_SIGN_BIT = np.uint64(63)
_LOW_HALF = np.uint64(2**32 - 1)
_UNITY = np.uint64(2**32)
_LARGEST_PRODUCT = np.uint64(2**63 - 1)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_ALL_ONES = np.uint64(2**64 - 1)

_WORDS = read("uint64", 1)
_CURSOR = written("int64", 1)


@compiled
def _read(words: NDArray[np.uint64], position: int) -> np.uint64:
    """The word at a position; all ones behind the window, which ends every loop below that waits for a refusal."""
    return words[position] if position < words.size else _ALL_ONES


@compiled
def _below(words: NDArray[np.uint64], position: int, n: np.uint64, half: np.uint64) -> tuple[np.uint64, int]:
    """Uniform on 0 … n − 1 for n ≤ 2³², from ``half``, a uniform 32-bit number (Lemire 2019, algorithm 5).

    ``half · n`` < 2⁶⁴. The products fall into n intervals of length 2³²; the first 2³² mod n values of each interval
    are refused, which leaves every interval with the same number of products.
    """
    product = half * n
    if (product & _LOW_HALF) < n:
        refused = (_UNITY - n) % n
        while (product & _LOW_HALF) < refused:
            product = (_read(words, position) >> _HALF_BITS) * n
            position += 1
    return product >> _HALF_BITS, position


@compiled
def _accepts_fraction(words: NDArray[np.uint64], position: int, rate: np.uint64) -> tuple[bool, int]:
    """Bernoulli(exp(−rate · 2⁻³²)) for rate ≤ 2³² (Canonne, Kamath and Steinke 2020, algorithm 1, first case).

    Runs k = 1, 2, … until a Bernoulli(rate · 2⁻³² / k) fails and returns whether that k is odd. The factor
    rate · 2⁻³² is decided by the low half of a word and 1 / k by the high half. Each round uses a word, so
    k ≤ 2²⁰ (the largest window) and no product passes 2⁵².
    """
    k = _ONE
    while True:
        word = _read(words, position)
        position += 1
        if (word & _LOW_HALF) >= rate:
            break
        outcome, position = _below(words, position, k, word >> _HALF_BITS)
        if outcome != _ZERO:
            break
        k += _ONE
    return (k & _ONE) == _ONE, position


@compiled
def _accepts(words: NDArray[np.uint64], position: int, rate: np.uint64) -> tuple[bool, int]:
    """Bernoulli(exp(−rate · 2⁻³²)) for any rate (the same algorithm, second case): every whole 1 of γ on its own."""
    whole = rate >> _HALF_BITS
    while whole != _ZERO:
        accepted, position = _accepts_fraction(words, position, _UNITY)
        if not accepted:
            return False, position
        whole -= _ONE
    return _accepts_fraction(words, position, rate & _LOW_HALF)


@compiled
def _laplace(words: NDArray[np.uint64], position: int, rate: np.uint64) -> tuple[np.int64, int]:
    """Pr[z] ∝ exp(−|z| · rate · 2⁻³²) (Canonne, Kamath and Steinke 2020, algorithm 2 with s = rate, t = 2³²).

    One word gives the remainder U (low half) and the sign (top bit). The number V of whole successes is at most the
    number of words in the largest window, so X = U + 2³² · V < 2⁵³. A negative zero starts over, which is part of
    the algorithm; that loop must look at the window's end itself.
    """
    while position < words.size:
        word = _read(words, position)
        remainder = word & _LOW_HALF
        accepted, position = _accepts_fraction(words, position + 1, remainder)
        if not accepted:
            continue
        x = remainder
        accepted, position = _accepts_fraction(words, position, _UNITY)
        while accepted:
            x += _UNITY
            accepted, position = _accepts_fraction(words, position, _UNITY)
        magnitude = np.int64(x // rate)
        if (word >> _SIGN_BIT) == _ZERO:
            return magnitude, position
        if magnitude != 0:
            return -magnitude, position
    return np.int64(0), words.size + 1


@compiled_for(_WORDS, _CURSOR)
def word(words: NDArray[np.uint64], cursor: NDArray[np.int64]) -> np.uint64:
    """The next word itself."""
    position = cursor[0]
    if position >= words.size:
        raise TapeExhausted
    result = np.uint64(words[position])
    cursor[0] = position + 1
    return result


@compiled_for(_WORDS, _CURSOR, unsigned)
def uniform(words: NDArray[np.uint64], cursor: NDArray[np.int64], n: np.uint64) -> np.uint64:
    """Uniform on 0 … n − 1, for 1 ≤ n ≤ 2³²."""
    position = cursor[0]
    half = _read(words, position) >> _HALF_BITS
    result, position = _below(words, position + 1, n, half)
    if position > words.size:
        raise TapeExhausted
    cursor[0] = position
    return result


@compiled_for(_WORDS, _CURSOR, unsigned)
def accepts(words: NDArray[np.uint64], cursor: NDArray[np.int64], rate: np.uint64) -> bool:
    """Bernoulli(exp(−rate · 2⁻³²))."""
    result, position = _accepts(words, cursor[0], rate)
    if position > words.size:
        raise TapeExhausted
    cursor[0] = position
    return result


@compiled_for(_WORDS, _CURSOR, read("int64", 1), unsigned, written("int64", 1), written("int64", 1))
def permute_and_flip(
    words: NDArray[np.uint64],
    cursor: NDArray[np.int64],
    utilities: NDArray[np.int64],
    rate: np.uint64,
    order: NDArray[np.int64],
    visited: NDArray[np.int64],
) -> np.int64:
    """The index that permute-and-flip selects; the order is drawn as it is walked (Fisher and Yates).

    ``order`` starts as 0 … n − 1 and ``visited`` as 0; both say how far the walk is when the window ends. The walk
    ends because the best candidate has gap 0, which is always accepted. Gaps are taken modulo 2⁶⁴, which is exact for
    any two 64-bit utilities.
    """
    best = np.uint64(utilities.max())
    largest_gap = _LARGEST_PRODUCT // rate
    while True:
        first = visited[0]
        position = cursor[0]
        half = _read(words, position) >> _HALF_BITS
        offset, position = _below(words, position + 1, np.uint64(order.size - first), half)
        chosen = first + np.int64(offset)
        candidate = np.int64(order[chosen])
        gap = min(best - np.uint64(utilities[candidate]), largest_gap)
        accepted, position = _accepts(words, position, gap * rate)
        if position > words.size:
            raise TapeExhausted
        order[chosen] = order[first]
        visited[0] = first + 1
        cursor[0] = position
        if accepted:
            return candidate


@compiled_for(_WORDS, _CURSOR, read("int64", 1), unsigned)
def select_exponential(
    words: NDArray[np.uint64], cursor: NDArray[np.int64], utilities: NDArray[np.int64], rate: np.uint64
) -> np.int64:
    """The index that the exponential mechanism selects: permute-and-flip with replacement.

    A trial takes a candidate uniformly and accepts it by its gap; refused trials leave nothing behind, so the cursor
    moves after each of them. Gaps as in :func:`permute_and_flip`.
    """
    best = np.uint64(utilities.max())
    largest_gap = _LARGEST_PRODUCT // rate
    while True:
        position = cursor[0]
        half = _read(words, position) >> _HALF_BITS
        chosen, position = _below(words, position + 1, np.uint64(utilities.size), half)
        candidate = np.int64(chosen)
        gap = min(best - np.uint64(utilities[candidate]), largest_gap)
        accepted, position = _accepts(words, position, gap * rate)
        if position > words.size:
            raise TapeExhausted
        cursor[0] = position
        if accepted:
            return candidate


@compiled_for(_WORDS, _CURSOR, unsigned, written("int64", 1), written("int64", 1))
def discrete_laplace(
    words: NDArray[np.uint64],
    cursor: NDArray[np.int64],
    rate: np.uint64,
    noise: NDArray[np.int64],
    finished: NDArray[np.int64],
) -> None:
    """Fills ``noise`` with independent draws; ``finished`` starts as 0 and says how many are done."""
    while finished[0] < noise.size:
        value, position = _laplace(words, cursor[0], rate)
        if position > words.size:
            raise TapeExhausted
        noise[finished[0]] = value
        finished[0] += 1
        cursor[0] = position
