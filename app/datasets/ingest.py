"""Reads an upload and stores its sanitised rows as one epoch, completely or not at all.

A child process decodes Parquet and Arrow (:mod:`app.datasets.columnar_child`) to
numbers, and to the text that the other cells would be in a CSV: one set of rules reads
them.

An upload with cells that the declaration cannot read is refused: the error names
columns and counts over the whole file, never a value, and no row is stored. Cells that
the declaration can map are stored and counted in the owner's report. The parser's error
messages quote cells, so every refusal is raised outside the handler that caught one,
without cause or context.
"""

import hmac
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import urandom
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.core import limits
from app.core.errors import RowsInvalid, TooLarge, UnreadColumn
from app.core.sealed_files import SealedFile, Writer
from app.datasets import row_files, row_layout, unit_names
from app.datasets.admission import ROW_ID_BYTES, AdmissionBook, unit_row_ids
from app.datasets.columnar_stream import Blocks
from app.datasets.csv_columns import CountedCells, ReadColumn
from app.datasets.fingerprints import Fingerprints, RowHash, side_by_side
from app.datasets.row_reading import (
    Reading,
    RowRules,
    opened,
    with_all_marks,
    with_all_problems,
)
from app.datasets.upload_bodies import BodyForm, CsvSource
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.array_types import BoolArray
from grovekeeper_forests.privacy.partitions import HashPartition

_COMPARED_BYTES = 8  # of a digest; equal by chance once in 2⁶⁴ pairs of units
_KEPT_UNITS = 1_000  # units over the bound that stay in memory between blocks
_ROW_GROUP_CELLS = 2**22
_ROW_GROUP_ROWS = (2**12, 2**17)
"""Fewest and most rows of a row group; between them, a row group ends when it holds
``_ROW_GROUP_CELLS`` cells.
"""


@dataclass
class DroppedCounts:
    """Rows of an upload that were not stored. The counts are exact and PRIVATE: shown
    to the owner, never logged.

    Attributes:
        without_unit: rows whose unit column was empty.
        over_bound: rows whose unit had k rows already.
    """

    without_unit: int = field(default=0, repr=False)
    over_bound: int = field(default=0, repr=False)


@dataclass(frozen=True)
class IngestReport:
    """The result of an upload. The counts are exact and PRIVATE: shown to the owner,
    never logged.

    Attributes:
        columns: one entry per feature in schema order, then the labels, then columns
            that only partition; dropped rows are counted too.
        n_rows: stored rows, those with an unknown label included.
        cells: the keyed digest of the cells of all rows, stored or dropped, as they
            were parsed.
        dropped: where the unit is a column, the rows that were not stored.
        n_similar_units: where the unit column is text, the values that differ from
            another value of the upload by leading zeros, case or the spelling of a
            number alone; ``None`` for more rows than ``limits.MAX_COMPARED_UNIT_ROWS``.
        most_over: rows over the bound of the unit that has the most of them, and the
            first of these rows.
        mapped: the cells of all rows, stored or dropped, that were mapped, and the
            marks for missing values in the unit column.
    """

    columns: tuple[ReadColumn, ...] = field(repr=False)
    n_rows: int = field(repr=False)
    cells: bytes = field(repr=False)
    dropped: DroppedCounts | None = None
    n_similar_units: int | None = field(default=0, repr=False)
    most_over: tuple[int, int] | None = field(default=None, repr=False)
    mapped: Sequence[UnreadColumn] = field(default=(), repr=False)

    @property
    def n_read(self) -> int:
        """PRIVATE: rows of the upload, stored or dropped."""
        dropped = self.dropped or DroppedCounts()
        return self.n_rows + dropped.without_unit + dropped.over_bound


def ingest_rows(
    source: BinaryIO,
    destination: SealedFile,
    *,
    rules: RowRules,
    book: AdmissionBook | None,
    prints: Fingerprints,
    form: BodyForm,
) -> IngestReport:
    """Reads an upload and stores its sanitised rows, each with its id, its cells and
    its fingerprint.

    The row id is random, or a keyed digest of the unit where the unit is a column.
    There, a row without a unit is dropped, and so is a row whose unit has k rows
    already. Only rows of the same unit decide whether a row is dropped.

    Memory is bounded by public limits (a block of the longest legal line, a row group),
    not by the upload.

    Args:
        source: PRIVATE; the body. Read to its end, not closed.
        destination: the epoch's file (:func:`app.datasets.row_files.sealed_rows`); must
            not exist.
        book: the dataset's admission book, begun for this upload, where the unit is a
            column; else ``None``.
        prints: the fingerprint file of this upload; must not exist.

    Returns:
        The owner's report. Both files are complete and durable when this returns.

    Raises:
        RowsInvalid: the declaration cannot read the upload. Nothing was stored, as with
            every other error.
        TooLarge: the unpacked body, its number of rows or the bytes of all uploads to
            the dataset are over the limit.
    """
    try:
        return _stored(source, destination, rules, book, prints, form)
    except RowsInvalid as error:
        refusal = error
    # raised out of the handler, like every refusal
    raise with_all_problems(refusal, source, form, rules)


def _stored(
    source: BinaryIO,
    destination: SealedFile,
    rules: RowRules,
    book: AdmissionBook | None,
    prints: Fingerprints,
    form: BodyForm,
) -> IngestReport:
    reading = Reading(rules)
    with opened(source, form, rules) as body:
        reading.place_columns(body)
        stored_bytes = _bytes_beside(destination, prints)
        with (
            destination.new(existing="refuse") as file,
            prints.destination.new(existing="refuse") as printed,
        ):
            upload = _Intake(reading, rules, book, prints, printed)
            for _ in upload.store(body, file):
                _refuse_when_full(stored_bytes, file, printed)
            # After the last byte was written: of uploads to one folder at the same
            # time, the last one counts all.
            file.finish()
            printed.finish()
            _refuse_when_full(_bytes_beside(destination, prints), file, printed)
        stated = rules.dialect.missing
        _, mapped = with_all_marks((), reading.mapped, stated=stated)
        return IngestReport(
            tuple(column.report for column in reading.columns),
            upload.n_rows,
            upload.cells_digest,
            upload.dropped,
            upload.n_similar_units,
            upload.most_over,
            mapped,
        )


def _bytes_beside(destination: SealedFile, prints: Fingerprints) -> int:
    """Bytes of the other uploads to the dataset."""
    return sum(map(row_files.bytes_beside, (destination.file, prints.destination.file)))


def _refuse_when_full(others: int, *written: Writer) -> None:
    if others + sum(file.size_bytes for file in written) > limits.MAX_DATASET_BYTES:
        raise TooLarge("the stored bytes of the dataset", limits.MAX_DATASET_BYTES)


class _Intake:
    def __init__(
        self,
        reading: Reading,
        rules: RowRules,
        book: AdmissionBook | None,
        prints: Fingerprints,
        printed: Writer,
    ) -> None:
        self._reading = reading
        self._n_own = len(row_layout.own_column_partitions(rules.partitions))
        self.n_rows = 0
        self._book = book
        self._printed = printed
        self._row_hash = RowHash(prints.key, rules.schema)
        self._recognised = hmac.new(prints.cells_key, digestmod="sha256")
        self.dropped = None if rules.unit_column is None else DroppedCounts()
        self._over = dict[bytes, tuple[int, int]]()
        self._folds: list[bytes] = []
        self._names: list[bytes] = []
        self._n_compared = 0
        self._rules = rules
        self._hash_keys = row_layout.hash_keys(
            rules.partitions, dataset_key=rules.dataset_key
        )
        self._stored_form = row_layout.arrow_schema(
            rules.schema, rules.partitions, body=prints.body
        )

    def store(self, body: CsvSource | Blocks, file: Writer) -> Iterator[None]:
        """Reads the upload to its end and writes its rows, until a cell has to be
        refused. Yields before row groups.
        """
        smallest, largest = _ROW_GROUP_ROWS
        n_columns = len(self._reading.columns)
        group_rows = min(max(_ROW_GROUP_CELLS // n_columns, smallest), largest)
        group: list[pa.RecordBatch] = []
        n_waiting = 0
        with row_layout.writer(file, self._stored_form) as writer:
            for cells, units in self._reading.read(body):
                # The rest is read and counted, not stored: the owner learns of all
                # problems of the file at once.
                if self._reading.problems:
                    group.clear()
                    continue
                group.append(self._admitted(cells, units))
                # a file may have many blocks of few rows
                n_waiting += group[-1].num_rows
                if n_waiting >= group_rows:
                    yield
                    writer.write_table(pa.Table.from_batches(group))
                    group.clear()
                    n_waiting = 0
            self._reading.check()
            if group:
                yield
                writer.write_table(pa.Table.from_batches(group))
            row_layout.add_cells_digest(writer, self.cells_digest)

    @property
    def cells_digest(self) -> bytes:
        return self._recognised.digest()

    def _admitted(
        self, cells: Sequence[CountedCells], units: pa.Array | None
    ) -> pa.RecordBatch:
        """The rows of a block that are stored, with their ids. Writes their
        fingerprints.
        """
        first_own = len(cells) - self._n_own
        arrays = [column.stored for column in cells]
        prints = self._row_hash.of_rows([column.parsed for column in cells[:first_own]])
        # All rows: if the digest depended on those that are stored, it would depend on
        # rows of other uploads.
        recognised = [prints, *(column.to_numpy() for column in arrays[first_own:])]
        if units is None:
            # random: by its position, the cell of a row would depend on the rows before
            row_ids = urandom(ROW_ID_BYTES * len(arrays[0]))
        else:
            unit_ids, is_admitted = self._admit(units)
            recognised.append(unit_ids)
            row_ids = unit_ids[is_admitted].tobytes()
            arrays = [column.filter(pa.array(is_admitted)) for column in arrays]
            prints = prints[is_admitted]
        self._recognised.update(side_by_side(recognised))
        n_kept = len(row_ids) // ROW_ID_BYTES
        self.n_rows += n_kept
        if self.n_rows > forest_limits.MAX_ROWS_PER_DATASET:
            raise TooLarge("the number of rows", forest_limits.MAX_ROWS_PER_DATASET)
        ids = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(ROW_ID_BYTES), n_kept, [None, pa.py_buffer(row_ids)]
        )
        self._printed.write(prints.data)
        stored = [
            *arrays[:first_own],
            ids,
            *self._cells(row_ids, iter(arrays[first_own:])),
        ]
        return pa.RecordBatch.from_arrays(stored, schema=self._stored_form)

    def _cells(
        self, row_ids: bytes, own_columns: Iterator[pa.Array]
    ) -> Iterator[pa.Array]:
        for column in row_layout.stored_columns(self._rules.partitions):
            partition = column.partition
            if isinstance(partition, HashPartition):
                key = self._hash_keys[partition.name]
                yield pa.array(
                    row_layout.hash_cells(row_ids, partition=partition, dataset_key=key)
                )
            else:
                yield next(own_columns)

    def _admit(self, units: pa.Array) -> tuple[NDArray[np.void], BoolArray]:
        """The ids of the units of a block's rows, zero without a unit, and a mask of
        the rows that are kept.
        """
        assert self._book is not None
        assert self.dropped is not None
        has_unit = pc.not_equal(units, "").to_numpy(zero_copy_only=False)
        names = units.filter(pa.array(has_unit)).to_pylist()
        ids = unit_row_ids(names, dataset_key=self._rules.dataset_key)
        if self._rules.unit_form == unit_names.TEXT:
            self._compare(names, ids)
        is_admitted = self._book.admit(ids)
        # rows as the owner counts them in the file, from 1, dropped rows included
        n_before = self.n_rows + self.dropped.without_unit + self.dropped.over_bound
        rows = (np.flatnonzero(has_unit)[~is_admitted] + n_before + 1).tolist()
        self._count_over(zip(itertools.compress(ids, ~is_admitted), rows, strict=True))
        self.dropped.without_unit += int(np.count_nonzero(~has_unit))
        self.dropped.over_bound += int(np.count_nonzero(~is_admitted))
        unit_ids = np.zeros(len(has_unit), f"V{ROW_ID_BYTES}")
        is_kept = has_unit.copy()
        unit_ids[has_unit] = np.frombuffer(b"".join(ids), unit_ids.dtype)
        is_kept[has_unit] = is_admitted
        return unit_ids, is_kept

    def _count_over(self, rows: Iterable[tuple[bytes, int]]) -> None:
        """Counts rows over the bound by unit. Between blocks, few units stay: those
        with the most rows.
        """
        for unit, row in rows:
            count, first = self._over.get(unit, (0, row))
            self._over[unit] = (count + 1, first)
        if len(self._over) > _KEPT_UNITS:
            by_count = sorted(self._over.items(), key=lambda item: -item[1][0])
            self._over = dict(by_count[:_KEPT_UNITS])

    @property
    def most_over(self) -> tuple[int, int] | None:
        return max(self._over.values(), key=lambda counted: counted[0], default=None)

    def _compare(self, names: Sequence[str], ids: Sequence[bytes]) -> None:
        """Keeps what :attr:`n_similar_units` compares: 64 bits of the ids of the units,
        and of their folded names.
        """
        self._n_compared += len(names)
        if self._n_compared > limits.MAX_COMPARED_UNIT_ROWS:
            # frees the memory that the limit is for
            self._folds, self._names = [], []
            return
        folds = list(map(unit_names.folded, names))
        fold_ids = unit_row_ids(folds, dataset_key=self._rules.dataset_key)
        self._names.append(b"".join(name[:_COMPARED_BYTES] for name in ids))
        self._folds.append(b"".join(fold[:_COMPARED_BYTES] for fold in fold_ids))

    @property
    def n_similar_units(self) -> int | None:
        if self._n_compared > limits.MAX_COMPARED_UNIT_ROWS:
            return None
        folds = np.frombuffer(b"".join(self._folds), np.uint64)
        names = np.frombuffer(b"".join(self._names), np.uint64)
        return unit_names.n_similar(folds, names)
