"""Reads the revision of a database, and which revision is the newest, without loading
Alembic.

Alembic takes a tenth of the start of a process and is only needed where a revision is
run (:mod:`app.db.migrate`).
"""

from contextlib import closing
from functools import cache
from pathlib import Path

from sqlalchemy import inspect, text
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session

import app
from app.core.errors import InstallationError
from app.db.database import Database

FIRST = "0100"
"""The revision of the first release."""

MOVED = ("0031", "0032", "0033")
"""Revisions of versions before the first release whose rows ``grovekeeper db move``
copies into the tables of the first; the oldest is that of the commit e23dda68.
"""

TAKEN = (
    f"`grovekeeper db move` takes the revisions {MOVED[0]} to {MOVED[-1]}; an older installation is upgraded with the "
    "commit e23dda68 first (the operator's guide, From a version before the first release)"
)

HOW_TO_MOVE = (
    f"This version begins with new tables: rename the database and copy it. {TAKEN}"
)

NEWER = (
    "a newer version migrated this database; install that version or a later version"
)


def current_revision(url: str) -> str | None:
    """The revision of a database, or ``None`` before the first upgrade.

    Raises:
        InstallationError: the file is no database.
    """
    with closing(Database.open(url, pool_size=1)) as database:
        try:
            return _revision_of(database)
        except DatabaseError as error:
            raise InstallationError(
                f"the database cannot be read: {error.orig}"
            ) from error


@cache
def known_revisions() -> frozenset[str]:
    """The revisions that this installation knows; the name of a revision's file begins
    with the revision.

    Raises:
        InstallationError: the installation has no migrations.
    """
    files = (script_folder() / "versions").glob("*.py")
    known = frozenset(file.stem.partition("_")[0] for file in files)
    if not known:
        raise InstallationError("this installation has no migrations; install it again")
    return known


def head_revision() -> str:
    """The newest revision that this installation knows; raises what
    :func:`known_revisions` raises.
    """
    return max(known_revisions())


def is_current(database: Database) -> bool:
    """Whether a database is at :func:`head_revision`."""
    return _revision_of(database) == head_revision()


def script_folder() -> Path:
    """The folder of the migrations, in a wheel or in a checkout."""
    package = Path(app.__file__).parent
    in_wheel = package / "_migrations"
    if in_wheel.is_dir():
        return in_wheel
    return package.parent / "migrations"


def revision_of(session: Session) -> str | None:
    """The revision of the database of a session; see :func:`current_revision`."""
    # Asked first: on PostgreSQL, a SELECT from a missing table would end the transaction.
    if not inspect(session.connection()).has_table("alembic_version"):
        return None
    revision: str | None = session.scalar(
        text("SELECT version_num FROM alembic_version")
    )
    return revision


def _revision_of(database: Database) -> str | None:
    with database.read() as session:
        return revision_of(session)
