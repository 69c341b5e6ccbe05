"""Names and erases the files of private rows: one Parquet file per epoch
(:mod:`app.datasets.row_layout`).

::

    rows/<dataset id>/<epoch id>.parquet
    rows/<dataset id>/<epoch id>.units           admission book as of the upload (app.datasets.admission)
    prints/<dataset id>/<epoch id>.prints        keyed fingerprints of the same rows, in the same order
    codes/<dataset id>/<epoch id>.<bins>.codes   codes of the same rows by public bins (app.datasets.code_files)

All kinds of files are encrypted under the dataset's data key
(:mod:`app.core.sealed_files`), which refuses a damaged file. Codes are on the machines
that read rows, beside the file of rows or its copy.
"""

import re
from collections.abc import Collection, Iterator
from datetime import datetime

from app.core.files import FOLDERS_OF_ROWS, Listed, Store, StoredFile
from app.core.sealed_files import DataKey, SealedFile
from grovekeeper_common import durable_files

CODES_FOLDER, PRINTS_FOLDER, ROWS_FOLDER = FOLDERS_OF_ROWS
_ENDINGS = (".codes", ".prints", ".parquet", ".units")
_ID = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)


def sealed_rows(
    store: Store, dataset_id: str, epoch_id: str, *, key: DataKey
) -> SealedFile:
    """The encrypted file of the rows of one upload; raises what :func:`rows_name`
    raises.
    """
    return SealedFile(StoredFile(store, rows_name(dataset_id, epoch_id)), key)


def sealed_prints(
    store: Store, dataset_id: str, epoch_id: str, *, key: DataKey
) -> SealedFile:
    """The encrypted file of the fingerprints of one upload; raises what
    :func:`rows_name` raises.
    """
    return SealedFile(StoredFile(store, prints_name(dataset_id, epoch_id)), key)


def rows_name(dataset_id: str, epoch_id: str) -> str:
    """The name of the rows of one upload.

    Raises:
        ValueError: the id does not have the form of our ids. No text from outside
            becomes a name.
    """
    return f"{_name(ROWS_FOLDER, dataset_id, epoch_id)}.parquet"


def prints_name(dataset_id: str, epoch_id: str) -> str:
    """The name of the fingerprints of one upload; raises what :func:`rows_name` raises."""
    return f"{_name(PRINTS_FOLDER, dataset_id, epoch_id)}.prints"


def admission_name(dataset_id: str) -> str:
    """The name of the admission book of a dataset whose privacy unit is a column."""
    return f"{_name(ROWS_FOLDER, dataset_id)}/units.sqlite3"


def book_name(dataset_id: str, epoch_id: str) -> str:
    """The name of the admission book as of one upload, in a store that machines share
    (app.datasets.admission).
    """
    return f"{_name(ROWS_FOLDER, dataset_id, epoch_id)}.units"


def printed(store: Store, dataset_id: str) -> set[str]:
    """Ids of the uploads that have fingerprints."""
    return {
        file.basename.removesuffix(".prints")
        for file in store.files(_name(PRINTS_FOLDER, dataset_id))
    }


def bytes_beside(file: StoredFile) -> int:
    """PRIVATE: bytes of the other files in the folder of a file, unfinished ones
    included.

    For limits only; never part of an answer.
    """
    folder, _, basename = file.name.rpartition("/")
    # "in", because an unfinished file has the name and more
    return sum(
        other.size_bytes
        for other in file.store.files(folder)
        if basename not in other.basename
    )


def erase_codes(store: Store, dataset_id: str, epoch_id: str) -> None:
    """Erases the codes of the rows of one upload, durably, where they are beside the
    rows. Safe to repeat.
    """
    # a list first: files would be deleted while the store lists them
    for file in list(store.files(_name(CODES_FOLDER, dataset_id))):
        if file.basename.startswith(f"{epoch_id}."):
            store.delete(file.name)


def erase_epoch(store: Store, dataset_id: str, epoch_id: str) -> None:
    """Erases the rows of one upload, durably, after its transaction failed. Safe to
    repeat.
    """
    for name_of in (rows_name, prints_name, book_name):
        store.delete(name_of(dataset_id, epoch_id))
    erase_codes(store, dataset_id, epoch_id)


def erase_dataset(store: Store, dataset_id: str) -> None:
    """Erases all rows of a dataset, durably, unfinished uploads included. Safe to
    repeat.

    An upload that still runs cannot be committed any more, and erases what it wrote
    meanwhile.
    """
    for kind in FOLDERS_OF_ROWS:
        for file in list(store.files(_name(kind, dataset_id))):
            store.delete(file.name)


def files_of_datasets(store: Store) -> Iterator[tuple[str, Listed]]:
    """Every file in the folder of a dataset, with the id of the dataset."""
    for kind in FOLDERS_OF_ROWS:
        for file in store.files(kind):
            dataset_id = file.name.split("/")[1]
            if _ID.fullmatch(dataset_id):
                yield dataset_id, file


def upload_of(file: Listed) -> str | None:
    """The id of the upload whose rows, fingerprints or codes a file has; ``None`` for
    other files.
    """
    epoch_id = file.basename.partition(".")[0]
    if file.basename.endswith(_ENDINGS) and _ID.fullmatch(epoch_id):
        return epoch_id
    return None


def erase_unfinished(store: Store, *, before: datetime) -> int:
    """Erases unfinished files of killed uploads that were last written before a time;
    returns their number.

    Args:
        before: aware; earlier than the start of any upload that may still run.
    """
    remains: list[str] = []
    for kind in FOLDERS_OF_ROWS:
        for file in store.files(kind):
            if _is_unfinished(file) and file.changed_at < before:
                remains.append(file.name)
    for name in remains:
        store.delete(name)
    return len(remains)


def erase_uncommitted(
    store: Store, dataset_id: str, *, committed: Collection[str]
) -> None:
    """Erases the files of a dataset's killed uploads, durably, while no upload to the
    dataset runs. Safe to repeat.
    """
    for kind in (PRINTS_FOLDER, ROWS_FOLDER):
        for file in list(store.files(_name(kind, dataset_id))):
            if upload_of(file) not in {None, *committed} or _is_unfinished(file):
                store.delete(file.name)


def _is_unfinished(file: Listed) -> bool:
    return file.basename.startswith(".") and file.basename.endswith(
        durable_files.UNFINISHED
    )


def _name(folder: str, *ids: str) -> str:
    if not all(map(_ID.fullmatch, ids)):
        raise ValueError("not an id of a dataset or an epoch")
    return "/".join((folder, *ids))
