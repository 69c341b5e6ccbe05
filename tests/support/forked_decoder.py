"""Forks the decoder of an upload from a process that has loaded it, in place of the new
interpreter that the product starts.

A new interpreter needs half a second of CPU to load Arrow, far longer than an upload of
a test takes.
"""

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.datasets import columnar_source
from tests.support.decoder_forker import FORK, MESSAGE

_ROOT = Path(__file__).parents[2]
_FORKER = "tests.support.decoder_forker"


@pytest.fixture(scope="session", autouse=True)
def _decoders_are_forked() -> Iterator[None]:
    """Forks the decoders of all tests."""
    forking = SimpleNamespace(
        Popen=ForkedDecoder, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(columnar_source, "subprocess", forking)
        yield


@pytest.fixture
def new_decoders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts the decoders of a test as the product does."""
    monkeypatch.setattr(columnar_source, "subprocess", subprocess)


class ForkedDecoder:
    """Implements the part of ``subprocess.Popen`` that the reader of uploads uses."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], **_: object
    ) -> None:
        assert command[1:] == ["-m", "app.datasets.columnar_child"]
        requests, sent = os.pipe()
        received, rows = os.pipe()
        try:
            self._forker = _forker(os.getpid(), tuple(sorted(env.items())))
            self._pid = self._forker.forked(requests, rows)
        finally:
            os.close(requests)
            os.close(rows)
        self.stdin, self.stdout = os.fdopen(sent, "wb"), os.fdopen(received, "rb")
        self.returncode: int | None = None

    def kill(self) -> None:
        """Kills the decoder, unless it was waited for."""
        if self.returncode is None:
            os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> int:
        """The exit code, or the negated signal that ended the decoder."""
        if self.returncode is None:
            self.returncode = self._forker.exit_code(self._pid)
        return self.returncode


class _Forker:
    """The process that forks. It ends when this process ends."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._control, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _FORKER, str(theirs.fileno())],
                cwd=_ROOT,
                env=environ,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._stop)

    def _stop(self) -> None:
        self._control.close()
        self._process.kill()
        self._process.wait()

    def forked(self, *descriptors: int) -> int:
        """The process id of a new decoder."""
        return self._answer(FORK, descriptors)

    def exit_code(self, pid: int) -> int:
        """How a decoder ended, when it has ended."""
        return self._answer(pid, ())

    def _answer(self, number: int, descriptors: Sequence[int]) -> int:
        request = MESSAGE.pack(number)
        with self._lock:
            socket.send_fds(self._control, [request], descriptors)
            received = self._control.recv(MESSAGE.size)
        answer: int = MESSAGE.unpack(received)[0]
        return answer


@cache
def _forker(process_id: int, environ: tuple[tuple[str, str], ...]) -> _Forker:
    """One for each process of tests, whose forks share no answers, and environment."""
    return _Forker(dict(environ))
