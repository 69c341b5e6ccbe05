"""Lays out the rows of one upload as Parquet, assigns them to cells, and opens and
writes files of that layout.

Columns are named by position (``f0``, ``f1`` …), so that no declared name can conflict
with the file format:

=============  =====================  =====================================================================
column         type                   content
=============  =====================  =====================================================================
``f<i>``       float64, nullable      number of feature i inside its bounds; null = MISSING
``f<i>``       int32                  category code of feature i, with OTHER and MISSING
``label``      int32                  code of a class or a number; −1 = undeclared or empty (dropped when rows are read)
``label1`` …   int32                  codes of the following labels, in declared order
``row_id``     fixed binary, 16       random, or a keyed digest of the row's unit; never shown
``cell``       int32                  cell of the first partition by hash or by a column that is no feature; absent
                                      without such a partition
``cell1`` …    int32                  cells of the following such partitions, in declared order
=============  =====================  =====================================================================

A row gets the cell of a hash partition by a keyed hash of its id. The assignment is
stable (lemma L5 in docs/proofs/lemmas.md): adding or removing a row moves no other row,
as an assignment by position, shuffle or size would. A partition by a feature reads the
feature's column, and a partition by upload needs no column, because an upload is a
file. Whatever a stored number is, the row is in exactly one cell.
"""

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.core.errors import InstallationError
from app.core.files import Store
from app.core.sealed_files import DataKey, SealBroken, SealedFile, Writer
from app.datasets import row_files
from app.datasets.admission import ROW_ID_BYTES
from grovekeeper_forests.array_types import Int32Array
from grovekeeper_forests.data.schema import NUMBER, Feature, Schema
from grovekeeper_forests.privacy.partitions import (
    ColumnPartition,
    HashPartition,
    Partitions,
)

UNKNOWN_LABEL = -1
LABEL_COLUMN = "label"
ROW_ID_COLUMN = "row_id"
CELL_COLUMN = "cell"
_KEY_BYTES = 32
FORMAT = {b"grovekeeper": b"rows/1"}
"""Metadata of every row file. A new layout gets a new number; the reader refuses
unknown numbers.
"""

# key of the metadata that hold a digest of what the codes of the file mean
_MEANING = b"meaning"
# key of the metadata that hold the keyed fingerprint of the upload's body
_BODY = b"body"
# key of the metadata that hold the keyed digest of the upload's cells
_CELLS = b"cells"


@dataclass(frozen=True)
class RowGroups:
    """Consecutive row groups of one file of rows.

    Attributes:
        file_id: the random id of the file. A file that replaces it after an erasure has
            another id and may have other row groups, in which a row could be read
            twice.
        start: the first row group.
        stop: the row group after the last.
    """

    file: SealedFile
    file_id: bytes
    start: int
    stop: int


def feature_column(index: int) -> str:
    """The stored name of a schema's feature number ``index``."""
    return f"f{index}"


def label_column(index: int) -> str:
    """The stored name of a schema's label number ``index``."""
    return f"{LABEL_COLUMN}{index or ''}"


@dataclass(frozen=True)
class StoredUpload:
    """What the footer of an upload's file says. PRIVATE: shown to a granted owner,
    never logged.

    Attributes:
        body: keyed fingerprint of the body, as its sender sent it; ``None`` where the
            file has none.
        cells: keyed digest of the cells of all rows of the body; ``None`` where the
            file has none.
    """

    n_rows: int = field(repr=False)
    body: bytes | None = field(repr=False)
    cells: bytes | None = field(repr=False)


def arrow_schema(
    schema: Schema, partitions: Partitions, *, body: bytes | None = None
) -> pa.Schema:
    """The layout of a declaration's row files: column names, types, nullability and
    format number.

    ``body`` is the fingerprint of the upload's body, which the file of the upload
    keeps.
    """
    fields = []
    for index, feature in enumerate(schema.features):
        # MISSING of a category is a code, so only numbers have nulls
        if feature.is_categorical:
            fields.append(pa.field(feature_column(index), pa.int32(), nullable=False))
        else:
            fields.append(pa.field(feature_column(index), pa.float64()))
    for index in range(len(schema.labels)):
        fields.append(pa.field(label_column(index), pa.int32(), nullable=False))
    fields.append(pa.field(ROW_ID_COLUMN, pa.binary(ROW_ID_BYTES), nullable=False))
    for column in stored_columns(partitions):
        fields.append(pa.field(column.name, pa.int32(), nullable=False))
    metadata: dict[bytes, bytes | str] = {**FORMAT, _MEANING: _meaning_of(schema)}
    if body is not None:
        metadata[_BODY] = body.hex()
    return pa.schema(fields, metadata=metadata)


def _meaning_of(schema: Schema) -> str:
    """A digest of what a stored code means, by position. Bounds of features are not in
    it: numbers are clamped again when read. A label that is a number is stored in parts
    of its range.
    """
    features = [
        [feature.name, feature.type, feature.categories, feature.missing]
        for feature in schema.features
    ]
    for stored, feature in zip(features, schema.features, strict=True):
        if feature.first_day is not None:  # which the days are counted from
            stored.append(feature.first_day)
    # a code by other bounds would be another number
    values = [label.classes or [NUMBER, label.bounds] for label in schema.labels]
    meaning: list[object] = [features, values[0]]
    if schema.further_labels:
        # With names: labels of equal classes must not be taken for each other.
        named = []
        for label, meant in zip(schema.labels, values, strict=True):
            named.append([label.name, meant])
        meaning.append(named)
    text = json.dumps(meaning)
    return hashlib.sha256(text.encode()).hexdigest()


def is_layout_of(stored: pa.Schema, declared: pa.Schema) -> bool:
    """Whether a file has the layout of a declaration, :func:`arrow_schema`, and its
    codes mean what is declared.

    The schema of a dataset stands in no entry, and a partition by a feature finds its
    column by the feature's name: by another schema, rows of other cells would be read.
    Files of earlier versions do not say what their codes mean.
    """
    known = {_MEANING: declared.metadata[_MEANING], **(stored.metadata or {})}
    return stored.equals(declared) and all(
        known.get(name) == fact for name, fact in declared.metadata.items()
    )


def stored_uploads(
    store: Store, dataset_id: str, epoch_ids: Iterable[str], *, key: DataKey
) -> dict[str, StoredUpload]:
    """PRIVATE: what the footers of some uploads' files say, by epoch; uploads without a
    file are left out.
    """
    uploads: dict[str, StoredUpload] = {}
    for epoch in epoch_ids:
        with (
            suppress(FileNotFoundError),
            reading(row_files.sealed_rows(store, dataset_id, epoch, key=key)) as stored,
        ):
            n_rows = stored.metadata.num_rows
            uploads[epoch] = StoredUpload(
                n_rows, _from_footer(stored, _BODY), cells_digest(stored)
            )
    return uploads


def cells_digest(stored: pq.ParquetFile) -> bytes | None:
    """The keyed digest of the upload's cells, which an erasure of some rows leaves as
    it is.
    """
    return _from_footer(stored, _CELLS)


def add_cells_digest(written: pq.ParquetWriter, digest: bytes) -> None:
    """Puts the keyed digest of the upload's cells, known after the last row alone, into
    the footer of a file.
    """
    written.add_key_value_metadata({_CELLS: digest.hex()})


def _from_footer(stored: pq.ParquetFile, name: bytes) -> bytes | None:
    digest = (stored.metadata.metadata or {}).get(name)
    if digest is None:
        return None
    return bytes.fromhex(digest.decode())


@contextmanager
def reading(file: SealedFile) -> Iterator[pq.ParquetFile]:
    """Opens a file of rows.

    Raises:
        FileNotFoundError: no such file.
        InstallationError: the file is damaged or of an unknown form. Nothing of its
            content is in the error.
    """
    is_readable = True
    try:
        with file.open() as reader, pq.ParquetFile(reader) as stored:
            yield stored
    except (pa.ArrowException, SealBroken):
        is_readable = False
    # Raised outside the handler: the library's error may quote private cells and must
    # not be chained.
    if not is_readable:
        raise InstallationError(
            "a stored row file is damaged or of an unknown form; restore it from a backup"
        )


def writer(file: Writer, form: pa.Schema) -> pq.ParquetWriter:
    """A Parquet writer with the settings of row files."""
    return pq.ParquetWriter(
        file,
        form,
        # Ids are random bytes, which no compression shortens.
        compression={
            field.name: "none" if field.name == ROW_ID_COLUMN else "zstd"
            for field in form
        },
        compression_level={
            field.name: 1 for field in form if field.name != ROW_ID_COLUMN
        },
        # Numbers have too many values for a dictionary: building one takes twice as
        # long as the rest, and is given up.
        use_dictionary=[field.name for field in form if field.type == pa.int32()],
        # All first bytes, then all second bytes: numbers are compressed in half the
        # time, and read in two thirds.
        column_encoding={
            field.name: "BYTE_STREAM_SPLIT"
            for field in form
            if field.type == pa.float64()
        },
        # The smallest and largest value of each group; nothing reads them.
        write_statistics=False,
    )


def hash_keys(partitions: Partitions, *, dataset_key: bytes) -> dict[str, bytes]:
    """The key of every hash partition: HMAC-SHA256(dataset key, name of the partition).

    With one key for all partitions, their cells would depend on one another.
    """
    keys = {}
    for partition in partitions.declared:
        if isinstance(partition, HashPartition):
            name = partition.name
            keys[name] = hmac.digest(dataset_key, name.encode("utf-8"), "sha256")
    return keys


def hash_cells(
    row_ids: bytes, *, partition: HashPartition, dataset_key: bytes
) -> Int32Array:
    """The cell of every row: HMAC-SHA256(dataset key, row id), read as a big-endian
    integer, modulo k.

    The whole 256-bit digest is reduced, so the shares of two cells differ by less than
    2⁻²⁴⁶.

    Args:
        row_ids: PRIVATE; the ids one after another, 16 bytes each.
        partition: public.
        dataset_key: secret; made at declaration, never part of an answer.

    Returns:
        int32 ``(n_rows,)``, PRIVATE.

    Raises:
        ValueError: the key or the ids do not have their fixed length.
    """
    if len(dataset_key) != _KEY_BYTES:
        raise ValueError(f"a dataset key has {_KEY_BYTES} bytes")
    n_rows, rest = divmod(len(row_ids), ROW_ID_BYTES)
    if rest:
        raise ValueError(f"a row id has {ROW_ID_BYTES} bytes")
    # Local names: the expression runs once for each row of an upload.
    digest = hmac.digest
    number_of = int.from_bytes
    n_cells = partition.cells
    starts = range(0, len(row_ids), ROW_ID_BYTES)
    ids = (row_ids[start : start + ROW_ID_BYTES] for start in starts)
    cells = (
        number_of(digest(dataset_key, id_, "sha256"), "big") % n_cells for id_ in ids
    )
    return np.fromiter(cells, dtype=np.int32, count=n_rows)


@dataclass(frozen=True)
class StoredColumn:
    """A column of a row file that only holds a partition's cells: int32, never null."""

    name: str
    partition: HashPartition | ColumnPartition


def stored_columns(partitions: Partitions) -> list[StoredColumn]:
    """``cell``, ``cell1``, ``cell2`` … for the partitions that need a column of their
    own, in declared order.
    """
    columns: list[StoredColumn] = []
    for partition in partitions.declared:
        # the first one has no number
        name = f"{CELL_COLUMN}{len(columns) or ''}"
        if isinstance(partition, HashPartition) or (
            isinstance(partition, ColumnPartition) and not partition.is_feature
        ):
            columns.append(StoredColumn(name, partition))
    return columns


def own_column_partitions(partitions: Partitions) -> list[ColumnPartition]:
    """The partitions by a column that is neither a feature nor the label, in declared
    order.
    """
    stored = (column.partition for column in stored_columns(partitions))
    return [partition for partition in stored if isinstance(partition, ColumnPartition)]


def as_feature(partition: ColumnPartition) -> Feature:
    """A column partition as a categorical feature, so that its column is read by the
    rules of features.
    """
    return Feature(
        partition.column,
        "categorical",
        categories=partition.categories,
        missing=partition.has_missing,
    )
