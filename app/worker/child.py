"""Runs one job on private rows, in a process that ends with its supervisor.

The job arrives as one line of JSON on standard input, which then stays open: when the input closes, the supervisor has
ended, and this process ends at once. Each finished tree is one byte on standard output. Standard error is discarded,
and the exit code is success or one opaque failure, whatever went wrong.
"""

import ctypes
import os
import signal
import sys
import threading

from app.core.memory import forbid_core_dumps

_PR_SET_PDEATHSIG = 1
_FAILURE = 1


def main(supervisor_pid: int) -> None:
    """Runs the job that standard input describes, then exits."""
    _die_with(supervisor_pid)
    forbid_core_dumps()
    task_line = sys.stdin.readline()
    threading.Thread(target=_exit_when_stdin_closes, daemon=True).start()
    try:
        # Here, after the watch was set: the imports take half a second of CPU.
        from app.services.execution.perform import perform
        from app.services.jobs.task import JobTask

        perform(JobTask.from_text(task_line), on_tree_done=_tell)
    except BaseException:  # noqa: BLE001  (one opaque failure, whatever it was)
        os._exit(_FAILURE)
    os._exit(0)


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
