"""A ``Randomness`` with releases that do not depend on rows, so that two datasets give
equal releases.
"""

import random
from fractions import Fraction

import numpy as np

from tests.privacy.enumeration import Noise


class FixedReleases:
    """Answers every call from one fixed stream, so that no exact number influences a
    release.

    For any two datasets some draws give equal releases, because the support of a
    release does not depend on rows. This class chooses such draws directly: a selection
    ignores its utilities, and noise replaces the exact numbers.
    """

    def __init__(self) -> None:
        self._stream = random.Random(9)

    def uniform(self, n: int) -> int:
        return self._stream.randrange(n)

    def bernoulli(self, p: Fraction) -> bool:
        return self._stream.random() < p

    def permute_and_flip(
        self, utilities: np.ndarray, *, inverse_scale: Fraction
    ) -> int:
        return self._stream.randrange(len(utilities))

    def select_exponential(
        self, utilities: np.ndarray, *, inverse_scale: Fraction
    ) -> int:
        return self._stream.randrange(len(utilities))

    def discrete_laplace(
        self, shape: tuple[int, ...], *, inverse_scale: Fraction
    ) -> "_Released":
        return self._released(shape)

    def rounded_gaussian(
        self, shape: tuple[int, ...], *, scale_bits: int
    ) -> "_Released":
        return self._released(shape)

    def _released(self, shape: tuple[int, ...]) -> "_Released":
        numbers = [self._stream.randrange(-5, 40) for _ in range(int(np.prod(shape)))]
        return _Released(np.array(numbers, dtype=np.int64).reshape(shape))


class _Released(Noise):
    """Noise that replaces the exact numbers to which it is added."""

    def __init__(self, numbers: np.ndarray) -> None:
        self._numbers = numbers

    def added_to(self, exact: np.ndarray) -> np.ndarray:
        assert exact.shape == self._numbers.shape
        return self._numbers
