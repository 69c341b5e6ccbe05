"""Every draw of the production randomness against its exact law."""

import ast
import inspect
import math
import re
from collections import Counter
from fractions import Fraction

import numba
import numpy as np
import pytest

from grovekeeper_forests.noise import draws, randomness
from grovekeeper_forests.noise.randomness import (
    ExactSampler,
    Keystream,
    SystemRandomness,
    Tape,
)
from tests.privacy.laws import (
    SIGNIFICANCE,
    GivenWords,
    assert_law,
    discrete_laplace_law,
    p_value,
    permute_and_flip_law,
)

QUANTUM = Fraction(1, 2**32)


def _near(value: float) -> Fraction:
    return math.floor(value * 2**32) * QUANTUM


# --- Bernoulli(exp(−γ)) -------------------------------------------------------------------------------------------


def _acceptances(rate: int, *, n_draws: int) -> Counter[int]:
    """The number of acceptances of the compiled flip, on words of the production
    source.
    """
    window = np.empty(n_draws * 24 + 1_000, dtype=np.uint64)
    Keystream().fill(window)
    cursor = np.zeros(1, dtype=np.int64)
    return Counter(
        int(draws.accepts(window, cursor, np.uint64(rate))) for _ in range(n_draws)
    )


@pytest.mark.parametrize(
    "gamma",
    [
        2.0**-20,
        0.01,
        0.3,
        math.log(2),
        1.0 - 2.0**-32,
        1.0,
        1.0 + 2.0**-32,
        1.7,
        2.0,
        5.5,
    ],
)
def test_a_flip_accepts_with_probability_exp_of_minus_gamma(gamma: float) -> None:
    rate = int(_near(gamma) / QUANTUM)
    p = math.exp(-rate / 2**32)
    assert_law(
        _acceptances(rate, n_draws=60_000), {1: p, 0: -math.expm1(-rate / 2**32)}
    )


def test_a_flip_with_gamma_zero_always_accepts() -> None:
    assert _acceptances(0, n_draws=20_000) == {1: 20_000}


@pytest.mark.parametrize("rate", [0, 1, 5, 2**31, 2**32 - 1])
def test_a_flip_compares_with_its_rate_exactly(rate: int) -> None:
    """One word in 2³² decides, too rare for any χ²: a low half below the rate
    continues, another one ends.
    """

    def accepts(*halves: int) -> bool:
        window = np.array([*halves, 2**32 - 1, 2**32 - 1], dtype=np.uint64)
        return bool(draws.accepts(window, np.zeros(1, dtype=np.int64), np.uint64(rate)))

    assert accepts(rate)  # ends at k = 1, which is odd
    if rate > 0:
        assert not accepts(rate - 1)  # continues to k = 2 and ends there
        assert not accepts(rate - 1, rate)
        # the high half is 0, below 1/2: continues to k = 3
        assert accepts(rate - 1, rate - 1)
        # the high half is 2³¹, not below 1/2
        assert not accepts(rate - 1, rate - 1 + 2**63)


@pytest.mark.parametrize("rate", [40 * 2**32, 2**62, 2**63 - 1, 2**64 - 1])
def test_a_flip_with_huge_gamma_never_accepts(rate: int) -> None:
    assert _acceptances(rate, n_draws=20_000) == {0: 20_000}


# --- permute-and-flip ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("utilities", "inverse_scale"),
    [
        ([7], Fraction(1)),
        ([0, 0], Fraction(1)),
        ([0, 1], _near(0.7)),
        ([5, 5, 5, 5, 5], Fraction(3)),
        ([-3, -1, -1, -2], _near(0.35)),
        ([0, 1, 2, 3, 4, 5], _near(0.9)),
        ([10, 0, 9], Fraction(1, 4)),
        ([0, 2**32, 2 * 2**32], QUANTUM),
        ([0, 1, 3], QUANTUM * (2**32 + 1)),
        ([2**63 - 1, 2**63 - 2, 2**63 - 3], _near(0.5)),
        ([-(2**63), -(2**63) + 1], _near(0.5)),
    ],
)
def test_permute_and_flip_selects_by_its_law(
    utilities: list[int], inverse_scale: Fraction
) -> None:
    randomness = SystemRandomness()
    array = np.array(utilities, dtype=np.int64)
    observed = Counter(
        randomness.permute_and_flip(array, inverse_scale=inverse_scale)
        for _ in range(40_000)
    )
    gammas = [
        float(inverse_scale * (max(utilities) - utility)) for utility in utilities
    ]
    assert_law(observed, dict(enumerate(permute_and_flip_law(gammas))))


def test_permute_and_flip_among_many_candidates_finds_the_few_that_matter() -> None:
    randomness = SystemRandomness()
    utilities = np.full(3_000, -100, dtype=np.int64)
    utilities[[0, 1_234, 2_999]] = (0, -1, 0)
    observed = Counter(
        randomness.permute_and_flip(utilities, inverse_scale=Fraction(1))
        for _ in range(3_000)
    )
    law = permute_and_flip_law([0.0, 1.0, 0.0])
    assert_law(observed, dict(zip([0, 1_234, 2_999], law, strict=True)))


def test_permute_and_flip_visits_every_candidate_of_a_tie() -> None:
    randomness = SystemRandomness()
    utilities = np.zeros(50, dtype=np.int64)
    observed = Counter(
        randomness.permute_and_flip(utilities, inverse_scale=Fraction(1))
        for _ in range(20_000)
    )
    assert_law(observed, dict.fromkeys(range(50), 1 / 50))


@pytest.mark.parametrize(
    ("gap", "inverse_scale"),
    [
        # 2²⁴ · 2⁸ · 2³² = 2⁶⁴: a product modulo 2⁶⁴ would be 0, and always accepted
        (2**24, Fraction(2**8)),
        (2**62, Fraction(2**20)),
        (2**62, Fraction(2**30)),
        (2**64 - 1, Fraction(1)),  # the gap itself passes 2⁶³
        (2**64 - 1, QUANTUM),
        (2**33 + 1, Fraction(2**30)),
        (1, Fraction(2**30)),
    ],
)
def test_a_product_that_passes_64_bits_does_not_wrap(
    gap: int, inverse_scale: Fraction
) -> None:
    best = min(gap - 2**62, 2**63 - 1)
    utilities = np.array([best - gap, best], dtype=np.int64)
    randomness = SystemRandomness()
    assert {
        randomness.permute_and_flip(utilities, inverse_scale=inverse_scale)
        for _ in range(300)
    } == {1}


def test_permute_and_flip_leaves_the_utilities_alone_and_reads_any_layout() -> None:
    utilities = np.arange(10, dtype=np.int64)[::-2]
    utilities.setflags(write=False)
    assert (
        SystemRandomness().permute_and_flip(utilities, inverse_scale=Fraction(2**20))
        == 0
    )
    assert utilities.tolist() == [9, 7, 5, 3, 1]


# --- discrete Laplace ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "inverse_scale",
    [Fraction(1, 64), Fraction(1, 8), _near(0.3), Fraction(1), _near(2.6), Fraction(9)],
)
def test_discrete_laplace_follows_its_law(inverse_scale: Fraction) -> None:
    noise = SystemRandomness().discrete_laplace((400_000,), inverse_scale=inverse_scale)
    window = math.ceil(12 / inverse_scale)
    observed = Counter(np.clip(noise, -window, window).tolist())
    assert_law(observed, discrete_laplace_law(float(inverse_scale), window=window))


@pytest.mark.parametrize("rate", [1, 3, 1_000_003])
def test_discrete_laplace_with_a_tiny_inverse_scale(rate: int) -> None:
    n_draws, n_cells = 400_000, 64
    noise = SystemRandomness().discrete_laplace(
        (n_draws,), inverse_scale=rate * QUANTUM
    )
    assert_law(Counter((noise < 0).tolist()), {0: 0.5, 1: 0.5})
    # Cells of equal probability: |z| is geometric, so exp(−|z| · inverse_scale) is
    # uniform up to one part in 4000.
    cell = np.minimum(
        (np.exp(-np.abs(noise) * (rate / 2**32)) * n_cells).astype(int), n_cells - 1
    )
    assert_law(Counter(cell.tolist()), dict.fromkeys(range(n_cells), 1 / n_cells))
    low_bits = Counter((np.abs(noise) % 16).tolist())
    assert_law(low_bits, dict.fromkeys(range(16), 1 / 16))


def test_discrete_laplace_with_a_huge_inverse_scale_is_zero() -> None:
    for inverse_scale in (Fraction(2**20), Fraction(2**30), 2**20 + QUANTUM):
        assert (
            not SystemRandomness()
            .discrete_laplace((2_000,), inverse_scale=inverse_scale)
            .any()
        )


def test_neighbouring_draws_are_independent() -> None:
    noise = np.clip(
        SystemRandomness().discrete_laplace((300_000, 2), inverse_scale=_near(0.8)),
        -2,
        2,
    )
    one = discrete_laplace_law(float(_near(0.8)), window=2)
    pairs = {
        5 * (a + 2) + b + 2: one[a] * one[b] for a in range(-2, 3) for b in range(-2, 3)
    }
    assert_law(Counter((5 * (noise[:, 0] + 2) + noise[:, 1] + 2).tolist()), pairs)


def test_noisy_counts_of_neighbours_have_the_same_support() -> None:
    """Floating-point Laplace noise fails this test: some outputs are reachable from one
    count only (Mironov 2012).
    """
    randomness = SystemRandomness()
    window = range(-20, 21)
    reached = [
        set(
            (
                count
                + randomness.discrete_laplace((100_000,), inverse_scale=Fraction(1, 8))
            ).tolist()
        )
        for count in (0, 1)
    ]
    assert reached[0] >= set(window)
    assert reached[1] >= set(window)


def test_discrete_laplace_fills_any_shape() -> None:
    randomness = SystemRandomness()
    noise = randomness.discrete_laplace((3, 4, 5), inverse_scale=QUANTUM)
    assert (noise.shape, noise.dtype) == ((3, 4, 5), np.int64)
    assert len(set(noise.ravel().tolist())) == 60
    assert randomness.discrete_laplace((0, 7), inverse_scale=QUANTUM).shape == (0, 7)
    assert randomness.discrete_laplace((), inverse_scale=QUANTUM).shape == ()


# --- uniform and Bernoulli(p) -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 7, 100])
def test_uniform_draws_follow_the_uniform_law(n: int) -> None:
    randomness = SystemRandomness()
    assert_law(
        Counter(randomness.uniform(n) for _ in range(30_000)),
        dict.fromkeys(range(n), 1 / n),
    )


@pytest.mark.parametrize(
    "n",
    [
        1,
        2,
        3,
        5,
        6,
        7,
        1_000,
        65_537,
        2**31 - 1,
        2**31 + 1,
        3 * 2**30,
        2**32 - 1,
        2**32,
    ],
)
def test_uniform_gives_every_outcome_equally_many_words(n: int) -> None:
    """A bias of 2⁻³² is too small for any χ², so the test counts the halves of a word
    that lead to an outcome.

    The halves of outcome j start at ⌈j · 2³² / n⌉, and only the first can be refused
    (the products of the others are at least n above a multiple of 2³²). So the count is
    the distance to the next start, less one if the first is refused.
    """

    def outcome(half: int) -> int | None:
        source = GivenWords(half << 32 | 0xFFFF_FFFF)
        randomness = ExactSampler(Tape(source, n_words=1))
        result = randomness.uniform(n)
        return result if source.n_given == 1 else None

    counts = set()
    for j in {*range(0, n, max(1, n // 40)), n - 1}:
        start, end = (-(-i * 2**32 // n) for i in (j, j + 1))
        first = outcome(start)
        assert first in (j, None)
        if end > start + 1:
            assert (outcome(start + 1), outcome(end - 1)) == (j, j)
        counts.add(end - start - (first is None))
    assert counts == {2**32 // n}


@pytest.mark.parametrize(
    "p", [Fraction(1, 2), Fraction(1, 3), Fraction(999, 1000), Fraction(2, 10**6)]
)
def test_bernoulli_follows_its_law(p: Fraction) -> None:
    randomness = SystemRandomness()
    observed = Counter(int(randomness.bernoulli(p)) for _ in range(30_000))
    assert_law(observed, {1: float(p), 0: float(1 - p)})


def test_bernoulli_is_certain_at_its_ends() -> None:
    randomness = SystemRandomness()
    assert not any(randomness.bernoulli(Fraction(0)) for _ in range(200))
    assert all(randomness.bernoulli(Fraction(1)) for _ in range(200))
    assert not ExactSampler(Tape(GivenWords(0))).bernoulli(Fraction(0))
    assert ExactSampler(Tape(GivenWords(2**64 - 1))).bernoulli(Fraction(1))


def test_bernoulli_compares_as_many_words_as_it_takes() -> None:
    third = 0x5555_5555_5555_5555
    half = 2**63

    def flip(p: Fraction, *listed: int) -> bool:
        return ExactSampler(Tape(GivenWords(*listed), n_words=1)).bernoulli(p)

    assert flip(Fraction(1, 2), half - 1)
    assert not flip(Fraction(1, 2), half)
    assert flip(Fraction(1, 3), third, third, third - 1)
    assert not flip(Fraction(1, 3), third, third, third + 1)
    assert flip(Fraction(1, 2) + Fraction(1, 2**128), half, 0)
    assert not flip(Fraction(1, 2) + Fraction(1, 2**128), half, 1)


@pytest.mark.parametrize("buffer_words", [1, 2, 3])
def test_a_tiny_window_keeps_the_laws(buffer_words: int) -> None:
    randomness = SystemRandomness(buffer_words=buffer_words)
    noise = randomness.discrete_laplace((60_000,), inverse_scale=_near(0.5))
    assert_law(
        Counter(np.clip(noise, -20, 20).tolist()),
        discrete_laplace_law(float(_near(0.5)), window=20),
    )
    utilities = np.array([0, -1, -3], dtype=np.int64)
    observed = Counter(
        randomness.permute_and_flip(utilities, inverse_scale=_near(0.4))
        for _ in range(15_000)
    )
    gammas = [0.0, float(_near(0.4)), 3 * float(_near(0.4))]
    assert_law(observed, dict(enumerate(permute_and_flip_law(gammas))))


# --- no float on the path -----------------------------------------------------------------------------------------


def test_no_float_in_the_compiled_draws() -> None:
    """Searches the typed code of every draw, and of every function that it calls,
    before compilation to machine code.

    The source alone is not sufficient: a power, a division or, in some versions of the
    compiler, a sum of a signed and an unsigned integer becomes a float without a
    warning.
    """
    public = {
        name: value
        for name, value in vars(draws).items()
        if hasattr(value, "py_func") and name[0] != "_"
    }
    assert set(public) == {
        "word",
        "uniform",
        "accepts",
        "permute_and_flip",
        "select_exponential",
    } | {
        "discrete_laplace",
        "rounded_gaussian",
    }
    for name, draw in public.items():
        (types,) = draw.signatures
        fresh = numba.njit(draw.py_func)
        fresh.compile(types)
        code = fresh.inspect_llvm(types)
        assert "i64" in code
        match = re.search(
            r"\b(half|float|double|fp128|x86_fp80|sitofp|uitofp|fptosi|fptoui)\b", code
        )
        assert match is None, f"{name} computes with floats: {match}"


def test_no_float_in_the_source_of_the_samplers() -> None:
    for module in (draws, randomness):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            assert not (
                isinstance(node, ast.Constant)
                and isinstance(node.value, float | complex)
            )
            assert not (
                isinstance(node, ast.Name) and node.id in ("float", "log", "exp")
            )
            assert not (
                isinstance(node, ast.Attribute)
                and re.match(r"float|double|half|random$|exp|log", node.attr)
            )
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                # The one true division is of Fractions: inverse_scale / QUANTUM.
                assert module is randomness
                assert ast.unparse(node) == "inverse_scale / QUANTUM"


# --- the tests themselves -----------------------------------------------------------------------------------------


def test_the_law_test_notices_a_wrong_law() -> None:
    """Power: each neighbouring flaw is far below the significance level at the sample
    sizes of this module.
    """
    noise = SystemRandomness().discrete_laplace(
        (400_000,), inverse_scale=Fraction(1, 8)
    )
    observed = Counter(np.clip(noise, -96, 96).tolist())
    assert p_value(observed, discrete_laplace_law(0.135, window=96)) < SIGNIFICANCE
    doubled_zero = observed + Counter({0: observed[0]})
    assert p_value(doubled_zero, discrete_laplace_law(0.125, window=96)) < SIGNIFICANCE
    assert (
        p_value(observed + Counter({1_000: 1}), discrete_laplace_law(0.125, window=96))
        == 0.0
    )
