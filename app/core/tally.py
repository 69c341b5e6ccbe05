"""Counts events by their labels, for all threads of a process."""

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Generic, TypeVar

Labels = TypeVar("Labels")


class Tally(Generic[Labels]):
    """Counts that only grow. Labels are public facts: names of routes, states and errors."""

    def __init__(self) -> None:
        self._counts: Counter[Labels] = Counter()
        self._lock = threading.Lock()

    def add(self, labels: Labels) -> None:
        """Counts one event."""
        with self._lock:
            self._counts[labels] += 1

    def counts(self) -> Mapping[Labels, int]:
        """A copy of all counts."""
        with self._lock:
            return dict(self._counts)
