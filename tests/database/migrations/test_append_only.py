"""Tests that entries can be added but not changed, by triggers on both databases and by
grants on PostgreSQL.
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg import errors, sql
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError

from app.core.errors import InstallationError
from app.db import migrate, revisions
from app.db.database import Database
from tests.support.postgres import driver_url, execute, fresh_database

_INSERT = (
    "INSERT INTO entries (account_id, sequence, kind, amount, scope, actor, at, previous_hash, hash)"
    " VALUES ('ds_a', {sequence}, 'open', 5, '{{}}', 'key_a', 'now', 'none', 'one')"
)
_REWRITES = {
    "update": "UPDATE entries SET amount = 1",
    "update of nothing new": "UPDATE entries SET amount = amount",
    "delete": "DELETE FROM entries",
    "insert over": _INSERT.format(sequence=1),
    "upsert": _INSERT.format(sequence=1)
    + " ON CONFLICT (account_id, sequence) DO UPDATE SET amount = 1",
    "ignored insert over": _INSERT.format(sequence=1) + " ON CONFLICT DO NOTHING",
}


def _with_an_entry(database: Database) -> None:
    with database.write() as session:
        session.execute(text(_INSERT.format(sequence=1)))


def _entries(database: Database) -> list[tuple[object, ...]]:
    with database.read() as session:
        return [
            tuple(row)
            for row in session.execute(
                text("SELECT sequence, amount FROM entries ORDER BY sequence")
            )
        ]


@pytest.mark.parametrize("rewrite", _REWRITES.values(), ids=_REWRITES.keys())
def test_an_entry_cannot_be_rewritten(database: Database, rewrite: str) -> None:
    _with_an_entry(database)
    with pytest.raises(DBAPIError, match="append-only"), database.write() as session:
        session.execute(text(rewrite))
    assert _entries(database) == [(1, 5)]


def test_the_next_entry_can_be_added(database: Database) -> None:
    _with_an_entry(database)
    with database.write() as session:
        session.execute(text(_INSERT.format(sequence=2)))
    assert _entries(database) == [(1, 5), (2, 5)]


def test_insert_or_replace_cannot_overwrite_an_entry(sqlite_database_url: str) -> None:
    database = Database.open(sqlite_database_url)
    _with_an_entry(database)
    with pytest.raises(DBAPIError, match="append-only"), database.write() as session:
        session.execute(
            text(_INSERT.format(sequence=1).replace("INSERT", "INSERT OR REPLACE", 1))
        )
    assert _entries(database) == [(1, 5)]
    database.close()


@pytest.mark.parametrize("role", ["origin", "replica"])
def test_the_owner_cannot_truncate_update_or_delete(
    postgresql_database_url: str, role: str
) -> None:
    """Ordinary triggers do not fire for the role ``replica``; these triggers do."""
    with psycopg.connect(
        driver_url(postgresql_database_url), autocommit=True
    ) as connection:
        connection.execute(_INSERT.format(sequence=1))
        connection.execute(f"SET session_replication_role = {role}")
        for rewrite in (
            "TRUNCATE entries",
            "UPDATE entries SET amount = 1",
            "DELETE FROM entries",
        ):
            with pytest.raises(errors.RestrictViolation):
                connection.execute(rewrite)


@dataclass(frozen=True)
class _TwoRoles:
    owner_url: str
    service_url: str


@pytest.fixture
def two_roles(postgres_url: str) -> Iterator[_TwoRoles]:
    """A database with an owner's role and a service's role, as
    docs/guides/operator-install.md describes.
    """
    tag, password = secrets.token_hex(4), secrets.token_hex(8)
    owner, service = f"owner_{tag}", f"service-{tag}"
    for role in (owner, service):
        execute(
            postgres_url,
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(
                sql.Identifier(role), password
            ),
        )
    with fresh_database(postgres_url) as url:
        database = make_url(url)
        execute(
            postgres_url,
            sql.SQL("ALTER DATABASE {} OWNER TO {}").format(
                sql.Identifier(str(database.database)), sql.Identifier(owner)
            ),
        )
        yield _TwoRoles(*(
            database.set(username=role, password=password).render_as_string(hide_password=False)
            for role in (owner, service)
        ))  # fmt: skip
    for role in (owner, service):
        execute(postgres_url, sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def test_the_service_role_can_add_entries_and_nothing_else(
    two_roles: _TwoRoles,
) -> None:
    migrate.upgrade(two_roles.service_url, migration_url=two_roles.owner_url)
    migrate.upgrade(two_roles.service_url, migration_url=two_roles.owner_url)
    database = Database.open(two_roles.service_url)
    assert revisions.is_current(database)
    _with_an_entry(database)
    database.close()
    refused = (
        *_REWRITES.values(),
        "TRUNCATE entries",
        "TRUNCATE keys",
        "DROP TABLE entries",
        "DROP TRIGGER append_only_entries_update ON entries",
        "ALTER TABLE entries DISABLE TRIGGER ALL",
        "ALTER TABLE entries ADD COLUMN note text",
        "CREATE TABLE mine (id int)",
        "CREATE OR REPLACE FUNCTION append_only_entries_update() RETURNS trigger LANGUAGE sql AS 'SELECT 1'",
        "SET session_replication_role = replica",
        "UPDATE alembic_version SET version_num = 'x'",
        "GRANT UPDATE ON entries TO CURRENT_USER",
    )
    with psycopg.connect(
        driver_url(two_roles.service_url), autocommit=True
    ) as connection:
        for statement in refused:
            if statement in (
                _REWRITES["insert over"],
                _REWRITES["ignored insert over"],
            ):
                continue
            try:
                connection.execute(statement)
            except errors.InsufficientPrivilege:
                continue
            # On PostgreSQL, a GRANT without the grant option is a warning and grants
            # nothing.
            assert statement.startswith("GRANT"), statement
        assert connection.execute(
            "SELECT sequence, amount FROM entries"
        ).fetchall() == [(1, 5)]


def test_a_role_that_may_not_make_the_tables_is_sent_to_the_address_of_the_owner(
    two_roles: _TwoRoles,
) -> None:
    """A restore without this address ended in a traceback."""
    owner = r"permission denied.*GROVEKEEPER_MIGRATION_URL"
    with (
        pytest.raises(InstallationError, match=owner),
        migrate.owned_by(two_roles.service_url, migration_url=None) as connection,
    ):
        migrate.run_migrations(connection)


def test_the_service_role_can_change_all_other_tables(two_roles: _TwoRoles) -> None:
    migrate.upgrade(two_roles.service_url, migration_url=two_roles.owner_url)
    with psycopg.connect(
        driver_url(two_roles.service_url), autocommit=True
    ) as connection:
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        ).fetchall()
        changeable = {name for (name,) in tables} - {
            "alias_moves",
            "entries",
            "log_blocks",
            "signers",
            "alembic_version",
        }
        assert {"accounts", "jobs", "keys", "releases"} <= changeable
        for name in changeable:
            row = connection.execute(
                "SELECT bool_and(has_table_privilege(%s, r)) FROM unnest(ARRAY['SELECT','INSERT','UPDATE','DELETE']) r",
                (name,),
            ).fetchone()
            assert row == (True,), name
