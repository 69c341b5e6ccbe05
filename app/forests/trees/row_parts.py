"""Divides PRIVATE rows into parts, and adds up what parts contribute, with a thread for each processor of this process.

Sums of integers do not depend on the order of their terms, so a release does not depend on parts or threads.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import methodcaller
from threading import Lock
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.forests.data.coded_rows import CodedColumns, CodedRows, LocalRows, TrainingRows
from app.forests.data.encoding import Encoding
from app.forests.data.parts import CodedPart, Form, Parts
from app.forests.data.rows import SanitisedColumns, SanitisedRows

MAX_THREADS: Final = 16
"""Most threads of one job; each needs memory for a copy of the sums."""

PART_ROWS: Final = 2**17
"""Rows of a part: its codes fit into the cache of a processor, and the work on a part outweighs a call of a loop."""

Part = TypeVar("Part")


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
        return sum_over(self.parts, methodcaller(method, *args, **named))

    def each(self, method: str, /, *args: Any, **named: Any) -> None:
        """Calls a method of every part."""
        act = methodcaller(method, *args, **named)

        def nothing(part: Any) -> NDArray[np.int64]:
            act(part)
            return np.zeros(1, dtype=np.int64)

        sum_over(self.parts, nothing)

    def map(self, method: str, /, *args: Any, **named: Any) -> "RowParts":
        """The parts that a method makes of every part."""
        return RowParts([methodcaller(method, *args, **named)(part) for part in self.parts])


def sum_over(parts: Sequence[Part], count: Callable[[Part], NDArray[np.int64]]) -> NDArray[np.int64]:
    """The sum of what every part contributes, counted by threads."""
    if len(parts) == 1:
        return count(parts[0])
    remaining, lock = iter(parts), Lock()

    def add_up() -> NDArray[np.int64] | None:
        total = None
        while True:
            with lock:
                part = next(remaining, None)
            if part is None:
                return total
            counted = count(part)
            total = counted if total is None else np.add(total, counted, out=total)

    return sum_of(_in_threads(add_up, len(parts)))


def sum_of(totals: Iterable[NDArray[np.int64] | None]) -> NDArray[np.int64]:
    """The sum of the totals of threads; a thread that got no part has none."""
    first, *others = (total for total in totals if total is not None)
    for total in others:
        np.add(first, total, out=first)
    return first


def _in_threads(work: Callable[[], NDArray[np.int64] | None], most: int) -> list[NDArray[np.int64] | None]:
    n_threads = min(_n_processors(), MAX_THREADS, most)
    if n_threads == 1:
        return [work()]
    with ThreadPoolExecutor(n_threads) as pool:
        running = [pool.submit(work) for _ in range(n_threads)]
        return [done.result() for done in running]


def _n_processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
