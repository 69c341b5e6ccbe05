"""Moves an installation of a version before the first release: copies the rows of its
database into an empty one.

The old database stays as it is, and the home stays in its place: files of rows,
artifacts, keys, heads and records of erasures have the form that they had. Copies of
rows are one transaction, which commits once every chain of entries was verified from
its first entry, and reaches the heads outside the database: so no budget comes back.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

from sqlalchemy import inspect
from sqlalchemy.orm import Session

from app.core import limits, stamps
from app.core.errors import InstallationError, Unavailable
from app.core.settings import Settings
from app.db import migrate, revisions
from app.db.database import Database, dialect_of, parse_url, transaction_time
from app.jobs import queue
from app.ledger import checkpoints
from app.services.backup import layout
from app.services.backup.restore import find_losses, wrong_balances
from app.services.installation import open_heads, refuse_unfinished_restore
from app.services.ledger.heads import open_signer

_SQLITE = b"SQLite format 3\0"
"""The first bytes of every SQLite database."""


def move_database(settings: Settings, old: str) -> Sequence[str]:
    """Copies the old database of an installation into the empty database that its
    settings name.

    Args:
        settings: of the installation, whose processes have all ended.
        old: the file of the old SQLite database; or the name of the old database on the
            PostgreSQL server of the new one, which the owner of the new tables can
            read.

    Returns:
        What was wrong with the old database already, as sentences.

    Raises:
        InstallationError: the old database is missing, of another revision or in use,
            or lacks entries; the new one is not empty, or the home is that of another
            installation. Nothing was copied.
    """
    refuse_unfinished_restore(settings)
    with _opened(settings, old) as (source, now):
        _require_movable(old, revisions.revision_of(source))
        with migrate.owned_by(
            settings.database_url, migration_url=settings.migration_url
        ) as target:
            if inspect(target).get_table_names():
                raise InstallationError(
                    "the new database is not empty; the old one is copied into an empty database"
                )
            migrate.run_migrations(target, revisions.FIRST)
            if queue.n_workers(source, at=now):
                raise InstallationError(
                    f"a worker wrote to the old database within {limits.WORKER_SEEN_S} s; end all processes of the "
                    "installation, wait, and move again"
                )
            layout.copy_rows(source.connection(), target)
            migrate.run_migrations(target)
            with Session(target) as session:
                return _verified(settings, session)


@contextmanager
def _opened(settings: Settings, old: str) -> Iterator[tuple[Session, datetime]]:
    """A transaction that reads the old database and cannot write to it, and its time."""
    if "://" in old:  # which may hold a password
        raise InstallationError(
            "name the old database by its file or its name, without an address"
        )
    new = parse_url(settings.migration_url or settings.database_url)
    if dialect_of(new) == "sqlite":
        with (
            layout.file_transaction(_sqlite_file(old), "ro") as connection,
            Session(connection) as session,
        ):
            # one snapshot, which the driver begins for writers only
            connection.exec_driver_sql("BEGIN")
            yield session, stamps.now()
        return
    address = new.set(database=old).render_as_string(hide_password=False)
    try:
        revisions.current_revision(address)
    except Unavailable as error:
        raise InstallationError(
            f"the old database {old} cannot be opened by the owner of the new one"
        ) from error
    with (
        closing(Database.open(address, pool_size=1)) as database,
        database.read() as session,
    ):
        yield session, transaction_time(session)


def _sqlite_file(old: str) -> Path:
    file = Path(old).expanduser().absolute()
    if not file.is_file():
        raise InstallationError(f"{file} is no file; name the file of the old database")
    with file.open("rb") as reader:
        if reader.read(len(_SQLITE)) != _SQLITE:
            raise InstallationError(
                f"{file} is no SQLite database; name the file of the old database"
            )
    return file


def _require_movable(old: str, revision: str | None) -> None:
    if revision in revisions.MOVED:
        return
    if revision is None:
        raise InstallationError(
            f"{old} has no revision, so no version of this program made it"
        )
    if revision >= revisions.FIRST:
        raise InstallationError(
            f"{old} is at revision {revision}, which needs no move; run: grovekeeper db upgrade"
        )
    raise InstallationError(f"{old} is at revision {revision}. {revisions.TAKEN}")


def _verified(settings: Settings, session: Session) -> Sequence[str]:
    """Compares the copied rows with the home: its signing key, and the heads, which no
    account may fall short of.
    """
    keys = checkpoints.pinned_keys(session)
    open_signer(settings, keys, make=False)
    heads = checkpoints.HeadFolder(open_heads(settings), keys).read_all()
    losses = [loss for loss in find_losses(session, heads) if loss.head is not None]
    if losses:
        lines = "\n".join(
            f"  {loss.account_id}: {loss.n_entries} entries" for loss in losses
        )
        raise InstallationError(
            "the old database does not reach the heads that were written outside it, so budget that was spent could be "
            "spent again. Nothing was copied. It may be older than the home, or a SQLite file was renamed without its "
            f"-wal file\n{lines}"
        )
    return wrong_balances(session)
