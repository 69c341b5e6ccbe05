"""Runs a worker that ends with the process that started it (``python -m app.cli.worker_process``).

``serve`` holds the other end of this process's stdin. The first line has the secret settings. When ``serve`` closes
its end, or ends, even by ``kill -9``, the worker finishes its job and ends. The end of stdin is no signal, so it never
counts as the second one beside a signal that a service manager sends to every process of the service.
"""

import json
import os
import signal
import sys
import threading

from app.core.errors import InstallationError
from app.core.memory import without_collection
from app.core.settings import Settings


def main() -> int:
    """Runs the worker of this installation until a signal, or the end of stdin, stops it."""
    with without_collection():
        from app.worker.main import run

    secrets_line = _first_line()
    threading.Thread(target=_follow_supervisor, name="follow-supervisor", daemon=True).start()
    try:
        return run(Settings.from_environment(os.environ, **json.loads(secrets_line)))
    except InstallationError as error:
        print(error, file=sys.stderr)
        return 1


def _first_line() -> bytes:
    """The first line of stdin, read without a buffer that would keep what follows. Empty JSON if stdin has ended."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 4096)
        if not part:
            return b"{}"
        line += part
    return line


def _follow_supervisor() -> None:
    """Reads the file descriptor itself, because a thread inside ``sys.stdin`` would abort the interpreter's exit."""
    is_open = True
    while is_open:
        is_open = os.read(0, 4096) != b""
    os.kill(os.getpid(), signal.SIGHUP)


if __name__ == "__main__":
    sys.exit(main())
