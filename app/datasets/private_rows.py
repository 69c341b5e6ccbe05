"""Reads stored private rows for releases that the ledger has charged. No other module
reads private rows for a release.

(An erasure, :mod:`app.datasets.erasure`, copies row files and computes nothing from
them.)

The rows read are those that lie in a box, the set of joint cells of a job's scope.
Reading is total: the sanitiser is applied again to whatever values a file holds, so
that a damaged file cannot make growth fail in a way that depends on a row. A file that
cannot be read at all is a fault of the installation; the error says nothing about its
content.
"""

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from io import BytesIO
from typing import TypeVar, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from app.core.arrow_arrays import mask
from app.core.errors import InstallationError
from app.core.sealed_files import Reader, SealBroken, SealedFile
from app.datasets import code_files, row_layout
from app.datasets.admission import ROW_ID_BYTES
from app.datasets.row_layout import RowGroups, as_feature, stored_columns
from grovekeeper_forests.array_types import (
    BoolArray,
    Float64Array,
    Int32Array,
    UInt8Array,
    UInt16Array,
)
from grovekeeper_forests.data import coded_rows
from grovekeeper_forests.data.coded_rows import (
    CodedBlock,
    CodedColumns,
    CodedRows,
    CodeRequest,
    made_ahead,
)
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.sanitiser import (
    ColumnBlock,
    SanitisedColumns,
    SanitisedRows,
    has_known_label,
    sanitise_codes,
    sanitise_numbers,
    written_numbers,
)
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.privacy.partitions import (
    ColumnPartition,
    HashPartition,
    Partitions,
)
from grovekeeper_forests.privacy.scope import Scope

Element = TypeVar("Element", np.int32, np.float64)


class Selection:
    """The rows of a job's scope: each is kept or dropped by its own label and cells
    alone (lemma L6 in docs/proofs/lemmas.md).

    Attributes:
        schema: public; the declaration under which the rows were stored, of its labels
            with the one that is read.
        form: the layout of the files.
        label_columns: the stored columns of the labels of ``schema``, by name.
        label_column: that of the label by which a row is kept, and which growth reads.
        columns: the stored columns that :meth:`among` reads.
    """

    def __init__(
        self,
        schema: Schema,
        partitions: Partitions,
        scope: Scope,
        *,
        label: str | None = None,
        keep_unlabelled: bool = False,
    ) -> None:
        """Finds the stored column of every partition that the scope restricts.

        Args:
            schema: public.
            partitions: public; as declared.
            scope: public. Its epochs are ignored: each is a file, and the caller picks
                the files.
            label: public; the label that is read. ``None``: the first decides about a
                row, and all can be read.
            keep_unlabelled: keep rows without a known label, with class −1, for
                mechanisms that learn from features alone. Where only labels are
                protected, dropping such rows would reveal which labels are unknown.

        Raises:
            ValueError: the scope names a partition or cell that was not declared, or
                the label was not.
        """
        self.schema = schema.with_label(label)
        self.form = row_layout.arrow_schema(schema, partitions)
        self.label_columns: dict[str, str] = {}
        for index in range(len(schema.labels)):
            declared_label = schema.labels[index]
            if declared_label in self.schema.labels:
                column = row_layout.label_column(index)
                self.label_columns[declared_label.name] = column
        self.label_column = self.label_columns[self.schema.label.name]
        self._keep_unlabelled = keep_unlabelled
        self._tests: list[tuple[str, ColumnPartition | None, Int32Array]] = []
        declared = {partition.name: partition for partition in partitions.declared}
        stored = {
            column.partition.name: column.name for column in stored_columns(partitions)
        }
        feature_names = schema.feature_names
        # An error: a restriction that is ignored would read cells that nobody paid for.
        if not scope.keys() <= declared.keys():
            raise ValueError("the declaration has no such partition")
        for name, cells in scope.items():
            partition = declared[name]
            if not all(map(partition.is_cell, cells)):
                raise ValueError("the declaration has no such cell")
            if isinstance(partition, HashPartition):
                cell_numbers = np.array(cells, dtype=np.int32)
                self._tests.append((stored[name], None, cell_numbers))
            elif isinstance(partition, ColumnPartition):
                listed_cells = partition.listed_cells
                codes = [listed_cells.index(str(cell)) for cell in cells]
                column = stored.get(name, "")
                if partition.is_feature:
                    index = feature_names.index(partition.column)
                    column = row_layout.feature_column(index)
                self._tests.append((column, partition, np.array(codes, np.int32)))
        self.columns = [column for column, _, _ in self._tests]
        if not keep_unlabelled:
            self.columns.append(self.label_column)

    def among(self, table: pa.Table) -> BoolArray:
        """A PRIVATE mask of the rows of a table."""
        kept = np.ones(table.num_rows, dtype=np.bool_)
        for column, partition, selected in self._tests:
            codes = integers(table.column(column))
            # A damaged code becomes OTHER here as it does in growth: the row is in
            # exactly one cell whatever its file holds.
            if partition is not None:
                codes = sanitise_codes(as_feature(partition), codes)
            kept &= np.isin(codes, selected)
        if self._keep_unlabelled:
            return kept
        labels = integers(table.column(self.label_column))
        return kept & has_known_label(self.schema.label, labels)


def start_reading() -> None:
    """Starts the thread in which pyarrow reads files, the only one of this process, so
    that no later read starts one.

    pyarrow starts up to eight when it reads, and the read fails if the machine starts
    no further thread.

    Raises:
        pa.ArrowException: the machine starts no further thread now.
    """
    pa.set_io_thread_count(1)
    file = BytesIO()
    pq.write_table(pa.table({"public": [0]}), file)
    pq.ParquetFile(file).read_row_group(0, use_threads=False)


@overload
def read(
    files: Sequence[SealedFile], selection: Selection, *, codes: None = None
) -> SanitisedRows: ...


@overload
def read(
    files: Sequence[SealedFile], selection: Selection, *, codes: CodeRequest
) -> CodedRows: ...


@overload
def read(
    files: Sequence[SealedFile], selection: Selection, *, codes: CodeRequest | None
) -> SanitisedRows | CodedRows: ...


def read(
    files: Sequence[SealedFile],
    selection: Selection,
    *,
    codes: CodeRequest | None = None,
) -> SanitisedRows | CodedRows:
    """Reads the rows of a job's scope. One call is one private read: commit the charge
    before it.

    Args:
        files: public; the files of the epochs in scope, in the order of the returned
            rows.
        selection: public.
        codes: public; read codes by public bins instead of values. A row group is in
            memory at a time; codes that an earlier job stored are read in place of
            values. Whether they are there depends on jobs and on the number of rows.

    Returns:
        PRIVATE rows; there may be no row.

    Raises:
        InstallationError: a file is absent, damaged or of an unknown form.
    """
    if codes is None:
        return _read_values(files, selection)
    return _read_codes(files, selection, codes)


def shards(file: SealedFile, selection: Selection, *, n_rows: int) -> list[RowGroups]:
    """Divides a file into row groups of about ``n_rows`` rows together, which several
    machines read; at least one.

    The division depends on the number of rows of the upload, never on their values. It
    is PRIVATE, as that number is.

    Raises:
        InstallationError: the file is absent, damaged or of an unknown form.
    """
    with _opened(file, selection) as (reader, stored):
        starts = [0]
        waiting = 0
        for group in range(stored.num_row_groups):
            if waiting >= n_rows:
                starts.append(group)
                waiting = 0
            waiting += stored.metadata.row_group(group).num_rows
        stops = [*starts[1:], stored.num_row_groups]
        return [
            RowGroups(file, reader.file_id, start, stop)
            for start, stop in zip(starts, stops, strict=True)
        ]


def read_shard(
    shard: RowGroups, selection: Selection, *, codes: CodeRequest
) -> CodedRows:
    """Reads row groups of one file; otherwise like :func:`read`. A shard is read again
    after its machine was lost.

    Raises:
        InstallationError: the file is absent, damaged, of an unknown form, or took the
            place of the file of the shard.
    """
    return _read_codes([shard.file], selection, codes, within=shard)


def read_columns(
    files: Sequence[SealedFile],
    selection: Selection,
    names: Collection[str],
    *,
    within: RowGroups | None = None,
) -> Generator[ColumnBlock, None, None]:
    """Reads the values of some columns, a row group at a time; otherwise like
    :func:`read`.

    Close it to let the thread end that reads the next row group.

    Args:
        names: public; of features, and perhaps of labels.
        within: only these row groups, of the only file.

    Raises:
        InstallationError: a file is absent, damaged, of an unknown form, or took the
            place of the file of the row groups.
    """
    for file in files:
        with _opened(file, selection) as (reader, stored):
            groups = _row_groups(reader, stored, within)
            block = partial(_column_block, stored, selection, names)
            with closing(made_ahead(groups, block)) as blocks:
                yield from blocks


def _column_block(
    stored: pq.ParquetFile, selection: Selection, names: Collection[str], group: int
) -> ColumnBlock:
    """The PRIVATE rows of a row group that are in the scope."""
    labels = [label for label in selection.schema.labels if label.name in names]
    features = [
        (feature, row_layout.feature_column(index))
        for index, feature in enumerate(selection.schema.features)
        if feature.name in names
    ]
    columns = {*selection.columns, *(column for _, column in features)}
    columns.update(selection.label_columns[label.name] for label in labels)
    table = stored.read_row_group(group, columns=sorted(columns), use_threads=False)
    kept = selection.among(table)
    if not kept.all():
        table = table.filter(mask(kept))
    values: dict[str, Float64Array | Int32Array] = {
        feature.name: _feature_values(feature, table.column(column))
        for feature, column in features
    }
    for label in labels:
        stored_codes = table.column(selection.label_columns[label.name])
        codes = _classes(label, stored_codes)
        values[label.name] = codes
        if label.is_number:
            values[label.name] = written_numbers(label, codes)
    return ColumnBlock(values, table.num_rows)


def _row_groups(
    reader: Reader, stored: pq.ParquetFile, within: RowGroups | None
) -> range:
    """The row groups of a file, or those of a shard.

    Raises:
        ValueError: the file took the place of the file of the shard.
    """
    groups = range(stored.num_row_groups)
    if within is None:
        return groups
    if within.file_id != reader.file_id:
        raise ValueError("another file of rows")
    return groups[within.start : within.stop]


def integers(stored: pa.ChunkedArray) -> Int32Array:
    """A column of integers. A null, which only a damaged file has, becomes −1: no
    declared code, class or cell.
    """
    return _joined(stored, np.int32(-1))


def numbers(stored: pa.ChunkedArray) -> Float64Array:
    """A column of numbers; a null becomes NaN."""
    return _joined(stored, np.float64(np.nan))


def _joined(stored: pa.ChunkedArray, of_null: Element) -> NDArray[Element]:
    """The values of a column. ``ChunkedArray.to_numpy`` and ``pa.scalar`` import pandas
    where it is installed: 0.2 s of CPU in each child of a job.
    """
    null = pa.Array.from_buffers(
        pa.from_numpy_dtype(of_null.dtype), 1, [None, pa.py_buffer(of_null.tobytes())]
    )[0]
    arrays: list[NDArray[Element]] = []
    for chunk in pc.fill_null(stored, null).chunks:
        # an empty chunk may have no buffer
        if len(chunk):
            start = chunk.offset * of_null.itemsize
            values = chunk.buffers()[1]
            arrays.append(np.frombuffer(values, of_null.dtype, len(chunk), start))
    # without a copy where possible: a column may be gigabytes
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate([np.empty(0, of_null.dtype), *arrays])


def _read_values(files: Sequence[SealedFile], selection: Selection) -> SanitisedRows:
    tables = [table for file in files for table in _read_file(file, selection)]
    table = pa.concat_tables([pa.Table.from_batches([], selection.form), *tables])
    del tables
    y = _classes(selection.schema.label, table.column(selection.label_column))
    columns = []
    for index, feature in enumerate(selection.schema.features):
        name = row_layout.feature_column(index)
        columns.append(_feature_values(feature, table.column(name)))
        # Arrow's copy of a column is dropped as soon as ours exists, so that rows are
        # in memory once, not twice.
        table = table.drop_columns([name])
    return SanitisedRows(
        features=SanitisedColumns(tuple(columns), table.num_rows),
        y=y,
        row_ids=_row_ids(table.column(row_layout.ROW_ID_COLUMN)),
    )


def _read_codes(
    files: Sequence[SealedFile],
    selection: Selection,
    request: CodeRequest,
    *,
    within: RowGroups | None = None,
) -> CodedRows:
    """Reads rows as codes by public bins, a row group at a time; ``within``: only these
    row groups of the only file.
    """
    others = {*selection.columns, selection.label_column}
    if request.with_ids:
        others.add(row_layout.ROW_ID_COLUMN)
    features = CodedColumns(request.public)
    # the first arrays are for a scope without rows, since numpy joins no empty list
    y = [np.empty(0, dtype=np.int32)]
    ids = [np.empty((0, ROW_ID_BYTES), dtype=np.uint8)]
    for file in files:
        for codes, table in _coded_groups(
            file, selection, request.public, others=sorted(others), within=within
        ):
            kept = selection.among(table)
            features.blocks.append(codes.where(kept))
            labels = table.column(selection.label_column)
            y.append(_classes(selection.schema.label, labels)[kept])
            if request.with_ids:
                ids.append(_row_ids(table.column(row_layout.ROW_ID_COLUMN))[kept])
    return CodedRows(
        features, np.concatenate(y), np.concatenate(ids) if request.with_ids else None
    )


def _coded_groups(
    file: SealedFile,
    selection: Selection,
    public: Encoding,
    *,
    others: list[str],
    within: RowGroups | None,
) -> Iterator[tuple[CodedBlock, pa.Table]]:
    """The codes of row groups of a file, with the table of ``others``, which is read in
    every case.
    """
    n_bits = coded_rows.code_bits(public)
    with ExitStack() as stack, _opened(file, selection) as (reader, stored):
        groups = _row_groups(reader, stored, within)
        group_rows = [
            stored.metadata.row_group(group).num_rows
            for group in range(stored.num_row_groups)
        ]
        # By the random id of the file, from which their key is made: codes of a file that
        # an erasure replaced can never be read again.
        coded = code_files.file_of(file, reader.file_id, public)
        known = code_files.CodeReader(
            coded,
            n_columns=len(public.edges),
            group_rows=group_rows,
            n_bits=n_bits,
        )
        stack.enter_context(closing(known))
        # A shard has a part of the codes, and a file of codes has those of all rows.
        is_new = within is None and not known.has_codes
        written: code_files.CodeWriter | None = None
        if coded is not None and is_new and sum(group_rows) >= code_files.FEWEST_ROWS:
            written = stack.enter_context(code_files.CodeWriter(coded))
        # A thread reads and decrypts the next group while growth takes this one.
        ahead = stack.enter_context(closing(made_ahead(groups, known.read)))
        for group, codes in zip(groups, ahead, strict=True):
            if codes is None:
                values = _codes_of_values(stored, group, public)
                codes = CodedBlock.of(values, n_bits=n_bits)
                if written is not None:
                    written.write(codes)
            yield codes, stored.read_row_group(group, columns=others, use_threads=False)


def _codes_of_values(
    stored: pq.ParquetFile, group: int, public: Encoding
) -> UInt16Array:
    """The codes of a row group; one column of values is in memory at a time."""
    codes = np.empty(
        (len(public.edges), stored.metadata.row_group(group).num_rows), dtype=np.uint16
    )
    for index, feature in enumerate(public.schema.features):
        name = row_layout.feature_column(index)
        table = stored.read_row_group(group, columns=[name], use_threads=False)
        values = _feature_values(feature, table.column(name))
        codes[index] = public.tables.wide_codes(index, values)
    return codes


def _read_file(file: SealedFile, selection: Selection) -> Iterator[pa.Table]:
    with _opened(file, selection) as (_, stored):
        for group in range(stored.num_row_groups):
            table = stored.read_row_group(group, use_threads=False)
            yield table.filter(mask(selection.among(table)))


@contextmanager
def _opened(
    file: SealedFile, selection: Selection
) -> Iterator[tuple[Reader, pq.ParquetFile]]:
    """Opens a file of rows.

    Raises:
        InstallationError: the file is absent, damaged or of an unknown form, or its
            rows cannot be read in the block.
    """
    is_readable = False
    try:
        with file.open() as reader, pq.ParquetFile(reader) as stored:
            if row_layout.is_layout_of(stored.schema_arrow, selection.form):
                yield reader, stored
                # only after the block, in which the rows are read
                is_readable = True
    except (pa.ArrowException, SealBroken, OSError, ValueError):
        is_readable = False
    # Raised outside the handler: the library's error may quote private cells and must
    # not be chained.
    if not is_readable:
        raise InstallationError(
            "a stored row file is absent, damaged or of an unknown form; restore it from a backup"
        )


def _classes(label: Label, stored: pa.ChunkedArray) -> Int32Array:
    """The class or the number of every row as a code; −1 for a label that is not
    declared.
    """
    labels = integers(stored)
    return np.where(
        has_known_label(label, labels), labels, np.int32(row_layout.UNKNOWN_LABEL)
    )


def _feature_values(
    feature: Feature, stored: pa.ChunkedArray
) -> Float64Array | Int32Array:
    if feature.is_categorical:
        return sanitise_codes(feature, integers(stored))
    return sanitise_numbers(feature, numbers(stored))


def _row_ids(stored: pa.ChunkedArray) -> UInt8Array:
    ids = np.empty((len(stored), ROW_ID_BYTES), dtype=np.uint8)
    end = 0
    for chunk in stored.chunks:
        start, end = end, end + len(chunk)
        if len(chunk):
            id_bytes = np.frombuffer(chunk.buffers()[1], dtype=np.uint8)
            ids_of_buffer = id_bytes.reshape(-1, ROW_ID_BYTES)
            ids[start:end] = ids_of_buffer[chunk.offset : chunk.offset + len(chunk)]
    return ids
