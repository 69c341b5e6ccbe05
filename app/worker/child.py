"""Runs one job on private rows, in a process that ends with its supervisor.

The process loads its modules, then waits for the job, one line of JSON on standard input, which stays open: when the
input closes, the supervisor has ended or needs no child, and this process ends at once. Each finished tree is one byte
on standard output. Standard error is discarded, and the exit code is success or one opaque failure, whatever went
wrong.
"""

import ctypes
import importlib
import os
import pkgutil
import signal
import sys
import threading

from app.core.memory import forbid_core_dumps, return_large_blocks, share_arenas, small_pages, without_collection

_PR_SET_PDEATHSIG = 1
_FAILURE = 1


def main(supervisor_pid: int) -> None:
    """Runs the job that standard input describes, then exits."""
    _die_with(supervisor_pid)
    forbid_core_dumps()
    return_large_blocks()
    share_arenas(1)  # threads of growth keep what they free: with two, `rpf` took 17 % more at ten million rows
    try:
        with without_collection(), small_pages():
            load_modules()
        from app.services.execution.perform import perform
        from app.services.jobs.task import JobTask

        task = JobTask.from_text(sys.stdin.readline())
        threading.Thread(target=_exit_when_stdin_closes, daemon=True).start()
        os.chdir(task.folder)
        perform(task, on_tree_done=_tell)
    except BaseException:  # noqa: BLE001  (one opaque failure, whatever it was)
        os._exit(_FAILURE)
    os._exit(0)


def load_modules() -> None:
    """Imports what jobs use, with their compiled loops."""
    importlib.import_module("app.services.execution.perform")
    for package in ("app.forests.kernels.compiled", "app.forests.noise"):
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            importlib.import_module(f"{package}.{module.name}")


def _tell() -> None:
    os.write(1, b".")


def _exit_when_stdin_closes() -> None:
    is_open = True
    while is_open:
        is_open = os.read(0, 4096) != b""
    os._exit(_FAILURE)


def _die_with(supervisor_pid: int) -> None:
    """Asks Linux for SIGKILL when the supervisor ends, and checks that it has not ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor_pid:
        os._exit(_FAILURE)


if __name__ == "__main__":
    main(int(sys.argv[1]))
