"""Keeps admission books in a store that several machines share.

The book of a dataset is a sealed file beside the rows of the newest upload, and has the counts of all uploads until
that one::

    rows/<dataset id>/<epoch id>.units    a line of JSON: the ids of the uploads by ordinal; then for each unit its
                                          digest (16 bytes), the length of its sealed counts (4) and the counts

An upload reads the book of the newest committed upload into a temporary database without a name, and stores its book
before the upload is committed. So the commit of the upload is the commit of its book, and a book of an upload that was
not committed is never read.
"""

import io
import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import BinaryIO, cast

from app.core.errors import InstallationError
from app.core.sealed_files import SealBroken, SealedFile
from app.core.stores import Store, StoredFile
from app.datasets import row_files
from app.datasets.admission import TABLES, WRITE, AdmissionBook, BookRules
from app.datasets.cells import ROW_ID_BYTES

_LENGTH_BYTES = 4
_ADD_EPOCH = "INSERT INTO epochs VALUES (?, ?)"
_BUFFER_BYTES = 2**20


class StoredBook(AdmissionBook):
    """The admission counts of one dataset, open for one upload. Made by :func:`opened`."""

    def __init__(self, connection: sqlite3.Connection, store: Store, dataset_id: str, rules: BookRules) -> None:
        super().__init__(connection, rules)
        self._store = store
        self._dataset_id = dataset_id
        self._key = rules.key
        self._epoch_id = ""
        self._before: Sequence[str] = ()

    def begin(self, epoch_id: str, *, committed: Sequence[str], freed: Collection[str] = ()) -> None:
        """See :meth:`AdmissionBook.begin`."""
        if committed:
            try:
                self._read_stored(committed[-1])
            except FileNotFoundError:
                with suppress(FileNotFoundError):  # then the book lacks uploads, which the next line refuses
                    self._read_restored()
        super().begin(epoch_id, committed=committed, freed=freed)
        self._epoch_id, self._before = epoch_id, committed

    def store(self) -> None:
        """See :meth:`AdmissionBook.store`."""
        epochs = self._connection.execute("SELECT ordinal, id FROM epochs ORDER BY ordinal").fetchall()
        with self._sealed(self._epoch_id).new(existing="refuse") as file:
            file.write(json.dumps(epochs).encode("ascii") + b"\n")
            for unit, counts in self._connection.execute("SELECT unit, counts FROM units"):
                file.write(unit + len(counts).to_bytes(_LENGTH_BYTES) + counts)

    def commit(self) -> None:
        """See :meth:`AdmissionBook.commit`: the commit of the upload is the commit of the stored book."""

    def forget_older(self) -> None:
        """See :meth:`AdmissionBook.forget_older`. The upload is committed, so an outage does not show in its answer."""
        with suppress(OSError):
            for epoch_id in self._before[-2:]:  # two, because a killed process or an outage may have left one
                self._store.delete(row_files.book_name(self._dataset_id, epoch_id))

    def _read_stored(self, epoch_id: str) -> None:
        try:
            with self._sealed(epoch_id).open() as reader:
                file = cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, reader), _BUFFER_BYTES))
                self._connection.executemany(_ADD_EPOCH, json.loads(file.readline()))
                self._connection.executemany(WRITE, _units(file))
        except SealBroken:
            raise InstallationError("the book of admitted rows is damaged; restore it") from None

    def _read_restored(self) -> None:
        """Reads the book of a backup whose installation kept its books on one machine."""
        file = self._store.local(row_files.admission_name(self._dataset_id))
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True)) as restored:
            self._connection.executemany(_ADD_EPOCH, restored.execute("SELECT ordinal, id FROM epochs"))
            self._connection.executemany(WRITE, restored.execute("SELECT unit, counts FROM units"))

    def _sealed(self, epoch_id: str) -> SealedFile:
        return SealedFile(StoredFile(self._store, row_files.book_name(self._dataset_id, epoch_id)), self._key)


@contextmanager
def opened(store: Store, dataset_id: str, rules: BookRules) -> Iterator[StoredBook]:
    """Opens the admission book of a dataset for one upload. The caller excludes other uploads to the dataset."""
    with closing(sqlite3.connect("", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        for statement in TABLES:
            connection.execute(statement)
        yield StoredBook(connection, store, dataset_id, rules)


def _units(file: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    while unit := file.read(ROW_ID_BYTES):
        yield unit, file.read(int.from_bytes(file.read(_LENGTH_BYTES)))
