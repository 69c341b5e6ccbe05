"""Erases the rows of one privacy unit from the stored uploads, or all rows of one
upload.

Each upload's file is written again without the rows and replaces the old file in one
step; a job that has the old file open keeps reading it. The admission book keeps its
counts: an erased row does not make room for another row of its unit
(docs/proofs/accounting.md A7). The ledger does not change: releases made from the rows
remain.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.core.errors import InstallationError
from app.core.files import Store
from app.core.sealed_files import DataKey, SealBroken, SealedFile, Writer
from app.datasets import row_files, row_layout
from app.datasets.fingerprints import FINGERPRINT_BYTES
from grovekeeper_forests.array_types import BoolArray


def stored_ids(
    store: Store,
    dataset_id: str,
    epoch_ids: Iterable[str],
    *,
    key: DataKey,
    row_ids: Sequence[bytes],
) -> set[bytes]:
    """PRIVATE: those of some row ids that a row of any upload has; raises what
    :func:`erase_rows` raises.
    """
    present_ids: set[bytes] = set()
    for epoch_id in epoch_ids:
        file = row_files.sealed_rows(store, dataset_id, epoch_id, key=key)
        with row_layout.reading(file) as stored:
            ids = _ids(stored)
            is_asked = pc.is_in(ids, value_set=pa.array(row_ids, ids.type))
            present_ids.update(ids.filter(is_asked).unique().to_pylist())
    return present_ids


def erase_rows(
    store: Store,
    dataset_id: str,
    epoch_ids: Iterable[str],
    *,
    key: DataKey,
    row_id: bytes,
) -> int:
    """Erases the rows with one row id from some uploads. Safe to repeat: a second call
    finishes an interrupted erasure.

    The caller holds the dataset's admission book, so that no two erasures write the
    same file.

    Args:
        row_id: PRIVATE; the row id of the unit.

    Returns:
        PRIVATE: the number of rows erased.

    Raises:
        FileNotFoundError: the dataset was erased during the call.
    """
    n_erased = 0
    for epoch_id in epoch_ids:
        file = row_files.sealed_rows(store, dataset_id, epoch_id, key=key)
        prints = row_files.sealed_prints(store, dataset_id, epoch_id, key=key)
        n_rows = _erase_from(file, prints, row_id=row_id)
        # Codes of the old file cannot be read with the new one, so a crash before this
        # line leaves nothing readable.
        if n_rows:
            row_files.erase_codes(store, dataset_id, epoch_id)
        n_erased += n_rows
    return n_erased


def erase_upload(
    store: Store, dataset_id: str, epoch_id: str, *, form: pa.Schema, key: DataKey
) -> None:
    """Erases the fingerprints of one upload, and replaces its rows by none, in one
    step. Safe to repeat.

    The file stays, so that a job that reads the upload finds what it finds in an empty
    upload. It is not read: a damaged file is erased, too.

    Args:
        form: the layout of the dataset's files.

    Raises:
        FileNotFoundError: the dataset was erased during the call.
    """
    # A missing file is an error here: the next lines would make a new one, in the folder
    # of an erased dataset.
    store.open(row_files.rows_name(dataset_id, epoch_id)).close()
    # first: no fingerprint outlives its row
    store.delete(row_files.prints_name(dataset_id, epoch_id))
    row_files.erase_codes(store, dataset_id, epoch_id)
    file = row_files.sealed_rows(store, dataset_id, epoch_id, key=key)
    with file.new(existing="replace") as written, row_layout.writer(written, form):
        pass  # no rows: the writer makes a complete file when it is closed


def has_remains(store: Store, dataset_id: str, epoch_id: str, *, key: DataKey) -> bool:
    """Whether an upload that was to be erased has rows still, or a damaged file."""
    file = row_files.sealed_rows(store, dataset_id, epoch_id, key=key)
    try:
        with row_layout.reading(file) as stored:
            return bool(stored.metadata.num_rows)
    except FileNotFoundError:
        return False
    except InstallationError:
        return True


def _erase_from(file: SealedFile, prints: SealedFile, *, row_id: bytes) -> int:
    with row_layout.reading(file) as stored:
        stays = _stays(stored, row_id)
        if stays.all():
            return 0
        _keep(stays, prints)
        with file.new(existing="replace") as written:
            _copy(stored, stays, written)
    return int(np.count_nonzero(~stays))


def _stays(stored: pq.ParquetFile, row_id: bytes) -> BoolArray:
    """PRIVATE: which rows of a file have another id."""
    ids = _ids(stored)
    is_other = pc.not_equal(ids, pa.scalar(row_id, ids.type))
    stays: BoolArray = is_other.to_numpy()
    return stays


def _ids(stored: pq.ParquetFile) -> pa.ChunkedArray:
    return stored.read(columns=[row_layout.ROW_ID_COLUMN], use_threads=False).column(0)


def _copy(
    stored: pq.ParquetFile,
    stays: BoolArray,
    written: Writer,
) -> None:
    start = 0
    digest = row_layout.cells_digest(stored)
    with row_layout.writer(written, stored.schema_arrow) as writer:
        # of the upload as it was sent: the same file is still recognised
        if digest is not None:
            row_layout.add_cells_digest(writer, digest)
        for group in range(stored.num_row_groups):
            table = stored.read_row_group(group, use_threads=False)
            end = start + table.num_rows
            writer.write_table(table.filter(pa.array(stays[start:end])))
            start = end


def _keep(stays: BoolArray, prints: SealedFile) -> None:
    """Keeps only the fingerprints of the rows that stay. Runs before the rows are
    erased, so no fingerprint outlives its row.

    If a crash left another number of fingerprints than rows, or the file is damaged,
    they cannot be matched, and the whole file is erased.
    """
    try:
        with prints.open() as reader:
            fingerprints = np.frombuffer(reader.read(), dtype=f"V{FINGERPRINT_BYTES}")
    except FileNotFoundError:
        return
    except SealBroken:
        fingerprints = np.empty(0, dtype=f"V{FINGERPRINT_BYTES}")
    if len(fingerprints) != len(stays):
        prints.file.delete()
        return
    with prints.new(existing="replace") as written:
        written.write(fingerprints[stays].tobytes())
