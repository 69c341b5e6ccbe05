"""Records the draws of a job with the exact numbers under them, replays their releases,
and prices how they move.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.events import (
    DiscreteLaplace,
    Event,
    ExponentialMechanism,
    Parallel,
    Part,
    PermuteAndFlip,
    RoundedGaussian,
    Sequential,
)
from tests.privacy.enumeration import Noise

Leaf: TypeAlias = (
    PermuteAndFlip | ExponentialMechanism | DiscreteLaplace | RoundedGaussian
)


class Draw(NamedTuple):
    """One draw: its mechanism or public coin, its scale, the exact numbers that it
    hides, and what it released.
    """

    kind: type[Leaf] | str
    scale: object
    exact: np.ndarray | None
    released: Any


class Recorder:
    """A ``Randomness`` that records every draw, and repeats the releases of an earlier
    record.
    """

    def __init__(self, replayed: list[Draw] | None = None) -> None:
        self._source, self._replayed, self.draws = (
            SystemRandomness(),
            replayed,
            list[Draw](),
        )

    def uniform(self, n: int) -> int:
        return self.answered("uniform", n, None, lambda: self._source.uniform(n))

    def bernoulli(self, p: Fraction) -> bool:
        return self.answered("bernoulli", p, None, lambda: self._source.bernoulli(p))

    def permute_and_flip(
        self, utilities: np.ndarray, *, inverse_scale: Fraction
    ) -> int:
        def draw() -> int:
            return self._source.permute_and_flip(utilities, inverse_scale=inverse_scale)

        return self.answered(PermuteAndFlip, inverse_scale, utilities, draw)

    def select_exponential(
        self, utilities: np.ndarray, *, inverse_scale: Fraction
    ) -> int:
        def draw() -> int:
            return self._source.select_exponential(
                utilities, inverse_scale=inverse_scale
            )

        return self.answered(ExponentialMechanism, inverse_scale, utilities, draw)

    def discrete_laplace(
        self, shape: tuple[int, ...], *, inverse_scale: Fraction
    ) -> "_Added":
        noise = self._source.discrete_laplace(shape, inverse_scale=inverse_scale)
        return _Added(self, DiscreteLaplace, inverse_scale, noise)

    def rounded_gaussian(self, shape: tuple[int, ...], *, scale_bits: int) -> "_Added":
        noise = self._source.rounded_gaussian(shape, scale_bits=scale_bits)
        return _Added(self, RoundedGaussian, Fraction(4**scale_bits), noise)

    def answered(
        self, kind: type[Leaf] | str, scale: object, exact: np.ndarray | None, draw: Any
    ) -> Any:
        released = (
            draw()
            if self._replayed is None
            else self._replayed[len(self.draws)].released
        )
        self.draws.append(
            Draw(kind, scale, None if exact is None else exact.copy(), released)
        )
        return released


class _Added(Noise):
    def __init__(
        self, recorder: Recorder, kind: type[Leaf], scale: Fraction, noise: np.ndarray
    ) -> None:
        self._recorder, self._kind, self._scale, self._noise = (
            recorder,
            kind,
            scale,
            noise,
        )

    def added_to(self, exact: np.ndarray) -> np.ndarray:
        assert exact.shape == self._noise.shape
        return self._recorder.answered(
            self._kind, self._scale, exact, lambda: exact + self._noise
        )


def leaves(event: Event) -> Iterator[Leaf]:
    """The leaves of an event in order, each once."""
    for part in event.parts if isinstance(event, Sequential | Parallel) else ():
        yield from leaves(part.event)
    if isinstance(event, Leaf):
        yield event


def scale_of(leaf: Leaf) -> Fraction:
    """The scale that a draw names: its variance or its inverse scale."""
    return (
        leaf.sigma_squared if isinstance(leaf, RoundedGaussian) else leaf.inverse_scale
    )


def moved(leaf: Leaf, change: np.ndarray) -> Leaf:
    """The leaf with the sensitivity that one pair of neighbours shows."""
    numbers = change.astype(object)
    if isinstance(leaf, RoundedGaussian):
        return replace(leaf, l2_sensitivity_squared=Fraction(int((numbers**2).sum())))
    if isinstance(leaf, DiscreteLaplace):
        return replace(leaf, l1_sensitivity=Fraction(int(abs(numbers).sum())))
    return replace(leaf, range_sensitivity=Fraction(int(numbers.max() - numbers.min())))


def check(
    event: Event,
    one: list[Draw],
    other: list[Draw],
    *,
    accountant: str,
    n_rows: int = 1,
) -> float:
    """Asserts on two records what `test_recorded_draws.py` states; returns the share of
    the charge that the moves cost.

    Where a unit of several rows moves the numbers, the event states the sensitivity of
    one row, and the charge is that of the unit.
    """
    assert [draw[:2] for draw in one] == [draw[:2] for draw in other]
    declared, parts = list(leaves(event)), list[Part]()
    for mine, theirs in zip(one, other, strict=True):
        if mine.exact is None or theirs.exact is None:
            continue
        paying = [
            leaf
            for leaf in declared
            if type(leaf) is mine.kind and scale_of(leaf) == mine.scale
        ]
        stated = [
            leaf.max_candidates
            for leaf in paying
            if isinstance(leaf, PermuteAndFlip | ExponentialMechanism)
        ]
        assert mine.exact.size <= max(stated, default=mine.exact.size)
        if not (mine.exact != theirs.exact).any():
            continue
        assert paying, "a row moves a draw that no leaf of its event pays for"
        leaf = moved(paying[0], mine.exact - theirs.exact)
        of_unit = n_rows**2 if isinstance(leaf, RoundedGaussian) else n_rows
        assert of_unit * max(sensitivity_of(own) for own in paying) >= sensitivity_of(
            leaf
        )
        parts.append(Part(1, leaf))
    if not parts:
        return 0.0
    unit, adjacency = accountants.by_name(accountant), declared[0].adjacency
    cost = unit.loss(Sequential(tuple(parts)), adjacency=adjacency)
    charge = unit.group(n_rows) * unit.loss(event, adjacency=adjacency)
    assert cost <= charge
    return float(cost / charge)


def sensitivity_of(leaf: Leaf) -> Fraction:
    """By how much a leaf says that one row may move its numbers."""
    if isinstance(leaf, RoundedGaussian):
        return leaf.l2_sensitivity_squared
    return (
        leaf.l1_sensitivity
        if isinstance(leaf, DiscreteLaplace)
        else leaf.range_sensitivity
    )
