"""Admits at most k rows of each privacy unit, over all uploads of a dataset.

Where the privacy unit is a column, a row is admitted if fewer than k rows of its unit were admitted before it, in order
of arrival. No later upload revises an admission: a rule that also looked at later rows (say, the k smallest hashes)
would let an upload change which earlier rows count, and the unit would pay twice (docs/proofs/accounting.md A7).

The counts per unit are kept in the admission book: a small SQLite file beside the row files, not in the service's
database. They are facts about people, so they are erased with the rows; and millions of counts written in one
transaction would block every other writer of an embedded database. SQLite's cache bounds the memory. The book names a
unit by a keyed digest, never by its value, and stores each count with its upload: counts of an upload that never became
an epoch are deleted.
"""

import hmac
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.core import durable, limits
from app.core.errors import InstallationError, Unavailable
from app.datasets import row_files
from app.datasets.cells import ROW_ID_BYTES

WAIT_S = 60.0
"""Seconds that an upload waits for another upload to the same dataset."""

COPY_WAIT_S = 3_600.0
"""Seconds that a backup waits for an upload, which locks the book while it writes more counts than fit into memory."""

RETRY_AFTER_S = 10

_seats = threading.BoundedSemaphore(limits.MAX_WAITING_UPLOADS)
"""Bounds the uploads of this process that wait for a book: each of them occupies a request thread."""

_DOMAIN = b"grovekeeper/unit-id/1\0"
"""Longer than a row id, so that a unit's digest and a row's hash cell never have the same input."""

_TABLES = (
    "CREATE TABLE IF NOT EXISTS epochs (ordinal INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE)",
    "CREATE TABLE IF NOT EXISTS admitted (unit BLOB NOT NULL, epoch INTEGER NOT NULL, n INTEGER NOT NULL, "
    "PRIMARY KEY (unit, epoch)) WITHOUT ROWID",
)
_COUNTS = "SELECT unit, sum(n) FROM admitted WHERE unit IN ({}) GROUP BY unit"
_ASKED_AT_ONCE = 500
_ADD = "INSERT INTO admitted VALUES (?, ?, ?) ON CONFLICT (unit, epoch) DO UPDATE SET n = n + excluded.n"


def unit_row_ids(values: Iterable[str], *, dataset_key: bytes) -> list[bytes]:
    """Row ids made from a unit column: all rows of a unit share one id, which does not reveal the value.

    Args:
        values: PRIVATE; not empty, compared character by character.
        dataset_key: secret.

    Returns:
        PRIVATE ids of 16 bytes.
    """
    digest = hmac.digest
    return [digest(dataset_key, _DOMAIN + value.encode(), "sha256")[:ROW_ID_BYTES] for value in values]


class AdmissionBook:
    """The admission counts of one dataset, open for one upload in one SQLite transaction. Made by :func:`opened`."""

    def __init__(self, connection: sqlite3.Connection, *, max_rows: int) -> None:
        self._connection = connection
        self._max_rows = max_rows
        self._epoch = 0

    def begin(self, epoch_id: str, *, committed: Sequence[str]) -> None:
        """Deletes the counts of uploads that never became epochs, and starts the counts of a new upload.

        Args:
            epoch_id: id of the new upload.
            committed: ids of the dataset's epochs, read after the book was opened.

        Raises:
            InstallationError: the book lacks an epoch, so rows over the limit of k could be admitted.
        """
        known = {name: ordinal for ordinal, name in self._connection.execute("SELECT ordinal, id FROM epochs")}
        if not set(committed) <= known.keys():
            raise InstallationError("the book of admitted rows is absent or older than the uploads; restore it")
        for name in known.keys() - set(committed):
            self._connection.execute("DELETE FROM admitted WHERE epoch = ?", (known[name],))
            self._connection.execute("DELETE FROM epochs WHERE ordinal = ?", (known[name],))
        inserted = self._connection.execute("INSERT INTO epochs (id) VALUES (?) RETURNING ordinal", (epoch_id,))
        self._epoch = int(inserted.fetchone()[0])

    def admit(self, unit_ids: Sequence[bytes]) -> NDArray[np.bool_]:
        """Decides which of the next rows are admitted, in their order, and counts the admitted rows.

        Args:
            unit_ids: PRIVATE; from :func:`unit_row_ids`.

        Returns:
            PRIVATE bool, one per row.
        """
        admitted = np.zeros(len(unit_ids), dtype=np.bool_)
        taken, counts = self._taken(sorted(set(unit_ids))), dict[bytes, int]()
        for index, unit in enumerate(unit_ids):
            count = taken.get(unit, 0)
            if count < self._max_rows:
                admitted[index] = True
                taken[unit] = count + 1
                counts[unit] = counts.get(unit, 0) + 1
        self._connection.executemany(_ADD, ((unit, self._epoch, counts[unit]) for unit in sorted(counts)))
        return admitted

    def _taken(self, units: Sequence[bytes]) -> dict[bytes, int]:
        """Admitted rows per unit so far; units without an admitted row are left out."""
        counts: dict[bytes, int] = {}
        for start in range(0, len(units), _ASKED_AT_ONCE):
            block = units[start : start + _ASKED_AT_ONCE]
            counts.update(self._connection.execute(_COUNTS.format(", ".join("?" * len(block))), block))
        return counts

    def commit(self) -> None:
        """Makes the upload's counts durable. Call it right before the epoch commits."""
        self._connection.execute("COMMIT")


def copy_book(home: Path, dataset_id: str, destination: Path) -> None:
    """Copies the admission book of a dataset while uploads may run.

    The copy has the counts of every upload that was committed before the call. Counts of later uploads do no harm:
    :meth:`AdmissionBook.begin` deletes counts of uploads that the database does not have.

    Raises:
        FileNotFoundError: the dataset has no book, or was erased.
        Unavailable: an upload holds the book for too long.
    """
    file = row_files.admission_file(home, dataset_id)
    file.stat()
    source = sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True, timeout=COPY_WAIT_S, isolation_level=None)
    try:
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # from here no upload can commit
        with closing(sqlite3.connect(destination)) as copy:
            source.backup(copy)
    except sqlite3.Error as error:
        if not file.exists():
            raise FileNotFoundError(file.name) from None
        raise Unavailable("the admission book of a dataset is in use for too long") from error
    finally:
        source.close()


def is_complete(book: Path, *, epoch_ids: Collection[str]) -> bool:
    """Whether a copy of an admission book counts the rows of some uploads."""
    with closing(sqlite3.connect(f"{book.as_uri()}?mode=ro", uri=True)) as connection:
        try:
            counted = {name for (name,) in connection.execute("SELECT id FROM epochs")}
        except sqlite3.Error:
            return False
    return set(epoch_ids) <= counted


@contextmanager
def opened(home: Path, dataset_id: str, *, max_rows: int) -> Iterator[AdmissionBook]:
    """Opens the admission book of a dataset for one upload; other uploads to the dataset wait until the block ends.

    Counts that were not committed are rolled back when the block ends.

    Raises:
        Unavailable: another upload to the dataset took too long, too many uploads wait already, or the book cannot be
            written.
        FileNotFoundError: the dataset was erased during the upload.
    """
    file = row_files.admission_file(home, dataset_id)
    durable.make_folder(file.parent)
    file.touch(mode=0o600)
    connection = sqlite3.connect(file, timeout=0, isolation_level=None)
    try:
        _take(connection)
        for statement in _TABLES:
            connection.execute(statement)
        yield AdmissionBook(connection, max_rows=max_rows)
    except sqlite3.Error as error:
        if not file.exists():
            raise FileNotFoundError(file.name) from None
        raise Unavailable("another upload to this dataset is running, or its book cannot be written") from error
    finally:
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        connection.close()


def _take(connection: sqlite3.Connection) -> None:
    """Locks the book: at once if it is free, else after waiting, if few uploads of this process wait already.

    Raises:
        Unavailable: too many uploads of this process wait, for this book or for others.
        sqlite3.OperationalError: the book did not become free in time, or it cannot be written.
    """
    try:
        _begin(connection)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        if not _seats.acquire(blocking=False):
            raise Unavailable("too many uploads wait for one another", RETRY_AFTER_S) from None
        try:
            _wait_when_busy(connection)
            _begin(connection)
        finally:
            _seats.release()
    _wait_when_busy(connection)  # the next upload reads the file, and may do so during our commit


def _begin(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA synchronous = EXTRA")  # reads the file, so it can find another upload committing
    connection.execute("BEGIN IMMEDIATE")


def _wait_when_busy(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA busy_timeout = {int(WAIT_S * 1000)}")
