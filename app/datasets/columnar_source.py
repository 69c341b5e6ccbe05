"""Reads the rows of an upload of Parquet or Arrow IPC from the child process that
decodes it.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import BinaryIO, Self

from app.core import limits
from app.core.errors import ColumnProblem, RowsInvalid, TooLarge
from app.core.processes import scrubbed_environment
from app.datasets.columnar_stream import (
    HEAD,
    MAX_FRAME_BYTES,
    RANGE,
    READ,
    TEXT,
    VERDICT,
    BodyProblem,
)
from app.datasets.upload_bodies import BodyForm
from grovekeeper_common import suspicions
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.errors import GrovekeeperError

_LIMITS = {
    BodyProblem.ROW_GROUPS: (
        "the number of row groups or record batches of the upload",
        limits.MAX_ROW_GROUPS,
    ),
    BodyProblem.COLUMNS: (
        "the number of columns of the upload",
        limits.MAX_UPLOAD_COLUMNS,
    ),
    BodyProblem.METADATA: (
        "the metadata of the upload in bytes",
        limits.MAX_PARQUET_METADATA_BYTES,
    ),
    BodyProblem.ROWS: ("the number of rows", forest_limits.MAX_ROWS_PER_DATASET),
    BodyProblem.MEMORY: (
        "the memory for decoding a page or record batch in bytes",
        limits.DECODER_MEMORY_BYTES,
    ),
}
_SUSPECTED = {
    BodyProblem.MALFORMED: suspicions.CUT_OFF,
    BodyProblem.ENCODING: suspicions.UNSUPPORTED,
    BodyProblem.TYPE: suspicions.TYPES,
    BodyProblem.LONG_LINE: suspicions.LONG_ROW,
}
_CPU_TIME = ("the CPU time for decoding the upload in seconds", limits.DECODER_CPU_S)
_TIME = ("the time for decoding the upload in seconds", limits.DECODER_WAIT_S)


class ColumnarSource:
    """The bytes of the rows that a child process decodes from a body
    (:mod:`app.datasets.columnar_stream`).

    One thread may read while another one closes.

    Args:
        body: PRIVATE; seekable. Stays open; not read after :meth:`close`.
        declared: names of the declared columns, which alone may occur in a refusal.
        numbers: by name of those that are declared as numbers or dates, whether they are
            dates.
        categories: by name of those that have few different texts if they are as
            declared, the texts of false and of true there, then those of whole numbers
            that are declared with the end ``.0`` alone.
        unit: name of the one that names a row's unit.
    """

    def __init__(
        self,
        body: BinaryIO,
        form: BodyForm,
        *,
        declared: Collection[str],
        numbers: Mapping[str, bool] = MappingProxyType({}),
        categories: Mapping[str, Sequence[str]] = MappingProxyType({}),
        unit: str | None = None,
    ) -> None:
        self._body = body
        self._declared = frozenset(declared)
        self._reading = threading.Lock()
        self._n_waiting = 0
        self._waited_s = 0.0
        self._has_ended = False
        self._child = subprocess.Popen(
            [sys.executable, "-m", "app.datasets.columnar_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            # Arrow's other allocators reserve address space far beyond what they use.
            env=scrubbed_environment() | {"ARROW_DEFAULT_MEMORY_POOL": "system"},
            close_fds=True,
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._rows = self._child.stdout.fileno()
        self._requests = self._child.stdin.fileno()
        # a process that was taken over may take nothing
        os.set_blocking(self._requests, False)
        # a pipe holds 64 KiB otherwise, and the two processes would often wait
        if sys.platform == "linux":
            for pipe in (self._child.stdin, self._child.stdout):
                with contextlib.suppress(PermissionError):
                    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, MAX_FRAME_BYTES)
        self._size = body.seek(0, os.SEEK_END)
        request = {
            "form": form.value,
            "size": self._size,
            "numbers": dict(numbers),
            "categories": dict(categories),
            "unit": unit,
        }
        self._write(json.dumps(request).encode("ascii") + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def readinto(self, buffer: memoryview, /) -> int:
        """Fills the start of a buffer; returns the number of bytes, none at the end.

        Raises:
            RowsInvalid: the body is damaged, encrypted, or has a column of a type that
                no feature has.
            TooLarge: the body is over a public limit.
        """
        with self._reading:
            while not self._n_waiting and not self._has_ended:
                self._receive()
            if self._has_ended:
                return 0
            n_read = self._fill(buffer[: self._n_waiting])
            self._n_waiting -= n_read
        return n_read

    def close(self) -> None:
        """Ends the child, and a read that another thread waits in."""
        # Killed before the lock: a read holds the lock until the child sends or ends.
        self._child.kill()
        with self._reading:
            self._has_ended = True
            for pipe in (self._child.stdin, self._child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            self._child.wait()

    def _receive(self) -> None:
        """Receives the head of a frame of rows, or another frame, and answers it if it
        asks for bytes of the body.
        """
        kind, length = HEAD.unpack(self._exactly(HEAD.size))
        if length > MAX_FRAME_BYTES:
            raise self._broken()
        if kind == TEXT:
            self._n_waiting = length
        elif kind == READ and length == RANGE.size:
            offset, n_bytes = RANGE.unpack(self._exactly(length))
            # A read beyond the end would be short, and the child would wait for ever.
            if n_bytes > MAX_FRAME_BYTES or offset + n_bytes > self._size:
                raise self._broken()
            self._body.seek(offset)
            self._write(self._body.read(n_bytes))
        elif kind == VERDICT:
            self._has_ended = True
            refusal = self._refusal(self._exactly(length))
            if refusal is not None:
                raise refusal
        else:
            raise self._broken()

    def _exactly(self, n_bytes: int) -> bytearray:
        received = bytearray(n_bytes)
        missing = memoryview(received)
        while missing:
            missing = missing[self._fill(missing) :]
        return received

    def _fill(self, buffer: memoryview) -> int:
        """Some bytes from the child, at least one; raises what :meth:`_broken` returns."""
        self._wait_for(self._rows, select.POLLIN)
        n_read = os.readv(self._rows, [buffer])
        if not n_read:
            raise self._broken()
        return n_read

    def _write(self, text: bytes) -> None:
        """Sends bytes to the child; raises what :meth:`_broken` returns."""
        unsent = memoryview(text)
        # the child has ended; the next read says so
        with contextlib.suppress(BrokenPipeError):
            while unsent:
                self._wait_for(self._requests, select.POLLOUT)
                unsent = unsent[os.write(self._requests, unsent) :]

    def _wait_for(self, descriptor: int, event: int) -> None:
        """Waits until the child sends or takes bytes: not for long, and not for a byte
        now and then for ever.
        """
        poller = select.poll()
        began_s = time.monotonic()
        poller.register(descriptor, event)
        is_ready = poller.poll(limits.DECODER_SILENCE_S * 1_000)
        self._waited_s += time.monotonic() - began_s
        if not is_ready or self._waited_s > limits.DECODER_WAIT_S:
            raise self._broken()

    def _broken(self) -> GrovekeeperError:
        """The refusal of a body on which the child ended without a verdict, took too
        long, or broke the protocol.
        """
        self._has_ended = True
        self._child.kill()
        # the kernel's signal at the limit of CPU time, if it came before the kill
        if self._child.wait() == -signal.SIGXCPU:
            return TooLarge(*_CPU_TIME)
        if self._waited_s > limits.DECODER_WAIT_S:
            return TooLarge(*_TIME)
        return _error(BodyProblem.MALFORMED, [""])

    def _refusal(self, verdict: bytearray) -> GrovekeeperError | None:
        """The refusal that the child reports, of which only known words and declared
        names are taken over.
        """
        try:
            value = json.loads(verdict)
            if value["problem"] is None:
                return None
            problem = BodyProblem(value["problem"])
            # Another name may be a cell, which a child that was taken over sends.
            columns = [
                name if name in self._declared else "" for name in value["columns"]
            ]
        except (ValueError, TypeError, LookupError, RecursionError):
            problem = BodyProblem.MALFORMED
            columns = []
        return _error(problem, columns or [""])


def _error(problem: BodyProblem, columns: list[str]) -> GrovekeeperError:
    if problem in _LIMITS:
        return TooLarge(*_LIMITS[problem])
    suspected = _SUSPECTED.get(problem)
    return RowsInvalid(
        [
            ColumnProblem(name, problem.value, columns.count(name), suspected=suspected)
            for name in dict.fromkeys(columns)
        ]
    )
