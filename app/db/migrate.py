"""Upgrades a database to the newest revision.

SQLite and PostgreSQL share one chain of revisions. On both, an upgrade is one
transaction, and upgrades exclude one another, so several processes may start an upgrade
at once.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.util import CommandError
from sqlalchemy import URL, Connection, create_engine, inspect, text
from sqlalchemy.exc import OperationalError, ProgrammingError

from app.core.errors import InstallationError
from app.db import revisions
from app.db.append_only import grant_to_service
from app.db.database import ACCESS, database_file, dialect_of, open_engine, parse_url
from app.db.locks import WriteLock

_ADVISORY_LOCK = 0x67726F7665  # "grove"
_LOCK_NOT_AVAILABLE = "55P03"
_DEADLOCK = "40P01"
_LOCK_WAIT_S = 2
"""Seconds that a migration waits for a table of PostgreSQL: all other transactions on
the table wait behind it.
"""
_LOCK_PAUSE_S = 2.0
# ten minutes of waits and pauses, until a long transaction on a table has ended
_LOCK_ATTEMPTS = 150


def upgrade(url: str, *, migration_url: str | None = None) -> None:
    """Runs the missing migrations in one transaction: all of them or none.

    On PostgreSQL, a migration that does not get the lock of a table within seconds is
    rolled back and begins again, so that the service never waits for longer behind a
    migration that waits.

    Args:
        url: address that the service uses.
        migration_url: address of the role that owns the tables, if that is not the
            service's role. On PostgreSQL the service's role is then granted the rights
            that it needs (:func:`app.db.append_only.grant_to_service`).

    Raises:
        InstallationError: an address is unusable, the addresses name different
            databases, or a newer version of the program migrated the database.
    """
    for attempt in range(1, _LOCK_ATTEMPTS + 1):
        try:
            with owned_by(url, migration_url=migration_url) as connection:
                run_migrations(connection)
            return
        except OperationalError as error:
            state = getattr(error.orig, "sqlstate", None)
            is_locked = state in (_LOCK_NOT_AVAILABLE, _DEADLOCK)
            if not is_locked or attempt == _LOCK_ATTEMPTS:
                raise
            # those who waited behind the migration go on meanwhile
            time.sleep(_LOCK_PAUSE_S)


@contextmanager
def owned_by(url: str, *, migration_url: str | None) -> Iterator[Connection]:
    """A :func:`migration_transaction` of the tables' owner, which grants the service's
    role its rights at the end.

    Raises:
        InstallationError: an address is unusable, or the addresses name different
            databases.
    """
    service, owner = parse_url(url), parse_url(migration_url or url)
    of_service = service.get_backend_name(), service.database
    of_owner = owner.get_backend_name(), owner.database
    if of_service != of_owner:
        raise InstallationError(
            "the migration address and the database address name different databases"
        )
    with migration_transaction(migration_url or url) as connection:
        yield connection
        # In the same transaction: the service would fail on a new table that it may not
        # read yet.
        has_own_role = service.username and service.username != owner.username
        if connection.dialect.name == "postgresql" and has_own_role:
            grant_to_service(connection, str(service.username))


def run_migrations(connection: Connection, revision: str = "head") -> None:
    """Runs the missing migrations on the connection of a :func:`migration_transaction`.

    Raises:
        InstallationError: a newer version of the program migrated the database, a
            version before the first release made it, or another program; or the role
            may not make the tables. Nothing was changed.
    """
    _require_released(connection)
    config = _config()
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, revision)
    except CommandError as error:
        raise InstallationError(
            "a newer version made this backup; install that version or a later version"
        ) from error
    except ProgrammingError as error:
        reason, _, _ = str(error.orig).partition("\n")
        raise InstallationError(
            f"the tables cannot be made ({reason}): GROVEKEEPER_MIGRATION_URL names the role that owns the database"
        ) from error


def _require_released(connection: Connection) -> None:
    """Checks before an upgrade that the database is what its revision makes, so that no
    migration breaks on it.
    """
    stored = MigrationContext.configure(connection).get_current_heads()
    present = _columns(connection)
    if stored == (revisions.head_revision(),) or not (stored or present):
        return
    # Revisions of this program are numbers of four digits, so texts compare as numbers.
    if len(stored) == 1 and stored[0].isdecimal():
        if stored[0] > revisions.head_revision():
            raise InstallationError(revisions.NEWER)
        if stored[0] < revisions.FIRST:
            raise InstallationError(
                f"the database is at revision {stored[0]}. {revisions.HOW_TO_MOVE}"
            )
    unknown = set(stored) - revisions.known_revisions()
    if unknown or len(stored) > 1:
        raise InstallationError(
            f"the database is at revision {', '.join(sorted(stored))}, which no version of this program has. An "
            "unreleased version or another program made it; use the program that made it, or an empty database"
        )
    expected = _columns_of(*stored)
    if stored:
        claim = f"says that it is at revision {stored[0]}"
        wrong = set[str]()
        for table, columns in expected.items():
            for column in columns ^ present.get(table, set()):
                wrong.add(f"{table}.{column}")
    else:
        claim = "has no revision"
        wrong = expected.keys() & present.keys()
    if wrong:
        examples = ", ".join(sorted(wrong)[:3])
        raise InstallationError(
            f"the database {claim}, but its tables are not those of a released version ({examples}). "
            "An unreleased version made it, or somebody changed it by hand; restore a backup, or use an empty database"
        )


def _columns_of(revision: str | None = None) -> dict[str, set[str]]:
    """The columns of every table that the migrations make up to a revision; of the
    newest without one.
    """
    # in memory, where the migrations take a fraction of a second
    engine = create_engine("sqlite://")
    try:
        with engine.begin() as memory:
            config = _config()
            config.attributes["connection"] = memory
            command.upgrade(config, revision or "head")
            return _columns(memory)
    finally:
        engine.dispose()


def _columns(connection: Connection) -> dict[str, set[str]]:
    inspector = inspect(connection)
    return {
        table: {column["name"] for column in inspector.get_columns(table)}
        for table in inspector.get_table_names()
    }


@contextmanager
def migration_transaction(url: str) -> Iterator[Connection]:
    """A transaction that may change the schema; every other migration of the database
    waits for it.

    On SQLite, foreign keys are not enforced during the transaction and are checked
    before the commit: with enforcement, the rebuild of a table would delete the rows
    that refer to it with ``ON DELETE CASCADE``.
    """
    parsed = parse_url(url)
    engine = open_engine(parsed, pool_size=1)
    try:
        with (
            _exclusive(parsed),
            engine.execution_options(**{ACCESS: "write"}).connect() as connection,
        ):
            if dialect_of(parsed) == "sqlite":
                # This PRAGMA has no effect inside a transaction, and SQLAlchemy would
                # begin one, so the driver runs it.
                connection.connection.cursor().execute("PRAGMA foreign_keys = OFF")
            with connection.begin():
                if dialect_of(parsed) == "postgresql":
                    _exclude_migrations(connection)
                yield connection
                if dialect_of(parsed) == "sqlite":
                    _require_foreign_keys(connection)
    finally:
        engine.dispose()


def _exclude_migrations(connection: Connection) -> None:
    """Waits for every other migration on PostgreSQL, and limits later waits for tables."""
    for limit in (
        "lock_timeout",
        "statement_timeout",
        "idle_in_transaction_session_timeout",
    ):
        # a migration may take hours
        connection.execute(text(f"SET LOCAL {limit} = 0"))
    connection.execute(
        text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK}
    )
    # From here on, waits are for tables, and transactions of the service wait behind
    # them.
    connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_WAIT_S}s'"))


def _require_foreign_keys(connection: Connection) -> None:
    """Checks what SQLite did not enforce during a migration; an error rolls it back."""
    if connection.exec_driver_sql("PRAGMA foreign_key_check").first():
        raise RuntimeError(
            "a migration violates a foreign key; the database is unchanged"
        )


def _exclusive(url: URL) -> AbstractContextManager[None]:
    if dialect_of(url) == "sqlite":
        return WriteLock.of(database_file(url)).locked()
    return nullcontext()


def _config() -> Config:
    config = Config()
    config.set_main_option(
        "script_location", str(revisions.script_folder()).replace("%", "%%")
    )
    return config
