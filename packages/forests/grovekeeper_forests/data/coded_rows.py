"""Holds rows as codes of public bins, packed in blocks, and divides PRIVATE rows into
parts that an algorithm counts.

A code takes eight bits; nine where a column has more than 256 codes, as the coarse
public grid has; or sixteen, as the fine grid needs. Coarser bins, whose edges are among
the public edges, are read from these codes by a table, so that values are never in
memory together.

The parts of a job's rows are in the memory of this process or of other machines. Growth
names a method of a part and its arguments. Both can be sent to another machine, as a
function cannot. Arguments are public facts, released numbers, and the key that assigns
the rows of one job to trees. In this process a thread for each processor counts parts.
Sums of integers do not depend on the order of their terms, so a release does not depend
on parts or threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import itemgetter, methodcaller
from threading import Lock
from typing import Any, Final, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.array_types import (
    BoolArray,
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt16Array,
)
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.threads import begun

HISTOGRAMS = frozenset({"class_histogram", "joint_histogram"})
"""Methods of parts whose sums may be larger than the rows of a part. They take
``onto``, the sums of other parts or ``None``, add to it, and return it.
"""


class Parts(Protocol):
    """Parts of the rows in one state, for example in the nodes of a level of a tree."""

    def total(self, method: str, /, *args: Any, **named: Any) -> Int64Array:
        """The exact PRIVATE sum of the integers that a method returns for every part;
        no state changes.
        """

    def each(self, method: str, /, *args: Any, **named: Any) -> None:
        """Changes the state of every part by a method without a result."""

    def map(self, method: str, /, *args: Any, **named: Any) -> Parts:
        """The parts that a method makes of every part, such as the rows of one tree; no
        state changes.
        """


@dataclass(frozen=True, repr=False)
class CodedPart:
    """PRIVATE rows by the bins that a forest grows on.

    Attributes:
        encoding: public or released bins.
        codes: uint8 ``(n_features, n_rows)``.
        y: int32 ``(n_rows,)`` classes.
        ids: uint8 ``(n_rows, 16)``, or ``None`` if the job needs no ids.
    """

    encoding: Encoding
    codes: UInt8Array
    y: Int32Array
    ids: UInt8Array | None

    @property
    def row_ids(self) -> UInt8Array:
        """The stable random id that ingestion gives to each row; never published."""
        if self.ids is None:
            raise ValueError("the ids of the rows were not read")
        return self.ids


class Form(Protocol):
    """A part of the rows in the form that an algorithm counts."""

    @classmethod
    def of(cls, part: CodedPart, /, *args: Any) -> Self:
        """The part in this form, in its first state."""


class DistributedRows(Protocol):
    """All PRIVATE rows of a job, on other machines."""

    def code_counts(self, index: int) -> Int64Array:
        """Exact PRIVATE number of rows of every code of one column by the public grid."""

    def parts(self, encoding: Encoding, form: type[Form], *args: Any) -> Parts:
        """The rows in the form that an algorithm counts; see
        :func:`grovekeeper_forests.data.coded_rows.parts_of`.
        """


MAX_CODES = 2**16
"""Codes of a column fit into two bytes."""

_NINE_BITS = 512

_BYTE = 256

_NINTH_BIT = 9


@dataclass(frozen=True, repr=False)
class CodedBlock:
    """PRIVATE codes of consecutive rows in all columns.

    Attributes:
        low: the lowest eight bits of every code, uint8 ``(n_columns, n_rows)``, or all
            sixteen, uint16.
        high: the ninth bit of every code, eight rows in a byte, uint8 ``(n_columns,
            ⌈n_rows / 8⌉)``; ``(n_columns, 0)`` if a code has eight or sixteen bits.
    """

    low: NDArray[np.uint8 | np.uint16]
    high: UInt8Array

    @classmethod
    def of(cls, codes: UInt16Array, *, n_bits: int) -> CodedBlock:
        """Packs codes, uint16 ``(n_columns, n_rows)``; ``n_bits``: :func:`code_bits`."""
        if n_bits > _NINTH_BIT:
            return cls(codes, codes[:, :0].astype(np.uint8))
        low = codes.astype(np.uint8)  # keeps the lowest byte
        if n_bits < _NINTH_BIT:
            return cls(low, low[:, :0])
        return cls(low, np.packbits(codes >= _BYTE, axis=1))

    @classmethod
    def none(cls, n_columns: int) -> CodedBlock:
        """A block without rows."""
        return cls.of(np.empty((n_columns, 0), dtype=np.uint16), n_bits=8)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.low.shape[1])

    def column(self, index: int) -> UInt16Array:
        """The codes of one column."""
        codes: UInt16Array = self.low[index].astype(np.uint16)
        if self.high.size:
            ninth_bits = np.unpackbits(self.high[index], count=self.n_rows)
            codes += ninth_bits.astype(np.uint16) * np.uint16(_BYTE)
        return codes

    def where(self, kept: BoolArray) -> CodedBlock:
        """The block of some of the rows."""
        if kept.all():
            return self
        high = self.high
        if high.size:
            ninth_bits = np.unpackbits(high, axis=1, count=self.n_rows)
            high = np.packbits(ninth_bits[:, kept], axis=1)
        return CodedBlock(self.low[:, kept], high)


class TakenBlocks:
    """PRIVATE codes of consecutive rows, to be read by other bins once."""

    def __init__(
        self, tables: Sequence[UInt8Array], blocks: Sequence[CodedBlock]
    ) -> None:
        """Takes blocks, and for each column a code by the code in the blocks."""
        self.n_rows = sum(block.n_rows for block in blocks)
        self._tables, self._blocks = tables, blocks

    def codes(self) -> UInt8Array:
        """PRIVATE uint8 ``(n_features, n_rows)``, equal to ``Encoding.encode`` of the
        rows' values.

        The blocks are dropped, so that the rows are in memory once.
        """
        blocks, self._blocks = self._blocks, ()
        codes = np.empty((len(self._tables), self.n_rows), dtype=np.uint8)
        for index, table in enumerate(self._tables):
            np.concatenate(
                [table[block.column(index)] for block in blocks], out=codes[index]
            )
        return codes


@dataclass(frozen=True)
class CodeRequest:
    """What a job reads of rows that are read as codes.

    Attributes:
        public: the bins.
        with_ids: whether the job assigns rows by their ids.
    """

    public: Encoding
    with_ids: bool = False

    @property
    def schema(self) -> Schema:
        """The declaration of the rows."""
        return self.public.schema


@dataclass(frozen=True)
class ColumnRequest:
    """What a job reads of rows whose values it adds up.

    Attributes:
        schema: the declaration of the rows.
        names: of the columns, among them perhaps the label.
    """

    schema: Schema
    names: tuple[str, ...]


@dataclass
class CodedColumns:
    """PRIVATE codes of rows by public bins, in blocks.

    Attributes:
        public: the public bins.
        blocks: in the order of the rows.
    """

    public: Encoding
    blocks: list[CodedBlock] = field(default_factory=list)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(block.n_rows for block in self.blocks)

    def counts(self, index: int) -> Int64Array:
        """Exact PRIVATE number of rows of every code of one column."""
        n_codes = int(self.public.n_codes[index])
        blocks = self.blocks or [CodedBlock.none(len(self.public.n_codes))]
        return sum_over(
            blocks,
            lambda block, onto: added(
                np.bincount(block.column(index), minlength=n_codes), onto
            ),
        )

    def take(self, encoding: Encoding, n_rows: int) -> list[TakenBlocks]:
        """The rows by bins whose edges are public edges, too; at least one part, which
        may be empty. No row is left.

        Args:
            encoding: public or released bins of the same schema.
            n_rows: blocks of fewer rows are joined.

        Raises:
            ValueError: an edge of ``encoding`` is no public edge.
        """
        tables = _tables(self.public, encoding)
        blocks, self.blocks = self.blocks or [CodedBlock.none(len(tables))], []
        joined: list[list[CodedBlock]] = [[]]
        for block in blocks:
            n_joined = sum(other.n_rows for other in joined[-1])
            # A block of more rows than wanted stays whole, in a part of its own.
            if joined[-1] and n_joined + block.n_rows > n_rows:
                joined.append([])
            joined[-1].append(block)
        return [TakenBlocks(tables, consecutive) for consecutive in joined]


@dataclass(frozen=True)
class CodedRows:
    """PRIVATE training rows of one job as codes.

    Attributes:
        features: codes of the features.
        y: int32 ``(n_rows,)`` class codes; rows with an undeclared label are already
            dropped, record-wise.
        ids: uint8 ``(n_rows, 16)``, or ``None`` if the job needs no ids.
    """

    features: CodedColumns
    y: Int32Array
    ids: UInt8Array | None

    def code_counts(self, index: int) -> Int64Array:
        """Exact PRIVATE number of rows of every code of one column."""
        return self.features.counts(index)


LocalRows = SanitisedRows | CodedRows
"""PRIVATE training rows in the memory of this process, as values or as codes."""

TrainingRows = LocalRows | DistributedRows
"""PRIVATE training rows, in the memory of this process or of other machines."""


def code_bits(public: Encoding) -> int:
    """Bits of a code: 8, 9 or 16, for the column of most codes.

    Raises:
        ValueError: a column has more than :data:`MAX_CODES` codes.
    """
    most = max(public.n_codes.tolist(), default=0)
    if most > MAX_CODES:
        raise ValueError("a column has too many codes")
    if most > _NINE_BITS:
        return 16
    return _NINTH_BIT if most > _BYTE else 8


def _tables(public: Encoding, encoding: Encoding) -> list[UInt8Array]:
    """For every feature, its code in ``encoding`` by its code in ``public``.

    Raises:
        ValueError: an edge of ``encoding`` is no public edge.
    """
    tables = []
    for index, feature in enumerate(encoding.schema.features):
        fine = public.edges[index]
        coarse = encoding.edges[index]
        n_codes = int(public.n_codes[index])
        table = np.arange(n_codes, dtype=np.int64)
        if fine is not None and coarse is not None:
            if not np.isin(coarse, fine).all():
                raise ValueError("bins with an edge that is not public")
            # The values of a code are above the edge before it and not above its own
            # edge.
            table[: len(fine)] = np.searchsorted(coarse, fine, side="left")
            table[len(fine)] = len(coarse)
            if feature.missing:
                table[-1] = int(encoding.n_own_codes[index]) - 1
        elif fine is not coarse:
            raise ValueError("bins of another kind than the public bins")
        tables.append(table.astype(np.uint8))
    return tables


PART_ROWS = 2**17
"""Rows of a part: its codes fit into the cache of a processor, and the work on a part
outweighs a call of a loop.
"""


def parts_of(
    rows: TrainingRows, encoding: Encoding, form: type[Form], *args: Any
) -> Parts:
    """The PRIVATE rows in the form that an algorithm counts, in parts; at least one
    part.

    Args:
        rows: in this process, or on other machines. Coded rows are used up: see
            :meth:`CodedColumns.take`.
        encoding: public or released bins.
        form: makes its objects of the parts.
        args: further arguments of ``form.of``.
    """
    if not isinstance(rows, SanitisedRows | CodedRows):
        return rows.parts(encoding, form, *args)
    ids = rows.row_ids if isinstance(rows, SanitisedRows) else rows.ids

    def part(place: tuple[slice, Callable[[], UInt8Array]]) -> Form:
        here, make_codes = place
        ids_here = None if ids is None else ids[here]
        return form.of(CodedPart(encoding, make_codes(), rows.y[here], ids_here), *args)

    return RowParts(made_of(list(_places(encoding, rows.features)), part))


def _places(
    encoding: Encoding, features: SanitisedColumns | CodedColumns
) -> Iterator[tuple[slice, Callable[[], UInt8Array]]]:
    """The place of every part among the rows, and what makes the codes of the part,
    once.
    """
    if isinstance(features, SanitisedColumns):
        for start in range(0, max(features.n_rows, 1), PART_ROWS):
            columns = tuple(
                column[start : start + PART_ROWS] for column in features.columns
            )
            block = SanitisedColumns(columns, min(features.n_rows - start, PART_ROWS))
            yield slice(start, start + block.n_rows), partial(encoding.encode, block)
        return
    start = 0
    for taken in features.take(encoding, PART_ROWS):
        yield slice(start, start + taken.n_rows), taken.codes
        start += taken.n_rows


@dataclass(frozen=True, eq=False, repr=False)
class RowParts:
    """Parts of the PRIVATE rows of a job in the memory of this process; at least one.
    See ``Parts``.
    """

    parts: Sequence[Any]

    def total(self, method: str, /, *args: Any, **named: Any) -> Int64Array:
        """The sum of what a method returns for every part."""
        if method in HISTOGRAMS:
            return sum_over(
                self.parts,
                lambda part, onto: getattr(part, method)(*args, **named, onto=onto),
            )
        count = methodcaller(method, *args, **named)
        return sum_over(self.parts, lambda part, onto: added(count(part), onto))

    def each(self, method: str, /, *args: Any, **named: Any) -> None:
        """Calls a method of every part."""
        act = methodcaller(method, *args, **named)
        in_threads(self.parts, lambda mine: list(map(act, mine)))

    def map(self, method: str, /, *args: Any, **named: Any) -> RowParts:
        """The parts that a method makes of every part."""
        make = methodcaller(method, *args, **named)
        return RowParts(made_of(self.parts, make))


MAX_THREADS = 16
"""Most threads of one job; each needs memory for a copy of the sums."""

Part = TypeVar("Part")
Result = TypeVar("Result")

_NONE: Final[Any] = object()


def sum_over(
    parts: Sequence[Part],
    add: Callable[[Part, Int64Array | None], Int64Array],
) -> Int64Array:
    """The sum of what every part contributes, counted by threads.

    Args:
        parts: at least one.
        add: adds a part to the sum of other parts in place, or makes a new sum if there
            is none; returns the sum.
    """

    def total(mine: Iterator[Part]) -> Int64Array | None:
        sums = None
        for part in mine:
            sums = add(part, sums)
        return sums

    return sum_of(in_threads(parts, total))


def added(counted: Int64Array, onto: Int64Array | None) -> Int64Array:
    """Adds to a sum in place, if there is one; returns the sum."""
    if onto is None:
        return counted
    return np.add(onto, counted, out=onto)


def sum_of(totals: Iterable[Int64Array | None]) -> Int64Array:
    """The sum of the totals of threads; a thread that got no part has none."""
    first, *others = (total for total in totals if total is not None)
    for total in others:
        np.add(first, total, out=first)
    return first


def made_of(parts: Sequence[Part], make: Callable[[Part], Result]) -> list[Result]:
    """What is made of every part, in the order of the parts."""
    # Threads take parts in any order, so each result carries the number of its part.
    numbered = in_threads(
        list(enumerate(parts)), lambda mine: [(i, make(part)) for i, part in mine]
    )
    return [result for _, result in sorted(chain(*numbered), key=itemgetter(0))]


def made_ahead(
    parts: Iterable[Part], make: Callable[[Part], Result]
) -> Generator[Result, None, None]:
    """What is made of every part, in order; a thread makes the next one while the
    caller works on one.

    Close it before what ``make`` reads from: closing waits for the thread.
    """
    running: Future[Result] | None = None
    try:
        for part in parts:
            ready = running
            # Memory has room for the part that the caller works on and one more.
            wait([ready] if ready else [])
            running = begun(partial(make, part), name="rows")
            if ready is not None:
                yield ready.result()
        if running is not None:
            yield running.result()
    finally:
        wait([running] if running else [])


def in_threads(
    parts: Sequence[Part], work: Callable[[Iterator[Part]], Result]
) -> list[Result]:
    """Runs work in this thread and one more for each further processor, each on the
    parts that no other has taken.
    """
    waiting = iter(parts)
    lock = Lock()

    def untaken() -> Iterator[Part]:
        while True:
            with lock:
                part = next(waiting, _NONE)
            if part is _NONE:
                return
            yield part

    n_threads = min(_n_processors(), MAX_THREADS, len(parts))
    others = [
        begun(partial(work, untaken()), name="rows") for _ in range(n_threads - 1)
    ]
    try:
        result = work(untaken())
    finally:
        # Also after an error: no thread may read rows that the caller gives up.
        wait(others)
    return [result, *(done.result() for done in others)]


def _n_processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        # A container may have fewer processors than the machine.
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
