"""Adds up what parts of the PRIVATE rows contribute, with as many threads as this process may use processors.

Sums of integers do not depend on the order of their terms, so a release does not depend on parts or threads.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.forests.data.coded_rows import CodedColumns, TrainingRows
from app.forests.data.encoding import Encoding
from app.forests.data.rows import SanitisedColumns

MAX_THREADS: Final = 16
"""Most threads of one job; each needs memory for a copy of the sums."""

PART_ROWS: Final = 2**17
"""Rows of a part: its codes fit into the cache of a processor, and the work on a part outweighs a call of a loop."""

Part = TypeVar("Part")


def coded_parts(encoding: Encoding, rows: TrainingRows) -> Iterator[tuple[NDArray[np.uint8], slice]]:
    """The PRIVATE codes of consecutive rows, and the places of these rows among all rows; at least one part.

    Coded rows are used up: see :meth:`CodedColumns.take_codes`.
    """
    start = 0
    for codes in _codes(encoding, rows.features):
        yield codes, slice(start, start + codes.shape[1])
        start += codes.shape[1]


def _codes(encoding: Encoding, features: SanitisedColumns | CodedColumns) -> Iterator[NDArray[np.uint8]]:
    if isinstance(features, CodedColumns):
        yield from features.take_codes(encoding, PART_ROWS)
        return
    for start in range(0, max(features.n_rows, 1), PART_ROWS):
        columns = tuple(column[start : start + PART_ROWS] for column in features.columns)
        yield encoding.encode(SanitisedColumns(columns, min(features.n_rows - start, PART_ROWS)))


class RowParts(Generic[Part]):
    """Parts of the PRIVATE rows of a job; at least one."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts

    def total(self, count: Callable[[Part], NDArray[np.int64]]) -> NDArray[np.int64]:
        """The sum of what every part contributes."""
        if len(self.parts) == 1:
            return count(self.parts[0])
        remaining, lock = iter(self.parts), Lock()

        def add_up() -> NDArray[np.int64] | None:
            total = None
            while True:
                with lock:
                    part = next(remaining, None)
                if part is None:
                    return total
                counted = count(part)
                total = counted if total is None else np.add(total, counted, out=total)

        return sum_of(_in_threads(add_up, len(self.parts)))

    def each(self, act: Callable[[Part], None]) -> None:
        """Does something with every part."""

        def nothing(part: Part) -> NDArray[np.int64]:
            act(part)
            return np.zeros(1, dtype=np.int64)

        self.total(nothing)


def sum_of(totals: Sequence[NDArray[np.int64] | None]) -> NDArray[np.int64]:
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
