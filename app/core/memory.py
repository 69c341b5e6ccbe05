"""Prevents core dumps, which would contain private rows, and limits the memory that a
process takes and never frees.
"""

import ctypes
import gc
import os
import resource
import sys
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

# of Linux' ``prctl.h`` and of glibc's ``malloc.h``, which Python does not name
_PR_SET_DUMPABLE = 4
_M_ARENA_MAX = -8
_M_MMAP_THRESHOLD = -3
_M_TRIM_THRESHOLD = -1
_LARGE_BYTES = 2**20
_SPARE_BYTES = 2**24

ONE_BLAS_THREAD: Final[Mapping[str, str]] = {"OPENBLAS_NUM_THREADS": "1"}
"""Variables for processes that import numpy, whose library would start a thread for
each further processor. On two processors that takes 0.1 s of processor time, nearly
half of a small child's, and matrices of forests are small.
"""

LARGE_PAGES: Final[Mapping[str, str]] = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Variables for processes that go through the same rows many times: glibc lets Linux
use pages of 2 MB for memory.
"""


def forbid_core_dumps() -> None:
    """Keeps this process and the processes that it starts from writing core dumps.

    The limit alone does not stop a program to which the kernel pipes core dumps. On
    Linux, the kernel also hides the memory of the process from other processes of the
    same account.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def return_large_blocks() -> None:
    """Returns blocks of a megabyte or more to the system when they are freed: those of
    glibc, and those of pyarrow.

    glibc would keep blocks of up to 32 MB for itself after the first one is freed, and
    pyarrow's own allocator keeps more. Of smaller blocks, up to 16 MB stay with the
    process: arrays of half a megabyte, one for each part of the rows, would otherwise
    be returned and taken again all the time, a tenth of the time of growth. Takes
    effect for pyarrow if it was not imported before.
    """
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    _mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    _mallopt(_M_TRIM_THRESHOLD, _SPARE_BYTES)


def share_arenas(n_arenas: int) -> None:
    """Lets all threads of this process allocate from so many arenas, where the C
    library is glibc.

    By default, glibc makes up to eight arenas per processor, and each keeps memory that
    others cannot use. One thread at a time runs Python code, so threads seldom wait for
    an arena. Takes effect before a second thread starts.
    """
    _mallopt(_M_ARENA_MAX, n_arenas)


def _mallopt(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    # musl has none
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(option, value)


@contextmanager
def without_collection() -> Iterator[None]:
    """Pauses the search for cyclic garbage while modules are imported, and never
    searches their objects afterwards.

    What a module defines lives as long as the process. The searches take a sixth of the
    time of an import of the service, a fifth of the start of a job's process, and later
    a hundredth of the time of growth. Signatures of overloads are dropped, which only
    type checkers need; they take 0.5 MB.
    """
    gc.disable()
    try:
        yield
    finally:
        typing.clear_overloads()
        gc.freeze()
        gc.enable()
