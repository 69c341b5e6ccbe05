"""Divides PRIVATE rows into parts, and adds up what parts contribute, with a thread for each processor of this process.

Sums of integers do not depend on the order of their terms, so a release does not depend on parts or threads.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from operator import itemgetter, methodcaller
from threading import Lock
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.forests.data.coded_rows import CodedColumns, CodedRows, LocalRows, TrainingRows
from app.forests.data.encoding import Encoding
from app.forests.data.parts import HISTOGRAMS, CodedPart, Form, Parts
from app.forests.data.rows import SanitisedColumns, SanitisedRows

MAX_THREADS: Final = 16
"""Most threads of one job; each needs memory for a copy of the sums."""

PART_ROWS: Final = 2**17
"""Rows of a part: its codes fit into the cache of a processor, and the work on a part outweighs a call of a loop."""

Part = TypeVar("Part")
Result = TypeVar("Result")

_NONE: Final[Any] = object()


def parts_of(rows: TrainingRows, encoding: Encoding, form: type[Form], *args: Any) -> Parts:
    """The PRIVATE rows in the form that an algorithm counts, in parts; at least one part.

    Args:
        rows: in this process, or on other machines. Coded rows are used up: see :meth:`CodedColumns.take_codes`.
        encoding: public or released bins.
        form: makes its objects of the parts.
        args: further arguments of ``form.of``.
    """
    if isinstance(rows, SanitisedRows | CodedRows):
        return RowParts([form.of(part, *args) for part in _coded_parts(encoding, rows)])
    return rows.parts(encoding, form, *args)


def _coded_parts(encoding: Encoding, rows: LocalRows) -> Iterator[CodedPart]:
    ids = rows.row_ids if isinstance(rows, SanitisedRows) else rows.ids
    start = 0
    for codes in _codes(encoding, rows.features):
        place = slice(start, start + codes.shape[1])
        yield CodedPart(encoding, codes, rows.y[place], None if ids is None else ids[place])
        start = place.stop


def _codes(encoding: Encoding, features: SanitisedColumns | CodedColumns) -> Iterator[NDArray[np.uint8]]:
    if isinstance(features, CodedColumns):
        yield from features.take_codes(encoding, PART_ROWS)
        return
    for start in range(0, max(features.n_rows, 1), PART_ROWS):
        columns = tuple(column[start : start + PART_ROWS] for column in features.columns)
        yield encoding.encode(SanitisedColumns(columns, min(features.n_rows - start, PART_ROWS)))


class RowParts:
    """Parts of the PRIVATE rows of a job in the memory of this process; at least one. See ``Parts``."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = parts

    def total(self, method: str, /, *args: Any, **named: Any) -> NDArray[np.int64]:
        """The sum of what a method returns for every part."""
        if method in HISTOGRAMS:
            return sum_over(self.parts, lambda part, onto: getattr(part, method)(*args, **named, onto=onto))
        count = methodcaller(method, *args, **named)
        return sum_over(self.parts, lambda part, onto: added(count(part), onto))

    def each(self, method: str, /, *args: Any, **named: Any) -> None:
        """Calls a method of every part."""
        act = methodcaller(method, *args, **named)
        in_threads(self.parts, lambda mine: [act(part) for part in mine])

    def map(self, method: str, /, *args: Any, **named: Any) -> "RowParts":
        """The parts that a method makes of every part."""
        make = methodcaller(method, *args, **named)
        numbered = in_threads(list(enumerate(self.parts)), lambda mine: [(i, make(part)) for i, part in mine])
        return RowParts([made for _, made in sorted(chain(*numbered), key=itemgetter(0))])


def sum_over(
    parts: Sequence[Part], add: Callable[[Part, NDArray[np.int64] | None], NDArray[np.int64]]
) -> NDArray[np.int64]:
    """The sum of what every part contributes, counted by threads.

    Args:
        parts: at least one.
        add: adds a part to the sum of other parts in place, or makes a new sum if there is none; returns the sum.
    """

    def total(mine: Iterator[Part]) -> NDArray[np.int64] | None:
        sums = None
        for part in mine:
            sums = add(part, sums)
        return sums

    return sum_of(in_threads(parts, total))


def added(counted: NDArray[np.int64], onto: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Adds to a sum in place, if there is one; returns the sum."""
    return counted if onto is None else np.add(onto, counted, out=onto)


def sum_of(totals: Iterable[NDArray[np.int64] | None]) -> NDArray[np.int64]:
    """The sum of the totals of threads; a thread that got no part has none."""
    first, *others = (total for total in totals if total is not None)
    for total in others:
        np.add(first, total, out=first)
    return first


def in_threads(parts: Sequence[Part], work: Callable[[Iterator[Part]], Result]) -> list[Result]:
    """Runs work in this thread and one more for each further processor, each on the parts that no other has taken."""
    waiting, lock = iter(parts), Lock()

    def untaken() -> Iterator[Part]:
        while True:
            with lock:
                part = next(waiting, _NONE)
            if part is _NONE:
                return
            yield part

    n_threads = min(_n_processors(), MAX_THREADS, len(parts))
    if n_threads == 1:
        return [work(untaken())]
    with ThreadPoolExecutor(n_threads - 1) as pool:
        others = [pool.submit(work, untaken()) for _ in range(n_threads - 1)]
        own = work(untaken())
        return [own, *(done.result() for done in others)]


def _n_processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
