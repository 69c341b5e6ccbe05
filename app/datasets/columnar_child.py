"""Decodes one upload of Parquet or Arrow IPC (:mod:`.columnar_decoding`) in a separate
process with limits: the body may be hostile.

The process has limits on memory and time, and can open no file and no socket. It has
neither the file of the body nor a key: it asks the service for bytes of the body, and
the service asks it for nothing. Before the first byte arrives, it gives up the right to
open files and sockets. If it fails in any way other than a refusal, it ends without a
verdict.
"""

import json
import os
import resource
from collections.abc import Iterator
from typing import BinaryIO, cast

from app.core import limits
from app.core.files import SeekableReader
from app.core.memory import forbid_core_dumps
from app.datasets.columnar_decoding import BodyRefused, decode
from app.datasets.columnar_stream import (
    HEAD,
    MAX_FRAME_BYTES,
    RANGE,
    READ,
    TEXT,
    VERDICT,
    Piece,
)
from app.datasets.upload_bodies import BodyForm

_IN = 0
_OUT = 1


class RemoteFile(SeekableReader):
    """The body, read from the service range by range."""

    def __init__(self, size: int) -> None:
        self.size = size

    def read_range(self, start: int, end: int) -> bytes:
        pieces: list[bytes] = []
        for position in range(start, end, MAX_FRAME_BYTES):
            n_bytes = min(end - position, MAX_FRAME_BYTES)
            _send(READ, RANGE.pack(position, n_bytes))
            pieces += _received(n_bytes)
        return b"".join(pieces)


def main() -> None:
    """Decodes the body that the service describes, and says why if it is refused."""
    _give_up()
    line = b""
    # byte by byte: what follows the line is the body
    while not line.endswith(b"\n"):
        line += b"".join(_received(1))
    request = json.loads(line)
    verdict: dict[str, object] = {"problem": None, "columns": []}
    try:
        body = cast(BinaryIO, RemoteFile(request["size"]))
        names = {name: request[name] for name in ("categories", "unit")}
        decode(body, BodyForm(request["form"]), request["numbers"], _emit, **names)
    except BodyRefused as refused:
        verdict = {"problem": refused.problem.value, "columns": list(refused.columns)}
    _send(VERDICT, json.dumps(verdict).encode("ascii"))


def _give_up() -> None:
    """Limits memory and CPU time, and gives up files, sockets, libraries and core
    dumps.
    """
    forbid_core_dumps()
    for kind, soft, hard in (
        (
            resource.RLIMIT_DATA,
            limits.DECODER_MEMORY_BYTES,
            limits.DECODER_MEMORY_BYTES,
        ),
        # At the first limit the kernel sends a signal of its own, by which the service
        # recognises the reason.
        (resource.RLIMIT_CPU, limits.DECODER_CPU_S, limits.DECODER_CPU_S + 5),
        (resource.RLIMIT_FSIZE, 0, 0),
        # Descriptors that are open stay so: the pipes. No file or socket can be opened.
        (resource.RLIMIT_NOFILE, 0, 0),
    ):
        # only root may raise a limit that the account has
        present = resource.getrlimit(kind)[1]
        if present != resource.RLIM_INFINITY:
            hard = min(hard, present)
        resource.setrlimit(kind, (min(soft, hard), hard))


def _emit(piece: Piece) -> None:
    view = memoryview(piece)
    for start in range(0, len(view), MAX_FRAME_BYTES):
        _send(TEXT, view[start : start + MAX_FRAME_BYTES])


def _send(kind: bytes, payload: Piece) -> None:
    head = HEAD.pack(kind, len(payload))
    # Head and payload in one call, which may take a part of them.
    n_written = os.writev(_OUT, [head, payload])
    for part in (head, payload):
        view = memoryview(part)[n_written:]
        n_written = max(n_written - len(part), 0)
        while view:
            view = view[os.write(_OUT, view) :]


def _received(n_bytes: int) -> Iterator[bytes]:
    while n_bytes:
        piece = os.read(_IN, n_bytes)
        if not piece:
            raise SystemExit(1)
        yield piece
        n_bytes -= len(piece)


if __name__ == "__main__":
    main()
