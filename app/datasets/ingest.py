"""One upload becomes one stored epoch: streamed, sanitised record by record, written completely or not at all.

What the declaration cannot read is refused with column and count, never a value, and nothing is stored; the counts
cover the whole file. What it can map is stored and counted in the owner's report. The parser's own error messages quote
cells, so they end here: every refusal is raised outside the handler that saw one, without cause or context.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedRandom
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from app.core import limits
from app.core.errors import ColumnProblem, RowsInvalid, TooLarge
from app.datasets import row_files
from app.datasets.cells import ROW_ID_BYTES, hash_cells
from app.datasets.csv_columns import Column, ColumnReport, LabelColumn, new_column
from app.datasets.csv_source import CsvSource
from app.forests.schema import Schema
from app.privacy.composition import HashPartition

_ROW_GROUP_CELLS = 2**22
_ROW_GROUP_ROWS = (2**12, 2**17)
"""A row group is written when it holds this many cells, but never with fewer or more rows than these."""


@dataclass(frozen=True)
class IngestReport:
    """What became of an upload. The counts are exact and PRIVATE: for the owner's answer alone, and in no log.

    Attributes:
        columns: one entry per feature in schema order, then the label.
        n_rows: stored rows, those with an unknown label included; never part of an answer.
        digest: SHA-256 of the stored file, hexadecimal. Row ids are random, so it says nothing about the rows.
    """

    columns: tuple[ColumnReport, ...] = field(repr=False)
    n_rows: int = field(repr=False)
    digest: str


def ingest_csv(
    source: BinaryIO,
    destination: Path,
    *,
    schema: Schema,
    partition: HashPartition | None,
    dataset_key: bytes,
    gzip: bool,
) -> IngestReport:
    """Reads a CSV upload and stores its sanitised rows, each with a fresh random id and its hash cell.

    Memory is bounded by public limits (a block of the longest legal line, a row group), not by the upload.

    Args:
        source: PRIVATE; the body. Read to its end, not closed.
        destination: the epoch's file (:func:`app.datasets.row_files.epoch_file`); must not exist.
        schema: public.
        partition: public; the declared hash partition, if there is one.
        dataset_key: secret; keys the partition.
        gzip: the body is gzip.

    Returns:
        The owner's report. The file is on the disk, under its name, when this returns.

    Raises:
        RowsInvalid: the declaration cannot read the upload. Nothing was stored, as with every other error.
        MalformedRequest: the body should be gzip and is not, or is cut off.
        TooLarge: the unpacked body or its number of rows is over the limit.
    """
    line_bytes = limits.MAX_CSV_LINE_BYTES
    text = CsvSource(source, is_gzip=gzip, max_bytes=limits.MAX_UPLOAD_CSV_BYTES, max_line_bytes=line_bytes)
    try:
        _order_columns(text, schema)
        with row_files.new_row_file(destination) as file:
            upload = _Upload(schema, partition, dataset_key=dataset_key)
            upload.store(text, file)
            file.flush()
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return IngestReport(tuple(column.report for column in upload.columns), upload.n_rows, digest)
    finally:
        text.close()


def _order_columns(text: CsvSource, schema: Schema) -> None:
    """Takes the upload's header and puts positions of the declaration in its place.

    Raises:
        RowsInvalid: ``missing-column`` and ``duplicate-column`` by name; ``unknown-column`` as a number of columns
            without a name, because a headerless file has a person's values where names should be.
    """
    names = text.read_header()
    declared = [*(feature.name for feature in schema.features), schema.label.name]
    found = Counter(names)
    problems = [ColumnProblem(name, "missing-column", 1) for name in declared if name not in found]
    problems += [ColumnProblem(name, "duplicate-column", found[name]) for name in declared if found[name] > 1]
    n_unknown = len(names) - sum(found[name] for name in declared)
    if n_unknown:
        problems.append(ColumnProblem("", "unknown-column", n_unknown))
    if problems:
        raise RowsInvalid(problems)
    position = {name: index for index, name in enumerate(declared)}
    text.name_columns([str(position[name]) for name in names])


class _Upload:
    """The state of one ingestion."""

    def __init__(self, schema: Schema, partition: HashPartition | None, *, dataset_key: bytes) -> None:
        self.columns: list[Column] = [*map(new_column, schema.features), LabelColumn(schema.label)]
        self.n_rows = 0
        self._n_ragged_rows = 0
        self._partition = partition
        self._dataset_key = dataset_key
        self._stored_form = row_files.arrow_schema(schema, partition)

    def store(self, text: CsvSource, file: BufferedRandom) -> None:
        """Reads to the end, and writes as long as nothing has to be refused.

        Raises:
            RowsInvalid, MalformedRequest, TooLarge: see :func:`ingest_csv`.
        """
        smallest, largest = _ROW_GROUP_ROWS
        group_rows = min(max(_ROW_GROUP_CELLS // len(self.columns), smallest), largest)
        group: list[pa.RecordBatch] = []
        with _writer(file, self._stored_form) as writer:
            for block in self._blocks(text):
                arrays = [column.read(block.column(index)) for index, column in enumerate(self.columns)]
                self.n_rows += block.num_rows
                if self.n_rows > limits.MAX_ROWS_PER_DATASET:
                    raise TooLarge("the number of rows", limits.MAX_ROWS_PER_DATASET)
                if self._problems():
                    group.clear()
                    continue
                group.append(self._with_ids(arrays, block.num_rows))
                if sum(batch.num_rows for batch in group) >= group_rows:
                    writer.write_table(pa.Table.from_batches(group))
                    group.clear()
            problems = self._problems()
            if problems:
                raise RowsInvalid(problems)
            if group:
                writer.write_table(pa.Table.from_batches(group))

    def _blocks(self, text: CsvSource) -> Iterator[pa.RecordBatch]:
        """The upload in blocks of text, columns in schema order, rows of the wrong width counted and left out."""
        is_readable = True
        try:
            yield from _reader(text, n_columns=len(self.columns), on_ragged_row=self._skip_ragged_row)
        except pa.ArrowInvalid:
            is_readable = False
        text.check()
        if not is_readable:
            raise RowsInvalid([*self._problems(), ColumnProblem("", "malformed-csv", 1)])

    def _skip_ragged_row(self, _row: object) -> str:
        self._n_ragged_rows += 1
        return "skip"

    def _problems(self) -> Sequence[ColumnProblem]:
        found = [problem for column in self.columns for problem in column.problems]
        if self._n_ragged_rows:
            found.append(ColumnProblem("", "ragged-row", self._n_ragged_rows))
        return found

    def _with_ids(self, arrays: list[pa.Array], n_rows: int) -> pa.RecordBatch:
        row_ids = os.urandom(ROW_ID_BYTES * n_rows)
        arrays.append(
            pa.FixedSizeBinaryArray.from_buffers(pa.binary(ROW_ID_BYTES), n_rows, [None, pa.py_buffer(row_ids)])
        )
        if self._partition is not None:
            arrays.append(pa.array(hash_cells(row_ids, partition=self._partition, dataset_key=self._dataset_key)))
        return pa.RecordBatch.from_arrays(arrays, schema=self._stored_form)


def _reader(text: CsvSource, *, n_columns: int, on_ragged_row: Callable[[object], str]) -> pa_csv.CSVStreamingReader:
    """Cells stay text: nothing is inferred and nothing is null before a column's own reader says so."""
    names = [str(index) for index in range(n_columns)]
    return pa_csv.open_csv(
        text,
        # A record that is longer than a block stops the parser; every legal line with its end fits.
        read_options=pa_csv.ReadOptions(use_threads=False, block_size=limits.MAX_CSV_LINE_BYTES + 2),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=on_ragged_row),
        convert_options=pa_csv.ConvertOptions(
            check_utf8=False,  # CsvSource saw to that.
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=names,
        ),
    )


def _writer(file: BufferedRandom, form: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        file,
        form,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in form.names if name != row_files.ROW_ID_COLUMN],
        write_statistics=False,
        write_page_checksum=True,
    )
