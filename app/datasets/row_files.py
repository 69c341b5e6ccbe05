"""Where private rows are kept: one Parquet file per epoch, in one form, written completely or not at all.

::

    <home>/rows/<dataset id>/<epoch id>.parquet
    <home>/prints/<dataset id>/<epoch id>.prints      keyed fingerprints of the same rows, in the same order

The columns are named by position (``f0``, ``f1`` …), so that no declared name meets the rules of a file format:

=============  =====================  =====================================================================
column         type                   content
=============  =====================  =====================================================================
``f<i>``       float64, nullable      number of feature i inside its bounds; null = MISSING
``f<i>``       int32                  category code of feature i, with OTHER and MISSING
``label``      int32                  class code; −1 = undeclared or empty (dropped when rows are read)
``row_id``     fixed binary, 16       random, or a keyed digest of the row's unit; never shown
``cell``       int32                  cell of the first partition that needs a column of its own: that of a hash, or
                                      the code of a column that is no feature; absent if there is none
``cell1`` …    int32                  the same of the next ones, in declared order
=============  =====================  =====================================================================

Beside them, where the privacy unit is a column, lies the book of admitted rows (:mod:`app.datasets.admission`).

Folders are 0700 and files 0600. Pages carry checksums, so that a damaged file is refused instead of read.
"""

import errno
import re
import secrets
import shutil
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from io import BufferedRandom
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from app.core import durable
from app.datasets.cells import ROW_ID_BYTES
from app.datasets.partition_columns import stored_columns
from app.forests.data.schema import Schema
from app.privacy.composition import Partitions

UNKNOWN_LABEL = -1
LABEL_COLUMN = "label"
ROW_ID_COLUMN = "row_id"
FORMAT = {b"grovekeeper": b"rows/1"}
"""Metadata of every row file. A new layout is a new number; the reader refuses numbers that it does not know."""

ROWS_FOLDER = "rows"
PRINTS_FOLDER = "prints"
_DOOMED = ".erased"
_ID = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)


def feature_column(index: int) -> str:
    """The stored name of a schema's feature number ``index``."""
    return f"f{index}"


def arrow_schema(schema: Schema, partitions: Partitions) -> pa.Schema:
    """The one form of a row file for a declaration: column names, types, nullability and format number."""
    fields = [
        pa.field(feature_column(index), pa.int32(), nullable=False)
        if feature.is_categorical
        else pa.field(feature_column(index), pa.float64())
        for index, feature in enumerate(schema.features)
    ]
    fields.append(pa.field(LABEL_COLUMN, pa.int32(), nullable=False))
    fields.append(pa.field(ROW_ID_COLUMN, pa.binary(ROW_ID_BYTES), nullable=False))
    fields += [pa.field(column.name, pa.int32(), nullable=False) for column in stored_columns(partitions)]
    return pa.schema(fields, metadata=FORMAT)


def epoch_file(home: Path, dataset_id: str, epoch_id: str) -> Path:
    """Where the rows of one upload are kept.

    Raises:
        ValueError: an id that is not one of ours, so that no text from outside becomes a path.
    """
    if not _ID.fullmatch(epoch_id):
        raise ValueError("not an epoch id")
    return _dataset_folder(home, dataset_id) / f"{epoch_id}.parquet"


def prints_file(home: Path, dataset_id: str, epoch_id: str) -> Path:
    """Where the fingerprints of one upload are kept, beside the folder of all rows.

    Raises:
        ValueError: an id that is not one of ours.
    """
    if not _ID.fullmatch(epoch_id):
        raise ValueError("not an epoch id")
    return _dataset_folder(home, dataset_id, kind=PRINTS_FOLDER) / f"{epoch_id}.prints"


def admission_file(home: Path, dataset_id: str) -> Path:
    """Where a dataset counts the admitted rows of each unit, if its privacy unit is a column."""
    return _dataset_folder(home, dataset_id) / "units.sqlite3"


def count_rows(home: Path, dataset_id: str, epoch_ids: Iterable[str]) -> int:
    """PRIVATE: how many rows some epochs hold, from the ends of their files. Tell nobody but the owner."""
    files = (epoch_file(home, dataset_id, epoch) for epoch in epoch_ids)
    return sum(pq.read_metadata(file).num_rows for file in files if file.is_file())


def erase_epoch(home: Path, dataset_id: str, epoch_id: str) -> None:
    """Erases the rows of one upload, durably: for an upload whose transaction failed. Erasing twice is legal."""
    for file in (epoch_file(home, dataset_id, epoch_id), prints_file(home, dataset_id, epoch_id)):
        with suppress(FileNotFoundError):
            file.unlink()
            durable.sync_folder(file.parent)


def erase_dataset(home: Path, dataset_id: str) -> None:
    """Erases all rows of a dataset, unfinished uploads included, durably. Erasing twice is legal.

    The folder loses its name first: an upload that still runs finds nothing to write to, and what it makes anew is of
    a dataset that is gone. The file system forgets the files; blocks on the medium are not overwritten.
    """
    for kind in (PRINTS_FOLDER, ROWS_FOLDER):
        folder = _dataset_folder(home, dataset_id, kind=kind)
        with suppress(FileNotFoundError):
            folder.rename(folder.with_name(f".{dataset_id}.{secrets.token_hex(8)}{_DOOMED}"))
        for doomed in folder.parent.glob(f".{dataset_id}.*{_DOOMED}"):  # also what a killed erasure left
            _erase_folder(doomed)


def erase_remains(home: Path) -> None:
    """Erases what killed erasures of datasets left behind."""
    for kind in (PRINTS_FOLDER, ROWS_FOLDER):
        for doomed in (home / kind).glob(f".*{_DOOMED}"):
            _erase_folder(doomed)


def _erase_folder(doomed: Path) -> None:
    """Erases a folder that nobody can name any more, so that only calls in flight add to it or take from it."""
    while doomed.exists():
        try:
            shutil.rmtree(doomed)
        except FileNotFoundError:  # the writer of a file in it removed it just now
            continue
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
    durable.sync_folder(doomed.parent)


def erase_unfinished(home: Path, *, before: datetime) -> int:
    """Erases what killed uploads left behind: unfinished files that were last written before a time.

    Args:
        home: the service's folder.
        before: aware; choose it so far back that no living upload can be older.

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


def writer(file: BufferedRandom, form: pa.Schema) -> pq.ParquetWriter:
    """Writes a row file of one form, a row group at a time."""
    return pq.ParquetWriter(
        file,
        form,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in form.names if name != ROW_ID_COLUMN],
        write_statistics=False,
        write_page_checksum=True,
    )


def _dataset_folder(home: Path, dataset_id: str, *, kind: str = ROWS_FOLDER) -> Path:
    if not _ID.fullmatch(dataset_id):
        raise ValueError("not a dataset id")
    return home / kind / dataset_id
