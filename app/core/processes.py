"""Sets up processes of this program: memory, the environment of children, signals to stop, and periodic threads.

Core dumps would contain private rows, so they are prevented. Child processes start without addresses and keys in their
environment.
"""

import ctypes
import gc
import logging
import os
import resource
import signal
import sys
import threading
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

import app

_PR_SET_DUMPABLE = 4
_PR_SET_THP_DISABLE = 41
_M_ARENA_MAX = -8
_M_MMAP_THRESHOLD = -3
_M_TRIM_THRESHOLD = -1
_LARGE_BYTES = 2**20
_SPARE_BYTES = 2**24

ONE_BLAS_THREAD: Final[Mapping[str, str]] = {"OPENBLAS_NUM_THREADS": "1"}
"""Variables for processes that import numpy, whose library would start a thread for each further processor. On two
processors that takes 0.1 s of processor time, nearly half of a small child's, and matrices of forests are small."""

LARGE_PAGES: Final[Mapping[str, str]] = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Variables for processes that go through the same rows many times: glibc lets Linux use pages of 2 MB for memory."""


def forbid_core_dumps() -> None:
    """Keeps this process and the processes that it starts from writing core dumps.

    The limit alone does not stop a program to which the kernel pipes core dumps. On Linux, the kernel also hides the
    memory of the process from other processes of the same account.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


@contextmanager
def small_pages() -> Iterator[None]:
    """Keeps this process from getting pages of 2 MB for memory that it takes in the block.

    Modules come in small blocks, and loading them with large pages takes a fifth longer.
    """
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else lambda *_: None
    prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_THP_DISABLE, 0, 0, 0, 0)


def return_large_blocks() -> None:
    """Returns blocks of a megabyte or more to the system when they are freed: those of glibc, and those of pyarrow.

    glibc would keep blocks of up to 32 MB for itself after the first one is freed, and pyarrow's own allocator keeps
    more. Of smaller blocks, up to 16 MB stay with the process: arrays of half a megabyte, one for each part of the
    rows, would otherwise be returned and taken again all the time, a tenth of the time of growth. Takes effect for
    pyarrow if it was not imported before.
    """
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
            mallopt(_M_TRIM_THRESHOLD, _SPARE_BYTES)


def share_arenas(n_arenas: int) -> None:
    """Lets all threads of this process allocate from so many arenas, where the C library is glibc.

    By default, glibc makes up to eight arenas per processor, and each keeps memory that others cannot use. One thread
    at a time runs Python code, so threads seldom wait for an arena. Takes effect before a second thread starts.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
        if mallopt is not None:
            mallopt(_M_ARENA_MAX, n_arenas)


@contextmanager
def without_collection() -> Iterator[None]:
    """Pauses the search for cyclic garbage while modules are imported, and never searches their objects afterwards.

    What a module defines lives as long as the process. The searches take a sixth of the time of an import of the
    service, a fifth of the start of a job's process, and later a hundredth of the time of growth. Signatures of
    overloads are dropped, which only type checkers need; they take 0.5 MB.
    """
    gc.disable()
    try:
        yield
    finally:
        typing.clear_overloads()
        gc.freeze()
        gc.enable()


_INHERITED = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "NUMBA_CACHE_DIR",
    "HOME",
    "XDG_CACHE_HOME",
    "TMPDIR",
    "COVERAGE_PROCESS_START",
)


PROVIDER_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_", "SSL_CERT_")


def provider_environment() -> dict[str, str]:
    """The variables with the credentials of an object store, for a process that reads one."""
    return {name: value for name, value in os.environ.items() if name.startswith(PROVIDER_PREFIXES)}


def scrubbed_environment() -> dict[str, str]:
    """The environment of a child: the paths of Python and its caches, without addresses and keys."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**inherited, **ONE_BLAS_THREAD, "PYTHONPATH": str(Path(app.__file__).parents[1]), "PYTHONSAFEPATH": "1"}


TERMINAL_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""What service managers and terminals send to end a program; a terminal sends the last two to all its processes."""


@dataclass(frozen=True)
class Stop:
    """The requests to stop that a process has received.

    Attributes:
        begun: take no new work, finish the work that runs, then end.
        now: end at once; a running job is lost and stays charged.
    """

    begun: threading.Event = field(default_factory=threading.Event)
    now: threading.Event = field(default_factory=threading.Event)


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Sets ``begun`` at the first SIGTERM, SIGINT (Ctrl-C) or SIGHUP, and ``now`` at the second SIGTERM or SIGINT.

    SIGHUP is never the second signal: a terminal that closes sends it, often twice.
    """
    stop = Stop()
    n_signals = 0

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal n_signals
        n_signals += number != signal.SIGHUP
        if n_signals > 1:
            stop.now.set()
        stop.begun.set()

    before = {number: signal.signal(number, handle) for number in TERMINAL_SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_log = logging.getLogger(__name__)


class Periodic:
    """A thread that runs a task at once and then at an interval.

    Args:
        name: of the thread.
        task: takes an event that is set when the thread is to end. Whatever it raises is logged, and the next turn
            tries again.
        interval_s: seconds between the end of a turn and the next turn.
    """

    def __init__(self, name: str, task: Callable[[threading.Event], object], *, interval_s: float) -> None:
        self._task = task
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the step that its task is in."""
        self._stopping.set()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._task(self._stopping)
            except Exception:  # noqa: BLE001 - no database now; the next turn tries again
                _log.exception("a periodic task failed; will try again")
            self._stopping.wait(self._interval_s)
