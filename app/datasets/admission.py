"""Admits at most k rows of each privacy unit, over all uploads of a dataset, and bounds
the decoders of a machine.

Where the privacy unit is a column, a row is admitted if fewer than k rows of its unit
were admitted before it, in order of arrival. No later upload revises an admission: a
rule that also looked at later rows (say, the k smallest hashes) would let an upload
change which earlier rows count, and the unit would pay twice (docs/proofs/accounting.md
A7). Rows of an upload that was erased before any job read it do not count any more.

The counts per unit are kept in the admission book: a small SQLite file beside the row
files, not in the service's database. They are facts about people, so they are erased
with the rows; and millions of counts written in one transaction would block every other
writer of an embedded database. SQLite's cache bounds the memory. The book names a unit
by a keyed digest, never by its value, and encrypts its counts, one for each upload:
counts of an upload that never became an epoch are left out when a unit is read, and
deleted when it is written.

In a store that several machines share, the book of a dataset is a sealed file beside
the rows of the newest upload, and has the counts of all uploads until that one::

    rows/<dataset id>/<epoch id>.units    a line of JSON: the ids of the uploads by ordinal; then for each unit its
                                          digest (16 bytes), the length of its sealed
                                          counts (4) and the counts

An upload reads the book of the newest committed upload into a temporary database
without a name, and stores its book before the upload is committed. So the commit of the
upload is the commit of its book, and a book of an upload that was not committed is
never read.

A process that decodes an upload may take a gigabyte of memory
(``limits.DECODER_MEMORY_BYTES``), and each API process has threads for several uploads.
So an upload takes a seat first: a file in the home under ``flock``, which the kernel
frees when the process dies.
"""

import fcntl
import hmac
import io
import json
import os
import secrets
import sqlite3
import struct
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.core import limits
from app.core.errors import InstallationError, Unavailable
from app.core.files import Store, StoredFile
from app.core.sealed_files import DataKey, SealBroken, SealedFile
from app.datasets import row_files
from grovekeeper_common import durable_files
from grovekeeper_forests.array_types import BoolArray

WAIT_S = 60.0
"""Seconds that an upload waits for another upload to the same dataset."""

COPY_WAIT_S = 3_600.0
"""Seconds that a backup waits for an upload, which locks the book while it writes more
counts than fit into memory.
"""

RETRY_AFTER_S = 10

_seats = threading.BoundedSemaphore(limits.MAX_WAITING_UPLOADS)
"""Bounds the uploads of this process that wait for a book: each of them occupies a
request thread.
"""

ROW_ID_BYTES = 16
_DIGESTS = b"grovekeeper/row-digests/1"
_DOMAIN = b"grovekeeper/unit-id/1\0"
"""Longer than a row id, so that a unit's digest and a row's hash cell never have the
same input.
"""

TABLES = (
    "CREATE TABLE IF NOT EXISTS epochs (ordinal INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE)",
    "CREATE TABLE IF NOT EXISTS units (unit BLOB PRIMARY KEY, counts BLOB NOT NULL) WITHOUT ROWID",
)

_READ = "SELECT unit, counts FROM units WHERE unit IN ({})"
_READ_AT_ONCE = 500
WRITE = "INSERT INTO units VALUES (?, ?) ON CONFLICT (unit) DO UPDATE SET counts = excluded.counts"

_PURPOSE = b"grovekeeper/admission-book/1"
_NONCE_BYTES = 12
"""Of random nonces, which a key may have 2^32 of. Ids of more rows than that exceed
``limits.MAX_DATASET_BYTES``.
"""

_LEAST_SLOTS = 8

_LENGTH_BYTES = 4
_ADD_EPOCH = "INSERT INTO epochs VALUES (?, ?)"
_BOOK_BUFFER_BYTES = 2**20
_LOOK_S = 0.1  # seconds between two looks at the seats


def digest_key(key: DataKey) -> bytes:
    """The secret that keys the hash partitions of a dataset and the ids of its units."""
    return key.derived(_DIGESTS)


def unit_row_ids(values: Iterable[str], *, dataset_key: bytes) -> list[bytes]:
    """Row ids made from a unit column: all rows of a unit share one id, which does not
    reveal the value.

    Args:
        values: PRIVATE; not empty, compared character by character.
        dataset_key: secret.

    Returns:
        PRIVATE ids of 16 bytes.
    """
    digest = hmac.digest
    return [
        digest(dataset_key, _DOMAIN + value.encode(), "sha256")[:ROW_ID_BYTES]
        for value in values
    ]


class _SealedCounts:
    """Encrypts the admitted rows of a unit, by upload, so that nobody without the data
    key reads or exchanges them.

    The text has room for eight uploads, or for ``max_rows`` if that is less; a unit
    with rows in more uploads has a longer text.
    """

    def __init__(self, key: DataKey, *, max_rows: int) -> None:
        self._cipher = AESGCM(key.derived(_PURPOSE))
        self._least_slots = min(max_rows, _LEAST_SLOTS)

    def sealed(self, unit: bytes, counts: Mapping[int, int]) -> bytes:
        # A power of two: the length of the text tells the number of uploads roughly.
        n_slots = max(self._least_slots, 1 << (len(counts) - 1).bit_length())
        numbers = list(chain.from_iterable(counts.items()))
        padding = [0] * (2 * n_slots - len(numbers))
        text = struct.pack(f">{2 * n_slots}I", *numbers, *padding)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        # with the unit as associated data: counts of one unit are not those of another
        return nonce + self._cipher.encrypt(nonce, text, unit)

    def opened(self, unit: bytes, sealed: bytes) -> dict[int, int]:
        try:
            text = self._cipher.decrypt(
                sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], unit
            )
        except (InvalidTag, ValueError):
            raise InstallationError(
                "the book of admitted rows is damaged; restore it"
            ) from None
        return {epoch: n for epoch, n in struct.iter_unpack(">II", text) if n}


class AdmissionBook:
    """The admission counts of a dataset, open for one upload in one SQLite transaction
    (:func:`opened_home_book`).
    """

    def __init__(
        self, connection: sqlite3.Connection, *, max_rows: int, key: DataKey
    ) -> None:
        self._connection = connection
        self._counts = _SealedCounts(key, max_rows=max_rows)
        self._max_rows = max_rows
        self._epoch = 0
        self._counted: set[int] = set()
        for statement in TABLES:
            connection.execute(statement)

    def begin(
        self, epoch_id: str, *, committed: Sequence[str], freed: Collection[str] = ()
    ) -> None:
        """Starts the counts of a new upload. Counts of uploads that never became epochs
        do not count any more.

        Args:
            committed: ids of the dataset's epochs, read after the book was opened.
            freed: ids of those whose places are free again.

        Raises:
            InstallationError: the book lacks an epoch, so rows over the limit of k
                could be admitted.
        """
        rows = self._connection.execute("SELECT id, ordinal FROM epochs")
        known: dict[str, int] = dict(rows)
        # Counts that the earliest versions did not encrypt: e23dda68 encrypts them at
        # its next upload, as it is.
        plain = self._connection.execute(
            "SELECT 1 FROM sqlite_schema WHERE name = 'admitted'"
        ).fetchone()
        if plain or not set(committed) <= known.keys():
            raise InstallationError(
                "the book of admitted rows is absent or older than the uploads; restore it"
            )
        inserted = self._connection.execute(
            "INSERT INTO epochs (id) VALUES (?) RETURNING ordinal", (epoch_id,)
        )
        # larger than every other one, because no row is ever deleted
        self._epoch = int(inserted.fetchone()[0])
        self._counted = {known[name] for name in committed if name not in freed}
        self._counted.add(self._epoch)

    def admit(self, unit_ids: Sequence[bytes]) -> "BoolArray":
        """Decides which of the next rows are admitted, in their order, and counts the
        admitted rows.

        Args:
            unit_ids: PRIVATE; from :func:`unit_row_ids`.

        Returns:
            PRIVATE bool, one per row.
        """
        admitted = np.zeros(len(unit_ids), dtype=np.bool_)
        # sorted: SQLite's table is in the order of its keys
        counts = self._read(sorted(set(unit_ids)))
        changed = set[bytes]()
        n_admitted = {unit: sum(by_epoch.values()) for unit, by_epoch in counts.items()}
        for index, unit in enumerate(unit_ids):
            n_before = n_admitted.get(unit, 0)
            if n_before < self._max_rows:
                admitted[index] = True
                n_admitted[unit] = n_before + 1
                by_epoch = counts.setdefault(unit, {})
                by_epoch[self._epoch] = by_epoch.get(self._epoch, 0) + 1
                changed.add(unit)
        sealed = (
            (unit, self._counts.sealed(unit, counts[unit])) for unit in sorted(changed)
        )
        self._connection.executemany(WRITE, sealed)
        return admitted

    def _read(self, units: Sequence[bytes]) -> dict[bytes, dict[int, int]]:
        """Admitted rows by upload, of the units that the book has."""
        counts: dict[bytes, dict[int, int]] = {}
        for start in range(0, len(units), _READ_AT_ONCE):
            block = units[start : start + _READ_AT_ONCE]
            query = _READ.format(", ".join("?" * len(block)))
            for unit, sealed in self._connection.execute(query, block):
                by_epoch = self._counts.opened(unit, sealed)
                # not those of uploads that were rolled back or whose places are free
                counts[unit] = {
                    epoch: n for epoch, n in by_epoch.items() if epoch in self._counted
                }
        return counts

    def store(self) -> None:
        """Makes the upload's counts known to other machines, for the case that it is
        committed. Call it before the transaction of the epoch.
        """

    def commit(self) -> None:
        """Makes the upload's counts durable. Call it right before the epoch commits."""
        self._connection.execute("COMMIT")

    def forget_older(self) -> None:
        """Removes what the counts of the committed upload replace."""


def copy_book(home: Path, dataset_id: str, destination: Path) -> None:
    """Copies the admission book of a dataset while uploads may run.

    The copy has the counts of every upload that was committed before the call. Counts
    of later uploads do no harm: :class:`AdmissionBook` leaves out counts of uploads
    that the database does not have.

    Raises:
        FileNotFoundError: the dataset has no book, or was erased.
        Unavailable: an upload holds the book for too long.
    """
    file = home / row_files.admission_name(dataset_id)
    file.stat()
    source = sqlite3.connect(
        f"{file.as_uri()}?mode=rw", uri=True, timeout=COPY_WAIT_S, isolation_level=None
    )
    try:
        source.execute("BEGIN")
        # from here no upload can commit
        source.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        with closing(sqlite3.connect(destination)) as copy:
            source.backup(copy)
    except sqlite3.Error as error:
        if not file.exists():
            raise FileNotFoundError(file.name) from None
        raise Unavailable(
            "the admission book of a dataset is in use for too long"
        ) from error
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
def opened_home_book(
    home: Path, dataset_id: str, *, max_rows: int, key: DataKey
) -> Iterator[AdmissionBook]:
    """Opens the admission book of a dataset for one upload; other uploads to the
    dataset wait until the block ends.

    Counts that were not committed are rolled back when the block ends.

    Raises:
        Unavailable: another upload to the dataset took too long, too many uploads wait
            already, or the book cannot be written.
        FileNotFoundError: the dataset was erased during the upload.
    """
    file = home / row_files.admission_name(dataset_id)
    durable_files.make_folder(file.parent)
    # SQLite would create the file readable by others
    file.touch(mode=0o600)
    connection = sqlite3.connect(file, timeout=0, isolation_level=None)
    try:
        _take(connection)
        yield AdmissionBook(connection, max_rows=max_rows, key=key)
    except sqlite3.Error as error:
        if not file.exists():
            raise FileNotFoundError(file.name) from None
        raise Unavailable(
            "another upload to this dataset is running, or its book cannot be written"
        ) from error
    finally:
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        connection.close()


def _take(connection: sqlite3.Connection) -> None:
    """Locks the book: at once if it is free, else after waiting, if few uploads of this
    process wait already.

    Raises:
        Unavailable: too many uploads of this process wait, for this book or for others.
        sqlite3.OperationalError: the book did not become free in time, or it cannot be
            written.
    """
    try:
        _begin(connection)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        with waiting_seat():
            _wait_when_busy(connection)
            _begin(connection)
    # the next upload reads the file, and may do so during our commit
    _wait_when_busy(connection)


@contextmanager
def waiting_seat() -> Iterator[None]:
    """Counts an upload that may wait for another one.

    Raises:
        Unavailable: too many uploads of this process wait.
    """
    if not _seats.acquire(blocking=False):
        raise Unavailable("too many uploads wait for one another", RETRY_AFTER_S)
    try:
        yield
    finally:
        _seats.release()


def _begin(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA secure_delete = ON")
    # reads the file, so it can find another upload committing
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.execute("BEGIN IMMEDIATE")


def _wait_when_busy(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA busy_timeout = {int(WAIT_S * 1000)}")


class StoredBook(AdmissionBook):
    """The admission counts of a dataset, open for one upload. Made by
    :func:`opened_stored_book`.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        store: Store,
        dataset_id: str,
        *,
        max_rows: int,
        key: DataKey,
    ) -> None:
        super().__init__(connection, max_rows=max_rows, key=key)
        self._store = store
        self._dataset_id = dataset_id
        self._key = key
        self._epoch_id = ""
        self._before: Sequence[str] = ()

    def begin(
        self, epoch_id: str, *, committed: Sequence[str], freed: Collection[str] = ()
    ) -> None:
        if committed:
            try:
                self._read_stored(committed[-1])
            except FileNotFoundError:
                # then the book lacks uploads, which the next line refuses
                with suppress(FileNotFoundError):
                    self._read_restored()
        super().begin(epoch_id, committed=committed, freed=freed)
        self._epoch_id, self._before = epoch_id, committed

    def store(self) -> None:
        epochs = self._connection.execute(
            "SELECT ordinal, id FROM epochs ORDER BY ordinal"
        ).fetchall()
        with self._sealed(self._epoch_id).new(existing="refuse") as file:
            file.write(json.dumps(epochs).encode("ascii") + b"\n")
            for unit, counts in self._connection.execute(
                "SELECT unit, counts FROM units"
            ):
                file.write(unit + len(counts).to_bytes(_LENGTH_BYTES) + counts)

    def commit(self) -> None:
        """See :meth:`AdmissionBook.commit`: the commit of the upload is the commit of
        the stored book.
        """

    def forget_older(self) -> None:
        """See :meth:`AdmissionBook.forget_older`. The upload is committed, so an outage
        does not show in its answer.
        """
        with suppress(OSError):
            # two, because a killed process or an outage may have left one
            for epoch_id in self._before[-2:]:
                self._store.delete(row_files.book_name(self._dataset_id, epoch_id))

    def _read_stored(self, epoch_id: str) -> None:
        try:
            with self._sealed(epoch_id).open() as reader:
                raw = cast(io.RawIOBase, reader)
                # a unit is read in three short pieces
                file = cast(BinaryIO, io.BufferedReader(raw, _BOOK_BUFFER_BYTES))
                self._connection.executemany(_ADD_EPOCH, json.loads(file.readline()))
                self._connection.executemany(WRITE, _units(file))
        except SealBroken:
            raise InstallationError(
                "the book of admitted rows is damaged; restore it"
            ) from None

    def _read_restored(self) -> None:
        """Reads the book of a backup whose installation kept its books on one machine."""
        file = self._store.local(row_files.admission_name(self._dataset_id))
        # immutable: SQLite writes no lock and no shared memory beside the copy
        address = f"{file.as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as restored:
            epochs = restored.execute("SELECT ordinal, id FROM epochs")
            self._connection.executemany(_ADD_EPOCH, epochs)
            units = restored.execute("SELECT unit, counts FROM units")
            self._connection.executemany(WRITE, units)

    def _sealed(self, epoch_id: str) -> SealedFile:
        return SealedFile(
            StoredFile(self._store, row_files.book_name(self._dataset_id, epoch_id)),
            self._key,
        )


@contextmanager
def opened_stored_book(
    store: Store, dataset_id: str, *, max_rows: int, key: DataKey
) -> Iterator[StoredBook]:
    """Opens the admission book of a dataset for one upload. The caller excludes other
    uploads to the dataset.
    """
    with closing(sqlite3.connect("", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        yield StoredBook(connection, store, dataset_id, max_rows=max_rows, key=key)


def _units(file: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    while unit := file.read(ROW_ID_BYTES):
        yield unit, file.read(int.from_bytes(file.read(_LENGTH_BYTES)))


@contextmanager
def decoder_seat(home: Path) -> Iterator[None]:
    """Holds one of the seats of the machine until the block ends; waits for one if all
    are taken.

    Raises:
        Unavailable: no seat became free in time, or too many uploads of this process
            wait.
    """
    seat = _free_seat(home)
    if seat is None:
        with waiting_seat():
            seat = _wait_for_seat(home)
    try:
        yield
    finally:
        os.close(seat)


def _wait_for_seat(home: Path) -> int:
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        time.sleep(_LOOK_S)
        seat = _free_seat(home)
        if seat is not None:
            return seat
    raise Unavailable(
        "other uploads of Parquet or Arrow are being decoded", RETRY_AFTER_S
    )


def _free_seat(home: Path) -> int | None:
    """The descriptor of a seat that was free; ``None`` if none was."""
    for number in range(limits.MAX_DECODERS):
        descriptor = os.open(
            home / f"decoder-{number}.lock", os.O_RDWR | os.O_CREAT, 0o600
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            return descriptor
    return None
