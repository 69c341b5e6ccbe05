"""Starts processes of this program, says which code they run, turns signals into
requests to stop, and runs threads.

Child processes start without addresses and keys in their environment. ``python -m``
searches the working directory for modules first. A user's folder may contain another
``app``, so the environment names this program's path and switches that rule off.
"""

import hashlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

import app
import grovekeeper_common
import grovekeeper_forests
from app.core.errors import InstallationError
from app.core.memory import ONE_BLAS_THREAD

# Only these: a child has private rows, and whatever else is in the environment (the
# address of the database, keys, credentials of the store) it must not have.
_INHERITED = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOCPATH",
    "PYTHONUTF8",
    "TZ",
    "NUMBA_CACHE_DIR",
    "HOME",
    "XDG_CACHE_HOME",
    "TMPDIR",
    "COVERAGE_PROCESS_START",
)

PROVIDER_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_", "SSL_CERT_")

TERMINAL_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""What service managers and terminals send to end a program; a terminal sends the last
two to all its processes.
"""

_PATH = tuple(sys.path)
"""Where libraries are, before any of them adds a folder."""

Result = TypeVar("Result")

_log = logging.getLogger(__name__)


def provider_environment() -> dict[str, str]:
    """The variables with the credentials of an object store, for a process that reads
    one.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(PROVIDER_PREFIXES)
    }


def scrubbed_environment() -> dict[str, str]:
    """The environment of a child: the paths of Python and its caches, without addresses
    and keys.
    """
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**inherited, **ONE_BLAS_THREAD, **_path_of_this_program()}


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
    """Sets ``begun`` at the first SIGTERM, SIGINT (Ctrl-C) or SIGHUP, and ``now`` at
    the second SIGTERM or SIGINT.

    SIGHUP is never the second signal: a terminal that closes sends it, often twice.
    """
    stop, received = Stop(), SimpleQueue[int | None]()

    def obey() -> None:
        n_signals = 0
        while (number := received.get()) is not None:
            n_signals += number != signal.SIGHUP
            if n_signals > 1:
                stop.now.set()
            stop.begun.set()

    threading.Thread(target=obey, name="signals", daemon=True).start()
    # A handler runs between two steps of the main thread, which may hold the lock of an
    # event and would wait for itself for ever. ``SimpleQueue.put`` takes no lock.
    before = {
        number: signal.signal(number, lambda number, _: received.put(number))
        for number in TERMINAL_SIGNALS
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        received.put(None)


class Periodic:
    """A thread that runs a task at once and then at an interval.

    Args:
        task: takes an event that is set when the thread is to end. Whatever it raises
            is logged, and the next turn tries again.
        interval_s: seconds between the end of a turn and the next turn.
    """

    def __init__(
        self, name: str, task: Callable[[threading.Event], object], *, interval_s: float
    ) -> None:
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
            self._turn()
            self._stopping.wait(self._interval_s)

    def _turn(self) -> None:
        try:
            self._task(self._stopping)
        except Exception:  # noqa: BLE001 - no database or no disk space now; the next turn tries again
            _log.exception("a periodic task failed; will try again")


def code_digest() -> str:
    """Identifies the code that a process of this program would load now: its files, and
    the versions of its libraries.

    Processes that load code before and after an equal digest run the same code.
    Contents of files count and no times, so that a copy or a check-out of the same code
    is no change. Takes 15 ms.
    """
    digest = hashlib.sha256()
    modules: list[Path] = []
    for package in (app, grovekeeper_common, grovekeeper_forests):
        modules += Path(str(package.__file__)).parent.rglob("*.py")
    # sorted: a file system lists names in any order
    for path in sorted(modules):
        digest.update(f"{path}\0".encode())
        try:
            digest.update(path.read_bytes())
        except FileNotFoundError:
            pass  # removed meanwhile, or an editor's lock, a link to nothing
        except OSError:
            # counts as other code, so that a worker ends and its successor looks again
            _log.exception("a file of the program cannot be read")
    for folder in _PATH:
        for name in sorted(path.name for path in Path(folder).glob("*.dist-info")):
            digest.update(f"{name}\0".encode())
    return digest.hexdigest()


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this program with this interpreter."""
    return [sys.executable, "-m", module, *arguments]


def module_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in which ``app`` is this program, and the packages beside it are
    those of the same source.
    """
    return dict(environ) | _path_of_this_program(environ.get("PYTHONPATH"))


def _path_of_this_program(further: str | None = None) -> dict[str, str]:
    """The variables by which a process finds this program first, and then what is in
    ``further`` folders.
    """
    above = Path(app.__file__).parents[1]
    # a wheel has what they hold beside ``app``
    beside = ("clients/python", "packages/forests", "packages/verifier")
    places = (above, *(above / name for name in beside))
    folders = [str(folder) for folder in places if folder.is_dir()]
    return {
        "PYTHONPATH": os.pathsep.join([*folders, *filter(None, [further])]),
        "PYTHONSAFEPATH": "1",
    }


def require_usable_umask() -> None:
    """Checks that this process can open the files that it makes.

    Raises:
        InstallationError: the umask takes rights from their own account.
    """
    umask = os.umask(0o077)  # the only call that tells it
    os.umask(umask)
    if umask & 0o700:
        raise InstallationError(
            f"the umask {umask:04o} takes from new files the rights of their own account; run: umask 077"
        )
