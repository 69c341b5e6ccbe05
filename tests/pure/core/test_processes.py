"""Tests signals that ask a process to stop, and tasks that threads repeat."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from app.core import processes
from app.core.processes import (
    TERMINAL_SIGNALS,
    Periodic,
    scrubbed_environment,
    stop_signals,
)


def test_a_child_reads_paths_in_the_encoding_of_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoding = {
        "LANG": "C.UTF-8",
        "LC_ALL": "",
        "LC_CTYPE": "de_DE",
        "LOCPATH": "/usr/lib/locale",
        "PYTHONUTF8": "0",
    }
    for name, value in encoding.items():
        monkeypatch.setenv(name, value)
    assert scrubbed_environment().items() >= encoding.items()


@pytest.mark.parametrize("first", TERMINAL_SIGNALS)
def test_the_first_signal_begins_a_stop_and_handlers_are_given_back(
    first: signal.Signals,
) -> None:
    before = signal.getsignal(first)
    with stop_signals() as stop:
        assert not stop.begun.is_set()
        os.kill(os.getpid(), first)
        assert stop.begun.wait(60)
        assert not stop.now.is_set()
    assert signal.getsignal(first) is before


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_means_now(
    first: signal.Signals, second: signal.Signals
) -> None:
    with stop_signals() as stop:
        os.kill(os.getpid(), first)
        assert stop.begun.wait(60)
        os.kill(os.getpid(), second)
        assert stop.now.wait(60)


def test_a_terminal_that_closes_is_never_the_second_signal() -> None:
    with stop_signals() as stop:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGHUP):
            os.kill(os.getpid(), number)
        assert stop.begun.wait(60)
        assert not stop.now.is_set()


def test_a_signal_while_the_main_thread_holds_the_lock_of_an_event_is_obeyed() -> None:
    """``Event.wait`` holds the lock at its begin and end; a handler that sets the event
    would wait for it for ever.
    """
    program = """
import os, signal
from app.core.processes import stop_signals
with stop_signals() as stop:
    with stop.begun._cond:
        os.kill(os.getpid(), signal.SIGTERM)
    assert stop.begun.wait(60)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


def test_a_task_is_repeated_until_the_end_although_it_fails() -> None:
    turns = threading.Semaphore(0)

    def fail(_: threading.Event) -> None:
        turns.release()
        raise OSError("no database now")

    task = Periodic("test", fail, interval_s=0.001)
    task.start()
    for _ in range(3):
        assert turns.acquire(timeout=60)
    task.stop()


def test_a_task_learns_that_its_thread_is_to_end() -> None:
    begun, ended = threading.Event(), threading.Event()

    def wait_for_the_end(stopping: threading.Event) -> None:
        begun.set()
        assert stopping.wait(60)
        ended.set()

    task = Periodic("test", wait_for_the_end, interval_s=60)
    task.start()
    assert begun.wait(60)
    task.stop()
    assert ended.wait(60)


def test_code_is_known_by_its_contents_and_the_versions_of_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, libraries = tmp_path / "app", tmp_path / "site-packages"
    (program / "core").mkdir(parents=True)
    (libraries / "numpy-2.3.0.dist-info").mkdir(parents=True)
    (program / "__init__.py").write_text("")
    (program / "core" / "a.py").write_text("A = 1\n")
    monkeypatch.setattr(processes.app, "__file__", str(program / "__init__.py"))
    monkeypatch.setattr(
        processes,
        "_PATH",
        (str(libraries), str(tmp_path / "absent"), str(program / "__init__.py")),
    )
    before = processes.code_digest()
    _change_nothing_of_the_code(program)
    assert processes.code_digest() == before
    digests = [before]
    for change in (
        # of one size, within one tick of the clock
        lambda: (program / "core" / "a.py").write_text("A = 2\n"),
        lambda: (program / "core" / "b.py").write_text(""),
        lambda: (program / "core" / "b.py").rename(program / "core" / "c.py"),
        lambda: (libraries / "numpy-2.3.0.dist-info").rename(
            libraries / "numpy-2.3.1.dist-info"
        ),
        lambda: (program / "core" / "c.py").unlink(),
        lambda: (program / "core" / "a.py").unlink(),
        # as an editor's lock
        lambda: (program / "core" / "a.py").symlink_to("nothing"),
    ):
        change()
        digests.append(processes.code_digest())
    assert len(set(digests)) == len(digests)


def test_a_file_of_the_program_that_cannot_be_read_is_logged_and_counts_as_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.py").write_text("A = 1\n")
    monkeypatch.setattr(processes.app, "__file__", str(tmp_path / "__init__.py"))
    before = processes.code_digest()
    (tmp_path / "a.py").unlink()
    (tmp_path / "a.py").symlink_to("nothing")
    without = processes.code_digest()
    assert caplog.records == []
    (tmp_path / "a.py").unlink()
    (tmp_path / "a.py").mkdir()
    assert processes.code_digest() == without != before
    [record] = caplog.records
    assert record.getMessage() == "a file of the program cannot be read"


def _change_nothing_of_the_code(program: Path) -> None:
    """As a copy, the first import, and Numba do."""
    os.utime(program / "core" / "a.py", (1, 1))
    (program / "core" / "__pycache__").mkdir()
    (program / "core" / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"code")
    (program / "core" / "__pycache__" / "a.f-1.py311.nbi").write_bytes(b"index")


def test_libraries_that_add_folders_to_the_path_change_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = processes.code_digest()
    (tmp_path / "vendored-1.0.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert processes.code_digest() == before
