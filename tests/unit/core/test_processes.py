"""Tests memory that processes take, signals that ask them to stop, and tasks that threads repeat."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from app.core.processes import LARGE_PAGES, TERMINAL_SIGNALS, Periodic, stop_signals

_PROGRAM = """
import ctypes, sys, threading
from app.core.processes import share_arenas
if int(sys.argv[2]):
    share_arenas(int(sys.argv[2]))
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
together = threading.Barrier(6)
def allocate():
    together.wait()
    for _ in range(100):
        libc.malloc(1000)
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


def _n_arenas(folder: Path, most: int) -> int:
    """The arenas that six threads allocated from; ``most``: 0 for as many as glibc makes."""
    subprocess.run([sys.executable, "-c", _PROGRAM, str(folder / "arenas"), str(most)], check=True)
    return (folder / "arenas").read_text().count("<heap nr=")


@pytest.mark.skipif(sys.platform != "linux", reason="arenas are glibc's")
def test_threads_share_as_many_arenas_as_are_allowed(tmp_path: Path) -> None:
    assert _n_arenas(tmp_path, 1) == 1
    assert _n_arenas(tmp_path, 2) == 2
    assert _n_arenas(tmp_path, 0) > 2


_LARGE_PAGES = """
import ctypes
from pathlib import Path
from app.core.processes import small_pages
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def large_page_kib():
    ctypes.memset(libc.malloc(2**25), 1, 2**25)
    return int(Path("/proc/self/smaps_rollup").read_text().split("AnonHugePages:")[1].split()[0])
with small_pages():
    print(large_page_kib())
print(large_page_kib())
"""


def _large_pages_are_off() -> bool:
    state = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return not state.exists() or "[never]" in state.read_text()


@pytest.mark.skipif(_large_pages_are_off(), reason="this system has no large pages")
def test_rows_get_large_pages_and_modules_do_not() -> None:
    run = subprocess.run(
        [sys.executable, "-c", _LARGE_PAGES], env={**os.environ, **LARGE_PAGES}, capture_output=True, check=True
    )
    of_modules, of_rows = map(int, run.stdout.split())
    assert of_modules == 0
    assert of_rows > 0


@pytest.mark.parametrize("first", TERMINAL_SIGNALS)
def test_the_first_signal_begins_a_stop_and_handlers_are_given_back(first: signal.Signals) -> None:
    before = signal.getsignal(first)
    with stop_signals() as stop:
        assert not stop.begun.is_set()
        os.kill(os.getpid(), first)
        assert stop.begun.wait(5)
        assert not stop.now.is_set()
    assert signal.getsignal(first) is before


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_means_now(first: signal.Signals, second: signal.Signals) -> None:
    with stop_signals() as stop:
        os.kill(os.getpid(), first)
        assert stop.begun.wait(5)
        os.kill(os.getpid(), second)
        assert stop.now.wait(5)


def test_a_terminal_that_closes_is_never_the_second_signal() -> None:
    with stop_signals() as stop:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGHUP):
            os.kill(os.getpid(), number)
        assert stop.begun.wait(5)
        assert not stop.now.is_set()


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
