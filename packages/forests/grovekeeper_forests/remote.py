"""Counts PRIVATE rows that are on other machines: messages, their sender and their
receiver, without a network.

Messages are bytes without pickle: a safetensors file with arrays of fixed types, and
one JSON text with everything else. A reader makes objects of the classes in
:data:`FORMS` and :data:`_CLASSES` alone and calls no method but those in
:data:`METHODS`.

The machines keep states of their rows, which every released split and score moves on.
No state is needed to answer: a full question repeats every call since the rows were
read, so that a machine that has just read the rows of a lost machine can answer. A
brief question leaves out the calls that all machines have answered after.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from fractions import Fraction
from itertools import count
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors import numpy as tensors

from grovekeeper_forests.algorithms.nbrt.boosted_rows import (
    LocalBoostedRows,
    LocalNumberRows,
)
from grovekeeper_forests.algorithms.nbrt.random_trees import Trees
from grovekeeper_forests.algorithms.nbrt.scales import Scales
from grovekeeper_forests.algorithms.rpf.reweighted_rows import (
    LocalResidualRows,
    LocalReweightedRows,
)
from grovekeeper_forests.array_types import Int64Array
from grovekeeper_forests.data.coded_rows import (
    CodeRequest,
    ColumnRequest,
    Form,
    RowParts,
    parts_of,
)
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import GrovekeeperError
from grovekeeper_forests.trees.tree_histograms import Assignment, LocalHistograms

FORMS: Final = MappingProxyType(
    {
        form.__name__: form
        for form in (
            LocalHistograms,
            LocalReweightedRows,
            LocalResidualRows,
            LocalBoostedRows,
            LocalNumberRows,
        )
    }
)
"""The forms of parts that growth counts, by name."""

METHODS: Final = frozenset(
    {
        *(
            "code_counts",
            "of_tree",
            "class_histogram",
            "joint_histogram",
            "leaf_histogram",
            "leaf_weights",
            "mean_weights",
            "descend",
        ),
        *(
            "finish_tree",
            "class_counts",
            "target_counts",
            "residual_sums",
            "leaf_counts",
            "start",
            "sums",
            "add_scores",
            "tally",
        ),
        "measure_sums",
    }
)
"""The methods of parts that growth and statistics name."""

TAKE: Final = "take"
"""The call that brings coded rows into a form; its arguments are those of
:func:`coded_rows.parts_of`.
"""

ROWS: Final = -1
"""The number of the first branch, which begins at the rows as they were read."""


@dataclass(frozen=True)
class Call:
    """A method of parts, or :data:`TAKE`, with its arguments."""

    method: str
    args: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Branch:
    """The calls that lead from one state of the rows to another.

    Attributes:
        number: identifies the branch within a job.
        skipped: number of calls that are not repeated here because the receiver has
            answered after them.
        calls: the first call of a branch makes its parts from those of the branch
            before; the others change them.
    """

    number: int
    skipped: int
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Question:
    """A sum over rows in the state that branches lead to, of which the first begins at
    the coded rows.
    """

    branches: tuple[Branch, ...]
    call: Call


@dataclass(frozen=True)
class Json:
    """A value that JSON can hold."""

    value: Any


_CLASSES: Final = MappingProxyType(
    {
        kind.__name__: kind
        for kind in (
            *(Assignment, Branch, Call, CodeRequest, ColumnRequest, Encoding),
            *(Question, Scales, Trees),
        )
    }
)
_PLAIN = (str, int, type(None))


def dumps(value: object) -> bytes:
    """Encodes a value: plain values, arrays, tuples, and objects of the classes of this
    module.

    Raises:
        TypeError: a value of another type.
    """
    arrays: dict[str, NDArray[Any]] = {}
    text = json.dumps(_plain(value, arrays))
    return tensors.save(arrays, metadata={"value": text})


def loads(data: bytes) -> Any:
    """Inverse of :func:`dumps`.

    Raises:
        ValueError, KeyError, TypeError: the bytes are not of :func:`dumps`.
    """
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return _value(json.loads(header["__metadata__"]["value"]), tensors.load(data))


def _plain(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """A value as JSON; anything but a plain value is a list of its kind and its
    content.
    """
    match value:
        case _ if isinstance(value, _PLAIN):
            return value
        case np.ndarray():
            arrays[str(len(arrays))] = np.ascontiguousarray(value)
            return ["array", len(arrays) - 1]
        case bytes():
            return ["bytes", value.hex()]
        case slice():
            return ["slice", value.start, value.stop]
        case Fraction():
            return ["fraction", value.numerator, value.denominator]
        case tuple():
            return ["tuple", *(_plain(item, arrays) for item in value)]
        case dict():
            return [
                "named",
                *([name, _plain(item, arrays)] for name, item in value.items()),
            ]
        case Schema():
            return ["schema", value.to_json()]
        case Json():
            return ["json", value.value]
    if type(value) not in _CLASSES.values():
        raise TypeError("a value that is not sent to other machines")
    return [
        type(value).__name__,
        *(_plain(getattr(value, own.name), arrays) for own in fields(value)),
    ]


def _value(plain: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    if isinstance(plain, _PLAIN):
        return plain
    kind, *content = plain
    match kind:
        case "array":
            return arrays[str(content[0])]
        case "bytes":
            return bytes.fromhex(content[0])
        case "slice":
            return slice(*content)
        case "fraction":
            return Fraction(*content)
        case "tuple":
            return tuple(_value(item, arrays) for item in content)
        case "named":
            return {name: _value(item, arrays) for name, item in content}
        case "schema":
            return Schema.from_json(content[0])
        case "json":
            return Json(content[0])
    return _CLASSES[kind](*(_value(item, arrays) for item in content))


class Fleet(Protocol):
    """The machines that have the rows of one job."""

    def total(self, brief: bytes, full: Callable[[], bytes]) -> Int64Array:
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
    """The PRIVATE rows of a job on other machines, in one state; see
    :class:`grovekeeper_forests.data.coded_rows.Parts`.

    Attributes:
        fleet: the machines.
        numbers: numbers of branches that were not used yet.
        before: the branches that lead to the first state of these parts, at the length
            that they had then.
        grown: the branch of these parts.
    """

    fleet: Fleet
    numbers: count[int] = field(default_factory=count)
    before: tuple[tuple[_Grown, int], ...] = ()
    grown: _Grown = field(default_factory=lambda: _Grown(ROWS, []))

    def total(self, method: str, /, *args: Any, **named: Any) -> Int64Array:
        """See ``Parts``."""
        call, path = Call(method, args, named), self._path()
        brief = [
            Branch(
                grown.number, grown.n_answered, tuple(grown.calls[grown.n_answered : n])
            )
            for grown, n in path
        ]
        full = [Branch(grown.number, 0, tuple(grown.calls[:n])) for grown, n in path]
        counted = self.fleet.total(
            dumps(Question(tuple(brief), call)),
            lambda: dumps(Question(tuple(full), call)),
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
    """All PRIVATE rows of a job, coded, on other machines; see
    ``data.coded_rows.DistributedRows``.
    """

    def __init__(self, fleet: Fleet) -> None:
        """Keeps the machines, which have read the rows."""
        self._parts = DistributedParts(fleet)

    def code_counts(self, index: int) -> Int64Array:
        """See ``DistributedRows``."""
        return self._parts.total("code_counts", index)

    def parts(
        self, encoding: Encoding, form: type[Form], *args: Any
    ) -> DistributedParts:
        """See ``DistributedRows``."""
        return self._parts.map(TAKE, form.__name__, encoding, *args)


class StateMissing(GrovekeeperError):
    """A question leaves out calls that this process has not made."""

    sentence = "a brief question about rows in a state that is not here"


@dataclass
class _State:
    """The parts of the rows after a number of calls of a branch; ``None`` if another
    branch used them up.
    """

    parts: RowParts | None
    n_calls: int


class ShardStates:
    """The rows of one shard in the states of one job.

    Args:
        read: reads the PRIVATE rows; returns an object with methods of
            :data:`METHODS`.
    """

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read = read
        self._states: dict[int, _State] = {}

    def read_rows(self) -> None:
        """Reads the rows before the first question."""
        self._states[ROWS] = _State(RowParts([self._read()]), 0)

    def answer(self, question: Question) -> Int64Array:
        """The exact PRIVATE sum that a question asks for, over the rows of the shard.

        Raises:
            StateMissing: the question is brief, and this process has not made the calls
                that it leaves out.
        """
        last = len(question.branches) - 1
        parts = self._at(question.branches, last)
        numbers = {branch.number for branch in question.branches}
        self._states = {
            number: state for number, state in self._states.items() if number in numbers
        }
        call = question.call
        _require(call, METHODS)
        return parts.total(call.method, *call.args, **call.named)

    def _at(self, branches: tuple[Branch, ...], place: int) -> RowParts:
        """The parts at the end of a branch. Makes the calls that are missing."""
        branch = branches[place]
        n_calls = branch.skipped + len(branch.calls)
        state = self._states.get(branch.number)
        if (
            state is None
            or state.parts is None
            or not branch.skipped <= state.n_calls <= n_calls
        ):
            state = self._states[branch.number] = self._first(branches, place)
        assert state.parts is not None
        for call in branch.calls[state.n_calls - branch.skipped :]:
            _require(call, METHODS)
            state.parts.each(call.method, *call.args, **call.named)
        state.n_calls = n_calls
        return state.parts

    def _first(self, branches: tuple[Branch, ...], place: int) -> _State:
        """The first state of a branch: the rows as read, or what its first call makes
        of the branch before.
        """
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
