"""Draws noise and selections only while the event of a job pays for them."""

import math
from collections import Counter
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.forests.noise.randomness import Randomness
from app.privacy.events import (
    DiscreteLaplace,
    Event,
    ExponentialMechanism,
    Parallel,
    PermuteAndFlip,
    RoundedGaussian,
    Sequential,
)

_Kind: TypeAlias = tuple[str, int, int]
"""Type of a leaf of an event, and numerator and denominator of its inverse scale or variance: integers hash faster."""


class UnpaidDraw(RuntimeError):
    """A draw that no part of the event pays for. A bug of a mechanism, or a stored plan that was changed."""


class PaidRandomness:
    """A :class:`Randomness` that stops a job before a draw that its event does not pay for.

    Selections and coordinates of noise are counted by mechanism and scale. The event states how many of each kind a job
    draws at most, so one tree more, another scale, or a table that is released again finds nothing left. Public coins
    cost nothing.

    Privacy:
        The counts are those of the event and of the public shapes of draws, so whether a job stops does not depend on
        rows. *Not covered:* draws of one kind and scale are alike here, so an exchange between two nodes of a level, or
        between parts of different sensitivity, is not noticed; the enumerations of tests/privacy cover it.
    """

    def __init__(self, randomness: Randomness, *events: Event) -> None:
        """Keeps what events pay for.

        Args:
            randomness: source of the draws.
            events: of every account that pays for the job.
        """
        self._randomness = randomness
        self._left = Counter[_Kind]()
        for event in events:
            self._add(event, times=1)

    @property
    def left(self) -> Counter[_Kind]:
        """Selections, and coordinates of noise, that are paid for and not drawn yet."""
        return +self._left

    def uniform(self, n: int) -> int:
        """See ``Randomness.uniform``."""
        return self._randomness.uniform(n)

    def bernoulli(self, p: Fraction) -> bool:
        """See ``Randomness.bernoulli``."""
        return self._randomness.bernoulli(p)

    def permute_and_flip(self, utilities: NDArray[np.int64], *, inverse_scale: Fraction) -> int:
        """See ``Randomness.permute_and_flip``."""
        self._pay(PermuteAndFlip.TYPE, inverse_scale, 1)
        return self._randomness.permute_and_flip(utilities, inverse_scale=inverse_scale)

    def select_exponential(self, utilities: NDArray[np.int64], *, inverse_scale: Fraction) -> int:
        """See ``Randomness.select_exponential``."""
        self._pay(ExponentialMechanism.TYPE, inverse_scale, 1)
        return self._randomness.select_exponential(utilities, inverse_scale=inverse_scale)

    def discrete_laplace(self, shape: tuple[int, ...], *, inverse_scale: Fraction) -> NDArray[np.int64]:
        """See ``Randomness.discrete_laplace``."""
        self._pay(DiscreteLaplace.TYPE, inverse_scale, math.prod(shape))
        return self._randomness.discrete_laplace(shape, inverse_scale=inverse_scale)

    def rounded_gaussian(self, shape: tuple[int, ...], *, scale_bits: int) -> NDArray[np.int64]:
        """See ``Randomness.rounded_gaussian``."""
        self._pay(RoundedGaussian.TYPE, Fraction(4**scale_bits), math.prod(shape))
        return self._randomness.rounded_gaussian(shape, scale_bits=scale_bits)

    def _add(self, event: Event, *, times: int) -> None:
        match event:
            case Sequential(parts) | Parallel(_, parts):
                for part in parts:
                    self._add(part.event, times=times * part.times)
            case DiscreteLaplace():
                self._left[_kind(event.TYPE, event.inverse_scale)] += times * event.coordinates
            case RoundedGaussian():
                self._left[_kind(event.TYPE, event.sigma_squared)] += times * event.coordinates
            case PermuteAndFlip() | ExponentialMechanism():
                self._left[_kind(event.TYPE, event.inverse_scale)] += times

    def _pay(self, mechanism: str, scale: Fraction, count: int) -> None:
        kind = _kind(mechanism, scale)
        left = self._left[kind] - count
        if left < 0:
            raise UnpaidDraw("a draw that no part of the event pays for")
        self._left[kind] = left


def _kind(mechanism: str, scale: Fraction) -> _Kind:
    return mechanism, scale.numerator, scale.denominator
