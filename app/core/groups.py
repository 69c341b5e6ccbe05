"""Groups the work of threads that arrive at the same time: the first thread does the work of all, the others wait."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Groups(Generic[Item, Result]):
    """Hands the items of all threads of a process to one of them, in order of arrival.

    A thread that finds no leader leads at once, so nobody waits for others to arrive. Items that arrive while a group
    runs form the next group, which one of their threads leads. If the work of a group fails, each of its threads does
    the work for its own item alone, so a failure reaches only the thread that causes it.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._waiting: deque[_Waiting[Item, Result]] = deque()
        self._has_leader = False

    def run(self, item: Item, work: Callable[[Sequence[Item]], Sequence[Result]]) -> Result:
        """Does the work for an item, alone or in a group. Raises what the work raises.

        Args:
            item: of this thread.
            work: returns a result for every item of a group, in order; equal for all threads.
        """
        mine: _Waiting[Item, Result] = _Waiting(item)
        with self._changing:
            self._waiting.append(mine)
            mine.leads, self._has_leader = not self._has_leader, True
        if not mine.leads:
            mine.woken.wait()
        if mine.leads:
            self._lead(work)
        if mine.results:
            return mine.results[0]
        return work([item])[0]

    def _lead(self, work: Callable[[Sequence[Item]], Sequence[Result]]) -> None:
        """Does the work for all items that wait, then lets the first item that arrived meanwhile lead."""
        with self._changing:
            group = list(self._waiting)
            self._waiting.clear()
        try:
            results = work([waiting.item for waiting in group])
            for waiting, result in zip(group, results, strict=True):
                waiting.results.append(result)
        except Exception:
            if len(group) == 1:
                raise
        finally:
            with self._changing:
                self._has_leader = bool(self._waiting)
                if self._has_leader:
                    self._waiting[0].leads = True
                    self._waiting[0].woken.set()
            for waiting in group:
                waiting.woken.set()


@dataclass(eq=False)
class _Waiting(Generic[Item, Result]):
    """An item whose thread waits for a result, or for its turn to lead; without a result it does the work itself."""

    item: Item
    leads: bool = False
    results: list[Result] = field(default_factory=list)
    woken: threading.Event = field(default_factory=threading.Event)
