"""Tests concurrent writers of one database, in threads and processes: no error, no lost
update, no starvation.
"""

import fcntl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text

from app.core.errors import Unavailable
from app.db.database import Database
from app.db.locks import WriteLock
from tests.support.counter import count_up

_ROOT = Path(__file__).parents[3]
_THREADS, _PROCESSES, _TIMES = 32, 2, 30


@pytest.fixture
def counter(empty_database_url: str) -> Iterator[tuple[str, Database]]:
    database = Database.open(empty_database_url)
    with database.write() as session:
        session.execute(text("CREATE TABLE counter (value BIGINT)"))
        session.execute(text("INSERT INTO counter VALUES (0)"))
    yield empty_database_url, database
    database.close()


def _value(database: Database) -> int:
    with database.read() as session:
        value: int = session.execute(text("SELECT value FROM counter")).scalar_one()
        return value


def _start(url: str, times: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.support.counter", url, str(times)]
    return subprocess.Popen(
        command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_threads_and_processes_write_without_an_error(
    counter: tuple[str, Database],
) -> None:
    url, database = counter
    failures: list[BaseException] = []

    def run() -> None:
        try:
            count_up(database, _TIMES)
        except BaseException as failure:  # noqa: BLE001 - reported by the assertion below
            failures.append(failure)

    processes = [_start(url, _TIMES * 4) for _ in range(_PROCESSES)]
    threads = [threading.Thread(target=run) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [process.communicate(timeout=600)[1] for process in processes]
    assert (failures, errors) == ([], [""] * _PROCESSES)
    assert _value(database) == _TIMES * (_THREADS + 4 * _PROCESSES)


def test_killing_a_writer_frees_the_database_and_rolls_back(
    counter: tuple[str, Database],
) -> None:
    url, database = counter
    process = _start(url, 0)
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    process.kill()
    process.communicate(timeout=60)
    count_up(database, 1)
    assert _value(database) == 1


def test_other_processes_queue_at_the_lock_file(sqlite_database_url: str) -> None:
    """Without the lock file, processes would poll inside SQLite, and a busy process
    would starve the others.
    """
    database = Database.open(sqlite_database_url)
    with database.write() as session:
        session.execute(text("CREATE TABLE counter (value BIGINT)"))
    path = Path(sqlite_database_url.removeprefix("sqlite:///"))
    with path.with_name(f"{path.name}.lock").open("rb") as lock:
        # the lock is held before the first statement
        with database.write(), pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with database.read():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    database.close()


def test_waiting_writers_hold_no_connection(sqlite_database_url: str) -> None:
    """Writers queue before they take a connection, so that readers still get
    connections.
    """
    database = Database.open(sqlite_database_url, pool_size=2)
    waiting = [
        threading.Thread(target=_write_nothing, args=(database,)) for _ in range(8)
    ]
    with database.write() as session:
        session.execute(text("SELECT 1"))
        for thread in waiting:
            thread.start()
        with database.read() as reader:
            assert reader.execute(text("SELECT 1")).scalar_one() == 1
    for thread in waiting:
        thread.join()
    database.close()


def _write_nothing(database: Database) -> None:
    with database.write() as session:
        session.execute(text("SELECT 1"))


def test_a_reader_does_not_wait_for_a_writer(counter: tuple[str, Database]) -> None:
    _, database = counter
    with database.write() as session:
        session.execute(text("UPDATE counter SET value = 9"))
        assert _value(database) == 0


def test_two_engines_of_one_process_share_the_thread_lock(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert WriteLock.of(tmp_path / "db") is WriteLock.of(tmp_path / "link" / "db")
    assert WriteLock.of(tmp_path / "db") is not WriteLock.of(tmp_path / "other")


def taken(lock: WriteLock) -> bool:
    """Takes a lock and frees it at once."""
    with lock.locked():
        return True


def test_a_thread_that_waits_too_long_gets_an_error(tmp_path: Path) -> None:
    lock = WriteLock(tmp_path / "lock", wait_s=0.05)
    taken_by_holder, release = threading.Event(), threading.Event()

    def hold() -> None:
        with lock.locked():
            taken_by_holder.set()
            release.wait(timeout=60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert taken_by_holder.wait(timeout=60)
    with pytest.raises(Unavailable):
        taken(lock)
    release.set()
    holder.join()
    assert taken(lock)


def test_a_process_that_waits_too_long_for_another_gets_an_error_and_later_the_lock(
    tmp_path: Path,
) -> None:
    lock, n_threads = (
        WriteLock(tmp_path / "lock", wait_s=0.05),
        threading.active_count(),
    )
    with (tmp_path / "lock").open("wb") as other_process:
        fcntl.flock(other_process, fcntl.LOCK_EX)
        for _ in range(3):
            with pytest.raises(Unavailable):
                taken(lock)
        assert threading.active_count() <= n_threads + 1, (
            "waits that ended must not add up"
        )
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(taken, WriteLock(tmp_path / "lock"))
            fcntl.flock(other_process, fcntl.LOCK_UN)
            assert waiting.result(timeout=60)
    assert taken(WriteLock(tmp_path / "lock")), (
        "a wait that ended must not keep the lock"
    )
    deadline = time.monotonic() + 60
    while not _is_free(lock):  # until the thread that waited has run
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _is_free(lock: WriteLock) -> bool:
    try:
        return taken(lock)
    except Unavailable:
        return False


def test_a_lock_file_that_cannot_be_opened_is_temporary(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        taken(WriteLock(tmp_path / "absent" / "lock"))


def test_nested_writers_raise(tmp_path: Path) -> None:
    lock = WriteLock(tmp_path / "lock")
    with lock.locked(), pytest.raises(RuntimeError):
        taken(lock)
    assert taken(lock)
