"""Prepares an installation before the server starts: home folder, newest database
revision, admin key.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from app.access.keys import NewKey, living_admin_exists
from app.core import processes
from app.core.dask_cluster import is_loopback
from app.core.errors import InstallationError, Unavailable
from app.core.settings import Settings
from app.db import revisions
from app.db.database import Database, database_file, parse_url, reason_of
from app.services.installation import refuse_unfinished_restore
from app.services.keys import ensure_first_admin
from grovekeeper_client.settings import ADMIN_KEY_FILE
from grovekeeper_common import durable_files


def prepare(settings: Settings) -> None:
    """Makes the home, upgrades the embedded database, and makes the first admin key if
    none exists.

    A generated key is printed once, if stderr is a terminal. On loopback it is also
    written to the home, where the client commands of the same home read it.

    Raises:
        InstallationError: a database outside the home is not at the newest revision, or
            a generated key would be reachable from other machines.
    """
    if is_embedded(settings):
        upgrade(settings)
    file = settings.home / ADMIN_KEY_FILE
    # also beside PostgreSQL, which may have been upgraded with another home
    durable_files.make_folder(settings.home)
    with opened(settings) as database:
        _refuse_generated_key_on_the_network(settings, database)
        generated = ensure_first_admin(
            database,
            settings.admin_key,
            of_file=_kept(file),
            keep=lambda key: _keep(key, file),
        )
    if generated is not None and sys.stderr.isatty():
        print(
            f"The first admin key, shown this once: {generated.text}", file=sys.stderr
        )
        print(f"It was also written to {file}", file=sys.stderr)


def upgrade(settings: Settings) -> None:
    """Makes the home and upgrades the database to the newest revision, unless an
    embedded database is there already.

    Raises:
        InstallationError: the database cannot be reached, belongs to another program,
            or is from a newer version; or no file that is made now could be opened.
    """
    processes.require_usable_umask()
    try:
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InstallationError(
            f"the home {settings.home} cannot be made ({error.strerror}): name another with GROVEKEEPER_HOME"
        ) from None
    refuse_unfinished_restore(settings)
    if is_embedded(settings) and _is_newest(settings.database_url):
        return
    from app.db import migrate  # Alembic takes 0.1 s of CPU

    try:
        migrate.upgrade(settings.database_url, migration_url=settings.migration_url)
    except DBAPIError as error:
        raise InstallationError(
            f"the database cannot be upgraded: {reason_of(error)}"
        ) from error


def _kept(file: Path) -> str | None:
    """The key that is in the home already: of a start that was killed, or of another
    database of this home.
    """
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _keep(key: NewKey, file: Path) -> None:
    """Writes the first key of a database. An earlier file gets another name: its secret
    is in no other place.
    """
    with suppress(FileNotFoundError):
        file.rename(file.with_name(f"{file.name}.before-{key.id}"))
    durable_files.write(file, f"{key.text}\n".encode())


def register_configured_admin(settings: Settings) -> None:
    """Registers ``GROVEKEEPER_ADMIN_KEY`` if it is set; ``api`` and ``worker`` never
    generate a key.
    """
    if settings.admin_key is not None:
        with opened(settings) as database:
            ensure_first_admin(database, settings.admin_key)


@contextmanager
def opened(settings: Settings) -> Iterator[Database]:
    """The installation's database, closed on exit.

    Raises:
        InstallationError: the database is not at the newest revision.
    """
    database = Database.open(settings.database_url, pool_size=1)
    try:
        if not revisions.is_current(database):
            raise InstallationError(
                "the database is not at the newest revision; run: grovekeeper db upgrade"
            )
        yield database
    finally:
        database.close()


def is_embedded(settings: Settings) -> bool:
    """Whether the database is a file on this machine, which ``serve`` upgrades by
    itself.
    """
    return settings.database_url.startswith("sqlite")


def _is_newest(embedded_url: str) -> bool:
    if not database_file(parse_url(embedded_url)).exists():
        return False
    with suppress(Unavailable, DBAPIError):  # the upgrade says what is wrong
        return revisions.current_revision(embedded_url) == revisions.head_revision()
    return False


def _refuse_generated_key_on_the_network(
    settings: Settings, database: Database
) -> None:
    if settings.admin_key is not None or is_loopback(settings.host):
        return
    with database.read() as session:
        has_admin = living_admin_exists(session)
    file = settings.home / ADMIN_KEY_FILE
    if not has_admin or file.exists():
        raise InstallationError(
            f"{settings.host} can be reached from other machines, and the admin key would be a generated one; "
            "set GROVEKEEPER_ADMIN_KEY or GROVEKEEPER_ADMIN_KEY_FILE"
        )
