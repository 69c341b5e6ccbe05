"""Runs migrations for Alembic, on the connection of :mod:`app.db.migrate` or for a
developer's ``alembic`` command.

A developer's command migrates the database that ``GROVEKEEPER_MIGRATION_URL`` names.
"""

import os
import pkgutil
from importlib import import_module
from importlib.util import find_spec

from alembic import context
from sqlalchemy import Connection

import app
from app.core.errors import InstallationError
from app.db.base import Base
from app.db.migrate import migration_transaction


def _import_tables() -> None:
    """Imports every ``tables.py`` into ``Base.metadata``, for autogenerate and for the
    test that compares schemas.
    """
    for package in pkgutil.iter_modules(app.__path__, "app."):
        if package.ispkg and find_spec(f"{package.name}.tables"):
            import_module(f"{package.name}.tables")


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=True,
        compare_server_default=True,
        # SQLite's DDL is transactional, too, because the driver does not commit on its
        # own (app.db.database).
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def _main() -> None:
    _import_tables()
    connection = context.config.attributes.get("connection")
    if connection is not None:
        _run(connection)
        return
    url = os.environ.get("GROVEKEEPER_MIGRATION_URL")
    if not url:
        raise InstallationError(
            "set GROVEKEEPER_MIGRATION_URL to the address of the database to migrate"
        )
    with migration_transaction(url) as connection:
        _run(connection)


_main()
