"""Starts programs as forks of a process that has imported the product, which takes a
new interpreter 2 s of CPU.

:func:`start` is the side of the tests. At the first call it runs ``python -m
tests.support.forked_program``, which imports the product and then forks a program for
each request. A fork has the folder, environment, arguments and streams of its request,
leads a process group, and ends as an interpreter does.
"""

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

from sqlalchemy.orm import configure_mappers

from app.worker.child import load_modules
from tests.support.waiting import wait_for

_ROOT = Path(__file__).parents[2]
_LOADED_BY_SERVERS = (
    "app.api.http_protocol", "app.api.main", "app.cli.main", "app.cli.serve", "app.datasets.ingest", "app.db.migrate",
    "app.worker.main", "pandas", "psycopg", "uvicorn.protocols.http.auto", "uvloop",
)  # fmt: skip
"""Arrow imports pandas, where it is installed, when it converts its first value."""
_MAX_DESCRIPTORS = 4


class ForkedProgram:
    """Implements the part of ``subprocess.Popen`` that tests use; the fork's standard
    output may be a pipe.
    """

    def __init__(
        self, words: str, pid: int, stdin: IO[bytes], stdout: IO[str] | None
    ) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self._words = words
        self._exit_code: int | None = None

    def poll(self) -> int | None:
        """The exit code, or the negated signal that ended the program; ``None`` while
        the program runs.
        """
        if self._exit_code is None:
            self._exit_code = _forker().request({"poll": self.pid}, [])
        return self._exit_code

    def wait(self) -> int:
        """Waits for the exit code."""
        return wait_for(f"{self._words} ends", self.poll)

    def send_signal(self, number: int) -> None:
        """Sends a signal to the program, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills the program, and nothing that it started."""
        self.send_signal(signal.SIGKILL)

    def end(self) -> None:
        """Kills the program and what it started, and closes its streams."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Waits for the end of the program and closes its streams."""
        self.wait()
        self.stdin.close()
        if self.stdout is not None:
            self.stdout.close()


def start(
    module: str,
    *arguments: str,
    folder: Path,
    environ: Mapping[str, str],
    log: Path,
    piped: bool = False,
    descriptor: int | None = None,
) -> ForkedProgram:
    """Runs ``main()`` of a module in a fork; its standard input is a pipe that stays
    open.

    Args:
        module: has a function ``main`` that returns the exit code.
        arguments: in ``sys.argv``.
        folder: the working directory.
        environ: the environment.
        log: the file to which standard error is appended, and standard output unless it
            is ``piped``.
        piped: whether the tests read the standard output.
        descriptor: an open file that is descriptor 3 of the program.
    """
    request = {
        "module": module,
        "arguments": arguments,
        "folder": str(folder),
        "environ": dict(environ),
    }
    with contextlib.ExitStack() as ours:
        stdin, written = os.pipe()
        ours.callback(os.close, stdin)
        errors = ours.enter_context(log.open("ab")).fileno()
        stdout, printed = errors, None
        if piped:
            readable, stdout = os.pipe()
            ours.callback(os.close, stdout)
            printed = os.fdopen(readable, encoding="utf-8")
        passed = [stdin, stdout, errors, *([] if descriptor is None else [descriptor])]
        pid = _forker().request(request, passed)
        assert pid is not None
        words = " ".join((module, *arguments))
        writable = os.fdopen(written, "wb", buffering=0)
        return ForkedProgram(words, pid, writable, printed)


class _Forker:
    """The process that forks, as the tests see it. It ends, and all programs with it,
    when this process ends.
    """

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._answers = self._control.makefile("rb")

    def request(
        self, body: Mapping[str, Any], descriptors: Sequence[int]
    ) -> int | None:
        with self._lock:
            # The descriptors go with the first byte, so that a long request may be sent
            # in several pieces.
            socket.send_fds(self._control, [b"{"], descriptors)
            self._control.sendall(json.dumps(body).encode()[1:] + b"\n")
            answer: int | None = json.loads(self._answers.readline())
            return answer

    def stop(self) -> None:
        self._answers.close()
        self._control.close()
        self._process.wait()


@cache
def _forker() -> _Forker:
    forker = _Forker()
    atexit.register(forker.stop)
    return forker


def main() -> None:
    """Imports the product, then forks programs and reports exit codes until the control
    socket closes.
    """
    load_modules()
    for name in _LOADED_BY_SERVERS:
        importlib.import_module(name)
    configure_mappers()
    gc.freeze()
    control = socket.socket(fileno=int(sys.argv[1]))
    running: set[int] = set()
    while True:
        first, descriptors, _, _ = socket.recv_fds(control, 1, _MAX_DESCRIPTORS)
        if not first:
            break
        rest = bytearray()
        while not rest.endswith(b"\n"):
            rest += control.recv(65_536)
        request = json.loads(first + rest)
        answer: int | None
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
            running.discard(pid)
        else:
            answer = os.fork()
            if answer == 0:
                control.detach()
                _become(request, descriptors)
            running.add(answer)
            for descriptor in descriptors:
                os.close(descriptor)
        control.sendall(json.dumps(answer).encode() + b"\n")
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _become(request: Mapping[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Makes this fork the program of a request, and runs it."""
    os.setsid()
    above = [
        fcntl.fcntl(descriptor, fcntl.F_DUPFD, _MAX_DESCRIPTORS)
        for descriptor in descriptors
    ]
    for number, descriptor in enumerate(above):
        os.dup2(descriptor, number)
    os.closerange(len(descriptors), os.sysconf("SC_OPEN_MAX"))
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False, buffering=1)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    tempfile.tempdir = None
    sys.argv = [request["module"], *request["arguments"]]
    sys.exit(importlib.import_module(request["module"]).main())


if __name__ == "__main__":
    main()
