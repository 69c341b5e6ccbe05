"""Sends the calls of growth to machines that have the PRIVATE rows, and returns the sums to growth.

The machines keep states of their rows, which every released split and score moves on. No state is needed to answer: a
full question repeats every call since the rows were read, so that a machine that has just read the rows of a lost
machine can answer. A brief question leaves out the calls that all machines have answered after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from app.forests.data.encoding import Encoding
from app.forests.data.parts import Form
from app.forests.remote import messages
from app.forests.remote.messages import ROWS, TAKE, Branch, Call, Question


class Fleet(Protocol):
    """The machines that have the rows of one job."""

    def total(self, brief: bytes, full: Callable[[], bytes]) -> NDArray[np.int64]:
        """The exact PRIVATE sum of the answers of all machines, each row counted once.

        Args:
            brief: the question, for machines that answered the last one.
            full: returns the question for machines that did not.
        """


@dataclass
class _Grown:
    """A branch that becomes longer while the forest grows.

    Attributes:
        number: see :class:`Branch`.
        calls: all calls so far.
        n_answered: number of calls after which all machines have answered.
    """

    number: int
    calls: list[Call]
    n_answered: int = 0


@dataclass(frozen=True)
class DistributedParts:
    """The PRIVATE rows of a job on other machines, in one state; see :class:`app.forests.data.parts.Parts`.

    Attributes:
        fleet: the machines.
        numbers: numbers of branches that were not used yet.
        before: the branches that lead to the first state of these parts, at the length that they had then.
        grown: the branch of these parts.
    """

    fleet: Fleet
    numbers: count[int] = field(default_factory=count)
    before: tuple[tuple[_Grown, int], ...] = ()
    grown: _Grown = field(default_factory=lambda: _Grown(ROWS, []))

    def total(self, method: str, /, *args: Any, **named: Any) -> NDArray[np.int64]:
        """See ``Parts``."""
        call, path = Call(method, args, named), self._path()
        brief = [Branch(grown.number, grown.n_answered, tuple(grown.calls[grown.n_answered : n])) for grown, n in path]
        full = [Branch(grown.number, 0, tuple(grown.calls[:n])) for grown, n in path]
        counted = self.fleet.total(
            messages.dumps(Question(tuple(brief), call)), lambda: messages.dumps(Question(tuple(full), call))
        )
        for grown, n in path:
            grown.n_answered = max(grown.n_answered, n)
        return counted

    def each(self, method: str, /, *args: Any, **named: Any) -> None:
        """See ``Parts``. Sent with the next question."""
        self.grown.calls.append(Call(method, args, named))

    def map(self, method: str, /, *args: Any, **named: Any) -> DistributedParts:
        """See ``Parts``."""
        made = _Grown(next(self.numbers), [Call(method, args, named)])
        return DistributedParts(self.fleet, self.numbers, self._path(), made)

    def _path(self) -> tuple[tuple[_Grown, int], ...]:
        return (*self.before, (self.grown, len(self.grown.calls)))


class CodedDistributedRows:
    """All PRIVATE rows of a job, coded, on other machines; see :class:`app.forests.data.parts.DistributedRows`."""

    def __init__(self, fleet: Fleet) -> None:
        """Keeps the machines, which have read the rows."""
        self._parts = DistributedParts(fleet)

    def code_counts(self, index: int) -> NDArray[np.int64]:
        """See ``DistributedRows``."""
        return self._parts.total("code_counts", index)

    def parts(self, encoding: Encoding, form: type[Form], *args: Any) -> DistributedParts:
        """See ``DistributedRows``."""
        return self._parts.map(TAKE, form.__name__, encoding, *args)
