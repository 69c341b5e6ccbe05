"""Restores a backup into an empty installation: completely, or not at all.

Tables, rows, checks and the consequences of lost entries are one transaction of the database, whose commit is the
restore. Before it commits, all files of the home are in place and durable. A killed restore leaves a mark in the home:
no process serves an installation with the mark, and the same command begins again or finishes.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sqlalchemy import Connection, inspect
from sqlalchemy.orm import Session

from app.core import files
from app.core.errors import GrovekeeperError, InstallationError
from app.core.sealed_files import SealBroken
from app.core.settings import Settings
from app.core.stores import Directory, StoredFile
from app.datasets import admission, catalog, erasure, fingerprints, row_files
from app.datasets.erasure_log import ErasureLog
from app.db import migrate
from app.db.database import transaction_time
from app.ledger import chain, checkpoints, control, repository
from app.ledger.checkpoints import Signer
from app.ledger.heads import HeadFolder
from app.registry import store
from app.services.backup import lost_history, manifest, row_copies
from app.services.backup.lost_history import EntriesMissing, Loss
from app.services.backup.manifest import DATABASE, HOME, BackupDamaged, Manifest
from app.services.datasets.erase import mark_deleted, mark_upload_erased
from app.services.installation import UNFINISHED_RESTORE, open_heads, open_store, read_storage_keys
from app.services.ledger import erasure_records
from app.services.ledger.signer import open_signer

_FOLDERS = (row_files.ROWS_FOLDER, row_files.PRINTS_FOLDER, store.FOLDER)


@dataclass(frozen=True)
class Restored:
    """The result of a restore.

    Attributes:
        made_at: time of the backup.
        losses: the accounts whose entries were lost.
        problems: what was wrong with the installation already when the backup was made, as sentences.
    """

    made_at: str
    losses: Sequence[Loss]
    problems: Sequence[str]


def restore_backup(settings: Settings, source: Path, *, accept_loss: bool) -> Restored:
    """Restores a backup.

    Args:
        settings: of an installation whose home has the signing key, and whose database is empty.
        source: the folder of the backup.
        accept_loss: whether to restore a backup that does not reach the heads, and close the accounts that lack
            entries.

    Raises:
        InstallationError: the installation is not empty, a key is missing, or the database cannot be reached. Nothing
            was restored.
        BackupDamaged: a file of the backup is missing or was changed, or another installation made the backup.
        EntriesMissing: the backup does not reach the heads.
    """
    signer = open_signer(settings, [], make=False)
    listed = Manifest.read(source, signer)
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    mark = settings.home / UNFINISHED_RESTORE
    is_marked = mark.exists()
    restore = _Restore(settings, source, listed, signer, accept_loss=accept_loss)
    if not is_marked:
        restore.require_unused()
    files.write(mark, listed.made_at.encode())
    try:
        with _transaction(settings) as connection:
            restored = restore.run(connection)
    except _NotEmpty:
        if not is_marked:
            mark.unlink()
            raise
        restored = Restored(listed.made_at, [], ["a killed restore was completed; `audit list` shows lost entries"])
    except GrovekeeperError:
        restore.remove_files()
        mark.unlink()
        raise
    with _transaction(settings) as connection:
        restore.set_heads_aside(connection)
    mark.unlink()
    files.sync_folder(settings.home)
    return restored


class _NotEmpty(InstallationError):
    """The database has tables: of another installation, or of a restore that committed before it was killed."""

    def __init__(self) -> None:
        super().__init__("the database is not empty; a backup is restored into an empty database")


def _transaction(settings: Settings) -> AbstractContextManager[Connection]:
    return migrate.owned_by(settings.database_url, migration_url=settings.migration_url)


class _Restore:
    """One restore, in the transaction of a connection."""

    def __init__(
        self, settings: Settings, source: Path, listed: Manifest, signer: Signer, *, accept_loss: bool
    ) -> None:
        self._settings = settings
        self._signer = signer
        self._files = open_store(settings)
        self._source = source
        self._manifest = listed
        self._accept_loss = accept_loss

    def run(self, connection: Connection) -> Restored:
        """Restores everything; the caller commits."""
        if inspect(connection).get_table_names():
            raise _NotEmpty
        self.remove_files()  # of a killed restore
        self._check_database_file()
        migrate.run_migrations(connection, self._manifest.revision)
        with row_copies.file_transaction(self._source / DATABASE, "ro&immutable=1") as backup:
            row_copies.copy_rows(backup, connection)
        migrate.run_migrations(connection)
        with Session(connection, expire_on_commit=False) as session:
            if wrapped := catalog.wrapped_keys(session):
                read_storage_keys(self._settings).require(wrapped)
            problems = _wrong_balances(session)
            heads = self._heads(session).read_all()
            losses = lost_history.find_losses(session, heads)
            if losses and not self._accept_loss:
                raise EntriesMissing(losses)
            log = erasure_records.log_of(open_heads(self._settings), self._signer, checkpoints.pinned(session))
            if any(loss.account_id == control.CHAIN for loss in losses):
                head = next((head for head in heads if head.account_id == control.CHAIN), None)
                erasure_records.require(session, log, head)
            self._copy_files()
            problems += self._incomplete_books(session)
            if losses:
                lost_history.accept(session, losses, at=transaction_time(session))
            self._erase_again(session, log)
            session.commit()
        return Restored(self._manifest.made_at, losses, problems)

    def require_unused(self) -> None:
        """Checks that the store has no file of those that a backup brings."""
        present = sorted({name.partition("/")[0] for name in self._brought()})
        if present:
            raise InstallationError(
                f"{self._settings.home} has {', '.join(present)} already, which the backup brings; move them away and "
                "restore again"
            )

    def remove_files(self) -> None:
        """Removes every file that a backup brings."""
        for name in list(self._brought()):
            self._files.delete(name)

    def _brought(self) -> Iterator[str]:
        for folder in _FOLDERS:
            yield from (file.name for file in self._files.files(folder))
        with suppress(FileNotFoundError):
            self._files.open(fingerprints.KEY_FILE).close()
            yield fingerprints.KEY_FILE

    def set_heads_aside(self, connection: Connection) -> None:
        """Sets aside the heads of entries that the committed control chain records as lost."""
        with Session(connection) as session:
            folder = self._heads(session)
            for head in folder.read_all():
                if lost_history.is_recorded(session, head):
                    folder.set_aside(head)

    def _heads(self, session: Session) -> HeadFolder:
        return HeadFolder(open_heads(self._settings), checkpoints.pinned(session))

    def _check_database_file(self) -> None:
        try:
            facts = manifest.facts_of(self._source / DATABASE)
        except OSError:
            raise BackupDamaged(DATABASE, "is missing or cannot be read") from None
        if facts != self._manifest.files.get(DATABASE):
            raise BackupDamaged(DATABASE, "was changed or is incomplete")

    def _copy_files(self) -> None:
        for name, facts in self._manifest.files.items():
            if name == DATABASE:
                continue
            path = PurePosixPath(name)
            if path.parts[0] != HOME or ".." in path.parts:
                raise BackupDamaged(name, "is not a file of a home")
            try:
                stored = StoredFile(self._files, str(path.relative_to(HOME)))
                copied = manifest.copy(StoredFile(Directory(self._source), name), stored)
            except FileNotFoundError:
                raise BackupDamaged(name, "is missing") from None
            if copied != facts:
                raise BackupDamaged(name, "was changed or is incomplete")

    def _erase_again(self, session: Session, log: ErasureLog) -> None:
        """Applies every recorded erasure to the restored rows; most of them change nothing."""
        for dataset_id in catalog.living_ids(session):
            if log.is_deleted(dataset_id):
                mark_deleted(session, dataset_id, actor=control.OPERATOR, at=transaction_time(session))
                row_files.erase_dataset(self._files, dataset_id)
                continue
            key = catalog.find(session, dataset_id).data_key(read_storage_keys(self._settings))
            epochs = catalog.epochs(session, dataset_id)
            for epoch in epochs:
                if epoch.erased_at is not None or log.is_erased(dataset_id, epoch.id):
                    mark_upload_erased(session, epoch, actor=control.OPERATOR, at=transaction_time(session))
                    erasure.erase_upload(self._files, dataset_id, epoch.id, key=key)
            try:
                units = list(log.units(dataset_id, key=key))
            except SealBroken:
                raise InstallationError(f"a record of an erased unit of {dataset_id} has another data key") from None
            for unit in units:
                affected = [epoch.id for epoch in epochs if epoch.ordinal <= unit.last_upload]
                erasure.erase_rows(self._files, dataset_id, affected, key=key, row_id=unit.row_id)

    def _has_book(self, dataset_id: str, epochs: Sequence[str]) -> bool:
        """Whether there is an admission book with all uploads. A stored one names its newest upload."""
        with suppress(FileNotFoundError):
            book = self._files.local(row_files.admission_name(dataset_id))
            return admission.is_complete(book, epoch_ids=epochs)
        with suppress(FileNotFoundError):
            self._files.open(row_files.book_name(dataset_id, epochs[-1])).close()
            return not isinstance(self._files, Directory)
        return False

    def _incomplete_books(self, session: Session) -> list[str]:
        problems = []
        for dataset_id in catalog.living_ids(session):
            epochs = [epoch.id for epoch in catalog.epochs(session, dataset_id)]
            has_units = catalog.find(session, dataset_id).unit_column is not None
            if epochs and has_units and not self._has_book(dataset_id, epochs):
                problems.append(f"the admission book of {dataset_id} lacks uploads; it takes no more uploads")
        return problems


def _wrong_balances(session: Session) -> list[str]:
    """Verifies the chain of every account from its first entry."""
    return [
        f"the entries of {account_id} do not follow each other; it admits nothing"
        for account_id in sorted(repository.sizes(session))
        if not chain.is_intact(session, account_id)
    ]
