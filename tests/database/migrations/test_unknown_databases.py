"""An upgrade says what is wrong with a database that no version of the chain made, and
leaves it as it is.
"""

import pytest
from sqlalchemy import create_engine, inspect, text

from app.core.errors import InstallationError
from app.db import migrate, revisions
from app.db.database import Database, parse_url
from tests.database.migrations.conftest import NextRevision
from tests.support.postgres import fresh_database

_HEAD = revisions.head_revision()


def _changed(url: str, *statements: str) -> None:
    engine = create_engine(parse_url(url))
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def _columns(url: str, table: str) -> set[str]:
    engine = create_engine(parse_url(url))
    with engine.connect() as connection:
        columns = {column["name"] for column in inspect(connection).get_columns(table)}
    engine.dispose()
    return columns


@pytest.mark.parametrize(
    ("revision", "sentence"),
    [
        ("9999", "a newer version migrated this database"),
        ("0031", r"at revision 0031\. .*grovekeeper db move"),
        ("0001", r"at revision 0001\. .*takes the revisions 0031 to 0033"),
        ("0099", r"at revision 0099\. "),
        (
            "a1b2c3d4e5f6",
            "at revision a1b2c3d4e5f6, which no version of this program has",
        ),
    ],
)
def test_an_unknown_revision_is_named(
    database_url: str, revision: str, sentence: str
) -> None:
    _changed(database_url, f"UPDATE alembic_version SET version_num = '{revision}'")
    with pytest.raises(InstallationError, match=sentence):
        migrate.upgrade(database_url)
    assert revisions.current_revision(database_url) == revision


@pytest.mark.covering("edit", "database_url")
@pytest.mark.parametrize(
    "edit",
    [
        "ALTER TABLE jobs RENAME COLUMN n_trees TO trees",
        "ALTER TABLE jobs DROP COLUMN n_trees",
        "ALTER TABLE jobs ADD COLUMN colour TEXT",
        "DROP TABLE job_datasets",
    ],
)
def test_tables_of_an_edited_revision_are_named(
    database_url: str, next_revision: NextRevision, edit: str
) -> None:
    next_revision.does("pass")
    _changed(database_url, edit)
    before = _columns(database_url, "jobs")
    sentence = rf"at revision {_HEAD}, but its tables .* \((jobs|job_datasets)\."
    with pytest.raises(InstallationError, match=sentence):
        migrate.upgrade(database_url)
    assert revisions.current_revision(database_url) == _HEAD
    assert _columns(database_url, "jobs") == before


def test_tables_without_a_revision_are_named(database_url: str) -> None:
    _changed(database_url, "DROP TABLE alembic_version")
    with pytest.raises(
        InstallationError, match=r"has no revision, but its tables are not those"
    ):
        migrate.upgrade(database_url)


def test_tables_of_another_program_do_not_matter(
    empty_database_url: str, next_revision: NextRevision
) -> None:
    _changed(empty_database_url, "CREATE TABLE notes (id INTEGER)")
    migrate.upgrade(empty_database_url)
    _changed(empty_database_url, "CREATE TABLE more_notes (id INTEGER)")
    next_revision.does("pass")
    migrate.upgrade(empty_database_url)
    assert revisions.current_revision(empty_database_url) == "next"


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_of_another_encoding_is_named(
    postgres_url: str, encoding: str
) -> None:
    """SQL_ASCII ended in a TypeError of the driver, which gets bytes there; others
    cannot hold every name.
    """
    with fresh_database(postgres_url, encoding=encoding) as url:
        with pytest.raises(
            InstallationError, match=f"encoding {encoding}.*ENCODING 'UTF8'"
        ):
            migrate.upgrade(url)
        with (
            pytest.raises(InstallationError, match=f"encoding {encoding}"),
            Database.open(url).read() as session,
        ):
            session.execute(text("SELECT 1"))
