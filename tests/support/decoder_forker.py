"""The process that :mod:`tests.support.forked_decoder` starts: it loads the decoder of
uploads and forks it.

It loads nothing else, so that a fork has loaded what the product's decoder has loaded
when it gives up the right to open files.
"""

import gc
import os
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Final, NoReturn

MESSAGE: Final = struct.Struct("<q")
"""A request and its answer."""

FORK: Final = 0
"""Asks for a fork and gets its process id; a process id gets the exit code."""


def main() -> None:
    """Forks, and says how forks ended, until the control socket closes."""
    # here, because the tests import this module and not always Arrow
    from app.datasets import columnar_child

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, for the tests
    gc.freeze()
    control = socket.socket(fileno=int(sys.argv[1]))
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, MESSAGE.size, 2)
        if not message:
            break
        [number] = MESSAGE.unpack(message)
        if number == FORK:
            answer = os.fork()
            if answer == 0:
                _decode(columnar_child, descriptors)
        else:
            answer = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
        for descriptor in descriptors:
            os.close(descriptor)
        control.sendall(MESSAGE.pack(answer))


def _decode(decoder: ModuleType, descriptors: Sequence[int]) -> NoReturn:
    """Becomes the decoder that reads and writes descriptors."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    null = os.open(os.devnull, os.O_WRONLY)
    for standard, descriptor in enumerate([*descriptors, null]):
        os.dup2(descriptor, standard)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir("/")
    exit_code = 1
    try:
        decoder.main()
        exit_code = 0
    finally:
        os._exit(exit_code)


if __name__ == "__main__":
    main()
