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
    command = [sys.executable, "-c", _PROGRAM, str(folder / "arenas"), str(most)]
    subprocess.run(command, env=_as_glibc_does_by_itself(), check=True)
    return (folder / "arenas").read_text().count("<heap nr=")


def _as_glibc_does_by_itself() -> dict[str, str]:
    """The environment of this process without what a machine may have told glibc."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MALLOC_", "GLIBC_"))
    }


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
lines = Path("/proc/self/smaps").read_text().splitlines()
print(sum(line.startswith("VmFlags:") and "hg" in line.split() for line in lines))
"""
"""Prints of how much memory glibc asked for large pages: whether Linux has some left is
chance.
"""


def _large_pages_are_given_on_request() -> bool:
    state = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return state.exists() and "[madvise]" in state.read_text()


@pytest.mark.skipif(
    not _large_pages_are_given_on_request(),
    reason="this system has no large pages, or gives them without being asked",
)
def test_large_pages_are_asked_for_rows() -> None:
    asked = [
        subprocess.run(
            [sys.executable, "-c", _LARGE_PAGES],
            env={**_as_glibc_does_by_itself(), **tunables},
            capture_output=True,
            check=True,
        ).stdout
        for tunables in ({}, LARGE_PAGES)
    ]
    assert asked[0] == b"0\n"
    assert int(asked[1]) > 0
