"""Keeps the memory of a process, which holds private rows, out of files."""

import ctypes
import resource
import sys

_PR_SET_DUMPABLE = 4


def forbid_core_dumps() -> None:
    """Keeps this process and the processes that it starts from writing core dumps.

    The limit alone does not stop a program to which the kernel pipes core dumps. On Linux, the kernel also hides the
    memory of the process from other processes of the same account.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
