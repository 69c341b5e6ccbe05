"""Counts PRIVATE rows, part by part, with a thread for each processor of this process.

Sums of integers do not depend on the order of their terms, so a release does not depend on parts or threads.
"""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from operator import itemgetter
from threading import Lock
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

MAX_THREADS: Final = 16
"""Most threads of one job; each needs memory for a copy of the sums."""

Part = TypeVar("Part")
Result = TypeVar("Result")

_NONE: Final[Any] = object()


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


def made_of(parts: Sequence[Part], make: Callable[[Part], Result]) -> list[Result]:
    """What is made of every part, in the order of the parts."""
    numbered = in_threads(list(enumerate(parts)), lambda mine: [(i, make(part)) for i, part in mine])
    return [made for _, made in sorted(chain(*numbered), key=itemgetter(0))]


def made_ahead(parts: Iterable[Part], make: Callable[[Part], Result]) -> Generator[Result, None, None]:
    """What is made of every part, in order; a thread makes the next one while the caller works on one.

    Close it before what ``make`` reads from: closing waits for the thread.
    """
    with ThreadPoolExecutor(1) as pool:
        made: Future[Result] | None = None
        for part in parts:
            made, ready = pool.submit(make, part), made
            if ready is not None:
                yield ready.result()
        if made is not None:
            yield made.result()


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
