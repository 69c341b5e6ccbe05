"""Answers questions about the PRIVATE rows of one shard, by states that are kept from one question to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.core.errors import GrovekeeperError
from app.forests.data.coded_rows import CodedRows
from app.forests.remote.messages import FORMS, METHODS, ROWS, TAKE, Branch, Call, Question
from app.forests.trees.row_parts import RowParts, parts_of


class StateMissing(GrovekeeperError):
    """A question leaves out calls that this process has not made."""

    def __str__(self) -> str:
        return "a brief question about rows in a state that is not here"


@dataclass
class _State:
    """The parts of the rows after a number of calls of a branch; ``None`` if another branch used them up."""

    parts: RowParts | None
    n_calls: int


class ShardStates:
    """The rows of one shard in the states of one job.

    Args:
        read: reads the PRIVATE rows.
    """

    def __init__(self, read: Callable[[], CodedRows]) -> None:
        self._read = read
        self._states: dict[int, _State] = {}

    def read_rows(self) -> None:
        """Reads the rows before the first question."""
        self._states[ROWS] = _State(RowParts([self._read()]), 0)

    def answer(self, question: Question) -> NDArray[np.int64]:
        """The exact PRIVATE sum that a question asks for, over the rows of the shard.

        Raises:
            StateMissing: the question is brief, and this process has not made the calls that it leaves out.
        """
        last = len(question.branches) - 1
        parts = self._at(question.branches, last)
        numbers = {branch.number for branch in question.branches}
        self._states = {number: state for number, state in self._states.items() if number in numbers}
        call = question.call
        _require(call, METHODS)
        return parts.total(call.method, *call.args, **call.named)

    def _at(self, branches: tuple[Branch, ...], place: int) -> RowParts:
        """The parts at the end of a branch. Makes the calls that are missing."""
        branch = branches[place]
        n_calls = branch.skipped + len(branch.calls)
        state = self._states.get(branch.number)
        if state is None or state.parts is None or not branch.skipped <= state.n_calls <= n_calls:
            state = self._states[branch.number] = self._first(branches, place)
        assert state.parts is not None
        for call in branch.calls[state.n_calls - branch.skipped :]:
            _require(call, METHODS)
            state.parts.each(call.method, *call.args, **call.named)
        state.n_calls = n_calls
        return state.parts

    def _first(self, branches: tuple[Branch, ...], place: int) -> _State:
        """The first state of a branch: the rows as read, or what its first call makes of the branch before."""
        branch = branches[place]
        if branch.skipped:
            raise StateMissing
        if place == 0:
            return _State(RowParts([self._read()]), 0)
        before, call = self._at(branches, place - 1), branch.calls[0]
        _require(call, METHODS | {TAKE})
        if call.method != TAKE:
            return _State(before.map(call.method, *call.args, **call.named), 1)
        form, encoding, *args = call.args
        self._states[branches[place - 1].number].parts = None
        [rows] = before.parts
        made = parts_of(rows, encoding, FORMS[form], *args)
        assert isinstance(made, RowParts)
        return _State(made, 1)


def _require(call: Call, methods: frozenset[str]) -> None:
    if call.method not in methods:
        raise ValueError("a method that growth does not name")
