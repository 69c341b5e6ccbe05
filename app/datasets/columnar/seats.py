"""Bounds the decoding processes of a machine, over all processes of the service.

A process that decodes may take a gigabyte of memory (``limits.DECODER_MEMORY_BYTES``), and each API process has
threads for several uploads. So an upload takes a seat first: a file in the home under ``flock``, which the kernel frees
when the process dies.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.core import limits
from app.core.errors import Unavailable
from app.datasets import admission

_LOOK_S = 0.1
"""Seconds between two looks at the seats."""


@contextmanager
def decoder_seat(home: Path) -> Iterator[None]:
    """Holds one of the seats of the machine until the block ends; waits for one if all are taken.

    Raises:
        Unavailable: no seat became free in time, or too many uploads of this process wait.
    """
    seat = _taken(home)
    if seat is None:
        with admission.waiting_seat():
            seat = _waited_for(home)
    try:
        yield
    finally:
        os.close(seat)


def _waited_for(home: Path) -> int:
    until = time.monotonic() + admission.WAIT_S
    while time.monotonic() < until:
        time.sleep(_LOOK_S)
        seat = _taken(home)
        if seat is not None:
            return seat
    raise Unavailable("other uploads of Parquet or Arrow are being decoded", admission.RETRY_AFTER_S)


def _taken(home: Path) -> int | None:
    """The descriptor of a seat that was free; ``None`` if none was."""
    for number in range(limits.MAX_DECODERS):
        descriptor = os.open(home / f"decoder-{number}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            return descriptor
    return None
