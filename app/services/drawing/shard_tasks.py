"""Defines the tasks that Dask workers run: they read shards of PRIVATE rows, and answer
queries with sums over them.

Tasks are functions of this module, and take and return bytes alone, so that Dask's
pickle makes no object of ours (ADR 0043). Rows are never the result of a task: they
stay in the process that read them, and Dask holds a receipt. When Dask drops the
receipt, because the job ended or the child of the job died, the rows are dropped, too.
A task raises nothing: Dask would log its arguments, which have the key of the rows, and
send the text of the error.
"""

import asyncio
import hashlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final, Self

from app.core.files import Store, StoredFile
from app.core.sealed_files import DataKey, SealedFile
from app.datasets import private_rows
from app.datasets.private_rows import Selection
from app.datasets.row_layout import RowGroups
from app.services.jobs.task import PartRows
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests import remote
from grovekeeper_forests.data.coded_rows import (
    CodedRows,
    CodeRequest,
    ColumnRequest,
    sum_of,
)
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import Scope
from grovekeeper_forests.releases.statistics.sums import StoredRows
from grovekeeper_forests.remote import ShardStates, StateMissing

ANSWER: Final = b"\x01"
"""First byte of an answer; the sums follow. Also the receipt of rows that were read."""

UNKNOWN: Final = b"\x02"
"""The answer of a process that does not have the state, or the order, that a brief
question needs.
"""

VERSION: Final = version("grovekeeper").encode()
"""Of the code that this process loaded; an upgrade may have replaced it on the disk
since.
"""

FAILED: Final = b"\x00"
"""The answer whatever went wrong."""

_log = logging.getLogger(__name__)


@dataclass
class _Process:
    """What this process has.

    Attributes:
        store: where machines share the rows; ``None`` if every machine has them at the
            same paths.
        shards: the shards that this process has read. A worker has one thread for
            tasks, so that one task at a time adds to them; the event loop drops some
            (:func:`forget`) while a task runs.
    """

    store: Store | None = None
    shards: dict[str, ShardStates] = field(default_factory=dict)


_HERE: Final = _Process()


@dataclass(frozen=True)
class Order:
    """A shard of a job, which any process that finds its file can read.

    Attributes:
        key: of its future: the job, and a digest of the other attributes and of what is
            read of the file, because a job may read two scopes of one file.
        file: the path of the file on every machine, or its name in the store.
        file_id: see :class:`app.datasets.row_layout.RowGroups`, as the other
            attributes.
    """

    key: str
    file: str
    file_id: bytes
    start: int
    stop: int

    @classmethod
    def of(
        cls, job_id: str, rows: bytes, file: str, shard: Iterable[bytes | int]
    ) -> Self:
        """The order of a shard, one of those of :func:`divide`; ``rows`` as in
        :func:`hold`.
        """
        place = (file, *shard)
        digest = hashlib.sha256(remote.dumps((rows, *place))).hexdigest()
        return cls(f"rows-{job_id}-{digest}", *place)  # type: ignore[arg-type]

    def to_tuple(self) -> tuple[str | bytes | int, ...]:
        """For a message."""
        return self.key, self.file, self.file_id, self.start, self.stop

    def read(self, rows: bytes) -> CodedRows | StoredRows:
        """Reads the PRIVATE rows of the shard as codes, or will read their values for
        each question.
        """
        request = remote.loads(rows)
        sealed = _sealed(self.file, request)
        selection = _selection(request)
        groups = RowGroups(sealed, self.file_id, self.start, self.stop)
        asked: CodeRequest | ColumnRequest = request["asked"]
        if isinstance(asked, CodeRequest):
            return private_rows.read_shard(groups, selection, codes=asked)
        blocks = partial(
            private_rows.read_columns, [sealed], selection, asked.names, within=groups
        )
        return StoredRows(asked.schema, blocks)


def _sealed(file: str, request: JsonObject) -> SealedFile:
    return SealedFile(_stored(file), DataKey(request["data_key"]))


def _stored(file: str) -> StoredFile:
    """The file at a path of this machine, or of a name in the store."""
    path = Path(file)
    if path.is_absolute():
        return StoredFile.at(path)
    if _HERE.store is None:
        raise ValueError("the name of a file, and no store")
    return StoredFile(_HERE.store, file)


def _selection(request: JsonObject) -> Selection:
    partitions = Partitions.from_json(request["partitions"].value)
    scope = Scope(request["scope"].value)
    return Selection(
        Schema.from_json(request["schema"].value),
        partitions,
        scope,
        label=request["label"],
        keep_unlabelled=request["keep_unlabelled"],
    )


def read_from(store: Store | None) -> None:
    """Sets the store that this process reads names from, before its first task."""
    _HERE.store = store


async def look(files: bytes) -> bytes:
    """Says which version this process is, if it can read files; before the charge, so
    without their keys.

    Beside the one thread for tasks, in which the questions of another job may take
    long.

    Args:
        files: paths or names; see :class:`Order`.
    """
    return await asyncio.to_thread(_try_to_open, files)


def _try_to_open(files: bytes) -> bytes:
    try:
        for file in remote.loads(files):
            with _stored(file).open() as stored:
                stored.read(1)
    except Exception:  # noqa: BLE001  (the log of this process says which; nothing private was read)
        _log.exception(
            "this Dask worker cannot read the rows of a job, which waits, uncharged"
        )
        return FAILED
    return ANSWER + VERSION


def divide(file: bytes, n_rows: bytes, rows: bytes) -> bytes:
    """Divides a file into shards.

    Args:
        file: a path or a name; see :class:`Order`.
        n_rows: rows of a shard, about.
        rows: as in :func:`hold`.

    Returns:
        The id of the file, start and stop of every shard. PRIVATE, as the number of
        rows is; sums are, too.
    """
    try:
        request = remote.loads(rows)
        sealed = _sealed(remote.loads(file), request)
        shards = private_rows.shards(
            sealed, _selection(request), n_rows=remote.loads(n_rows)
        )
        places = tuple((shard.file_id, shard.start, shard.stop) for shard in shards)
        return ANSWER + remote.dumps(places)
    except Exception:  # noqa: BLE001  (one opaque failure, whatever it was)
        return FAILED


def hold(order: bytes, rows: bytes) -> bytes:
    """Reads a shard and keeps its rows in this process.

    Args:
        order: an :class:`Order`.
        rows: what is read; see :func:`rows_of`.

    Returns:
        A receipt without any fact about the rows.
    """
    try:
        _shard(Order(*remote.loads(order)), rows).read_rows()
    except Exception:  # noqa: BLE001  (one opaque failure, whatever it was)
        return FAILED
    return ANSWER


def count(orders: bytes, rows: bytes, question: bytes, *_receipts: bytes) -> bytes:
    """Answers a question about shards, whose sums are added up.

    Args:
        rows: as in :func:`hold`, or empty in a brief question.
        question: see :class:`grovekeeper_forests.remote.Question`.
        _receipts: of the shards; Dask runs this task where they are.
    """
    try:
        query = remote.loads(question)
        shards = [_shard(Order(*order), rows) for order in remote.loads(orders)]
        # Summed here, so that one table and not one for each shard leaves the worker.
        sums = sum_of(shard.answer(query) for shard in shards)
        return ANSWER + remote.dumps(sums)
    except StateMissing:
        return UNKNOWN
    except Exception:  # noqa: BLE001  (one opaque failure, whatever it was)
        return FAILED


def forget(key: str) -> None:
    """Drops the rows of a future that Dask dropped."""
    _HERE.shards.pop(key, None)


def rows_of(
    part: PartRows, asked: CodeRequest | ColumnRequest, *, keep_unlabelled: bool
) -> bytes:
    """What is read of every shard of a job, with the data key: for workers, after the
    charge.
    """
    return remote.dumps(
        {
            "data_key": part.data_key.secret,
            "schema": remote.Json(part.schema),
            "label": part.label,
            "partitions": remote.Json(part.partitions),
            "scope": remote.Json(part.scope.to_json()),
            "asked": asked,
            "keep_unlabelled": keep_unlabelled,
        }
    )


def _shard(order: Order, rows: bytes) -> ShardStates:
    # One look: Dask may forget the key between two, and a charged job would fail for it.
    shard = _HERE.shards.get(order.key)
    if shard is None:
        if not rows:
            # A brief question has no data key. The answer ``UNKNOWN`` asks for the full
            # question, with which this process reads the shard again.
            raise StateMissing
        shard = ShardStates(partial(order.read, rows))
        _HERE.shards[order.key] = shard
    return shard
