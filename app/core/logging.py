"""Writes logs as JSON lines on standard error, without any private value, and counts
events for metrics.

A line carries the *constant* text of a message, never its arguments, and of the extra
fields only those in :data:`PUBLIC_FIELDS`. Of an exception, a line carries the type, the name
of the system's code and the traceback's places in the code, not the message: parsers
quote the cell that they cannot read. Log like this::

    logger.warning("the lease on a job was lost", extra={"job_id": job_id})

What a request or a job writes names it: :func:`about` adds its id.
"""

import errno
import json
import logging
import sqlite3
import sys
import threading
import traceback
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Generic, TextIO, TypeVar

from app.core import limits, stamps

PUBLIC_FIELDS = (
    "request_id",
    "method",
    "route",
    "location",
    "status",
    "problem",
    "account_id",
    "dataset_id",
    "upload_id",
    "job_id",
    "reservation_id",
    "model_id",
    "key_id",
    "worker_id",
    "dask_workers",
    "process_id",
    "folder",
    "exit_code",
    "signal",
    "revision",
)
"""Names of the extra fields that are written: ids, routes and states, never rows,
numbers of rows or bodies.
"""

_about: ContextVar[dict[str, object]] = ContextVar("about", default={})  # noqa: B039  # never changed in place

Labels = TypeVar("Labels")


@contextmanager
def about(**fields: str) -> Iterator[None]:
    """Adds public fields to every line that this thread or task writes meanwhile: the
    request or the job.
    """
    token = _about.set(_about.get() | fields)
    try:
        yield
    finally:
        _about.reset(token)


class JsonFormatter(logging.Formatter):
    """One JSON object per record: ``at``, ``level``, ``logger``, ``message``, public
    fields, ``error`` with the name of the system's code, such as ENOSPC, if it has any.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": stamps.to_text(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname,
            "logger": record.name,
            "message": _text(record),
        }
        fields = _about.get() | vars(record)
        line |= {name: fields[name] for name in PUBLIC_FIELDS if name in fields}
        if record.exc_info and record.exc_info[0] is not None:
            kind, error, at = record.exc_info
            about_error: dict[str, object] = {
                "type": f"{kind.__module__}.{kind.__qualname__}",
                "at": _places(at),
            }
            code = _code(error)
            if code is not None:
                about_error["code"] = code
            line["error"] = about_error
        return json.dumps(
            line, ensure_ascii=False, default=lambda value: type(value).__name__
        )


def _text(record: logging.LogRecord) -> str:
    """The text of a message; of a library's message only the first line, because
    asyncio appends texts of objects.
    """
    if not isinstance(record.msg, str):
        return type(record.msg).__name__
    is_own = record.name.partition(".")[0] in ("app", "grovekeeper_forests")
    return record.msg if is_own else record.msg.partition("\n")[0]


def _code(error: BaseException | None) -> str | None:
    """The name of the code of the system or of SQLite, of an error or its cause."""
    while error is not None:
        if isinstance(error, sqlite3.Error):
            return getattr(error, "sqlite_errorname", None)
        # errors of TLS and of resolvers have other codes in the same place
        if isinstance(error, OSError) and type(error).__module__ == "builtins":
            return errno.errorcode.get(error.errno or 0)
        error = error.__cause__
    return None


def _places(at: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(at)[-limits.MAX_LOGGED_FRAMES :]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]


def configure(level: str, *, stream: TextIO | None = None) -> None:
    """Makes every logger of the process write through :class:`JsonFormatter`. May be
    called again.

    Args:
        level: one of :data:`app.core.settings.LOG_LEVELS`.
        stream: the stream to write to; standard error by default.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    for earlier_handler in root.handlers[:]:
        root.removeHandler(earlier_handler)
    root.addHandler(handler)
    root.setLevel(level)
    # at INFO they log readings of the revision, and patterns of arguments
    for name in ("alembic", "uvicorn"):
        logging.getLogger(name).setLevel("WARNING")


class Tally(Generic[Labels]):
    """Counts that only grow. Labels are public facts: names of routes, states and
    errors.
    """

    def __init__(self) -> None:
        self._counts: Counter[Labels] = Counter()
        self._lock = threading.Lock()

    def add(self, labels: Labels, number: int = 1) -> None:
        """Counts one event, or several."""
        with self._lock:
            self._counts[labels] += number

    def counts(self) -> Mapping[Labels, int]:
        """A copy of all counts."""
        with self._lock:
            return dict(self._counts)


class Durations:
    """Durations of requests by kind, in buckets. A kind is a public fact, and no kind
    is a job.
    """

    ENDS: Final = (
        0.001,
        0.0025,
        0.005,
        0.01,
        0.025,
        0.05,
        0.1,
        0.25,
        0.5,
        1.0,
        2.5,
        5.0,
        10.0,
    )
    """The upper ends of the buckets in seconds; the last bucket has none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}

    def add(self, kind: str, seconds: float) -> None:
        """Counts one request."""
        with self._lock:
            numbers = self._numbers.setdefault(kind, [0] * (len(self.ENDS) + 1))
            numbers[bisect_left(self.ENDS, seconds)] += 1
            self._seconds[kind] = self._seconds.get(kind, 0.0) + seconds

    def counts(self) -> Mapping[str, tuple[Sequence[int], float]]:
        """The number of requests in each bucket, and the sum of their seconds, by kind."""
        with self._lock:
            return {
                kind: (list(numbers), self._seconds[kind])
                for kind, numbers in self._numbers.items()
            }
