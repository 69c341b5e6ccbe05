"""Names, lays out, writes and erases the files of private rows: one Parquet file per epoch.

::

    <home>/rows/<dataset id>/<epoch id>.parquet
    <home>/prints/<dataset id>/<epoch id>.prints      keyed fingerprints of the same rows, in the same order

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

Where the privacy unit is a column, the admission book (:mod:`app.datasets.admission`) is in the same folder.

Both kinds of files are encrypted under the dataset's data key (:mod:`app.core.sealed_files`), which refuses a damaged
file. Folders have mode 0700 and files 0600.
"""

import errno
import re
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from app.core import durable
from app.core.data_keys import DataKey, SealBroken
from app.core.errors import InstallationError
from app.core.sealed_files import SealedFile, Writer
from app.datasets.cells import ROW_ID_BYTES
from app.datasets.partition_columns import stored_columns
from app.forests.data.schema import Schema
from app.privacy.composition import Partitions

UNKNOWN_LABEL = -1
LABEL_COLUMN = "label"
ROW_ID_COLUMN = "row_id"
FORMAT = {b"grovekeeper": b"rows/1"}
"""Metadata of every row file. A new layout gets a new number; the reader refuses unknown numbers."""

_BODY = b"body"
"""Key of the metadata that hold the keyed fingerprint of the upload's body."""

ROWS_FOLDER = "rows"
PRINTS_FOLDER = "prints"
_DOOMED = ".erased"
_ID = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)


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


def sealed_rows(home: Path, dataset_id: str, epoch_id: str, *, key: DataKey) -> SealedFile:
    """The encrypted file of the rows of one upload; raises what :func:`epoch_file` raises."""
    return SealedFile(epoch_file(home, dataset_id, epoch_id), key)


def sealed_prints(home: Path, dataset_id: str, epoch_id: str, *, key: DataKey) -> SealedFile:
    """The encrypted file of the fingerprints of one upload; raises what :func:`prints_file` raises."""
    return SealedFile(prints_file(home, dataset_id, epoch_id), key)


def epoch_file(home: Path, dataset_id: str, epoch_id: str) -> Path:
    """The path of the rows of one upload.

    Raises:
        ValueError: the id does not have the form of our ids. No text from outside becomes a path.
    """
    if not _ID.fullmatch(epoch_id):
        raise ValueError("not an epoch id")
    return _dataset_folder(home, dataset_id) / f"{epoch_id}.parquet"


def prints_file(home: Path, dataset_id: str, epoch_id: str) -> Path:
    """The path of the fingerprints of one upload.

    Raises:
        ValueError: the id does not have the form of our ids.
    """
    if not _ID.fullmatch(epoch_id):
        raise ValueError("not an epoch id")
    return _dataset_folder(home, dataset_id, kind=PRINTS_FOLDER) / f"{epoch_id}.prints"


def admission_file(home: Path, dataset_id: str) -> Path:
    """The admission book of a dataset whose privacy unit is a column."""
    return _dataset_folder(home, dataset_id) / "units.sqlite3"


def stored_uploads(home: Path, dataset_id: str, epoch_ids: Iterable[str], *, key: DataKey) -> dict[str, StoredUpload]:
    """PRIVATE: what the footers of some uploads' files say, by epoch; uploads without a file are left out.

    Raises:
        InstallationError: a file is damaged.
    """
    uploads: dict[str, StoredUpload] = {}
    for epoch in epoch_ids:
        with suppress(FileNotFoundError), reading(sealed_rows(home, dataset_id, epoch, key=key)) as stored:
            body = (stored.schema_arrow.metadata or {}).get(_BODY)
            uploads[epoch] = StoredUpload(
                stored.metadata.num_rows, None if body is None else bytes.fromhex(body.decode())
            )
    return uploads


def size_bytes(folder: Path) -> int:
    """PRIVATE: bytes of all files in a folder, unfinished ones included. For limits only; never part of an answer."""
    size = 0
    for file in folder.iterdir():
        with suppress(FileNotFoundError):  # an upload that ended meanwhile
            size += file.stat().st_size
    return size


def erase_epoch(home: Path, dataset_id: str, epoch_id: str) -> None:
    """Erases the rows of one upload, durably, after its transaction failed. Safe to repeat."""
    for file in (epoch_file(home, dataset_id, epoch_id), prints_file(home, dataset_id, epoch_id)):
        with suppress(FileNotFoundError):
            file.unlink()
            durable.sync_folder(file.parent)


def erase_dataset(home: Path, dataset_id: str) -> None:
    """Erases all rows of a dataset, durably, unfinished uploads included. Safe to repeat.

    The folder is renamed first, so that an upload that still runs fails to write. The file system forgets the files;
    blocks on the medium are not overwritten.
    """
    for kind in (PRINTS_FOLDER, ROWS_FOLDER):
        folder = _dataset_folder(home, dataset_id, kind=kind)
        with suppress(FileNotFoundError):
            folder.rename(folder.with_name(f".{dataset_id}.{secrets.token_hex(8)}{_DOOMED}"))
        for doomed in folder.parent.glob(f".{dataset_id}.*{_DOOMED}"):  # with folders that a killed erasure left
            _erase_folder(doomed)


def erase_remains(home: Path) -> None:
    """Completes erasures of datasets that were killed."""
    for kind in (PRINTS_FOLDER, ROWS_FOLDER):
        for doomed in (home / kind).glob(f".*{_DOOMED}"):
            _erase_folder(doomed)


def _erase_folder(doomed: Path) -> None:
    """Erases a renamed folder, to which only calls in flight can still add files."""
    while doomed.exists():
        try:
            shutil.rmtree(doomed)
        except FileNotFoundError:  # a writer removed its file in the meantime
            continue
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
    durable.sync_folder(doomed.parent)


def erase_unfinished(home: Path, *, before: datetime) -> int:
    """Erases unfinished files of killed uploads that were last written before a time.

    Args:
        home: the service's folder.
        before: aware; earlier than the start of any upload that may still run.

    Returns:
        The number of files erased.
    """
    erased = 0
    unfinished = f"*/.*{durable.UNFINISHED}"
    for file in [*(home / ROWS_FOLDER).glob(unfinished), *(home / PRINTS_FOLDER).glob(unfinished)]:
        with suppress(FileNotFoundError):
            if file.stat().st_mtime < before.timestamp():
                file.unlink()
                erased += 1
    return erased


def erase_uncommitted(home: Path, dataset_id: str, *, committed: Collection[str]) -> None:
    """Erases the files of a dataset's killed uploads, durably, while no upload to the dataset runs. Safe to repeat.

    Args:
        home: the service's folder.
        dataset_id: the dataset.
        committed: ids of all its uploads.
    """
    for kind, ending in ((PRINTS_FOLDER, ".prints"), (ROWS_FOLDER, ".parquet")):
        folder = _dataset_folder(home, dataset_id, kind=kind)
        dead = [file for file in folder.glob(f"*{ending}") if _ID.fullmatch(file.stem) and file.stem not in committed]
        for file in [*dead, *folder.glob(f".*{durable.UNFINISHED}")]:
            file.unlink(missing_ok=True)
            durable.sync_folder(folder)


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
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in form.names if name != ROW_ID_COLUMN],
        write_statistics=False,
    )


def _dataset_folder(home: Path, dataset_id: str, *, kind: str = ROWS_FOLDER) -> Path:
    if not _ID.fullmatch(dataset_id):
        raise ValueError("not a dataset id")
    return home / kind / dataset_id
