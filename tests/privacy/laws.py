"""Exact laws of the draws, and the test that compares samples with them.

The laws are computed here from their formulas, by other methods than those of the
samplers.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray
from scipy import stats

SIGNIFICANCE = 1e-9
"""A correct sampler fails one of a hundred such tests about once in ten million runs.
For outcomes with small expected counts, χ² understates this chance by a factor of up to
a hundred. A flaw under test is detected nearly always.
"""

ALPHA = 1e-6
"""Error rate of one Clopper–Pearson bound. A correct mechanism fails only if two
independent bounds are wrong.
"""

_SMALLEST_EXPECTED_COUNT = 20.0


def proved_loss(one: int, other: int, n_runs: int) -> float:
    """The largest loss that the frequencies of an event and of its complement, in so
    many runs on either of two neighbours, prove: by Clopper–Pearson intervals.
    """
    ratios = []
    for more, fewer in ((one, other), (other, one), (n_runs - one, n_runs - other)):
        low = stats.beta.ppf(ALPHA, more, n_runs - more + 1) if more else 0.0
        high = 1.0
        if fewer < n_runs:
            high = stats.beta.ppf(1 - ALPHA, fewer + 1, n_runs - fewer)
        ratios.append(math.log(low / high) if low else -math.inf)
    return max(ratios)


class PseudoWords:
    """A repeatable word source: its words do not depend on the sizes of the requested
    pieces.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def fill(self, words: NDArray[np.uint64]) -> None:
        words[:] = self._generator.integers(0, 2**64, size=words.size, dtype=np.uint64)


class GivenWords:
    """A word source that gives the listed words, then words of all ones; ``n_given``
    counts the words handed out.
    """

    def __init__(self, *listed: int) -> None:
        self._listed = list(listed)
        self.n_given = 0

    def fill(self, words: NDArray[np.uint64]) -> None:
        for i in range(words.size):
            words[i] = self._listed.pop(0) if self._listed else 2**64 - 1
        self.n_given += words.size


def permute_and_flip_law(gammas: Sequence[float]) -> list[float]:
    """Pr[r] for candidates with the given γ_r = inverse_scale · (u* − u_r).

    Every candidate gets an arrival time, uniform on [0, 1]. Candidate r is selected iff
    it is accepted and every other candidate that arrived before it was refused: Pr[r] =
    p_r · ∫₀¹ Π_{s≠r} (1 − t·p_s) dt.
    """
    accepted = [math.exp(-gamma) for gamma in gammas]
    law = []
    for r, p in enumerate(accepted):
        others = math.prod(
            (Polynomial([1.0, -q]) for s, q in enumerate(accepted) if s != r),
            start=Polynomial([1.0]),
        )
        law.append(p * float(others.integ()(1.0)))
    return law


def discrete_laplace_law(inverse_scale: float, *, window: int) -> dict[int, float]:
    """Pr[z] for |z| < window; the two tails are folded into ±window."""
    q = math.exp(-inverse_scale)
    norm = -math.expm1(-inverse_scale) / (1 + q)
    law = {z: norm * q ** abs(z) for z in range(-window + 1, window)}
    law[window] = law[-window] = q**window / (1 + q)
    return law


def p_value(observed: Mapping[int, int], law: Mapping[int, float]) -> float:
    """Pearson's χ² against the law; all outcomes with an expected count below 20 form
    one class.

    The result is 0 if the samples contain an outcome that the law does not have.
    """
    n_draws = sum(observed.values())
    if any(
        law.get(outcome, 0.0) == 0.0 for outcome, count in observed.items() if count
    ):
        return 0.0
    common = [
        outcome for outcome, p in law.items() if p * n_draws >= _SMALLEST_EXPECTED_COUNT
    ]
    counts = [observed.get(outcome, 0) for outcome in common]
    expected = [law[outcome] * n_draws for outcome in common]
    rest = sum(p for outcome, p in law.items() if outcome not in common) * n_draws
    n_rest = n_draws - sum(counts)
    if rest >= _SMALLEST_EXPECTED_COUNT:
        counts.append(n_rest)
        expected.append(rest)
    elif stats.poisson.sf(n_rest - 1, rest) < SIGNIFICANCE:
        return 0.0
    if len(counts) == 1:
        return 1.0
    statistic = sum((o - e) ** 2 / e for o, e in zip(counts, expected, strict=True))
    return float(stats.chi2.sf(statistic, len(counts) - 1))


def assert_law(observed: Mapping[int, int], law: Mapping[int, float]) -> None:
    """Fails if draws from ``law`` would look like ``observed`` less than once in a
    billion times.
    """
    assert math.isclose(sum(law.values()), 1.0, rel_tol=1e-9)
    probability = p_value(observed, law)
    assert probability >= SIGNIFICANCE, (
        f"p-value {probability:.1e} for {dict(observed)} against {dict(law)}"
    )
