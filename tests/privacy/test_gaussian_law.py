"""The rounded normal draw and the exponential mechanism's selection against their exact
laws.
"""

import ast
import inspect
import math
import re
from collections import Counter
from fractions import Fraction

import numba
import numpy as np
import pytest
from scipy import stats

from grovekeeper_forests.noise import draws
from grovekeeper_forests.noise.randomness import (
    MAX_SCALE_BITS,
    BrokenWordSource,
    ExactSampler,
    SystemRandomness,
    Tape,
)
from tests.privacy.laws import (
    SIGNIFICANCE,
    GivenWords,
    PseudoWords,
    assert_law,
    p_value,
)


def rounded_normal_law(scale_bits: int, *, window: int) -> dict[int, float]:
    """Pr[round(2^s · Z) = n] for |n| < window, tails folded into ±window: by the
    complementary error function.

    A difference of upper tails loses no digits, also far from 0.
    """
    scale = 2.0**scale_bits

    def above(x: float) -> float:
        return 0.5 * math.erfc(x / scale / math.sqrt(2.0))

    law = {0: 1.0 - 2.0 * above(0.5)}
    for n in range(1, window):
        law[n] = law[-n] = above(n - 0.5) - above(n + 0.5)
    law[window] = law[-window] = above(window - 0.5)
    return law


@pytest.mark.parametrize(("scale_bits", "window"), [(0, 5), (1, 10), (2, 19), (4, 75)])
def test_small_scales_follow_the_rounded_law(scale_bits: int, window: int) -> None:
    noise = SystemRandomness().rounded_gaussian((400_000,), scale_bits=scale_bits)
    assert_law(
        Counter(np.clip(noise, -window, window).tolist()),
        rounded_normal_law(scale_bits, window=window),
    )


@pytest.mark.parametrize("scale_bits", [24, MAX_SCALE_BITS])
def test_large_scales_follow_the_normal_law_in_cells_of_equal_probability(
    scale_bits: int,
) -> None:
    noise = SystemRandomness().rounded_gaussian((400_000,), scale_bits=scale_bits)
    n_cells = 256
    edges = stats.norm.ppf(np.arange(1, n_cells) / n_cells) * 2.0**scale_bits
    assert_law(
        Counter(np.searchsorted(edges, noise).tolist()),
        dict.fromkeys(range(n_cells), 1 / n_cells),
    )


def test_the_far_tail_is_there() -> None:
    """Beyond 3.5 the whole part is 3 or more, and four factors and six flips must
    accept it.
    """
    noise = SystemRandomness().rounded_gaussian((600_000,), scale_bits=3)
    far = int(np.count_nonzero(np.abs(noise) > 28))
    p = math.erfc(28.5 / 8 / math.sqrt(2.0))
    assert_law({1: far, 0: noise.size - far}, {1: p, 0: 1 - p})


def test_moments_are_those_of_the_normal_law() -> None:
    n_draws = 400_000
    z = SystemRandomness().rounded_gaussian((n_draws,), scale_bits=24) / 2.0**24
    deviation = stats.norm.isf(SIGNIFICANCE / 2)
    for power, moment, variance in [
        (1, 0.0, 1.0),
        (2, 1.0, 2.0),
        (3, 0.0, 15.0),
        (4, 3.0, 96.0),
    ]:
        assert abs((z**power).mean() - moment) < deviation * math.sqrt(
            variance / n_draws
        )


def test_the_last_bits_are_uniform() -> None:
    """The fraction's digits beyond the first few are uniform: the density does not show
    in them.
    """
    noise = SystemRandomness().rounded_gaussian((200_000,), scale_bits=24)
    assert_law(Counter((noise & 63).tolist()), dict.fromkeys(range(64), 1 / 64))


def test_neighbouring_draws_are_independent() -> None:
    noise = SystemRandomness().rounded_gaussian((200_000,), scale_bits=24) / 2.0**24
    limit = stats.norm.isf(SIGNIFICANCE / 2) / math.sqrt(noise.size)
    assert abs(np.mean(noise[1:] * noise[:-1])) < limit
    assert (
        abs(
            np.mean((noise[1:] > 0) * 2.0 - 1.0) * ((noise[:-1] > 0) * 2.0 - 1.0).mean()
        )
        < limit
    )


# --- the tape -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_words", [1, 2, 3, 7, 64, 1_000, 2**20])
def test_the_size_of_the_window_changes_no_result(n_words: int) -> None:
    def drawn(size: int) -> list[int]:
        sampler = ExactSampler(Tape(PseudoWords(11), n_words=size))
        utilities = np.array([0, -2, -1, -40], dtype=np.int64)
        normal = sampler.rounded_gaussian((300,), scale_bits=24).tolist()
        selected = [
            sampler.select_exponential(utilities, inverse_scale=Fraction(3, 8))
            for _ in range(100)
        ]
        return [
            *normal,
            *selected,
            *sampler.rounded_gaussian((20,), scale_bits=0).tolist(),
        ]

    assert drawn(n_words) == drawn(5)


@pytest.mark.parametrize("buffer_words", [1, 2, 5])
def test_a_tiny_window_keeps_the_law(buffer_words: int) -> None:
    """A restart of long draws on fresh words would make the tails too thin."""
    noise = SystemRandomness(buffer_words=buffer_words).rounded_gaussian(
        (30_000,), scale_bits=0
    )
    assert_law(Counter(np.clip(noise, -4, 4).tolist()), rounded_normal_law(0, window=4))


_TOP, _HIGH, _LOW = 2**64 - 1, 2**63, 2**62


def _normal(*words: int, scale_bits: int = 0) -> int:
    sampler = ExactSampler(Tape(GivenWords(*words), n_words=1))
    return int(sampler.rounded_gaussian((1,), scale_bits=scale_bits)[0])


@pytest.mark.parametrize("scale_bits", [0, 1, 24, MAX_SCALE_BITS])
@pytest.mark.parametrize(
    "fraction", [0, 1, 0x0123_4567_89AB_CDEF, 2**63 - 1, 2**63, 2**64 - 2]
)
def test_the_fraction_is_rounded_to_nearest(fraction: int, scale_bits: int) -> None:
    """k = 0 (the first flip fails in its second round), x is revealed with a larger
    rival, then the sign.
    """
    words = (0, _HIGH, 0, _TOP, fraction)
    expected = (fraction * 2**scale_bits + 2**63) // 2**64
    # half-flip: round 1 refuses with a zero, round 2 ends: an even round is a refusal,
    # so k = 0
    chain = (_TOP, fraction)
    assert words[-1] == chain[-1]
    assert _normal(0, _TOP, *chain, 0, scale_bits=scale_bits) == expected
    assert _normal(0, _TOP, *chain, _HIGH, scale_bits=scale_bits) == -expected


def test_numbers_with_equal_digits_are_compared_by_later_digits() -> None:
    """z and x agree in 64 bits. The next digits decide whether the chain continues; it
    then ends at outcome 0.
    """
    x = _LOW
    above, below = (7, 6), (6, 7)
    assert _normal(0, _TOP, x, x, *above, 0, scale_bits=3) == 2
    # below: the chain continues to the uniform draw; outcome 0 ends it at length 0,
    # which is even and accepted
    assert _normal(0, _TOP, x, x, *below, 0, 0, scale_bits=3) == 2
    # outcome 1 and a rival below x: the chain has one link and ends there, at an odd
    # length: the draw restarts
    again = (0, _TOP, _TOP, 0, 0)
    assert _normal(0, _TOP, x, x, *below, _HIGH, 0, _TOP, *again, scale_bits=3) == 0


def test_a_source_that_never_decides_is_refused() -> None:
    class Zeros:
        def fill(self, words: np.ndarray) -> None:
            words[:] = 0

    with pytest.raises(BrokenWordSource):
        ExactSampler(Tape(Zeros())).rounded_gaussian((1,), scale_bits=24)


# --- the call -----------------------------------------------------------------------------------------------------


def test_shapes() -> None:
    randomness = SystemRandomness()
    noise = randomness.rounded_gaussian((3, 4, 5), scale_bits=24)
    assert noise.shape == (3, 4, 5)
    assert noise.dtype == np.int64
    assert len(np.unique(noise)) > 55
    assert randomness.rounded_gaussian((0, 7), scale_bits=24).shape == (0, 7)


@pytest.mark.parametrize("scale_bits", [-1, MAX_SCALE_BITS + 1])
def test_a_scale_out_of_range_is_refused(scale_bits: int) -> None:
    with pytest.raises(ValueError, match="2\\^40"):
        SystemRandomness().rounded_gaussian((1,), scale_bits=scale_bits)


# --- the exponential mechanism ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("utilities", "inverse_scale"),
    [
        ([3], Fraction(1)),
        ([0, 0, 0], Fraction(5)),
        ([0, -1], Fraction(1, 2)),
        ([-7, -9, -8, -7], Fraction(3, 4)),
        ([0, 2**32, 2 * 2**32], Fraction(1, 2**32)),
        ([-(2**63), -(2**63) + 2], Fraction(1, 4)),
        ([2**63 - 1, -(2**63)], Fraction(1, 2**32)),
    ],
)
def test_selection_follows_the_exponential_mechanism(
    utilities: list[int], inverse_scale: Fraction
) -> None:
    randomness = SystemRandomness()
    array = np.array(utilities, dtype=np.int64)
    observed = Counter(
        randomness.select_exponential(array, inverse_scale=inverse_scale)
        for _ in range(30_000)
    )
    weights = [
        math.exp(float(inverse_scale * (utility - max(utilities))))
        for utility in utilities
    ]
    law = {index: weight / sum(weights) for index, weight in enumerate(weights)}
    assert_law(observed, law)


def test_selection_is_not_permute_and_flip() -> None:
    """Selection without replacement has another law: it is not bounded-range and costs
    more in μ² and ρ.
    """
    randomness = SystemRandomness()
    utilities = np.array([0, -1, -1, -1, -1], dtype=np.int64)
    observed = Counter(
        randomness.permute_and_flip(utilities, inverse_scale=Fraction(1))
        for _ in range(30_000)
    )
    weights = [1.0, *[math.exp(-1.0)] * 4]
    assert (
        p_value(
            observed,
            {index: weight / sum(weights) for index, weight in enumerate(weights)},
        )
        < SIGNIFICANCE
    )


def test_selection_refuses_what_is_no_vector_of_utilities() -> None:
    for wrong in (
        np.zeros(0, dtype=np.int64),
        np.zeros((2, 2), dtype=np.int64),
        np.zeros(2),
    ):
        with pytest.raises(ValueError, match="int64 vector"):
            SystemRandomness().select_exponential(wrong, inverse_scale=Fraction(1))


# --- no float on the path -----------------------------------------------------------------------------------------


def test_no_float_in_the_compiled_draw() -> None:
    (types,) = draws.rounded_gaussian.signatures
    fresh = numba.njit(draws.rounded_gaussian.py_func)
    fresh.compile(types)
    code = fresh.inspect_llvm(types)
    assert "i64" in code
    assert (
        re.search(
            r"\b(half|float|double|fp128|x86_fp80|sitofp|uitofp|fptosi|fptoui)\b", code
        )
        is None
    )


def test_no_float_in_the_source() -> None:
    for node in ast.walk(ast.parse(inspect.getsource(draws))):
        assert not (
            isinstance(node, ast.Constant) and isinstance(node.value, float | complex)
        )
        assert not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div))


def test_the_law_test_notices_a_wrong_rounding() -> None:
    """Power: the test detects rounding toward zero and a standard deviation that is off
    by one percent.
    """
    noise = SystemRandomness().rounded_gaussian((400_000,), scale_bits=3)
    law = rounded_normal_law(2, window=19)
    toward_zero = np.sign(noise) * (np.abs(noise) // 2)
    assert p_value(Counter(np.clip(toward_zero, -19, 19).tolist()), law) < SIGNIFICANCE
    wide = np.rint(noise / 2 * 1.01).astype(int)
    assert p_value(Counter(np.clip(wide, -19, 19).tolist()), law) < SIGNIFICANCE
