"""Defines the layout of a backup, the signed manifest that lists its files, and the
copy of the database in it.

::

    manifest.json     revision of the database, and the size and SHA-256 of every other file
    manifest.note     the SHA-256 of manifest.json, signed by the installation (C2SP signed-note)
    database.sqlite3  a SQLite database with all rows of the database, whatever its kind
    home/...          files of the home under their names: rows, fingerprints, admission books, artifacts

A backup has no head of an account, no signing key and no storage key.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

from sqlalchemy import (
    ColumnClause,
    Connection,
    TableClause,
    column,
    create_engine,
    insert,
    inspect,
    select,
    table,
)

from app.core import stamps
from app.core.errors import InstallationError
from app.core.files import StoredFile
from app.ledger import checkpoints
from grovekeeper_common import durable_files
from grovekeeper_common.json_types import JsonObject

DATABASE = "database.sqlite3"
HOME = "home"
_MANIFEST = "manifest.json"
_NOTE = "manifest.note"
_PURPOSE = "grovekeeper/backup"
_FORMAT = 2
_BLOCK_BYTES = 1024 * 1024

_ROWS_AT_ONCE = 1_000
_REVISION = "alembic_version"

_LEFT: Mapping[str, set[str]] = {
    "accounts": {"cap", "highest_cap"},  # balances are the fold of the entries
    "population_members": {"load", "reserved", "tightest_cell", "is_exact"},
    # every dataset is private, and every model has a guarantee
    "datasets": {"visibility"},
    "models": {"privacy"},
    "jobs": {"reads"},
}
"""Columns of the revisions before the first that nothing reads; so is their table
``account_boxes``.
"""

_ADDED: Mapping[str, set[str]] = {
    "webhooks": {"sealed_earlier_secret", "earlier_secret_until"}
}
"""Columns that revision 0031 lacks; null in its rows."""


class BackupDamaged(InstallationError):
    """A backup is incomplete, was changed, or was made by another installation."""

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(f"{file} in the backup {problem}. Nothing was restored")


@dataclass(frozen=True)
class FileFacts:
    """Size and SHA-256 of a file."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The content of a backup.

    Attributes:
        made_at: RFC 3339 time of the snapshot of the database.
        files: facts of every file but the manifest, by its name in the backup.
    """

    made_at: str
    revision: str
    files: Mapping[str, FileFacts]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files but the manifest."""
        return sum(facts.size_bytes for facts in self.files.values())

    def write(self, folder: Path, signer: checkpoints.Signer) -> None:
        """Writes and signs the manifest, after all other files."""
        value = {
            "format": _FORMAT,
            "made_at": self.made_at,
            "revision": self.revision,
            "files": {name: vars(facts) for name, facts in sorted(self.files.items())},
        }
        text = json.dumps(value, indent=1).encode("utf-8")
        durable_files.write(folder / _MANIFEST, text)
        durable_files.write(
            folder / _NOTE, signer.sign_text(_statement(text)).encode("utf-8")
        )

    @classmethod
    def read(cls, folder: Path, signer: checkpoints.Signer) -> "Manifest":
        """Reads the manifest of a backup that this signer made.

        Raises:
            BackupDamaged: no manifest, not signed by the signer, or of an unknown
                format.
        """
        try:
            text = (folder / _MANIFEST).read_bytes()
            note = (folder / _NOTE).read_bytes().decode("utf-8", "replace")
        except OSError:
            raise BackupDamaged(_MANIFEST, "is missing or cannot be read") from None
        if not note.startswith(f"{_statement(text)}\n— ") or not checkpoints.is_signed(
            note, [signer.verifier_key]
        ):
            raise BackupDamaged(
                _MANIFEST, "is not signed by the signing key of this installation"
            )
        value: JsonObject = json.loads(text)
        if value["format"] != _FORMAT:
            raise BackupDamaged(
                _MANIFEST,
                "has another format; restore it with the version that made it",
            )
        files = {name: FileFacts(**facts) for name, facts in value["files"].items()}
        return cls(value["made_at"], value["revision"], files)


def copy(source: StoredFile, target: StoredFile) -> FileFacts:
    """Copies a file durably and returns the facts of the copied bytes."""
    with source.open() as reader, target.new(existing="refuse") as writer:
        return _pump(reader, writer)


def facts_of(path: Path) -> FileFacts:
    """The facts of a file.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as reader:
        return _pump(reader, None)


def _pump(reader: BinaryIO, writer: BinaryIO | None) -> FileFacts:
    digest, size = hashlib.sha256(), 0
    while block := reader.read(_BLOCK_BYTES):
        digest.update(block)
        size += len(block)
        if writer is not None:
            writer.write(block)
    return FileFacts(size, digest.hexdigest())


def _statement(manifest: bytes) -> str:
    return f"{_PURPOSE}\n{hashlib.sha256(manifest).hexdigest()}\n"


@contextmanager
def file_transaction(
    file: Path, mode: Literal["rwc", "ro", "ro&immutable=1"]
) -> Iterator[Connection]:
    """A transaction on a SQLite database of one file that no other process writes, also
    on a read-only medium.
    """
    connect = partial(
        sqlite3.connect, f"{file.absolute().as_uri()}?mode={mode}", uri=True
    )
    engine = create_engine("sqlite://", creator=connect, hide_parameters=True)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def copy_rows(source: Connection, target: Connection) -> None:
    """Inserts the rows that one transaction sees into the empty tables of a database.

    The source is at the same revision; or the target is at the first one, and the
    source at one of those that are moved there. Rows of tables that the target does not
    have are left out: another program made them in the same database.

    Raises:
        InstallationError: the source has other tables.
    """
    for name in sorted(set(inspect(target).get_table_names()) - {_REVISION}):
        if not inspect(source).has_table(name):
            raise InstallationError(
                f"the database to copy has no table {name}, so no version of this program made it"
            )
        read, filled = _table(source, name), _table(target, name)
        columns = _copied_columns(read, filled)
        order = inspect(source).get_pk_constraint(name)["constrained_columns"]
        query = (
            select(*columns).order_by(*order).execution_options(yield_per=_ROWS_AT_ONCE)
        )
        names = [copied.name for copied in columns]
        for rows in source.execute(query).partitions():
            target.execute(
                insert(filled),
                [dict(zip(names, map(_stored, row), strict=True)) for row in rows],
            )


def _table(database: Connection, name: str) -> TableClause:
    """A table with columns alone: to read its keys and checks, which a copy does not
    use, takes ten times as long.
    """
    return table(
        name,
        *(column(it["name"], it["type"]) for it in inspect(database).get_columns(name)),
    )


def _copied_columns(
    source: TableClause, target: TableClause
) -> list[ColumnClause[Any]]:
    """The columns of the source that the target has, where the others are those that
    left or were added.
    """
    before, now = set(source.columns.keys()), set(target.columns.keys())
    wrong = (before - now - _LEFT.get(target.name, set())) | (
        now - before - _ADDED.get(target.name, set())
    )
    if wrong:
        raise InstallationError(
            f"the table {target.name} of the database to copy is not that of its revision; somebody changed it by hand "
            f"({', '.join(sorted(wrong))})"
        )
    return [copied for copied in source.columns if copied.name in now]


def _stored(value: object) -> object:
    """A value as both databases take it: a time is text on SQLite."""
    return stamps.to_text(value) if isinstance(value, datetime) else value
