"""Erasing the rows of one unit from what is stored, and nothing else.

Each upload's file is written anew without them and takes the old one's place in one step; jobs that read it just then
go on with what they opened. The admission book keeps its counts: an erased row does not give its place back
(docs/proofs/accounting.md A7), and the ledger does not change, because what was released was released.
"""

from collections.abc import Iterable
from io import BufferedRandom
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.core import durable
from app.core.errors import InstallationError
from app.datasets import row_files
from app.datasets.fingerprints import FINGERPRINT_BYTES


def erase_rows(home: Path, dataset_id: str, epoch_ids: Iterable[str], *, row_id: bytes) -> int:
    """Erases the rows of one id from some uploads. Repeating it is legal, and finishes what a crash cut off.

    The caller holds the dataset's admission book, so that no two erasures write one file.

    Args:
        home: the service's folder.
        dataset_id: whose rows.
        epoch_ids: its uploads.
        row_id: PRIVATE; of the unit.

    Returns:
        PRIVATE: how many rows were erased.

    Raises:
        FileNotFoundError: the dataset was erased in the middle.
        InstallationError: a file is damaged.
    """
    return sum(
        _erase_from(
            row_files.epoch_file(home, dataset_id, epoch_id),
            row_files.prints_file(home, dataset_id, epoch_id),
            row_id=row_id,
        )
        for epoch_id in epoch_ids
    )


def _erase_from(file: Path, prints: Path, *, row_id: bytes) -> int:
    is_readable = True
    try:
        with pq.ParquetFile(file, page_checksum_verification=True) as stored:
            ids = stored.read(columns=[row_files.ROW_ID_COLUMN], use_threads=False).column(0)
            stays = pc.not_equal(ids, pa.scalar(row_id, ids.type)).to_numpy()
            if stays.all():
                return 0
            _keep(stays, prints)
            with durable.new_file(file, existing="replace") as written:
                _copy(stored, stays, written)
    except pa.ArrowException:
        is_readable = False
    # Out of the handler: a library's words about a file of private rows go nowhere.
    if not is_readable:
        raise InstallationError("a stored row file is damaged; restore it from a backup")
    return int(np.count_nonzero(~stays))


def _copy(stored: pq.ParquetFile, stays: np.ndarray[tuple[int], np.dtype[np.bool_]], written: BufferedRandom) -> None:
    """The rows that stay, group by group."""
    start = 0
    with row_files.writer(written, stored.schema_arrow) as writer:
        for group in range(stored.num_row_groups):
            table = stored.read_row_group(group, use_threads=False)
            writer.write_table(table.filter(pa.array(stays[start : start + table.num_rows])))
            start += table.num_rows


def _keep(stays: np.ndarray[tuple[int], np.dtype[np.bool_]], prints: Path) -> None:
    """The fingerprints of the rows that stay, before the rows go: none is ever left of a row that is gone.

    Where a crash left fewer of them than rows nobody can tell which is whose, and all of the upload go.
    """
    if not prints.is_file():
        return
    found = np.fromfile(prints, dtype=f"V{FINGERPRINT_BYTES}")
    if len(found) != len(stays):
        prints.unlink()
        return
    durable.write(prints, found[stays].tobytes())
