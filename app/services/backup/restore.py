"""Restores a backup into an empty installation: completely, or not at all.

Tables, rows, checks and the consequences of lost entries are one transaction of the
database, whose commit is the restore. Before it commits, all files of the home are in
place and durable. A killed restore leaves a mark in the home: no process serves an
installation with the mark, and the same command begins again or finishes.

Accounts whose entries the backup lacks are closed. An account may spend again only if a
signed head outside the database is there and the backup reaches it. The entries after
the backup, which nobody has any more, may have charged everything that was left. So
they count as spent: the cap of the account becomes 0 for ever
(docs/adr/0031-lost-entries-count-as-spent.md).
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sqlalchemy import Connection, inspect, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.access import grants
from app.access.tables import GrantRow, KeyRow
from app.core.errors import InstallationError
from app.core.files import Directory, StoredFile
from app.core.sealed_files import SealBroken
from app.core.settings import Settings
from app.datasets import (
    admission,
    catalog,
    erasure,
    fingerprints,
    row_files,
    row_layout,
)
from app.datasets.erasure_log import ErasureLog
from app.db import migrate, revisions
from app.db.database import reason_of, transaction_time
from app.jobs import queue
from app.jobs.states import EndReason, JobState
from app.ledger import (
    accounts,
    checkpoints,
    control,
    kept_states,
    populations,
    statements,
    tables,
)
from app.ledger.checkpoints import Checkpoint, HeadFolder, Log, Signer
from app.ledger.tables import EntryKind
from app.registry import models, store
from app.services.backup import layout
from app.services.backup.layout import DATABASE, HOME, BackupDamaged, Manifest
from app.services.datasets.erase import mark_deleted, mark_upload_erased
from app.services.guarantees import of_account
from app.services.installation import (
    UNFINISHED_RESTORE,
    open_heads,
    open_store,
    read_storage_keys,
)
from app.services.ledger import heads as signed_heads
from app.services.ledger.heads import open_signer
from grovekeeper_common import durable_files
from grovekeeper_forests.errors import GrovekeeperError

_FOLDERS = (row_files.ROWS_FOLDER, row_files.PRINTS_FOLDER, store.FOLDER)


@dataclass(frozen=True)
class Loss:
    """An account whose entries are not proven to be complete.

    Attributes:
        account_id: of a dataset or a population, or the control chain.
        n_entries: in the backup; 0 where the backup does not have the account.
        head: the head that the backup does not reach; ``None`` where the account has no
            head.
    """

    account_id: str
    n_entries: int
    head: Checkpoint | None

    def __str__(self) -> str:
        stated = "no head" if self.head is None else f"a head of {self.head.size}"
        return f"{self.account_id}: {self.n_entries} entries in the backup, {stated}"


class EntriesMissing(InstallationError):
    """The backup does not reach the heads."""

    def __init__(self, losses: Sequence[Loss]) -> None:
        lines = "\n".join(f"  {loss}" for loss in losses)
        super().__init__(
            "the backup does not reach the heads that were written outside the database, so budget that was spent "
            f"could be spent again. Nothing was restored. See the operator's guide, Restore\n{lines}"
        )


@dataclass(frozen=True)
class Restored:
    """The result of a restore.

    Attributes:
        problems: what was wrong with the installation already when the backup was made,
            as sentences.
    """

    made_at: str
    losses: Sequence[Loss]
    problems: Sequence[str]


def restore_backup(settings: Settings, source: Path, *, accept_loss: bool) -> Restored:
    """Restores a backup.

    Args:
        settings: of an installation whose home has the signing key, and whose database
            is empty.
        source: the folder of the backup.
        accept_loss: whether to restore a backup that does not reach the heads, and
            close the accounts that lack entries.

    Raises:
        InstallationError: the installation is not empty, a key is missing, or the
            database cannot be reached. Nothing was restored.
        BackupDamaged: a file of the backup is missing or was changed, or another
            installation made the backup.
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
    durable_files.write(mark, listed.made_at.encode())
    try:
        with _transaction(settings) as connection:
            restored = restore.run(connection)
    except _NotEmpty:
        if not is_marked:
            mark.unlink()
            raise
        restored = Restored(
            listed.made_at,
            [],
            ["a killed restore was completed; `audit list` shows lost entries"],
        )
    except OperationalError as error:
        # the transaction may have committed: the mark stays, and another attempt looks
        raise InstallationError(
            f"the database does not answer ({reason_of(error)}); run the command again"
        ) from error
    except GrovekeeperError:
        # else the restore before may have committed, and its files are those of the
        # database
        if not is_marked:
            restore.remove_files()
            mark.unlink()
        raise
    with _transaction(settings) as connection:
        restore.set_heads_aside(connection)
    mark.unlink()
    durable_files.sync_folder(settings.home)
    return restored


class _NotEmpty(InstallationError):
    """The database has tables: of another installation, or of a restore that committed
    before it was killed.
    """

    def __init__(self) -> None:
        super().__init__(
            "the database is not empty, as after a start without the backup; a backup is restored into an empty "
            "database: move this one away, or make another"
        )


def _transaction(settings: Settings) -> AbstractContextManager[Connection]:
    return migrate.owned_by(settings.database_url, migration_url=settings.migration_url)


class _Restore:
    """One restore, in the transaction of a connection."""

    def __init__(
        self,
        settings: Settings,
        source: Path,
        listed: Manifest,
        signer: Signer,
        *,
        accept_loss: bool,
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
        is_earlier = self._manifest.revision in revisions.MOVED
        migrate.run_migrations(
            connection, revisions.FIRST if is_earlier else self._manifest.revision
        )
        with layout.file_transaction(
            self._source / DATABASE, "ro&immutable=1"
        ) as backup:
            layout.copy_rows(backup, connection)
        migrate.run_migrations(connection)
        with Session(connection, expire_on_commit=False) as session:
            if wrapped := catalog.wrapped_keys(session):
                read_storage_keys(self._settings).require(wrapped)
            problems = wrong_balances(session)
            heads = self._heads(session).read_all()
            losses = find_losses(session, heads)
            if losses and not self._accept_loss:
                raise EntriesMissing(losses)
            log = signed_heads.log_of(
                open_heads(self._settings),
                self._signer,
                checkpoints.pinned_keys(session),
            )
            # The acts of erasures are in the control chain: without its end, the records
            # beside the heads are the only ones.
            if any(loss.account_id == control.CHAIN for loss in losses):
                chain_heads = [
                    head for head in heads if head.account_id == control.CHAIN
                ]
                head = chain_heads[0] if chain_heads else None
                signed_heads.require_erasures(session, log, head)
            self._copy_files()
            problems += self._incomplete_books(session)
            if losses:
                accept_losses(session, losses)
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
        for name in list(self._brought()):
            self._files.delete(name)

    def _brought(self) -> Iterator[str]:
        for folder in _FOLDERS:
            yield from (file.name for file in self._files.files(folder))
        with suppress(FileNotFoundError):
            self._files.open(fingerprints.KEY_FILE).close()
            yield fingerprints.KEY_FILE

    def set_heads_aside(self, connection: Connection) -> None:
        """Sets aside the heads of entries that the committed control chain records as
        lost.
        """
        with Session(connection) as session:
            folder = self._heads(session)
            for head in folder.read_all():
                if is_recorded(session, head):
                    folder.set_aside(head)

    def _heads(self, session: Session) -> HeadFolder:
        return HeadFolder(open_heads(self._settings), checkpoints.pinned_keys(session))

    def _check_database_file(self) -> None:
        try:
            facts = layout.facts_of(self._source / DATABASE)
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
                copied = layout.copy(StoredFile(Directory(self._source), name), stored)
            except FileNotFoundError:
                raise BackupDamaged(name, "is missing") from None
            if copied != facts:
                raise BackupDamaged(name, "was changed or is incomplete")

    def _erase_again(self, session: Session, log: ErasureLog) -> None:
        """Applies every recorded erasure to the restored rows; most of them change
        nothing.
        """
        for dataset_id in catalog.living_ids(session):
            if log.is_deleted(dataset_id):
                mark_deleted(session, dataset_id, actor=control.OPERATOR)
                row_files.erase_dataset(self._files, dataset_id)
                continue
            dataset = catalog.find(session, dataset_id)
            key = dataset.data_key(read_storage_keys(self._settings))
            form = row_layout.arrow_schema(dataset.schema, dataset.partitions)
            epochs = catalog.epochs(session, dataset_id)
            for epoch in epochs:
                if epoch.erased_at is not None or log.is_erased(dataset_id, epoch.id):
                    mark_upload_erased(
                        session,
                        epoch,
                        actor=control.OPERATOR,
                    )
                    erasure.erase_upload(
                        self._files, dataset_id, epoch.id, form=form, key=key
                    )
            try:
                units = list(log.units(dataset_id, key=key))
            except SealBroken:
                raise InstallationError(
                    f"a record of an erased unit of {dataset_id} has another data key"
                ) from None
            for unit in units:
                # a person may have come back in a later upload
                affected = [
                    epoch.id for epoch in epochs if epoch.ordinal <= unit.last_upload
                ]
                erasure.erase_rows(
                    self._files, dataset_id, affected, key=key, row_id=unit.row_id
                )

    def _has_book(self, dataset_id: str, epochs: Sequence[str]) -> bool:
        """Whether there is an admission book with all uploads. A stored one names its
        newest upload.
        """
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
            epochs = catalog.upload_ids(session, dataset_id)
            has_units = catalog.find(session, dataset_id).unit_column is not None
            if epochs and has_units and not self._has_book(dataset_id, epochs):
                problems.append(
                    f"the admission book of {dataset_id} lacks uploads; it takes no more uploads"
                )
        return problems


def wrong_balances(session: Session) -> list[str]:
    """Verifies the chain of every account from its first entry."""
    return [
        f"the entries of {account_id} do not follow each other; it admits nothing"
        for account_id in sorted(tables.sizes(session))
        if not kept_states.is_intact(session, account_id)
    ]


def find_losses(session: Session, heads: Collection[Checkpoint]) -> list[Loss]:
    """The accounts of the backup or of the heads whose entries are not proven to be
    complete, in order of id.
    """
    sizes = tables.sizes(session)
    by_account = {head.account_id: head for head in heads}
    losses = []
    for account_id in sorted(sizes.keys() | by_account.keys()):
        size = sizes.get(account_id, 0)
        head = by_account.get(account_id)
        if (
            head is None
            or size < head.size
            or Log(session, account_id).root(head.size) != head.root
        ):
            losses.append(Loss(account_id, size, head))
    return losses


def accept_losses(session: Session, losses: Sequence[Loss]) -> None:
    """Records losses in the control chain, closes their accounts, and ends the jobs
    that these would have paid.

    The population of a closed account is closed, too: the load of that member is not
    known any more. If the control chain itself lost entries, keys may have been revoked
    and grants removed in them, so no key of the backup is accepted any more.
    """
    for loss in losses:
        control.record(
            session, EntryKind.HISTORY_LOST, actor=control.OPERATOR, **_details(loss)
        )
    present = {loss.account_id for loss in losses if loss.n_entries} - {control.CHAIN}
    for account_id in sorted(
        {*present, *populations.ids_of(session, present).values()}
    ):
        _close(session, account_id)
    if any(loss.account_id == control.CHAIN for loss in losses):
        _revoke_everybody(session)


def is_recorded(session: Session, head: Checkpoint) -> bool:
    """Whether the control chain records that the entries up to a head were lost."""
    return any(
        details["account"] == head.account_id and details.get("head") == _head(head)
        for details in control.details_of(session, EntryKind.HISTORY_LOST)
    )


def _details(loss: Loss) -> dict[str, object]:
    details: dict[str, object] = {"account": loss.account_id, "entries": loss.n_entries}
    if loss.head is None:
        return details
    return {**details, "head": _head(loss.head)}


def _head(head: Checkpoint) -> dict[str, object]:
    return {"size": head.size, "root": head.root.hex()}


def _close(session: Session, account_id: str) -> None:
    """Closes an account. The reservations of its unfinished jobs stay, because the jobs
    may have been charged.
    """
    for job_id in queue.unfinished_of(session, account_id):
        queue.finish(
            queue.locked(session, job_id),
            state=JobState.FAILED,
            reason=EndReason.LOST,
            at=transaction_time(session),
        )
    accounts.close_account(
        session,
        account_id,
        reason="entries were lost in a restore and count as spent",
        actor=control.OPERATOR,
    )
    if account_id in catalog.named(session, [account_id]):
        dataset = catalog.find(session, account_id)
        limit = statements.printable(session, account_id)
        models.put_guarantee(session, account_id, of_account(session, dataset, limit))


def _revoke_everybody(session: Session) -> None:
    """Revokes every key, and removes every grant of the identity provider's subjects,
    whose roles it states anew.
    """
    subjects = set()
    living = select(KeyRow).where(KeyRow.revoked_at.is_(None)).order_by(KeyRow.id)
    for key in session.scalars(living):
        if key.issuer is not None:
            subjects.add(key.id)
            continue
        key.revoked_at = transaction_time(session)
        control.record(
            session, EntryKind.KEY_REVOKED, actor=control.OPERATOR, key=key.id
        )
    all_grants = select(GrantRow).order_by(GrantRow.key_id, GrantRow.dataset_id)
    # read completely, because the loop removes rows
    for grant in session.scalars(all_grants).all():
        if grant.key_id in subjects and grants.remove(
            session, dataset_id=grant.dataset_id, key_id=grant.key_id
        ):
            control.record(
                session,
                EntryKind.GRANT_REMOVED,
                actor=control.OPERATOR,
                dataset=grant.dataset_id,
                key=grant.key_id,
            )
