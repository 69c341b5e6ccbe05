"""Finds where a release copies the numbers of its last noisy table, so that one run
gives its law over all of them.

Nothing is drawn after the last table of a path, and its numbers are independent given
the path. If the release copies them, its law follows from one run with numbers that
occur nowhere else. Further runs, with numbers of the table's window, show whether it
copies them. A release that adds, sorts, clips or drops numbers is walked path by path.
"""

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FIRST = 7_205_759_403_792_793
"""Far outside every window; no release contains its multiples by chance."""


@dataclass(frozen=True)
class Table:
    """Independent noisy numbers: the values that each of them may have, and the law of
    each over these values.
    """

    values: tuple[int, ...]
    laws: Sequence[Sequence[float]]


StandIn: TypeAlias = Callable[[Table], list[int]]


def distinct_numbers(table: Table) -> list[int]:
    return [FIRST * (index + 1) for index in range(len(table.laws))]


def alternating(table: Table) -> list[int]:
    """Numbers of the window, from the largest down, in turns."""
    return list(
        itertools.islice(itertools.cycle(reversed(table.values)), len(table.laws))
    )


def nearest_to_zero(table: Table) -> list[int]:
    return [min(table.values, key=abs)] * len(table.laws)


def choices() -> Iterator[tuple[StandIn, ...]]:
    """Numbers of the window for each path: the first path is run with both choices,
    later paths with one, in turns.
    """
    yield alternating, nearest_to_zero
    yield from itertools.cycle(((alternating,), (nearest_to_zero,)))


class Copies:
    """A release of one run with :func:`distinct_numbers`, as a template for all numbers
    of the table.
    """

    def __init__(self, template: Hashable, table: Table) -> None:
        self._template, self._table = template, table
        largest = FIRST * len(table.laws)
        highest = max(
            (int(words[words <= largest].max(initial=0)) for words in _words(template)),
            default=0,
        )
        self._unit = max(round(largest / max(highest, 1)), 1)

    def explain(self, released: Hashable, numbers: StandIn) -> bool:
        """Whether the template with other numbers is the release of a run with them."""
        return (
            self._filled(
                self._template, np.array([numbers(self._table)], dtype=np.int64)
            )[0]
            == released
        )

    def releases(self) -> Iterator[tuple[Hashable, float]]:
        """Every release and its probability, given the draws before the table."""
        numbers = np.array(
            list(itertools.product(self._table.values, repeat=len(self._table.laws))),
            dtype=np.int64,
        )
        probabilities = np.ones(1)
        for law in self._table.laws:
            probabilities = np.multiply.outer(probabilities, law).ravel()
        return zip(
            self._filled(self._template, numbers), probabilities.tolist(), strict=True
        )

    def _filled(
        self, template: Hashable, numbers: NDArray[np.int64]
    ) -> Sequence[Hashable]:
        """The template once per row of ``numbers``, with the row's numbers where the
        template has distinct numbers.
        """
        if isinstance(template, tuple):
            return list(
                zip(*(self._filled(part, numbers) for part in template), strict=True)
            ) or [()] * len(numbers)
        for words in _words(template):
            multiples = np.clip(
                np.rint(words / (FIRST / self._unit)), 0, numbers.shape[1] + 1
            )
            indices = multiples.astype(np.int64) - 1
            places = np.flatnonzero((indices >= 0) & (indices < numbers.shape[1]))
            filled = np.tile(words, (len(numbers), 1))
            filled[:, places] = self._in_units(numbers[:, indices[places]])
            return [row.tobytes() for row in filled]
        return [template] * len(numbers)

    def _in_units(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Copies are in the unit of the noise, or rounded to whole rows of so many
        units.
        """
        rounded: NDArray[np.int64] = (numbers + self._unit // 2) // self._unit
        return rounded


def _words(template: Hashable) -> Iterator[NDArray[np.int64]]:
    """Every part of a release that may be an array of 64-bit integers."""
    if isinstance(template, tuple):
        for part in template:
            yield from _words(part)
    elif isinstance(template, bytes) and template and len(template) % 8 == 0:
        yield np.frombuffer(template, dtype=np.int64)
