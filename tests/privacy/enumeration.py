"""Exact output laws of the production code, by walking every path of its draws.

``EnumeratingRandomness`` replaces the system's randomness. A run of production code under it follows one path; the walk
re-runs the code until it has taken every branch of every draw, and multiplies the branches' exact probabilities. Three
reductions keep the walk finite, and none of them hides a loss:

* noisy counts are clamped to a public window when the noise is added to the exact counts, with the exact folded law
  (post-processing, lemma L7; a window of two neighbouring integers already shows the full loss of a count);
* rounded normal noise is folded to the sign of the noisy sum;
* the key that assigns rows to trees is fixed (its law does not depend on rows, lemma L0), and every test that shards
  rows states its key.

Probabilities are products of a few dozen correctly computed doubles: relative errors stay below 1e-12.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache

import numpy as np

TOLERANCE = 1e-9
FAR = 2**40


@dataclass
class _Walk:
    """One path: the prescribed first branches, and all branches of the path so far."""

    prefix: list[int]
    widths: list[int] = field(default_factory=list)
    probability: float = 1.0

    def branch(self, law: Sequence[float]) -> int:
        depth = len(self.widths)
        taken = self.prefix[depth] if depth < len(self.prefix) else 0
        self.widths.append(len(law))
        self.probability *= law[taken]
        return taken

    def next_prefix(self) -> list[int] | None:
        taken = self.prefix + [0] * (len(self.widths) - len(self.prefix))
        while taken:
            if taken[-1] + 1 < self.widths[len(taken) - 1]:
                return [*taken[:-1], taken[-1] + 1]
            taken.pop()
        return None


class EnumeratingRandomness:
    """A ``Randomness`` that follows a prescribed path of branches."""

    def __init__(self, walk: _Walk, *, window: tuple[int, int], key: bytes) -> None:
        self._walk, self._window, self._key = walk, window, iter(key)

    def uniform(self, n: int) -> int:
        if n == 256:  # a byte of the assignment key, which is fixed
            return next(self._key)
        return self._walk.branch([1 / n] * n)

    def bernoulli(self, p: Fraction) -> bool:
        return self._walk.branch([float(1 - p), float(p)]) == 1

    def permute_and_flip(self, utilities: np.ndarray, *, inverse_scale: Fraction) -> int:
        assert utilities.dtype == np.int64
        assert len(utilities) > 0
        return self._walk.branch(permute_and_flip_law(tuple(utilities.tolist()), inverse_scale))

    def select_exponential(self, utilities: np.ndarray, *, inverse_scale: Fraction) -> int:
        assert utilities.dtype == np.int64
        best = int(utilities.max())
        weights = [math.exp(-float(inverse_scale * (best - utility))) for utility in utilities.tolist()]
        return self._walk.branch([weight / sum(weights) for weight in weights])

    def discrete_laplace(self, shape: tuple[int, ...], *, inverse_scale: Fraction) -> "_ClampedNoise":
        return _ClampedNoise(self._walk, shape, float(inverse_scale), self._window)

    def rounded_gaussian(self, shape: tuple[int, ...], *, scale_bits: int) -> "_FoldedNormal":
        return _FoldedNormal(self._walk, shape, scale_bits)


class _ClampedNoise:
    """Noise that branches when it is added to exact counts: on each clamped sum, with its folded law."""

    __array_ufunc__ = None  # so that ``exact + noise`` calls __radd__

    def __init__(self, walk: _Walk, shape: tuple[int, ...], inverse_scale: float, window: tuple[int, int]) -> None:
        self._walk, self._shape, self._inverse_scale, self._window = walk, shape, inverse_scale, window

    def __radd__(self, exact: np.ndarray) -> np.ndarray:
        assert exact.dtype == np.int64
        assert exact.shape == self._shape
        low, high = self._window
        laws = {count: folded_law(count, self._inverse_scale, low, high) for count in np.unique(exact).tolist()}
        clamped = [low + self._walk.branch(laws[count]) for count in exact.ravel().tolist()]
        return np.array(clamped, dtype=np.int64).reshape(self._shape)


class _FoldedNormal:
    """Rounded normal noise that branches on the sign of each noisy sum, with its exact probability.

    The released value is a public number far on that side: folding is post-processing (lemma L7). A shift of μ
    deviations moves the probability of a positive sum by Φ(μ) − ½; for small μ the sign distinguishes the laws best.
    """

    __array_ufunc__ = None

    def __init__(self, walk: _Walk, shape: tuple[int, ...], scale_bits: int) -> None:
        self._walk, self._shape, self._deviation = walk, shape, 2**scale_bits

    def __radd__(self, exact: np.ndarray) -> np.ndarray:
        assert exact.dtype == np.int64
        assert exact.shape == self._shape
        positive = []
        for query in exact.ravel().tolist():
            chance = 0.5 * math.erfc((0.5 - query) / self._deviation / math.sqrt(2.0))
            positive.append(self._walk.branch([1.0 - chance, chance]) == 1)
        return np.where(positive, FAR, -FAR).astype(np.int64).reshape(self._shape)


@cache
def permute_and_flip_law(utilities: tuple[int, ...], inverse_scale: Fraction) -> list[float]:
    """The exact law of permute-and-flip by its definition: all visiting orders, equally likely."""
    best = max(utilities)
    accept = [math.exp(-float(inverse_scale * (best - utility))) for utility in utilities]
    law = [0.0] * len(utilities)
    for order in itertools.permutations(range(len(utilities))):
        left = 1.0 / math.factorial(len(utilities))
        for candidate in order:
            law[candidate] += left * accept[candidate]
            left *= 1.0 - accept[candidate]
    return law


@cache
def folded_law(count: int, inverse_scale: float, low: int, high: int) -> list[float]:
    """Probabilities of low … high for count + discrete Laplace noise, the tails folded onto the two ends."""
    if low == high:
        return [1.0]
    q = math.exp(-inverse_scale)

    def at_most(z: int) -> float:
        return 1.0 - q ** (z + 1) / (1 + q) if z >= 0 else q**-z / (1 + q)

    inner = [(1 - q) / (1 + q) * q ** abs(value - count) for value in range(low + 1, high)]
    return [at_most(low - count), *inner, at_most(count - high)]


def output_law(
    run: Callable[[EnumeratingRandomness], Hashable], *, window: tuple[int, int] = (0, 1), key: bytes = b""
) -> dict[Hashable, float]:
    """The exact law of the value that ``run`` returns."""
    law: dict[Hashable, float] = defaultdict(float)
    prefix: list[int] | None = []
    while prefix is not None:
        walk = _Walk(prefix)
        law[run(EnumeratingRandomness(walk, window=window, key=key))] += walk.probability
        prefix = walk.next_prefix()
    assert abs(sum(law.values()) - 1.0) < TOLERANCE
    return dict(law)


def loss(one: Mapping[Hashable, float], other: Mapping[Hashable, float]) -> float:
    """sup over outcomes of |ln P(o) / Q(o)|; infinite if only one of the two laws can produce an outcome."""
    if one.keys() != other.keys():
        return math.inf
    return max(abs(math.log(probability / other[outcome])) for outcome, probability in one.items())


def divergence(one: Mapping[Hashable, float], other: Mapping[Hashable, float], epsilon: float) -> float:
    """Σ max(P − e^ε Q, 0): the δ of (ε, δ) between two laws, in one order."""
    return sum(max(p - math.exp(epsilon) * other.get(outcome, 0.0), 0.0) for outcome, p in one.items())


def renyi(one: Mapping[Hashable, float], other: Mapping[Hashable, float], order: float) -> float:
    """The Rényi divergence of an order above 1; infinite if only the first law can produce an outcome."""
    if not one.keys() <= other.keys():
        return math.inf
    terms = [order * math.log(p) + (1.0 - order) * math.log(other[outcome]) for outcome, p in one.items()]
    largest = max(terms)  # powers of small probabilities leave the range of a float
    return (largest + math.log(sum(math.exp(term - largest) for term in terms))) / (order - 1.0)
