"""Names and erases the files of private rows: one Parquet file per epoch (:mod:`app.datasets.row_layout`).

::

    <home>/rows/<dataset id>/<epoch id>.parquet
    <home>/prints/<dataset id>/<epoch id>.prints      keyed fingerprints of the same rows, in the same order
    <home>/codes/<dataset id>/<epoch id>.<bins>.codes  codes of the same rows by public bins (app.datasets.code_files)

Where the privacy unit is a column, the admission book (:mod:`app.datasets.admission`) is in the same folder.

All kinds of files are encrypted under the dataset's data key (:mod:`app.core.sealed_files`), which refuses a damaged
file. Folders have mode 0700 and files 0600.
"""

import errno
import re
import secrets
import shutil
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from app.core import durable
from app.core.data_keys import DataKey
from app.core.sealed_files import SealedFile

ROWS_FOLDER = "rows"
PRINTS_FOLDER = "prints"
CODES_FOLDER = "codes"
_FOLDERS = (CODES_FOLDER, PRINTS_FOLDER, ROWS_FOLDER)
_DOOMED = ".erased"
_ID = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)


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


def codes_folder(rows: Path) -> Path:
    """The folder of the codes of a dataset, given the path of the rows of one upload."""
    dataset = rows.parent
    return dataset.parent.with_name(CODES_FOLDER) / dataset.name


def erase_codes(rows: Path) -> None:
    """Erases the codes of the rows of one upload, durably. Safe to repeat."""
    folder = codes_folder(rows)
    for file in folder.glob(f"{rows.stem}.*"):
        file.unlink(missing_ok=True)
        durable.sync_folder(folder)


def admission_file(home: Path, dataset_id: str) -> Path:
    """The admission book of a dataset whose privacy unit is a column."""
    return _dataset_folder(home, dataset_id) / "units.sqlite3"


def size_bytes(folder: Path) -> int:
    """PRIVATE: bytes of all files in a folder, unfinished ones included. For limits only; never part of an answer."""
    size = 0
    for file in folder.iterdir():
        with suppress(FileNotFoundError):  # an upload that ended meanwhile
            size += file.stat().st_size
    return size


def erase_epoch(home: Path, dataset_id: str, epoch_id: str) -> None:
    """Erases the rows of one upload, durably, after its transaction failed. Safe to repeat."""
    erase_codes(epoch_file(home, dataset_id, epoch_id))
    for file in (epoch_file(home, dataset_id, epoch_id), prints_file(home, dataset_id, epoch_id)):
        with suppress(FileNotFoundError):
            file.unlink()
            durable.sync_folder(file.parent)


def erase_dataset(home: Path, dataset_id: str) -> None:
    """Erases all rows of a dataset, durably, unfinished uploads included. Safe to repeat.

    The folder is renamed first, so that an upload that still runs fails to write. The file system forgets the files;
    blocks on the medium are not overwritten.
    """
    for kind in _FOLDERS:
        folder = _dataset_folder(home, dataset_id, kind=kind)
        with suppress(FileNotFoundError):
            folder.rename(folder.with_name(f".{dataset_id}.{secrets.token_hex(8)}{_DOOMED}"))
        for doomed in folder.parent.glob(f".{dataset_id}.*{_DOOMED}"):  # with folders that a killed erasure left
            _erase_folder(doomed)


def erase_remains(home: Path) -> None:
    """Completes erasures of datasets that were killed."""
    for kind in _FOLDERS:
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
    for file in [file for kind in _FOLDERS for file in (home / kind).glob(unfinished)]:
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


def _dataset_folder(home: Path, dataset_id: str, *, kind: str = ROWS_FOLDER) -> Path:
    if not _ID.fullmatch(dataset_id):
        raise ValueError("not a dataset id")
    return home / kind / dataset_id
