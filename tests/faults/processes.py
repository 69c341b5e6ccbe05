"""Forks API processes and workers of the product from one process that has imported the
product.

``python -m tests.faults.processes`` reads a :class:`Start` as JSON per line of standard
input and prints the process id of the fork. To ``null`` it prints ``ready``, after
minutes if kernels have to be compiled. A new interpreter needs seconds to import the
product, a fork milliseconds, so that a round of faults restarts many processes. The
forks end with this process.

``app/`` has no hook for tests. A fork differs from the product's command in three ways:
its clock is shifted by the seconds in a file; the children of its jobs are forks; and
each child writes ``read <job> <kinds>`` to a journal before it opens private rows, with
the kinds of the job's committed entries.
"""

import gc
import importlib
import json
import mmap
import os
import signal
import struct
import sys
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

from app.core.settings import Settings
from tests.support.crash import before, note, visible_kinds

Role = Literal["serve", "api", "worker"]

_IMPORTED_ONCE = (
    "app.api.main", "app.api.http_protocol", "app.cli.serve", "app.worker.main",
    "grovekeeper_forests.releases.forest.onnx.model", "uvicorn.lifespan.on", "uvicorn.loops.auto",
    "sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.sqlite.pysqlite", "psycopg", "pandas",
)  # fmt: skip
"""Modules that the processes use, so that forks have them."""

_SHIFT = struct.Struct("d")


@dataclass(frozen=True)
class Start:
    """A process to start.

    Attributes:
        role: the command: ``serve`` (embedded, without workers), ``api`` or ``worker``.
        environ: the settings.
        log: the file of standard output and standard error.
        clock: the file of the clock's shift.
        journal: the file of private reads.
        database_url: an address for the children's look at the ledger, which no fault
            interrupts.
    """

    role: Role
    environ: dict[str, str]
    log: str
    clock: str
    journal: str
    database_url: str


def shift_clock(file: Path, seconds: float) -> None:
    """Shifts the clock of every process that reads a file, at once; makes the file."""
    if not file.exists():
        file.write_bytes(_SHIFT.pack(0.0))
    with file.open("r+b") as shift:
        shift.write(_SHIFT.pack(seconds))


def main() -> None:
    """Starts one fork per line, until standard input ends."""
    from app.worker.child import load_modules

    load_modules()
    for name in _IMPORTED_ONCE:
        importlib.import_module(name)
    gc.freeze()  # collections in forks would copy the memory that they share
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel removes ended forks
    for line in sys.stdin:
        fields = json.loads(line)
        if fields is None:
            print("ready", flush=True)
            continue
        start = Start(**fields)
        process_id = os.fork()
        if process_id == 0:
            _run_fork(start)
        print(process_id, flush=True)


def _run_fork(start: Start) -> None:
    code = 1
    try:
        _detach(Path(start.log))
        code = _run(start)
    except BaseException:  # noqa: BLE001 - a fork must not continue with its parent's program
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _detach(log: Path) -> None:
    """Moves a fork into a session of its own, with a log, and lets it end with its
    parent.
    """
    from app.worker import child

    child._die_with(os.getppid())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    null, output = (
        os.open(os.devnull, os.O_RDONLY),
        os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
    )
    for descriptor, standard in ((null, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, standard)
    os.closerange(3, 256)


def _run(start: Start) -> int:
    from app.cli import serve
    from app.core.processes import code_digest
    from app.worker import child
    from app.worker.main import run
    from tests.support.forked_child import fork_children

    os.environ.update(start.environ)
    settings = Settings.from_environment(os.environ)
    _follow_shifted_clock(Path(start.clock))
    match start.role:
        case "serve":
            serve.serve(settings, announce=lambda _: None)
        case "api":
            serve.serve_api(settings, announce=lambda _: None)
        case "worker":
            _witness_reads(start)
            fork_children(child.main)
            return run(settings, code=code_digest())
    return 0


def _follow_shifted_clock(file: Path) -> None:
    from app.core import stamps

    with file.open("rb") as shift:
        seconds = mmap.mmap(shift.fileno(), _SHIFT.size, prot=mmap.PROT_READ)
    stamps.now = lambda: (
        datetime.now(UTC) + timedelta(seconds=_SHIFT.unpack(seconds)[0])
    )


def _witness_reads(start: Start) -> None:
    from app.datasets import private_rows
    from app.services.drawing import perform as drawing

    original = drawing.perform

    def witnessed(task: Any, **named: Any) -> None:
        before(private_rows, "read", partial(_note_read, start, task.job_id))
        original(task, **named)

    drawing.perform = witnessed


def _note_read(start: Start, job_id: str) -> None:
    try:
        kinds = visible_kinds(start.database_url, job_id)
    except Exception:  # noqa: BLE001 - the database is away; the entries are compared after the round
        kinds = "unknown"
    note(Path(start.journal), f"read {job_id} {kinds}")


if __name__ == "__main__":
    main()
