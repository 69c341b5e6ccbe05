"""Finds free ports for servers that need a port number.

The system soon reuses a port of a socket that was closed, for a connection of another
test or for another server. So these ports are outside the system's ephemeral range,
each test process searches a range of its own, and no port is returned twice.
"""

import os
import random
import re
import socket

_FIRST, _PER_PROCESS = 12_000, 1_500
_N_PROCESSES = 10
"""The last range ends at 27,000; ephemeral ports begin at 32,768 or later."""

_returned: set[int] = set()


def free_port() -> int:
    """A loopback port that is free and that no other test of this run gets."""
    process = re.search(r"\d+$", os.environ.get("PYTEST_XDIST_WORKER", ""))
    start = _FIRST + _PER_PROCESS * (
        int(process.group()) % _N_PROCESSES if process else 0
    )
    candidates = [
        port for port in range(start, start + _PER_PROCESS) if port not in _returned
    ]
    # so that other runs on this machine start with other ports
    random.SystemRandom().shuffle(candidates)
    for port in candidates:
        _returned.add(port)
        if _is_free(port):
            return port
    raise OSError("no port is free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
