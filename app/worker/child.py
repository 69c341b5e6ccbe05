"""Runs one job on private rows, in a process that ends with its supervisor.

The process loads its modules, starts the threads that it cannot do without, and says so
with one byte on standard output: the job is charged after this byte, so that whatever
this machine lacks costs no budget. Then the process waits for the job, one line of JSON
on standard input, which stays open: when the input closes, the supervisor has ended or
needs no child, and this process ends at once. The next byte says that the job begins,
before its rows are read; each finished tree is one more byte. Until the modules are
loaded, standard error is that of the worker; afterwards it is discarded, and the exit
code is success or one opaque failure, whatever went wrong.

Before the task, a line may name what a job needs: this process tries to use it, as the
job will, and answers with one byte. It knows neither the task nor a key, and gets the
lines of further jobs until one of them is charged.
"""

import ctypes
import importlib
import logging
import mmap
import os
import resource
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from app.core import logging as logs
from app.core.memory import (
    forbid_core_dumps,
    return_large_blocks,
    share_arenas,
    without_collection,
)

_PR_SET_PDEATHSIG = 1  # of Linux' ``prctl.h``
_FAILURE = 1
# counts, their noisy shares, the tables of the model and its bytes
_COPIES_OF_OUTPUT = 4
_log = logging.getLogger("app.worker.child")  # this module runs as ``__main__``
_NEEDED = (
    "app.services.jobs.task",
    "app.services.drawing.perform",
    "app.datasets.private_rows",
    "grovekeeper_forests.noise.draws",
    "grovekeeper_forests.kernels.compiled.node_row_loops",
    "grovekeeper_forests.kernels.compiled.prediction_loops",
    "grovekeeper_forests.kernels.compiled.boosting_loops",
    "grovekeeper_forests.kernels.compiled.fourth_root_loops",
    "encodings.utf_16_be",  # in whose order canonical JSON has its members
)
"""What jobs on private rows use. The first process on a machine compiles these loops
before its job begins.
"""


def main(supervisor_pid: int) -> None:
    """Runs the job that standard input describes, then exits."""
    _die_with(supervisor_pid)
    forbid_core_dumps()
    return_large_blocks()
    # threads of growth keep what they free: with two, `rpf` took 17 % more at ten
    # million rows
    share_arenas(1)
    has_task = threading.Event()
    _load_or_exit(has_task)
    _tell()
    # This byte and those that answer looks let the worker charge the job. So whatever may
    # fail for want of something on this machine is tried before one of them.
    text = _look_until_task()
    has_task.set()
    _discard_standard_error()
    try:
        from app.services.drawing.perform import perform
        from app.services.jobs.task import JobTask

        task = JobTask.from_text(text)
        os.chdir(task.folder)
        _tell()
        perform(task, on_tree_done=_tell)
    except BaseException:  # noqa: BLE001  (one opaque failure, whatever it was)
        os._exit(_FAILURE)
    # not ``sys.exit``, which waits for threads of libraries and runs their hooks
    os._exit(0)


def _load_or_exit(has_task: threading.Event) -> None:
    """Loads what jobs use. A failure is logged: this process has read no task, so
    nothing private can be in it.
    """
    try:
        _lift_limit_of_processor_time()
        with without_collection():
            load_modules()
        threading.Thread(
            target=_exit_when_stdin_closes, args=(has_task,), daemon=True
        ).start()
    except BaseException:  # noqa: BLE001  (whatever is missing here, no job may be charged)
        logs.configure("INFO")
        _log.exception("the code of jobs cannot be loaded")
        os._exit(_FAILURE)


def _lift_limit_of_processor_time() -> None:
    """Has no limit of the account or the service end this process after the charge: how
    long a job takes is known when it has ended.

    Raises:
        OSError, ValueError: this account may not lift a hard limit.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY,) * 2)


def _look_until_task() -> str:
    """Answers the lines that name what a job needs, until a line is a task; returns the
    task.
    """
    while (line := sys.stdin.readline()).startswith("look "):
        try:
            look(line.removeprefix("look "))
        except Exception:  # noqa: BLE001  (whatever is missing, the job is not charged)
            logs.configure("INFO")
            _log.exception("the process of a job cannot use what the job needs")
            os._exit(_FAILURE)
        _tell()
    return line


def look(text: str) -> None:
    """Enters the folder of a job, takes room for its output twice and memory four
    times, reads the released models that it evaluates, all at once as the job does, and
    opens the files of its rows, without their key.

    A limit of the account or the service shows here: of the size of a file, of room, of
    memory, or another encoding of paths; and a model of a later version, which another
    worker may read.
    """
    from app.services.jobs.task import Needs, input_paths

    needs = Needs.from_text(text)
    os.chdir(needs.folder)
    with (
        tempfile.TemporaryFile(dir=needs.folder) as output,
        tempfile.TemporaryFile(dir=needs.folder) as stored,
    ):
        for file in (output, stored):
            _take_room(file.fileno(), needs.output_bytes)
    _take_memory(_COPIES_OF_OUTPUT * needs.output_bytes)
    _read_models(input_paths(needs.folder))
    for name in needs.files:
        with Path(name).open("rb") as rows:
            rows.read(1)


def _read_models(paths: Sequence[Path]) -> None:
    """Has all models in memory together, with what predictions by their default
    read-out keep: the job has, too.
    """
    forests = importlib.import_module("grovekeeper_forests.releases.forest.read")
    models = [forests.loads(path.read_bytes()) for path in paths]
    for model in models:
        model.predictor.prepare()


def _take_room(descriptor: int, n_bytes: int) -> None:
    if n_bytes and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, n_bytes)


def _take_memory(n_bytes: int) -> None:
    """Writes to pages of memory and gives them back: a limit refuses them, or ends this
    process before the charge.
    """
    if n_bytes:
        with mmap.mmap(-1, n_bytes) as pages:
            # Linux grants memory when it is written, so each page is
            for start in range(0, n_bytes, mmap.PAGESIZE):
                pages[start] = 1


def _discard_standard_error() -> None:
    """Before the task is parsed, because later messages of libraries may quote rows."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


def load_modules() -> None:
    """Imports what jobs use, compiles the loops that this machine has not compiled yet,
    and starts to read files.
    """
    for name in _NEEDED:
        importlib.import_module(name)
    sys.modules["app.datasets.private_rows"].start_reading()


def _tell() -> None:
    # past ``sys.stdout``, whose buffer would keep the byte
    os.write(1, b".")


def _exit_when_stdin_closes(has_task: threading.Event) -> None:
    has_task.wait()  # the main thread reads the task; two readers would share its bytes
    is_open = True
    while is_open:
        is_open = os.read(0, 4096) != b""
    os._exit(_FAILURE)


def _die_with(supervisor_pid: int) -> None:
    """Asks Linux for SIGKILL when the supervisor ends, and checks that it has not ended
    already.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor_pid:
        os._exit(_FAILURE)


if __name__ == "__main__":
    # ``grovekeeper prepare`` compiles the program and runs no job
    if sys.argv[1] == "prepare":
        load_modules()
    else:
        main(int(sys.argv[1]))
