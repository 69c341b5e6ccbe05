"""Decodes stored files of rows. Only the readers of private and of public rows import this module.

Reading is total: the sanitiser is applied again to whatever values a file holds, so that a damaged file cannot make
growth fail in a way that depends on a row. A file that cannot be read at all is a fault of the installation; the error
says nothing about its content.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from app.core.data_keys import SealBroken
from app.core.errors import InstallationError
from app.core.sealed_files import SealedFile
from app.datasets import row_layout
from app.datasets.boxes import Box, integers
from app.datasets.cells import ROW_ID_BYTES
from app.forests.data.rows import SanitisedColumns, SanitisedRows
from app.forests.data.sanitiser import has_known_label, sanitise_codes, sanitise_numbers
from app.forests.data.schema import Feature, Schema
from app.privacy.composition import Partitions, Scope


def read(
    files: Sequence[SealedFile],
    *,
    schema: Schema,
    partitions: Partitions,
    scope: Scope,
    keep_unlabelled: bool,
    marked: Mapping[bytes, bytes],
) -> SanitisedRows:
    """Reads the rows of a scope from files that have the metadata ``marked``; see the readers for the arguments.

    Raises:
        ValueError: the scope names a partition or cell that was not declared.
        InstallationError: a file is absent, damaged, of an unknown form or not marked.
    """
    form, box = row_layout.arrow_schema(schema, partitions), Box(schema, partitions, scope)
    tables = [table for file in files for table in _read_file(file, form=form, box=box, marked=marked)]
    if not keep_unlabelled:
        tables = [table.filter(pa.array(_is_labelled(schema, table))) for table in tables]
    table = pa.concat_tables([form.empty_table(), *tables])
    del tables
    y = np.where(
        _is_labelled(schema, table),
        integers(table.column(row_layout.LABEL_COLUMN)),
        np.int32(row_layout.UNKNOWN_LABEL),
    )
    columns = []
    for index, feature in enumerate(schema.features):
        columns.append(_feature_values(feature, table.column(row_layout.feature_column(index))))
        # Arrow's copy of a column is dropped as soon as ours exists, so that rows are in memory once, not twice.
        table = table.drop_columns([row_layout.feature_column(index)])
    return SanitisedRows(
        features=SanitisedColumns(tuple(columns), table.num_rows),
        y=y,
        row_ids=_row_ids(table.column(row_layout.ROW_ID_COLUMN)),
    )


def _read_file(file: SealedFile, *, form: pa.Schema, box: Box, marked: Mapping[bytes, bytes]) -> Iterator[pa.Table]:
    """The rows of the box in one file, a row group at a time."""
    is_readable = False
    try:
        with file.open() as reader, pq.ParquetFile(reader) as stored:
            stored_form = stored.schema_arrow
            if stored_form.equals(form) and (stored_form.metadata or {}).items() >= marked.items():
                for group in range(stored.num_row_groups):
                    table = stored.read_row_group(group, use_threads=False)
                    yield table.filter(pa.array(box.covers(table)))
                is_readable = True
    except (pa.ArrowException, SealBroken, OSError, ValueError):
        is_readable = False
    # Raised outside the handler: the library's error may quote private cells and must not be chained.
    if not is_readable:
        raise InstallationError("a stored row file is absent, damaged or of an unknown form; restore it from a backup")


def _is_labelled(schema: Schema, table: pa.Table) -> NDArray[np.bool_]:
    return has_known_label(schema.label, integers(table.column(row_layout.LABEL_COLUMN)))


def _feature_values(feature: Feature, stored: pa.ChunkedArray) -> NDArray[np.float64] | NDArray[np.int32]:
    if feature.is_categorical:
        return sanitise_codes(feature, integers(stored))
    values: NDArray[np.float64] = stored.to_numpy()
    return sanitise_numbers(feature, values)


def _row_ids(stored: pa.ChunkedArray) -> NDArray[np.uint8]:
    ids = np.empty((len(stored), ROW_ID_BYTES), dtype=np.uint8)
    end = 0
    for chunk in stored.chunks:
        start, end = end, end + len(chunk)
        if len(chunk):
            bytes_of_chunk = np.frombuffer(chunk.buffers()[1], dtype=np.uint8).reshape(-1, ROW_ID_BYTES)
            ids[start:end] = bytes_of_chunk[chunk.offset : chunk.offset + len(chunk)]
    return ids
