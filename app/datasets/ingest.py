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
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from app.core import limits
from app.core.errors import ColumnProblem, RowsInvalid, TooLarge
from app.core.sealed_files import SealedFile, Writer
from app.datasets import row_files, row_layout, unit_names
from app.datasets.admission import ROW_ID_BYTES, AdmissionBook, unit_row_ids
from app.datasets.columnar_source import ColumnarSource
from app.datasets.columnar_stream import Blocks
from app.datasets.csv_columns import (
    Column,
    CountedCells,
    LabelColumn,
    ReadColumn,
    UnitColumn,
    new_column,
)
from app.datasets.fingerprints import Fingerprints, RowHash, side_by_side
from app.datasets.row_layout import (
    as_feature,
    hash_cells,
    hash_keys,
    own_column_partitions,
    stored_columns,
)
from app.datasets.upload_bodies import BodyForm, CsvSource
from grovekeeper_common import suspicions
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.data.schema import Schema, composed
from grovekeeper_forests.privacy.partitions import HashPartition, Partitions

_COMPARED_BYTES = 8  # of a digest; equal by chance once in 2⁶⁴ pairs of units
_WITH_POINT = re.compile(r"-?[0-9]+\.0")
_KEPT_UNITS = 1_000  # units over the bound that stay in memory between blocks
_ROW_GROUP_CELLS = 2**22
_ROW_GROUP_ROWS = (2**12, 2**17)
"""Fewest and most rows of a row group; between them, a row group ends when it holds
``_ROW_GROUP_CELLS`` cells.
"""


@dataclass(frozen=True)
class RowRules:
    """The parts of a declaration that rows are read by.

    Attributes:
        schema: public.
        partitions: public; as declared.
        dataset_key: secret; keys the hash partitions and the ids of units.
        unit_column: public; the column that names a row's unit, or ``None`` where the
            row is the unit.
        unit_form: public; how that column spells a unit
            (:mod:`app.datasets.unit_names`).
    """

    schema: Schema
    partitions: Partitions
    dataset_key: bytes = field(repr=False)
    unit_column: str | None = None
    unit_form: str = unit_names.RAW


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
        columns: one entry per feature in schema order, then the label, then columns
            that only partition; dropped rows are counted too.
        n_rows: stored rows, those with an unknown label included.
        cells: the keyed digest of the cells of all rows, stored or dropped, as they
            were parsed.
        dropped: where the unit is a column, the rows that were not stored.
        n_similar_units: where the unit column is text, the values that differ from
            another value of the upload by leading zeros, case or the spelling of a
            number alone; ``None`` for more rows than ``limits.MAX_COMPARED_UNIT_ROWS``.
        marks: cells of the unit column that hold a mark for a missing value, of all
            rows, stored or dropped.
        most_over: rows over the bound of the unit that has the most of them, and the
            first of these rows.
    """

    columns: tuple[ReadColumn, ...] = field(repr=False)
    n_rows: int = field(repr=False)
    cells: bytes = field(repr=False)
    dropped: DroppedCounts | None = None
    n_similar_units: int | None = field(default=0, repr=False)
    marks: ColumnProblem | None = field(default=None, repr=False)
    most_over: tuple[int, int] | None = field(default=None, repr=False)

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
    with _opened(source, form, rules) as body:
        body.place_columns(_positions(body.read_header(), rules))
        stored_bytes = _bytes_beside(destination, prints)
        with (
            destination.new(existing="refuse") as file,
            prints.destination.new(existing="refuse") as printed,
        ):
            upload = _Intake(rules, book, prints, printed)
            for _ in upload.store(body, file):
                _refuse_when_full(stored_bytes, file, printed)
            # After the last byte was written: of uploads to one folder at the same
            # time, the last one counts all.
            file.finish()
            printed.finish()
            _refuse_when_full(_bytes_beside(destination, prints), file, printed)
        reports = tuple(column.report for column in upload.columns)
        return IngestReport(
            reports,
            upload.n_rows,
            upload.cells_digest,
            upload.dropped,
            upload.n_similar_units,
            upload.marks,
            upload.most_over,
        )


@contextmanager
def _opened(
    source: BinaryIO, form: BodyForm, rules: RowRules
) -> Iterator[CsvSource | Blocks]:
    max_bytes = _most_unpacked_bytes(source, form)
    if form.is_columnar:
        features = rules.schema.features
        numbers = [
            composed(feature.name) for feature in features if not feature.is_categorical
        ]
        unit = None if rules.unit_column is None else composed(rules.unit_column)
        with ColumnarSource(
            source,
            form,
            declared=_declared_columns(rules),
            numbers=numbers,
            unit=unit,
            categories=_texts_of_values(rules),
        ) as stream:
            yield Blocks(stream, max_bytes=max_bytes)
    else:
        csv_source = CsvSource(
            source,
            is_gzip=form is BodyForm.GZIP,
            max_bytes=max_bytes,
            max_line_bytes=limits.MAX_CSV_LINE_BYTES,
            declared=_declared_columns(rules),
        )
        with closing(csv_source) as text:
            yield text


def _texts_of_values(rules: RowRules) -> dict[str, list[str]]:
    """The declared categories that false and true mean in columns of categories, which
    have texts alone, and those that whole numbers mean with the end ``.0``.
    """
    label = rules.schema.label
    columns = {}
    for feature in rules.schema.features:
        if feature.is_categorical:
            columns[feature.name] = feature.categories
    for partition in own_column_partitions(rules.partitions):
        columns[partition.column] = partition.categories
    columns[label.name] = label.classes
    values = {}
    for name, texts in columns.items():
        truths = [_text_of(False, texts), _text_of(True, texts)]
        values[composed(name)] = [*truths, *_with_point(texts)]
    return values


def _with_point(declared: Sequence[str]) -> list[str]:
    return [
        text
        for text in declared
        if _WITH_POINT.fullmatch(text) and text.removesuffix(".0") not in declared
    ]


def _text_of(truth: bool, declared: Sequence[str]) -> str:
    texts = [str(truth), str(truth).lower(), str(truth).upper(), str(int(truth))]
    return next((text for text in texts if text in declared), texts[0])


def _bytes_beside(destination: SealedFile, prints: Fingerprints) -> int:
    """Bytes of the other uploads to the dataset."""
    return sum(map(row_files.bytes_beside, (destination.file, prints.destination.file)))


def _refuse_when_full(others: int, *written: Writer) -> None:
    if others + sum(file.size_bytes for file in written) > limits.MAX_DATASET_BYTES:
        raise TooLarge("the stored bytes of the dataset", limits.MAX_DATASET_BYTES)


def _most_unpacked_bytes(source: BinaryIO, form: BodyForm) -> int:
    """Returns how many bytes an upload may unpack to: little for a small body, so that
    small bodies are little work.
    """
    size = source.seek(0, os.SEEK_END)
    source.seek(0)
    ratio = limits.MAX_COLUMNAR_RATIO if form.is_columnar else limits.MAX_GZIP_RATIO
    unpacked_bytes = max(size * ratio, limits.FREE_UNPACKED_BYTES)
    return min(unpacked_bytes, limits.MAX_UPLOAD_CSV_BYTES)


def _positions(header: Sequence[str], rules: RowRules) -> list[int]:
    """The positions of the upload's columns in the declaration.

    A header in another Unicode form than the declaration means the declared column that
    looks the same.

    Raises:
        RowsInvalid: ``missing-column`` and ``duplicate-column`` by name;
            ``unknown-column`` by the columns' places, because a headerless file has a
            person's values where names should be.
    """
    declared = _declared_columns(rules)
    by_name = {composed(name): name for name in declared}
    # an exact name wins where two declared names look the same
    by_name.update(zip(declared, declared, strict=True))
    names = [by_name.get(name) or by_name.get(composed(name), name) for name in header]
    counts = Counter(names)
    missing = [name for name in declared if name not in counts]
    problems = []
    for name, suspected in suspicions.of_missing_columns(missing, names).items():
        problems.append(ColumnProblem(name, "missing-column", 1, suspected=suspected))
    for name in declared:
        if counts[name] > 1:
            problems.append(ColumnProblem(name, "duplicate-column", counts[name]))
    unknown = {
        place: name for place, name in enumerate(names, start=1) if name not in by_name
    }
    if unknown:
        shown = tuple(unknown)[: forest_limits.MAX_REPORTED_PROBLEMS]
        suspected = suspicions.of_unknown_columns(unknown, len(names))
        problems.append(
            ColumnProblem(
                "", "unknown-column", len(unknown), positions=shown, suspected=suspected
            )
        )
    if problems:
        raise RowsInvalid(problems)
    position = {name: index for index, name in enumerate(declared)}
    return [position[name] for name in names]


def _declared_columns(rules: RowRules) -> list[str]:
    """The columns that an upload has, in the order of the declaration."""
    features = [feature.name for feature in rules.schema.features]
    further = [
        partition.column for partition in own_column_partitions(rules.partitions)
    ]
    unit = [] if rules.unit_column is None else [rules.unit_column]
    return [*features, rules.schema.label.name, *further, *unit]


class _Intake:
    def __init__(
        self,
        rules: RowRules,
        book: AdmissionBook | None,
        prints: Fingerprints,
        printed: Writer,
    ) -> None:
        own_partitions = own_column_partitions(rules.partitions)
        self.columns: list[Column] = [
            *map(new_column, rules.schema.features),
            LabelColumn(rules.schema.label),
            *map(new_column, map(as_feature, own_partitions)),
        ]
        self._n_own = len(own_partitions)
        self.n_rows = 0
        self._unit: UnitColumn | None = None
        if rules.unit_column is not None:
            self._unit = UnitColumn(rules.unit_column, rules.unit_form)
        self._book = book
        self._printed = printed
        self._row_hash = RowHash(prints.key, rules.schema)
        self._recognised = hmac.new(prints.cells_key, digestmod="sha256")
        self.dropped = None if self._unit is None else DroppedCounts()
        self._over = dict[bytes, tuple[int, int]]()
        self._n_parsed_rows = 0
        self._folds: list[bytes] = []
        self._names: list[bytes] = []
        self._n_compared = 0
        self._n_ragged_rows = 0
        self._ragged: ColumnProblem | None = None
        self._rules = rules
        self._hash_keys = hash_keys(rules.partitions, dataset_key=rules.dataset_key)
        self._stored_form = row_layout.arrow_schema(
            rules.schema, rules.partitions, body=prints.body
        )

    def store(self, body: CsvSource | Blocks, file: Writer) -> Iterator[None]:
        """Reads the upload to its end and writes its rows, until a cell has to be
        refused. Yields before row groups.
        """
        smallest, largest = _ROW_GROUP_ROWS
        group_rows = min(max(_ROW_GROUP_CELLS // len(self.columns), smallest), largest)
        group: list[pa.RecordBatch] = []
        blocks = body.blocks() if isinstance(body, Blocks) else self._parsed(body)
        with row_layout.writer(file, self._stored_form) as writer:
            for block in blocks:
                # the unit column, if there is one, is the last
                pairs = zip(self.columns, block[: len(self.columns)], strict=True)
                cells = [column.read(block_cells) for column, block_cells in pairs]
                units = None
                if self._unit is not None:
                    units = self._unit.read(block[len(self.columns)])
                # The rest is read and counted, not stored: the owner learns of all
                # problems of the file at once.
                if self._problems():
                    group.clear()
                    continue
                group.append(self._admitted(cells, units))
                if sum(batch.num_rows for batch in group) >= group_rows:
                    yield
                    writer.write_table(pa.Table.from_batches(group))
                    group.clear()
            problems = self._problems()
            if problems:
                raise RowsInvalid(problems)
            if group:
                yield
                writer.write_table(pa.Table.from_batches(group))
            row_layout.add_cells_digest(writer, self.cells_digest)

    @property
    def marks(self) -> ColumnProblem | None:
        return None if self._unit is None else self._unit.marks

    @property
    def cells_digest(self) -> bytes:
        return self._recognised.digest()

    def _parsed(self, text: CsvSource) -> Iterator[list[pa.Array]]:
        """Yields a CSV in blocks of text, columns in schema order. Counts and skips
        rows of the wrong width.
        """
        is_readable = True
        n_columns = len(self.columns) + (self._unit is not None)
        try:
            for block in _reader(
                text, n_columns=n_columns, on_ragged_row=self._skip_ragged_row
            ):
                # a row can be two bytes
                for start in range(0, block.num_rows, limits.MAX_BLOCK_ROWS):
                    yield block.slice(start, limits.MAX_BLOCK_ROWS).columns
                self._n_parsed_rows += block.num_rows
        except pa.ArrowInvalid:
            is_readable = False
        text.check()
        if not is_readable:
            row = self._n_parsed_rows + 1  # or a later row of the same block
            malformed = ColumnProblem(
                "", "malformed-csv", 1, row=row, suspected=suspicions.OPEN_QUOTE
            )
            raise RowsInvalid([*self._problems(), malformed])

    def _skip_ragged_row(self, row: pa_csv.InvalidRow) -> str:
        if self._ragged is None:
            has_more = row.actual_columns > row.expected_columns
            suspected = suspicions.MORE_CELLS if has_more else suspicions.FEWER_CELLS
            self._ragged = ColumnProblem(
                "",
                "ragged-row",
                1,
                row=row.number and row.number - 1,
                suspected=suspected,
            )
        self._n_ragged_rows += 1
        return "skip"

    def _problems(self) -> Sequence[ColumnProblem]:
        problems = [problem for column in self.columns for problem in column.problems]
        if self._unit is not None:
            problems.extend(self._unit.problems)
        if self._ragged is not None:
            problems.append(replace(self._ragged, count=self._n_ragged_rows))
        return problems

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
            row_ids = os.urandom(ROW_ID_BYTES * len(arrays[0]))
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
        for column in stored_columns(self._rules.partitions):
            partition = column.partition
            if isinstance(partition, HashPartition):
                key = self._hash_keys[partition.name]
                yield pa.array(
                    hash_cells(row_ids, partition=partition, dataset_key=key)
                )
            else:
                yield next(own_columns)

    def _admit(self, units: pa.Array) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
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
        unit_ids, is_kept = np.zeros(len(has_unit), f"V{ROW_ID_BYTES}"), has_unit.copy()
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
        folds = [unit_names.folded(name) for name in names]
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


def _reader(
    text: CsvSource,
    *,
    n_columns: int,
    on_ragged_row: Callable[[pa_csv.InvalidRow], str],
) -> pa_csv.CSVStreamingReader:
    """A parser that infers no type and no null: every cell stays text until its column
    reads it.
    """
    names = [str(index) for index in range(n_columns)]
    return pa_csv.open_csv(
        text,
        # A record that is longer than a block stops the parser; every legal line with
        # its end fits.
        read_options=pa_csv.ReadOptions(
            use_threads=False, block_size=limits.MAX_CSV_LINE_BYTES + 2
        ),
        parse_options=pa_csv.ParseOptions(
            newlines_in_values=True, invalid_row_handler=on_ragged_row
        ),
        convert_options=pa_csv.ConvertOptions(
            check_utf8=False,  # CsvSource checks it.
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=names,
        ),
    )
