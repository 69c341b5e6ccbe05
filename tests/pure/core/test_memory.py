"""Tests that threads allocate from the arenas that the process allows, and which memory
gets large pages.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.core.memory import LARGE_PAGES

_PROGRAM = """
import ctypes, sys, threading
from app.core.memory import share_arenas
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
    """The arenas that six threads allocated from; ``most``: 0 for as many as glibc
    makes.
    """
    subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(folder / "arenas"), str(most)], check=True
    )
    return (folder / "arenas").read_text().count("<heap nr=")


@pytest.mark.skipif(sys.platform != "linux", reason="arenas are glibc's")
def test_threads_share_as_many_arenas_as_are_allowed(tmp_path: Path) -> None:
    assert _n_arenas(tmp_path, 1) == 1
    assert _n_arenas(tmp_path, 2) == 2
    assert _n_arenas(tmp_path, 0) > 2


_LARGE_PAGES = """
import ctypes
from pathlib import Path
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
ctypes.memset(libc.malloc(2**25), 1, 2**25)
print(Path("/proc/self/smaps_rollup").read_text().split("AnonHugePages:")[1].split()[0])
"""


def _large_pages_are_off() -> bool:
    state = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return not state.exists() or "[never]" in state.read_text()


@pytest.mark.skipif(_large_pages_are_off(), reason="this system has no large pages")
def test_rows_get_large_pages() -> None:
    run = subprocess.run(
        [sys.executable, "-c", _LARGE_PAGES],
        env={**os.environ, **LARGE_PAGES},
        capture_output=True,
        check=True,
    )
    assert int(run.stdout) > 0
