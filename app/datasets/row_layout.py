"""Lays out the rows of one upload as Parquet, and opens and writes files of that layout.

Columns are named by position (``f0``, ``f1`` …), so that no declared name can conflict with the file format:

=============  =====================  =====================================================================
column         type                   content
=============  =====================  =====================================================================
``f<i>``       float64, nullable      number of feature i inside its bounds; null = MISSING
``f<i>``       int32                  category code of feature i, with OTHER and MISSING
``label``      int32                  class code; −1 = undeclared or empty (dropped when rows are read)
``row_id``     fixed binary, 16       random, or a keyed digest of the row's unit; never shown
``cell``       int32                  cell of the first partition by hash or by a column that is no feature; absent
                                      without such a partition
``cell1`` …    int32                  cells of the following such partitions, in declared order
=============  =====================  =====================================================================
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.errors import InstallationError
from app.core.sealed_files import DataKey, SealBroken, SealedFile, Writer
from app.core.stores import Store
from app.datasets import row_files
from app.datasets.cells import ROW_ID_BYTES, stored_columns
from app.forests.data.schema import Schema
from app.privacy.composition import Partitions

UNKNOWN_LABEL = -1
LABEL_COLUMN = "label"
ROW_ID_COLUMN = "row_id"
FORMAT = {b"grovekeeper": b"rows/1"}
"""Metadata of every row file. A new layout gets a new number; the reader refuses unknown numbers."""

_BODY = b"body"
"""Key of the metadata that hold the keyed fingerprint of the upload's body."""


@dataclass(frozen=True)
class RowGroups:
    """Consecutive row groups of one file of rows.

    Attributes:
        file: the file.
        file_id: the random id of the file. A file that replaces it after an erasure has another id and may have other
            row groups, in which a row could be read twice.
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


@dataclass(frozen=True)
class StoredUpload:
    """What the footer of an upload's file says. PRIVATE: shown to a granted owner, never logged.

    Attributes:
        n_rows: number of stored rows.
        body: keyed fingerprint of the body, as its sender sent it; ``None`` where the file has none.
    """

    n_rows: int = field(repr=False)
    body: bytes | None = field(repr=False)


def arrow_schema(schema: Schema, partitions: Partitions, *, body: bytes | None = None) -> pa.Schema:
    """The layout of a declaration's row files: column names, types, nullability and format number.

    ``body`` is the fingerprint of the upload's body, which the file of the upload keeps.
    """
    fields = [
        pa.field(feature_column(index), pa.int32(), nullable=False)
        if feature.is_categorical
        else pa.field(feature_column(index), pa.float64())
        for index, feature in enumerate(schema.features)
    ]
    fields.append(pa.field(LABEL_COLUMN, pa.int32(), nullable=False))
    fields.append(pa.field(ROW_ID_COLUMN, pa.binary(ROW_ID_BYTES), nullable=False))
    fields += [pa.field(column.name, pa.int32(), nullable=False) for column in stored_columns(partitions)]
    return pa.schema(fields, metadata=FORMAT if body is None else {**FORMAT, _BODY: body.hex()})


def without_body(form: pa.Schema) -> pa.Schema:
    """A layout without the fingerprint of the upload's body."""
    return form.with_metadata({name: value for name, value in (form.metadata or {}).items() if name != _BODY})


def stored_uploads(store: Store, dataset_id: str, epoch_ids: Iterable[str], *, key: DataKey) -> dict[str, StoredUpload]:
    """PRIVATE: what the footers of some uploads' files say, by epoch; uploads without a file are left out.

    Raises:
        InstallationError: a file is damaged.
    """
    uploads: dict[str, StoredUpload] = {}
    for epoch in epoch_ids:
        with suppress(FileNotFoundError), reading(row_files.sealed_rows(store, dataset_id, epoch, key=key)) as stored:
            body = (stored.schema_arrow.metadata or {}).get(_BODY)
            uploads[epoch] = StoredUpload(
                stored.metadata.num_rows, None if body is None else bytes.fromhex(body.decode())
            )
    return uploads


@contextmanager
def reading(file: SealedFile) -> Iterator[pq.ParquetFile]:
    """Opens a file of rows.

    Raises:
        FileNotFoundError: no such file.
        InstallationError: the file is damaged or of an unknown form. Nothing of its content is in the error.
    """
    is_readable = True
    try:
        with file.open() as reader, pq.ParquetFile(reader) as stored:
            yield stored
    except (pa.ArrowException, SealBroken):
        is_readable = False
    # Raised outside the handler: the library's error may quote private cells and must not be chained.
    if not is_readable:
        raise InstallationError("a stored row file is damaged or of an unknown form; restore it from a backup")


def writer(file: Writer, form: pa.Schema) -> pq.ParquetWriter:
    """A Parquet writer with the settings of row files."""
    return pq.ParquetWriter(
        file,
        form,
        # Ids are random bytes, which no compression shortens.
        compression={field.name: "none" if field.name == ROW_ID_COLUMN else "zstd" for field in form},
        compression_level={field.name: 1 for field in form if field.name != ROW_ID_COLUMN},
        # Numbers have too many values for a dictionary: building one takes twice as long as the rest, and is given up.
        use_dictionary=[field.name for field in form if field.type == pa.int32()],
        # All first bytes, then all second bytes: numbers are compressed in half the time, and read in two thirds.
        column_encoding={field.name: "BYTE_STREAM_SPLIT" for field in form if field.type == pa.float64()},
        write_statistics=False,
    )
