"""Ports for servers that have to be told theirs.

A port that the system gave to a socket, which was closed again, is soon given to somebody else: to a connection of
another test, or to another server. These stand outside of what systems give away by themselves, each process of tests
looks in a range of its own, and none is handed out twice.
"""

import os
import random
import re
import socket

_FIRST, _PER_PROCESS = 12_000, 1_500
_N_PROCESSES = 10
"""The last range ends at 27,000; what systems give away begins at 32,768 at the earliest."""

_given: set[int] = set()


def free_port() -> int:
    """A port of the loopback that nobody listens on, and that no other test of this run is given."""
    process = re.search(r"\d+$", os.environ.get("PYTEST_XDIST_WORKER", ""))
    start = _FIRST + _PER_PROCESS * (int(process.group()) % _N_PROCESSES if process else 0)
    candidates = [port for port in range(start, start + _PER_PROCESS) if port not in _given]
    random.SystemRandom().shuffle(candidates)  # other runs on this machine begin elsewhere
    for port in candidates:
        _given.add(port)
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
