"""Exact output laws of the production code, by walking every path of its draws.

``EnumeratingRandomness`` replaces the system's randomness. A run of production code
under it follows one path; the walk re-runs the code until it has taken every branch of
every draw, and multiplies the branches' exact probabilities. Three reductions keep the
walk finite, and none of them hides a loss:

* noisy counts are clamped to a public window when the noise is added to the exact
  counts, with the exact folded law (post-processing, lemma L7; a window of two
  neighbouring integers already shows the full loss of a count);
* rounded normal noise is folded to the sign of the noisy sum;
* the key that assigns rows to trees is fixed (its law does not depend on rows, lemma
  L0), and every test that shards rows states its key;
* the last noisy table of a path is not walked if the release only copies it: see
  :mod:`tests.privacy.copied_counts`.

Probabilities are products of a few dozen correctly computed doubles: relative errors
stay below 1e-12.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.data.schema import Feature
from grovekeeper_forests.noise.randomness import PaidRandomness
from tests.privacy import copied_counts
from tests.privacy.copied_counts import StandIn, Table

TOLERANCE = 1e-9


def draw_unpaid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets growth draw what its event does not pay for, so that the law of a flaw that
    production stops is seen.
    """
    monkeypatch.setattr(PaidRandomness, "_pay", lambda *_: None)


def keep_fine_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computes the edges of a fine grid once for each feature: they are public, every
    path of a walk asks for them again, and they take longer than the rest of a path.
    """
    fine_edges = quantile_bins._fine_edges

    @cache
    def edges_of(feature: Feature) -> NDArray[np.float64]:
        edges = fine_edges(feature, quantile_bins.grid_edges(feature))
        edges.setflags(write=False)
        return edges

    monkeypatch.setattr(
        quantile_bins, "_fine_edges", lambda feature, _coarse: edges_of(feature)
    )


FAR = 2**40


@dataclass
class _Walk:
    """One path: the prescribed first branches, and all branches of the path so far.

    Attributes:
        prefix: the first branches.
        stand_in: chooses the numbers that stand for the last noisy table, which is then
            not branched on.
        n_tables: noisy tables so far; the one with the number ``last_table`` is not
            branched on.
        last: what was drawn for that table.
        is_last: whether nothing was drawn after it.
    """

    prefix: list[int]
    stand_in: StandIn | None = None
    last_table: int = 0
    widths: list[int] = field(default_factory=list)
    probability: float = 1.0
    n_tables: int = 0
    last: Table | None = None
    is_last: bool = True

    def table(
        self, values: Sequence[int], laws: Sequence[Sequence[float]]
    ) -> list[int]:
        """Draws noisy numbers, each one of ``values`` with the probabilities of its
        law.
        """
        self.n_tables += len(values) > 1
        if self.stand_in is not None and self.n_tables == self.last_table:
            self.last = Table(tuple(values), laws)
            return self.stand_in(self.last)
        return [values[self.branch(law)] for law in laws]

    def branch(self, law: Sequence[float]) -> int:
        self.is_last = self.is_last and self.last is None
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

    def permute_and_flip(
        self, utilities: np.ndarray, *, inverse_scale: Fraction
    ) -> int:
        assert utilities.dtype == np.int64
        assert len(utilities) > 0
        return self._walk.branch(
            permute_and_flip_law(tuple(utilities.tolist()), inverse_scale)
        )

    def select_exponential(
        self, utilities: np.ndarray, *, inverse_scale: Fraction
    ) -> int:
        assert utilities.dtype == np.int64
        best = int(utilities.max())
        weights = [
            math.exp(-float(inverse_scale * (best - utility)))
            for utility in utilities.tolist()
        ]
        return self._walk.branch([weight / sum(weights) for weight in weights])

    def discrete_laplace(
        self, shape: tuple[int, ...], *, inverse_scale: Fraction
    ) -> "_ClampedNoise":
        return _ClampedNoise(self._walk, shape, float(inverse_scale), self._window)

    def rounded_gaussian(
        self, shape: tuple[int, ...], *, scale_bits: int
    ) -> "_FoldedNormal":
        return _FoldedNormal(self._walk, shape, scale_bits)


class Noise(ABC):
    """Noise that is drawn when it is added to exact numbers; added twice, it would look
    like two draws, and refuses.
    """

    __array_ufunc__ = None  # so that ``exact + noise`` calls __radd__
    _is_added = False

    def __radd__(self, exact: np.ndarray) -> np.ndarray:
        assert not self._is_added, "the noise of one draw in two releases"
        assert exact.dtype == np.int64
        self._is_added = True
        return self.added_to(exact)

    @abstractmethod
    def added_to(self, exact: np.ndarray) -> np.ndarray:
        """The released numbers."""


class _ClampedNoise(Noise):
    """Noise that branches when it is added to exact counts: on each clamped sum, with
    its folded law.
    """

    def __init__(
        self,
        walk: _Walk,
        shape: tuple[int, ...],
        inverse_scale: float,
        window: tuple[int, int],
    ) -> None:
        self._walk, self._shape, self._inverse_scale, self._window = (
            walk,
            shape,
            inverse_scale,
            window,
        )

    def added_to(self, exact: np.ndarray) -> np.ndarray:
        assert exact.shape == self._shape
        low, high = self._window
        laws = {
            count: folded_law(count, self._inverse_scale, low, high)
            for count in np.unique(exact).tolist()
        }
        clamped = self._walk.table(
            range(low, high + 1), [laws[count] for count in exact.ravel().tolist()]
        )
        return np.array(clamped, dtype=np.int64).reshape(self._shape)


class _FoldedNormal(Noise):
    """Rounded normal noise that branches on the sign of each noisy sum, with its exact
    probability.

    The released value is a public number far on that side: folding is post-processing
    (lemma L7). A shift of μ deviations moves the probability of a positive sum by Φ(μ)
    − ½; for small μ the sign distinguishes the laws best.
    """

    def __init__(self, walk: _Walk, shape: tuple[int, ...], scale_bits: int) -> None:
        self._walk, self._shape, self._deviation = walk, shape, 2**scale_bits

    def added_to(self, exact: np.ndarray) -> np.ndarray:
        assert exact.shape == self._shape
        chances = [
            0.5 * math.erfc((0.5 - query) / self._deviation / math.sqrt(2.0))
            for query in exact.ravel().tolist()
        ]
        folded = self._walk.table(
            (-FAR, FAR), [(1.0 - chance, chance) for chance in chances]
        )
        return np.array(folded, dtype=np.int64).reshape(self._shape)


@cache
def permute_and_flip_law(
    utilities: tuple[int, ...], inverse_scale: Fraction
) -> list[float]:
    """The exact law of permute-and-flip by its definition: all visiting orders, equally
    likely.
    """
    best = max(utilities)
    accept = [
        math.exp(-float(inverse_scale * (best - utility))) for utility in utilities
    ]
    law = [0.0] * len(utilities)
    for order in itertools.permutations(range(len(utilities))):
        left = 1.0 / math.factorial(len(utilities))
        for candidate in order:
            law[candidate] += left * accept[candidate]
            left *= 1.0 - accept[candidate]
    return law


@cache
def folded_law(count: int, inverse_scale: float, low: int, high: int) -> list[float]:
    """Probabilities of low … high for count + discrete Laplace noise, the tails folded
    onto the two ends.
    """
    if low == high:
        return [1.0]
    q = math.exp(-inverse_scale)

    def at_most(z: int) -> float:
        return 1.0 - q ** (z + 1) / (1 + q) if z >= 0 else q**-z / (1 + q)

    inner = [
        (1 - q) / (1 + q) * q ** abs(value - count) for value in range(low + 1, high)
    ]
    return [at_most(low - count), *inner, at_most(count - high)]


Run: TypeAlias = Callable[[EnumeratingRandomness], Hashable]


def output_law(
    run: Run, *, window: tuple[int, int] = (0, 1), key: bytes = b""
) -> dict[Hashable, float]:
    """The exact law of the value that ``run`` returns."""

    def walked(walk: _Walk) -> Hashable:
        return run(EnumeratingRandomness(walk, window=window, key=key))

    first = _Walk([])
    walked(first)
    law = (
        _law_without_last_table(walked, first.n_tables) if first.n_tables else None
    ) or law_of_every_path(walked)
    assert abs(sum(law.values()) - 1.0) < TOLERANCE
    return law


def law_of_every_path(walked: Callable[[_Walk], Hashable]) -> dict[Hashable, float]:
    """The law by one run per path."""
    law: dict[Hashable, float] = defaultdict(float)
    prefix: list[int] | None = []
    while prefix is not None:
        walk = _Walk(prefix)
        law[walked(walk)] += walk.probability
        prefix = walk.next_prefix()
    return dict(law)


def _law_without_last_table(
    walked: Callable[[_Walk], Hashable], last_table: int
) -> dict[Hashable, float] | None:
    """The law if every path copies its last table into the release and draws nothing
    after it, else None.

    Each path is run with numbers that occur nowhere else, and again with numbers of the
    window.
    """
    law: dict[Hashable, float] = defaultdict(float)
    prefix: list[int] | None = []
    choices = copied_counts.choices()
    while prefix is not None:
        walk = _Walk(prefix, copied_counts.distinct_numbers, last_table)
        template = walked(walk)
        if walk.n_tables > last_table:
            last_table = walk.n_tables
            continue
        if walk.last is None:
            law[template] += walk.probability
        else:
            copies = copied_counts.Copies(template, walk.last)
            for numbers in next(choices):
                released = walked(_Walk(prefix, numbers, last_table))
                if not walk.is_last or not copies.explain(released, numbers):
                    return None
            for outcome, probability in copies.releases():
                law[outcome] += walk.probability * probability
        prefix = walk.next_prefix()
    return dict(law)


def loss(one: Mapping[Hashable, float], other: Mapping[Hashable, float]) -> float:
    """sup over outcomes of |ln P(o) / Q(o)|; infinite if only one of the two laws can
    produce an outcome.
    """
    if one.keys() != other.keys():
        return math.inf
    return max(
        abs(math.log(probability / other[outcome]))
        for outcome, probability in one.items()
    )


Pair: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]


def aligned(one: Mapping[Hashable, float], other: Mapping[Hashable, float]) -> Pair:
    """The probabilities of every outcome of either law, in an equal order."""
    outcomes = list(one.keys() | other.keys())
    return np.array([one.get(o, 0.0) for o in outcomes]), np.array(
        [other.get(o, 0.0) for o in outcomes]
    )


def divergence(
    one: NDArray[np.float64], other: NDArray[np.float64], epsilon: float
) -> float:
    """Σ max(P − e^ε Q, 0): the δ of (ε, δ) between two aligned laws, in one order."""
    return float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum())


def renyi(one: NDArray[np.float64], other: NDArray[np.float64], order: float) -> float:
    """The Rényi divergence, of an order above 1, of aligned laws; infinite if only the
    first can produce an outcome.
    """
    if np.any((one > 0.0) & (other == 0.0)):
        return math.inf
    p, q = one[one > 0.0], other[one > 0.0]
    terms = order * np.log(p) + (1.0 - order) * np.log(q)
    # powers of small probabilities leave the range of a float
    largest = float(terms.max())
    return (largest + math.log(float(np.exp(terms - largest).sum()))) / (order - 1.0)
