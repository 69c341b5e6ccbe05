"""Implements exact samplers as compiled loops: integer arithmetic on 64-bit words only.

Every function is a deterministic function of the words from a position on. An inner
function takes the window and a position, and returns its result and the position after
the last word that it used. An outer function moves ``cursor`` if its draw ends inside
the window. Otherwise it discards the draw and raises :class:`TapeExhausted`; the caller
repeats the call on a longer window that starts with the same words (see
:class:`~grovekeeper_forests.noise.randomness.Tape`). Inner functions do not raise,
because an exception would take five times as long as a draw.

All quantities are unsigned 64-bit integers, because some versions of the compiler turn
the sum of a signed and an unsigned integer into a float. The parameter of a probability
is a *rate* in units of 2⁻³², so that comparing it with the low half of a word needs no
product; the high half of the same word serves for an independent decision. Each
docstring states the bounds that keep the function's products below 2⁶⁴.

The sampler of rounded normal numbers follows Karney 2016. It never computes all digits
of a normal number. It draws the whole part, then reveals digits of the fraction one by
one until they decide every comparison. The result, the integer nearest to the number
times a power of two, follows from the leading digits. A *number* is a uniform real
between 0 and
1. Its row of ``numbers`` holds the count of revealed digits, then the digits (64 bits
   each), most significant first. A
digit is revealed when a comparison needs it, and does not change afterwards.
"""

from typing import Final

import numpy as np

from grovekeeper_forests.array_types import Int64Array, UInt64Array
from grovekeeper_forests.compiler import compiled, compiled_for, read, unsigned, written


class TapeExhausted(Exception):
    """A draw needs more words than the window has. The samplers catch every such error."""


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
def _read(words: UInt64Array, position: int) -> np.uint64:
    """Returns the word at a position; after the window's end all ones, which ends every
    loop of refusals below.
    """
    return words[position] if position < words.size else _ALL_ONES


@compiled
def _below(
    words: UInt64Array, position: int, n: np.uint64, half: np.uint64
) -> tuple[np.uint64, int]:
    """Draws uniformly from 0 … n − 1, n ≤ 2³², with ``half``, a uniform 32-bit number
    (Lemire 2019, algorithm 5).

    ``half · n`` < 2⁶⁴. The products fall into n intervals of length 2³². The first 2³²
    mod n values of each interval are refused, so that all intervals have equally many
    products.
    """
    product = half * n
    # Refused products are below 2³² mod n, which is below n. So the division, which is
    # slow, is rarely necessary.
    if (product & _LOW_HALF) < n:
        refused = (_UNITY - n) % n  # 2³² mod n
        while (product & _LOW_HALF) < refused:
            product = (_read(words, position) >> _HALF_BITS) * n
            position += 1
    return product >> _HALF_BITS, position


@compiled
def _accepts_fraction(
    words: UInt64Array, position: int, rate: np.uint64
) -> tuple[bool, int]:
    """Draws a Bernoulli(exp(−rate · 2⁻³²)) for rate ≤ 2³² (Canonne, Kamath and Steinke
    2020, algorithm 1, first case).

    Draws a Bernoulli(rate · 2⁻³² / k) for k = 1, 2, … until a draw fails, and returns
    whether the last k is odd. The low half of a word decides the factor rate · 2⁻³²,
    the high half the factor 1 / k. Each round uses a word, so k ≤ 2²⁰ (the largest
    window) and no product exceeds 2⁵².
    """
    k = _ONE
    while True:
        word = _read(words, position)
        position += 1
        # The halves of a word are independent, so the order of the two decisions does not
        # change the law; the cheaper one comes first.
        if (word & _LOW_HALF) >= rate:
            break
        outcome, position = _below(words, position, k, word >> _HALF_BITS)
        if outcome != _ZERO:
            break
        k += _ONE
    return (k & _ONE) == _ONE, position


@compiled
def _accepts(words: UInt64Array, position: int, rate: np.uint64) -> tuple[bool, int]:
    """Draws a Bernoulli(exp(−rate · 2⁻³²)) for any rate, one whole 1 of the exponent at
    a time (the second case).
    """
    whole = rate >> _HALF_BITS
    while whole != _ZERO:
        accepted, position = _accepts_fraction(words, position, _UNITY)
        if not accepted:
            return False, position
        whole -= _ONE
    return _accepts_fraction(words, position, rate & _LOW_HALF)


@compiled
def _laplace(
    words: UInt64Array, position: int, rate: np.uint64
) -> tuple[np.int64, int]:
    """Draws Pr[z] ∝ exp(−|z| · rate · 2⁻³²) (Canonne, Kamath and Steinke 2020,
    algorithm 2 with s = rate, t = 2³²).

    One word supplies the remainder U (low half) and the sign (top bit). The number V of
    whole successes is at most the number of words in the largest window, so X = U + 2³²
    · V < 2⁵³. The algorithm starts over at a negative zero; words of all ones would
    repeat that loop for ever, so the loop checks for the window's end.
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
        # Without this condition, 0 would have two signs and twice its probability.
        if magnitude != 0:
            return -magnitude, position
    # A position behind the window discards the draw; the number is never used.
    return np.int64(0), words.size + 1


@compiled_for(_WORDS, _CURSOR)
def word(words: UInt64Array, cursor: Int64Array) -> np.uint64:
    """Returns the next word."""
    position = cursor[0]
    if position >= words.size:
        raise TapeExhausted
    result = np.uint64(words[position])
    cursor[0] = position + 1
    return result


@compiled_for(_WORDS, _CURSOR, unsigned)
def uniform(words: UInt64Array, cursor: Int64Array, n: np.uint64) -> np.uint64:
    """Draws uniformly from 0 … n − 1, for 1 ≤ n ≤ 2³²."""
    position = cursor[0]
    half = _read(words, position) >> _HALF_BITS
    result, position = _below(words, position + 1, n, half)
    if position > words.size:
        raise TapeExhausted
    cursor[0] = position
    return result


@compiled_for(_WORDS, _CURSOR, unsigned)
def accepts(words: UInt64Array, cursor: Int64Array, rate: np.uint64) -> bool:
    """Draws a Bernoulli(exp(−rate · 2⁻³²))."""
    result, position = _accepts(words, cursor[0], rate)
    if position > words.size:
        raise TapeExhausted
    cursor[0] = position
    return result


@compiled_for(
    _WORDS,
    _CURSOR,
    read("int64", 1),
    unsigned,
    written("int64", 1),
    written("int64", 1),
)
def permute_and_flip(
    words: UInt64Array,
    cursor: Int64Array,
    utilities: Int64Array,
    rate: np.uint64,
    order: Int64Array,
    visited: Int64Array,
) -> np.int64:
    """Selects an index by permute-and-flip; draws the order of candidates step by step
    (Fisher and Yates).

    ``order`` starts as 0 … n − 1 and ``visited`` as 0; if the window ends, both hold
    the state from which the next call continues. The loop ends because the best
    candidate has gap 0, which is always accepted. Gaps are computed modulo 2⁶⁴, which
    is exact for any two 64-bit utilities.
    """
    best = np.uint64(utilities.max())
    # A larger gap counts as this one, so that its product with the rate does not wrap.
    # The guarantee stays (docs/proofs/samplers.md, S7).
    largest_gap = _LARGEST_PRODUCT // rate
    while True:
        first = visited[0]
        position = cursor[0]
        half = _read(words, position) >> _HALF_BITS
        offset, position = _below(
            words, position + 1, np.uint64(order.size - first), half
        )
        chosen = first + np.int64(offset)
        candidate = np.int64(order[chosen])
        gap = min(best - np.uint64(utilities[candidate]), largest_gap)
        accepted, position = _accepts(words, position, gap * rate)
        if position > words.size:
            raise TapeExhausted
        # From here on the flip is final. Written before the check, a flip that the window
        # cut off would be repeated on another order.
        order[chosen] = order[first]
        visited[0] = first + 1
        cursor[0] = position
        if accepted:
            return candidate


@compiled_for(_WORDS, _CURSOR, read("int64", 1), unsigned)
def select_exponential(
    words: UInt64Array,
    cursor: Int64Array,
    utilities: Int64Array,
    rate: np.uint64,
) -> np.int64:
    """Selects an index by the exponential mechanism: permute-and-flip with replacement.

    A trial draws a candidate uniformly and accepts it by its gap. A refused trial has
    no effect on later trials, so the cursor moves after every trial. Gaps are computed
    as in :func:`permute_and_flip`.
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
    words: UInt64Array,
    cursor: Int64Array,
    rate: np.uint64,
    noise: Int64Array,
    finished: Int64Array,
) -> None:
    """Fills ``noise`` with independent draws; ``finished``, which starts as 0, counts
    the finished draws.
    """
    while finished[0] < noise.size:
        value, position = _laplace(words, cursor[0], rate)
        if position > words.size:
            raise TapeExhausted
        noise[finished[0]] = value
        finished[0] += 1
        cursor[0] = position


MAX_DIGITS: Final = 16
"""Most digits of a number. If they do not decide a comparison (chance 2⁻¹⁰²⁴), the
source of words counts as broken.
"""

N_NUMBERS: Final = 4
"""The fraction x, the last two numbers of a descending chain, and a number that is
compared with x.
"""

_X, _CHAIN, _OTHER_CHAIN, _RIVAL = range(N_NUMBERS)

_TWO = np.uint64(2)
_LAST_DIGIT = np.uint64(MAX_DIGITS)


@compiled
def _accepts_half(words: UInt64Array, position: int) -> tuple[bool, int]:
    """Draws a Bernoulli(exp(−1/2)): a Bernoulli(1 / 2k) for k = 1, 2, … until a draw
    fails; true if the last k is odd.

    Each round uses a word, so 2k ≤ 2²¹ in the largest window.
    """
    n = _TWO
    odd = True
    while True:
        outcome, position = _below(
            words, position + 1, n, _read(words, position) >> _HALF_BITS
        )
        if outcome != _ZERO:
            return odd, position
        n += _TWO
        odd = not odd


@compiled
def _whole_part(words: UInt64Array, position: int) -> tuple[np.uint64, int]:
    """Draws Pr[k] ∝ exp(−k² / 2), k ≥ 0: k successes of exp(−1/2), kept if k·(k − 1)
    more succeed (N1 and N2).

    A Bernoulli draw succeeds after the window's end, so both loops check for the end. k
    ≤ 2²⁰.
    """
    k = _ZERO
    while position < words.size:
        accepted, position = _accepts_half(words, position)
        if accepted:
            # exp(−k/2) · exp(−k·(k − 1)/2) = exp(−k²/2)
            k += _ONE
            continue
        # for k = 0 the factor k − 1 wraps around, and the product is 0
        left = k * (k - _ONE)
        while left != _ZERO and position <= words.size:
            accepted, position = _accepts_half(words, position)
            if not accepted:
                break
            left -= _ONE
        if left == _ZERO:
            return k, position
        # All starts over, k included (docs/proofs/gaussian.md, G3).
        k = _ZERO
    return _ZERO, words.size + 1


@compiled
def _is_below(
    words: UInt64Array,
    position: int,
    numbers: UInt64Array,
    one: int,
    other: int,
) -> tuple[bool, int]:
    """Returns whether one number is below another; reveals digits of both until they
    differ.
    """
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
def _accepts_tail(
    words: UInt64Array, position: int, numbers: UInt64Array, k: np.uint64
) -> tuple[bool, int]:
    """Draws a Bernoulli(exp(−x · (2k + x) / (2k + 2))) for the number x (Karney 2016,
    algorithms B and C).

    Draws a chain of fresh numbers x > z₁ > z₂ > …, which goes on after each number with
    probability (2k + x) / (2k + 2), and returns whether the length of the chain is
    even. A uniform draw of 2k + 2 outcomes decides whether the chain goes on: not at
    outcome 0; at outcome 1 if another fresh number is below x; always at the others.
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
        # The row of the last but one link is free for the next number.
        last, fresh, spare = fresh, spare, fresh
        even = not even


@compiled
def _rounded_normal(
    words: UInt64Array,
    position: int,
    numbers: UInt64Array,
    scale_bits: np.uint64,
) -> tuple[np.int64, int]:
    """Draws the integer nearest to 2^scale_bits · Z for a standard normal Z (Karney
    2016, algorithm N).

    |Z| = k + x. The fraction x is kept with probability exp(−x · (2k + x) / 2), decided in k + 1 equal factors;
    otherwise the draw starts over. The first digit of x, which the first factor has
    revealed, contains the leading scale_bits + 1 bits of x; the last of these bits
    decides the rounding.
    """
    while position < words.size:
        k, position = _whole_part(words, position)
        numbers[_X, _ZERO] = _ZERO
        left = k + _ONE
        while left != _ZERO and position <= words.size:
            accepted, position = _accepts_tail(words, position, numbers, k)
            if not accepted:
                break
            left -= _ONE
        if left != _ZERO:
            continue
        negative = (_read(words, position) >> _SIGN_BIT) == _ONE
        leading = numbers[_X, _ONE] >> (_SIGN_BIT - scale_bits)
        # To nearest, not toward zero, so that rounding commutes with the addition of
        # an integer, on which the guarantee rests (docs/proofs/gaussian.md, G1).
        magnitude = np.int64((k << scale_bits) + (leading >> _ONE) + (leading & _ONE))
        return (-magnitude if negative else magnitude), position + 1
    return np.int64(0), words.size + 1


@compiled_for(
    _WORDS,
    _CURSOR,
    unsigned,
    written("uint64", 2),
    written("int64", 1),
    written("int64", 1),
)
def rounded_gaussian(
    words: UInt64Array,
    cursor: Int64Array,
    scale_bits: np.uint64,
    numbers: UInt64Array,
    noise: Int64Array,
    finished: Int64Array,
) -> None:
    """Fills ``noise`` with independent draws; ``finished``, which starts as 0, counts
    the finished draws.

    ``numbers`` is working memory for one draw, uint64 ``(N_NUMBERS, MAX_DIGITS + 1)``;
    its content is not reused.
    """
    while finished[0] < noise.size:
        value, position = _rounded_normal(words, cursor[0], numbers, scale_bits)
        if position > words.size:
            raise TapeExhausted
        noise[finished[0]] = value
        finished[0] += 1
        cursor[0] = position
