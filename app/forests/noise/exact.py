"""Implements the draws of ``app.forests.noise.randomness.Randomness`` as functions of a tape of uniform words.

This module checks arguments and converts them to integers; the compiled loops are in ``app.forests.noise.draws`` and
``app.forests.noise.gaussian``.
"""

import math
import threading
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.forests.noise import draws, gaussian
from app.forests.noise.tape import Tape, TapeExhausted
from app.privacy.events import QUANTUM

MAX_INVERSE_SCALE: Final = 2**30
"""Larger than every ε of a budget, and small enough that the product with a utility gap of 1 stays inside 64 bits."""

MAX_UNIFORM: Final = 2**32

MAX_SCALE_BITS: Final = 40
"""Whole parts of normal numbers stay below 2²⁰ (a window's words), so scaled ones stay below 2⁶¹."""

_WORD_BITS: Final = 64

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Words: TypeAlias = NDArray[np.uint64]
Cursor: TypeAlias = NDArray[np.int64]


class ExactSampler:
    """Draws from a tape, for one thread at a time. Forking in the middle of a draw is not supported."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._turn = threading.Lock()

    def uniform(self, n: int) -> int:
        """See ``Randomness.uniform``.

        Raises:
            ValueError: ``n`` is not from 1 to 2³².
        """
        if not 1 <= n <= MAX_UNIFORM:
            raise ValueError("a uniform draw has 1 to 2^32 outcomes")
        return int(self._draw(draws.uniform, np.uint64(n)))

    def bernoulli(self, p: Fraction) -> bool:
        """See ``Randomness.bernoulli``. Compares a uniform real with ``p``, 64 bits at a time.

        Raises:
            ValueError: ``p`` is not from 0 to 1.
        """
        if not 0 <= p <= 1:
            raise ValueError("a probability is from 0 to 1")
        remainder = p.numerator
        while True:
            digit, remainder = divmod(remainder << _WORD_BITS, p.denominator)
            word = int(self._draw(draws.word))
            if word != digit:
                return word < digit
            if remainder == 0:
                return False

    def permute_and_flip(self, utilities: NDArray[np.int64], *, inverse_scale: Fraction) -> int:
        """See ``Randomness.permute_and_flip``.

        A gap max u − u_r above C = ⌊(2⁶³ − 1) / (inverse_scale · 2³²)⌋ counts as C, so that its product with the
        inverse scale stays inside 64 bits. The effect equals raising every utility to at least max u − C. If all
        utilities of two neighbours differ by amounts in [a, b], then so do their maxima, the maxima minus the constant
        C, and the larger of two such numbers. So clipping keeps the range sensitivity and monotony of the utilities,
        and the guarantee is unchanged (docs/proofs/samplers.md). A clipped candidate is accepted with probability at
        most exp(−2³⁰).

        Raises:
            ValueError: the utilities are not an int64 vector with 1 to 2³² candidates, or the inverse scale is not a
                positive multiple of ``QUANTUM`` up to :data:`MAX_INVERSE_SCALE`.
        """
        _require_utilities(utilities)
        order = np.arange(utilities.size, dtype=np.int64)
        visited = np.zeros(1, dtype=np.int64)
        rate = _rate(inverse_scale)
        return int(self._draw(draws.permute_and_flip, np.ascontiguousarray(utilities), rate, order, visited))

    def select_exponential(self, utilities: NDArray[np.int64], *, inverse_scale: Fraction) -> int:
        """See ``Randomness.select_exponential``. Gaps are clipped as in :meth:`permute_and_flip`.

        The expected number of trials is at most the number of candidates, because the best one is always accepted.

        Raises:
            ValueError: as :meth:`permute_and_flip`.
        """
        _require_utilities(utilities)
        return int(self._draw(draws.select_exponential, np.ascontiguousarray(utilities), _rate(inverse_scale)))

    def discrete_laplace(self, shape: tuple[int, ...], *, inverse_scale: Fraction) -> NDArray[np.int64]:
        """See ``Randomness.discrete_laplace``.

        Raises:
            ValueError: the inverse scale is not a positive multiple of ``QUANTUM`` up to :data:`MAX_INVERSE_SCALE`.
        """
        noise = np.zeros(math.prod(shape), dtype=np.int64)
        finished = np.zeros(1, dtype=np.int64)
        self._draw(draws.discrete_laplace, _rate(inverse_scale), noise, finished)
        return noise.reshape(shape)

    def rounded_gaussian(self, shape: tuple[int, ...], *, scale_bits: int) -> NDArray[np.int64]:
        """See ``Randomness.rounded_gaussian``.

        Raises:
            ValueError: ``scale_bits`` is not from 0 to :data:`MAX_SCALE_BITS`.
        """
        if not 0 <= scale_bits <= MAX_SCALE_BITS:
            raise ValueError("a normal number is scaled by 2^0 to 2^40")
        noise = np.zeros(math.prod(shape), dtype=np.int64)
        finished = np.zeros(1, dtype=np.int64)
        numbers = np.zeros((gaussian.N_NUMBERS, gaussian.MAX_DIGITS + 1), dtype=np.uint64)
        self._draw(gaussian.rounded_gaussian, np.uint64(scale_bits), numbers, noise, finished)
        return noise.reshape(shape)

    def _draw(
        self,
        draw: Callable[Concatenate[Words, Cursor, Arguments], Result],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Runs a compiled draw, and extends the window whenever the draw needs more words."""
        with self._turn:
            self._tape.forget_after_fork()
            while True:
                try:
                    return draw(self._tape.words, self._tape.cursor, *arguments, **named)
                except TapeExhausted:
                    self._tape.extend()


def _require_utilities(utilities: NDArray[np.int64]) -> None:
    if utilities.dtype != np.int64 or utilities.ndim != 1 or not 1 <= utilities.size <= MAX_UNIFORM:
        raise ValueError("utilities are an int64 vector of 1 to 2^32 candidates")


def _rate(inverse_scale: Fraction) -> Any:
    """Converts an inverse scale to units of ``QUANTUM``, as uint64."""
    rate = inverse_scale / QUANTUM
    if rate.denominator != 1 or not 0 < inverse_scale <= MAX_INVERSE_SCALE:
        raise ValueError("an inverse scale is a positive multiple of 2^-32, at most 2^30")
    return np.uint64(rate.numerator)
