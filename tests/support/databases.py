"""Provides fixtures of a migrated database per test, on both dialects.

Migrations run once per session and dialect; each test gets a copy of the migrated
database.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

from app.db import migrate
from app.db.database import Database
from tests.support.postgres import fresh_database, running_server

_N_STATEMENTS = 5_000


@pytest.fixture(scope="session", autouse=True)
def _shared_statements() -> Iterator[None]:
    """Lets the engines of all tests share compiled statements; compiling them takes a
    third of a test's CPU time.

    SQLAlchemy keeps them per engine and dialect object, and every test opens engines.
    Dialect objects of one class are equal here, because all tests of a process use one
    PostgreSQL server and one SQLite library.
    """
    statements: LRUCache[Any, Any] = LRUCache(_N_STATEMENTS)

    def created(url: URL, **options: Any) -> Engine:
        opened = create_engine(url, **options)
        opened._compiled_cache = statements
        return opened

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("app.db.database.create_engine", created)
        for dialect in (PGDialect_psycopg, SQLiteDialect_pysqlite):
            patched.setattr(
                dialect, "__eq__", lambda one, other: type(one) is type(other)
            )
            patched.setattr(dialect, "__hash__", lambda one: hash(type(one)))
        yield


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Address of the maintenance database of a real PostgreSQL, as a role that may
    create databases and roles.
    """
    with running_server() as url:
        yield url


@pytest.fixture(scope="session")
def _migrated_postgresql(postgres_url: str) -> Iterator[str]:
    with fresh_database(postgres_url) as url:
        migrate.upgrade(url)
        yield url


@pytest.fixture(scope="session")
def _migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('migrated') / 'template.sqlite3'}"
    migrate.upgrade(url)
    return url


MigratedDatabase: TypeAlias = Callable[[str, Path], AbstractContextManager[str]]
"""``migrated_database(dialect, folder)``: a context with the address of a migrated,
empty database.
"""

EmptyDatabase: TypeAlias = Callable[[str, Path], AbstractContextManager[str]]
"""``empty_database(dialect, folder)``: a context with the address of a database without
any table.
"""

CopiedDatabase: TypeAlias = Callable[[str, Path], AbstractContextManager[str]]
"""``copied_database(url, folder)``: a context with the address of a copy of a database
that nobody has open.
"""


@pytest.fixture(scope="session")
def copied_database(request: pytest.FixtureRequest) -> CopiedDatabase:
    """Copies a database of either dialect; on SQLite into a folder."""

    @contextmanager
    def copied(url: str, folder: Path) -> Iterator[str]:
        source = make_url(url).database
        assert source is not None
        if url.startswith("sqlite"):
            path = folder / "grovekeeper.sqlite3"
            shutil.copyfile(source, path)
            yield f"sqlite:///{path}"
            return
        with fresh_database(
            request.getfixturevalue("postgres_url"), template=source
        ) as copy:
            yield copy

    return copied


@pytest.fixture(scope="session")
def migrated_database(
    request: pytest.FixtureRequest, copied_database: CopiedDatabase
) -> MigratedDatabase:
    """Copies the migrated database of a dialect. PostgreSQL starts at its first use."""
    return lambda dialect, folder: copied_database(
        request.getfixturevalue(f"_migrated_{dialect}"), folder
    )


@pytest.fixture(scope="session")
def empty_database(request: pytest.FixtureRequest) -> EmptyDatabase:
    """Makes an empty database of a dialect; on SQLite in a folder. PostgreSQL starts at
    its first use.
    """

    @contextmanager
    def made(dialect: str, folder: Path) -> Iterator[str]:
        if dialect == "sqlite":
            yield f"sqlite:///{folder / 'empty.sqlite3'}"
            return
        with fresh_database(request.getfixturevalue("postgres_url")) as url:
            yield url

    return made


@pytest.fixture
def sqlite_database_url(
    migrated_database: MigratedDatabase, tmp_path: Path
) -> Iterator[str]:
    """Address of a migrated, empty SQLite database for one test."""
    with migrated_database("sqlite", tmp_path) as url:
        yield url


@pytest.fixture
def postgresql_database_url(
    migrated_database: MigratedDatabase, tmp_path: Path
) -> Iterator[str]:
    """Address of a migrated, empty PostgreSQL database for one test, as the owner of
    its tables.
    """
    with migrated_database("postgresql", tmp_path) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(
    request: pytest.FixtureRequest, migrated_database: MigratedDatabase, tmp_path: Path
) -> Iterator[str]:
    """Address of a migrated, empty database; the test runs once on each dialect."""
    with migrated_database(request.param, tmp_path) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_url(
    request: pytest.FixtureRequest, empty_database: EmptyDatabase, tmp_path: Path
) -> Iterator[str]:
    """Address of a database without any table; the test runs once on each dialect."""
    with empty_database(request.param, tmp_path) as url:
        yield url


_SQLITE_AND_LONG_POSTGRESQL = [
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.long),
]

on_one_database = pytest.mark.parametrize(
    "database_url", _SQLITE_AND_LONG_POSTGRESQL, indirect=True
)
"""For rules that do not depend on the database: PostgreSQL among the long tests only."""

on_one_server = pytest.mark.parametrize(
    "server", _SQLITE_AND_LONG_POSTGRESQL, indirect=True
)
"""The same for tests of a server that is shared."""

on_one_idle_server = pytest.mark.parametrize(
    "idle_server", _SQLITE_AND_LONG_POSTGRESQL, indirect=True
)
"""The same for tests of a server without a worker."""


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A migrated, empty, open database; the test runs once on each dialect."""
    opened = Database.open(database_url)
    try:
        yield opened
    finally:
        opened.close()
