"""Tests the admission book: first rows of a unit first, never revised; uncommitted
uploads do not count.
"""

import os
import queue
import sqlite3
import stat
import threading
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from app.core import limits
from app.core.errors import InstallationError, Unavailable
from app.core.files import Directory
from app.core.sealed_files import DataKey
from app.datasets import admission, row_files
from app.datasets.row_layout import hash_cells
from grovekeeper_forests.privacy.partitions import HashPartition

KEY = DataKey(bytes(range(32)))
ANN, BEN = admission.unit_row_ids(["ann", "ben"], dataset_key=KEY.secret)


class Book:
    """Makes uploads to one dataset, one after another."""

    def __init__(self, home: Path, max_rows: int) -> None:
        self._home, self._max_rows = home, max_rows
        self.committed: list[str] = []

    def upload(
        self, *units: bytes, commits: bool = True, becomes_an_epoch: bool = True
    ) -> list[bool]:
        epoch = f"ep_{len(self.committed)}_{os.urandom(4).hex()}"
        with admission.opened_home_book(
            self._home, "ds_a", max_rows=self._max_rows, key=KEY
        ) as book:
            book.begin(epoch, committed=self.committed)
            admitted = book.admit(units).tolist()
            if commits:
                book.commit()
        if commits and becomes_an_epoch:
            self.committed.append(epoch)
        return [bool(is_admitted) for is_admitted in admitted]


def test_the_first_rows_of_a_unit_are_admitted_over_all_uploads(tmp_path: Path) -> None:
    book = Book(tmp_path, max_rows=2)

    assert book.upload(ANN, BEN, ANN, ANN) == [True, True, True, False]
    assert book.upload(ANN, BEN, BEN) == [False, True, False]
    assert book.upload(BEN) == [False]


@pytest.mark.parametrize(
    "lost",
    [{"commits": False}, {"becomes_an_epoch": False}],
    ids=["rolled-back", "no-epoch"],
)
def test_an_upload_that_never_became_an_epoch_does_not_count(
    tmp_path: Path, lost: dict[str, bool]
) -> None:
    book = Book(tmp_path, max_rows=1)

    assert book.upload(ANN, **lost) == [True]
    assert book.upload(ANN) == [True]
    assert book.upload(ANN) == [False]


def test_blocks_of_one_upload_count_together(tmp_path: Path) -> None:
    with admission.opened_home_book(tmp_path, "ds_a", max_rows=3, key=KEY) as book:
        book.begin("ep_a", committed=[])
        admitted = [book.admit([ANN] * 2).tolist() for _ in range(3)]
    assert admitted == [[True, True], [True, False], [False, False]]


def test_rows_of_more_units_than_one_query_reads_count(tmp_path: Path) -> None:
    """Of every unit: whichever it is among the units of an upload."""
    book = Book(tmp_path, max_rows=1)
    units = admission.unit_row_ids(map(str, range(1_100)), dataset_key=KEY.secret)

    assert all(book.upload(*units))
    assert not any(book.upload(*units))


def test_a_lost_book_is_an_error_and_not_an_empty_book(tmp_path: Path) -> None:
    book = Book(tmp_path, max_rows=1)
    book.upload(ANN)
    (tmp_path / row_files.admission_name("ds_a")).unlink()

    with pytest.raises(InstallationError):
        book.upload(ANN)


def test_a_second_upload_waits_for_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "WAIT_S", 0.05)
    with (
        admission.opened_home_book(tmp_path, "ds_a", max_rows=1, key=KEY),
        pytest.raises(Unavailable),
        admission.opened_home_book(tmp_path, "ds_a", max_rows=1, key=KEY),
    ):
        pytest.fail("two uploads decide at once")
    monkeypatch.setattr(admission, "WAIT_S", 60.0)
    seen: list[str] = []

    def second() -> None:
        with admission.opened_home_book(tmp_path, "ds_a", max_rows=1, key=KEY):
            seen.append("second")

    with admission.opened_home_book(tmp_path, "ds_a", max_rows=1, key=KEY):
        waiting = threading.Thread(target=second)
        waiting.start()
        waiting.join(0.2)
        seen.append("first")
    waiting.join(30)
    assert seen == ["first", "second"]


def test_an_upload_waits_for_another_that_commits(tmp_path: Path) -> None:
    """During a commit the book cannot be read, either."""
    Book(tmp_path, max_rows=1).upload(ANN)
    file = tmp_path / row_files.admission_name("ds_a")
    committing = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    committing.execute("BEGIN EXCLUSIVE")
    ends = threading.Timer(0.2, committing.execute, ["COMMIT"])
    ends.start()

    with admission.opened_home_book(tmp_path, "ds_a", max_rows=1, key=KEY):
        ends.join(30)
    committing.close()


def test_uploads_over_the_limit_of_waiting_uploads_are_refused_at_once(
    tmp_path: Path,
) -> None:
    """Waiting uploads occupy threads of the service. A wait that ends frees its place
    in the limit.
    """
    admitted: list[str] = []
    answered = queue.SimpleQueue[Unavailable]()

    def upload() -> None:
        try:
            with admission.opened_home_book(tmp_path, "ds_a", max_rows=1, key=KEY):
                admitted.append("")
        except Unavailable as error:
            answered.put(error)

    for _ in range(2):
        uploads = [
            threading.Thread(target=upload)
            for _ in range(limits.MAX_WAITING_UPLOADS + 3)
        ]
        with admission.opened_home_book(tmp_path, "ds_a", max_rows=1, key=KEY):
            for thread in uploads:
                thread.start()
            refused = [answered.get(timeout=admission.WAIT_S / 2) for _ in range(3)]
            with admission.opened_home_book(tmp_path, "ds_b", max_rows=1, key=KEY):
                assert not admitted, "an upload that need not wait is not refused"
        for thread in uploads:
            thread.join(30)
        assert {error.retry_after_s for error in refused} == {admission.RETRY_AFTER_S}
        assert len(admitted) == limits.MAX_WAITING_UPLOADS
        admitted.clear()


def test_an_erased_dataset_is_distinguished_from_a_busy_book(tmp_path: Path) -> None:
    with (
        pytest.raises(FileNotFoundError),
        admission.opened_home_book(tmp_path, "ds_a", max_rows=1, key=KEY) as book,
    ):
        book.begin("ep_a", committed=[])
        row_files.erase_dataset(Directory(tmp_path), "ds_a")
        raise sqlite3.OperationalError("disk I/O error")


def test_the_book_contains_no_value_and_is_readable_by_its_owner_only(
    tmp_path: Path,
) -> None:
    book = Book(tmp_path, max_rows=1)
    book.upload(*admission.unit_row_ids(["Canary7Q"], dataset_key=KEY.secret))
    file = tmp_path / row_files.admission_name("ds_a")

    assert b"Canary7Q" not in file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def _stored(home: Path) -> dict[bytes, bytes]:
    with closing(
        sqlite3.connect(home / row_files.admission_name("ds_a"))
    ) as connection:
        return dict(connection.execute("SELECT unit, counts FROM units").fetchall())


def test_the_book_shows_neither_how_many_rows_a_unit_has_nor_in_how_many_uploads(
    tmp_path: Path,
) -> None:
    book = Book(tmp_path, max_rows=3)
    book.upload(ANN, BEN, BEN)
    before = _stored(tmp_path)
    book.upload(ANN)

    assert {len(text) for text in (*before.values(), *_stored(tmp_path).values())} == {
        12 + 3 * 8 + 16
    }
    assert before[ANN] != _stored(tmp_path)[ANN]
    assert before[BEN] == _stored(tmp_path)[BEN]


def test_a_unit_with_rows_in_many_uploads_is_counted(tmp_path: Path) -> None:
    book = Book(tmp_path, max_rows=12)
    assert [book.upload(ANN) for _ in range(13)] == [[True]] * 12 + [[False]]


def test_counts_of_another_unit_or_another_dataset_are_refused(tmp_path: Path) -> None:
    Book(tmp_path, max_rows=2).upload(ANN, BEN, BEN)
    with (
        closing(
            sqlite3.connect(tmp_path / row_files.admission_name("ds_a"))
        ) as connection,
        connection,
    ):
        connection.execute(
            "UPDATE units SET counts = (SELECT counts FROM units WHERE unit = ?)",
            (ANN,),
        )

    for key, unit in ((KEY, BEN), (DataKey(bytes(32)), ANN)):
        with (
            admission.opened_home_book(tmp_path, "ds_a", max_rows=2, key=key) as book,
            pytest.raises(InstallationError),
        ):
            book.admit([unit])


def test_a_book_with_counts_that_the_earliest_versions_did_not_encrypt_admits_nothing(
    tmp_path: Path,
) -> None:
    """Without these counts, units would get their places again."""
    file = tmp_path / row_files.admission_name("ds_a")
    file.parent.mkdir(parents=True)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            "CREATE TABLE epochs (ordinal INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE)"
        )
        connection.execute(
            "CREATE TABLE admitted (unit BLOB, epoch INTEGER, n INTEGER, PRIMARY KEY (unit, epoch))"
        )
        connection.execute("INSERT INTO epochs VALUES (1, 'ep_kept')")
    book = Book(tmp_path, max_rows=3)
    book.committed = ["ep_kept"]
    with pytest.raises(InstallationError, match="restore it"):
        book.upload(ANN)


def test_ids_are_keyed_and_follow_the_value_alone() -> None:
    again = admission.unit_row_ids(["ben", "ann", "ann"], dataset_key=KEY.secret)
    other = admission.unit_row_ids(["ann"], dataset_key=bytes(32))

    assert again == [BEN, ANN, ANN]
    assert len(ANN) == 16
    assert other != [ANN]
    assert admission.unit_row_ids(["ann ", "Ann"], dataset_key=KEY.secret) != [
        ANN,
        ANN,
    ], "space and case matter"
    partition = HashPartition("shard", 8)
    cells = hash_cells(
        b"".join(again), partition=partition, dataset_key=KEY.secret
    ).tolist()
    assert cells[1] == cells[2], "all rows of a unit are in one cell"


def test_a_seat_of_a_decoder_is_taken_until_its_block_ends(tmp_path: Path) -> None:
    with ExitStack() as seats:
        for _ in range(limits.MAX_DECODERS):
            seats.enter_context(admission.decoder_seat(tmp_path))
        assert admission._free_seat(tmp_path) is None
    with admission.decoder_seat(tmp_path):
        pass
