"""Tests the revisions on both databases: one head, equal to the metadata, and upgrades
in one transaction.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import Script, ScriptDirectory
from sqlalchemy import (
    CheckConstraint,
    Column,
    Connection,
    Text,
    create_engine,
    inspect,
    text,
)

from app.core.errors import InstallationError
from app.db import migrate, revisions
from app.db.append_only import append_only_tables, create_append_only_triggers
from app.db.base import Base
from app.db.database import Database, parse_url
from tests.database.migrations.conftest import NextRevision

_ROOT = Path(__file__).parents[3]


def _scripts() -> list[Script]:
    """Every revision, the newest first."""
    config = Config()
    config.set_main_option("script_location", str(_ROOT / "migrations"))
    return list(ScriptDirectory.from_config(config).walk_revisions())


@contextmanager
def _connected(url: str) -> Iterator[Connection]:
    engine = create_engine(parse_url(url))
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def test_the_migration_chain_has_one_head() -> None:
    assert revisions.head_revision() == _scripts()[0].revision


def test_the_chain_begins_with_the_first_release() -> None:
    """Revisions of the versions before have smaller numbers, so none of them is taken
    for one of the chain.
    """
    assert _scripts()[-1].revision == revisions.FIRST
    assert max(revisions.MOVED) < revisions.FIRST


def test_revisions_go_forward_only() -> None:
    """A downgrade would have to delete entries of the ledger."""
    assert not [
        script.revision for script in _scripts() if hasattr(script.module, "downgrade")
    ]


def test_the_schema_at_the_head_equals_the_metadata(database_url: str) -> None:
    with _connected(database_url) as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, Base.metadata) == []


def test_check_constraints_equal_those_of_the_metadata(database_url: str) -> None:
    """Autogenerate does not see CHECK constraints."""
    with _connected(database_url) as connection:
        checks = sorted(
            (table, str(check["name"]))
            for table in inspect(connection).get_table_names()
            for check in inspect(connection).get_check_constraints(table)
        )
    expected = sorted(
        (table.name, str(constraint.name))
        for table in Base.metadata.sorted_tables
        for constraint in table.constraints
        if isinstance(constraint, CheckConstraint)
    )
    assert checks == expected, (
        "a rebuild on SQLite keeps the checks, so a check could be duplicated"
    )
    assert ("entries", "ck_entries_amount_not_negative") in checks


def test_no_foreign_key_cascades_deletes(database_url: str) -> None:
    with _connected(database_url) as connection:
        keys = [
            (table, key["options"].get("ondelete"))
            for table in inspect(connection).get_table_names()
            for key in inspect(connection).get_foreign_keys(table)
        ]
    assert {table for table, act in keys if act} == set()
    assert len(keys) == sum(
        len(table.foreign_keys) for table in Base.metadata.sorted_tables
    )


def _counts(url: str) -> dict[str, int]:
    with _connected(url) as connection:
        return {
            table: connection.execute(
                text(f'SELECT count(*) FROM "{table}"')
            ).scalar_one()
            for table in inspect(connection).get_table_names()
            if table != "alembic_version"
        }


def test_a_database_is_current_after_its_upgrade(empty_database_url: str) -> None:
    database = Database.open(empty_database_url)
    assert not revisions.is_current(database)
    assert revisions.current_revision(empty_database_url) is None
    migrate.upgrade(empty_database_url)
    migrate.upgrade(empty_database_url)
    assert revisions.is_current(database)
    database.close()


def test_concurrent_upgrades_all_succeed(empty_database_url: str) -> None:
    program = f"from app.db import migrate, revisions; migrate.upgrade({empty_database_url!r})"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=_ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    assert [process.communicate(timeout=600)[1] for process in processes] == [""] * 3
    assert revisions.current_revision(empty_database_url) == revisions.head_revision()


def test_a_database_of_a_newer_version_is_refused_and_unchanged(
    database_url: str,
) -> None:
    with _connected(database_url) as connection:
        connection.execute(
            text("UPDATE alembic_version SET version_num = 'from-the-future'")
        )
        connection.commit()
    with pytest.raises(InstallationError):
        migrate.upgrade(database_url)
    assert revisions.current_revision(database_url) == "from-the-future"


def test_addresses_of_different_databases_are_refused(
    postgresql_database_url: str, sqlite_database_url: str
) -> None:
    with pytest.raises(InstallationError):
        migrate.upgrade(sqlite_database_url, migration_url=postgresql_database_url)


def test_a_failed_revision_changes_nothing(
    database_url: str, next_revision: NextRevision
) -> None:
    before, head = _counts(database_url), revisions.current_revision(database_url)
    next_revision.does(
        "op.create_table('half_done', sa.Column('id', sa.Integer()))",
        "op.execute(\"INSERT INTO dataset_populations VALUES ('ds', 'people')\")",
        "raise RuntimeError('broke')",
    )
    with pytest.raises(RuntimeError, match="broke"):
        migrate.upgrade(database_url)
    assert _counts(database_url) == before
    assert revisions.current_revision(database_url) == head


def test_a_rebuilt_table_is_append_only_again(
    database_url: str, next_revision: NextRevision
) -> None:
    entry = "'ds_a', 1, 'open', 5, '{}', 'key_a', 'now', 'none', 'one'"
    columns = (
        "account_id, sequence, kind, amount, scope, actor, at, previous_hash, hash"
    )
    with migrate.migration_transaction(database_url) as connection:
        connection.execute(text(f"INSERT INTO entries ({columns}) VALUES ({entry})"))
    next_revision.does(
        "with op.batch_alter_table('entries', recreate='always') as batch:",
        "    batch.add_column(sa.Column('note', sa.Text()))",
        "create_append_only_triggers(op.get_bind(), 'entries', key=('account_id', 'sequence'))",
    )
    migrate.upgrade(database_url)
    assert revisions.current_revision(database_url) == "next"
    with _connected(database_url) as connection:
        assert append_only_tables(connection) == {
            "alias_moves",
            "entries",
            "log_blocks",
            "signers",
        }
        assert connection.execute(
            text("SELECT count(*), count(note) FROM entries")
        ).one() == (1, 0)


def test_a_rebuild_without_new_triggers_is_detected(
    sqlite_database_url: str, next_revision: NextRevision
) -> None:
    """On SQLite, a batch rebuild drops triggers without an error."""
    next_revision.does(
        "with op.batch_alter_table('entries', recreate='always') as batch:", "    pass"
    )
    migrate.upgrade(sqlite_database_url)
    with _connected(sqlite_database_url) as connection:
        assert append_only_tables(connection) == {
            "alias_moves",
            "log_blocks",
            "signers",
        }


def test_a_rebuild_does_not_delete_referring_rows(empty_database_url: str) -> None:
    with migrate.migration_transaction(empty_database_url) as connection:
        connection.exec_driver_sql("CREATE TABLE parents (id BIGINT PRIMARY KEY)")
        connection.exec_driver_sql(
            "CREATE TABLE children (parent_id BIGINT REFERENCES parents (id) ON DELETE CASCADE)"
        )
        connection.exec_driver_sql("INSERT INTO parents VALUES (1)")
        connection.exec_driver_sql("INSERT INTO children VALUES (1)")
    with migrate.migration_transaction(empty_database_url) as connection:
        operations = Operations(MigrationContext.configure(connection))
        with operations.batch_alter_table(
            "parents", recreate="always" if _is_sqlite(connection) else "auto"
        ) as batch:
            batch.add_column(Column("note", Text()))
    with _connected(empty_database_url) as connection:
        assert (
            connection.execute(text("SELECT count(*) FROM children")).scalar_one() == 1
        )


def _is_sqlite(connection: Connection) -> bool:
    return connection.dialect.name == "sqlite"


def test_a_migration_that_breaks_a_foreign_key_is_rolled_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'keys.sqlite3'}"
    with migrate.migration_transaction(url) as connection:
        connection.exec_driver_sql("CREATE TABLE parents (id INTEGER PRIMARY KEY)")
        connection.exec_driver_sql(
            "CREATE TABLE children (parent_id INTEGER REFERENCES parents (id))"
        )
    with pytest.raises(RuntimeError), migrate.migration_transaction(url) as connection:
        connection.exec_driver_sql("INSERT INTO children VALUES (99)")
    assert _counts(url) == {"parents": 0, "children": 0}


def test_triggers_can_be_created_again(database_url: str) -> None:
    with migrate.migration_transaction(database_url) as connection:
        create_append_only_triggers(
            connection, "entries", key=("account_id", "sequence")
        )
        assert append_only_tables(connection) == {
            "alias_moves",
            "entries",
            "log_blocks",
            "signers",
        }
