"""Makes a backup of an installation while API and workers run.

The rows of the database come from one transaction. Files are copied after that
transaction began: rows and artifacts never change under their names (only an erasure
replaces a file), and an admission book may have more uploads than the database, but not
fewer. If a file is gone because its dataset or its model was deleted in the meantime,
the backup begins again with another transaction and keeps the files that were copied.
"""

import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sqlalchemy.orm import Session

from app.core import stamps
from app.core.errors import InstallationError, Unavailable
from app.core.files import NEWEST_BACKUP, Directory, StoredFile, why
from app.datasets import admission, catalog, fingerprints, row_files
from app.db import migrate, revisions
from app.registry import models, store
from app.services.backup import layout
from app.services.backup.layout import DATABASE, FileFacts, Manifest
from app.services.installation import Installation
from app.services.ledger.heads import Heads
from grovekeeper_common import durable_files

_log = logging.getLogger(__name__)

_ATTEMPTS = 10
"""Transactions that a backup begins; each is needed only if something was deleted
during the attempt before.
"""


def make_backup(installation: Installation, destination: Path) -> Manifest:
    """Makes a backup in a folder, which gets its name when the backup is complete and
    durable.

    A killed backup leaves a hidden folder beside it, whose name ends in ``.part``.

    Args:
        installation: at this program's revision; its home has the signing key.
        destination: must not exist; its parent folder must.

    Raises:
        InstallationError: the destination exists or cannot be written, or the ledger
            contradicts a head.
    """
    if destination.exists():
        raise InstallationError(f"{destination} exists already")
    if not destination.parent.is_dir():
        raise InstallationError(f"{destination.parent} is not a folder; make it first")
    heads = Heads(installation)
    heads.confirm()
    part = destination.with_name(
        f".{destination.name}.{secrets.token_hex(8)}{durable_files.UNFINISHED}"
    )
    try:
        part.mkdir(mode=0o700)
        made = _Backup(installation, part).run()
        # so that every account of the backup has a head that reaches it
        heads.publish()
        made.write(part, heads.signer)
        part.rename(destination)
        durable_files.sync_folder(destination.parent)
    except OSError as error:
        raise InstallationError(
            f"the backup cannot be written: {why(error)}"
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    try:
        durable_files.write(installation.home / NEWEST_BACKUP, made.made_at.encode())
    except OSError:
        _log.warning("the backup is whole; its time could not be noted")
    return made


class _FileGone(Exception):
    """A file that the database names does not exist."""


class _Backup:
    def __init__(self, installation: Installation, folder: Path) -> None:
        self._installation = installation
        self._folder = folder
        self._files: dict[str, FileFacts] = {}

    def run(self) -> Manifest:
        """Copies everything; the manifest is not written yet."""
        for _ in range(_ATTEMPTS):
            made_at = stamps.to_text(stamps.now())
            with self._installation.database.read() as session:
                self._write_database(session)
                files = list(_needed_files(self._installation, session))
                books = list[str]()
                if isinstance(self._installation.files, Directory):
                    books = list(_books(session))
                else:
                    files += [
                        _stored_book(session, dataset_id)
                        for dataset_id in _books(session)
                    ]
            with suppress(_FileGone):
                copied = list(map(self._copied, files))
                copied += list(map(self._copied_book, books))
                listed = {name: self._files[name] for name in [*copied, DATABASE]}
                # copied by earlier attempts, and erased since
                for name in self._files.keys() - listed.keys():
                    (self._folder / name).unlink(missing_ok=True)
                return Manifest(made_at, revisions.head_revision(), listed)
        raise Unavailable(
            "datasets or models were deleted during every attempt; run the backup again"
        )

    def _write_database(self, session: Session) -> None:
        file = self._folder / DATABASE
        file.unlink(missing_ok=True)
        file.touch(mode=0o600)
        with layout.file_transaction(file, "rwc") as connection:
            migrate.run_migrations(connection)
            layout.copy_rows(session.connection(), connection)
        _sync(file)
        self._files[DATABASE] = layout.facts_of(file)

    def _copied(self, source: str) -> str:
        """Copies a file of the store, unless it is an artifact that an earlier attempt
        copied; returns its name in the backup. Rows are copied anew: an erasure in
        between replaced their file, and the database tells of it.
        """
        name = f"{layout.HOME}/{source}"
        if name not in self._files or not source.startswith(f"{store.FOLDER}/"):
            (self._folder / name).unlink(missing_ok=True)
            target = StoredFile(Directory(self._folder), name)
            try:
                self._files[name] = layout.copy(
                    StoredFile(self._installation.files, source), target
                )
            except FileNotFoundError:
                raise _FileGone from None
        return name

    def _copied_book(self, dataset_id: str) -> str:
        """Copies the admission book of this machine. Every attempt copies it anew: it
        has to have the uploads of the transaction.
        """
        name = f"{layout.HOME}/{row_files.admission_name(dataset_id)}"
        file = self._folder / name
        file.unlink(missing_ok=True)
        try:
            durable_files.make_folder(file.parent)
            admission.copy_book(self._installation.home, dataset_id, file)
        except FileNotFoundError:
            raise _FileGone from None
        file.chmod(0o600)
        _sync(file)
        durable_files.sync_folder(file.parent)
        self._files[name] = layout.facts_of(file)
        return name


def _needed_files(installation: Installation, session: Session) -> Iterator[str]:
    """Names of the files that the database needs, and of fingerprints, which erased
    uploads lack.
    """
    for dataset_id in catalog.living_ids(session):
        printed = row_files.printed(installation.files, dataset_id)
        for epoch in catalog.epochs(session, dataset_id):
            yield row_files.rows_name(dataset_id, epoch.id)
            if epoch.id in printed:
                yield row_files.prints_name(dataset_id, epoch.id)
    yield from (store.name_of(digest) for digest in sorted(models.digests(session)))
    with suppress(FileNotFoundError):
        installation.files.open(fingerprints.KEY_FILE).close()
        yield fingerprints.KEY_FILE


def _books(session: Session) -> Iterator[str]:
    for dataset_id in catalog.living_ids(session):
        is_of_units = catalog.find(session, dataset_id).unit_column is not None
        if is_of_units and catalog.epochs(session, dataset_id):
            yield dataset_id


def _stored_book(session: Session, dataset_id: str) -> str:
    """The name of the admission book of a dataset in a store that machines share: the
    one of the newest upload.
    """
    return row_files.book_name(dataset_id, catalog.epochs(session, dataset_id)[-1].id)


def _sync(file: Path) -> None:
    with file.open("rb") as written:
        os.fsync(written.fileno())
