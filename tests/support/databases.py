"""Provides fixtures of a migrated database per test, on both dialects.

Migrations run once per session and dialect; each test gets a copy of the migrated database.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest
from sqlalchemy import make_url

from app.db import migrate
from app.db.unit_of_work import Database
from tests.support.postgres import fresh_database, running_server


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Address of the maintenance database of a real PostgreSQL, as a role that may create databases and roles."""
    with running_server() as url:
        yield url


@pytest.fixture(scope="session")
def _migrated_postgresql(postgres_url: str) -> Iterator[str]:
    with fresh_database(postgres_url) as url:
        migrate.upgrade(url)
        yield str(make_url(url).database)


@pytest.fixture(scope="session")
def _migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "template.sqlite3"
    migrate.upgrade(f"sqlite:///{path}")
    return path


MigratedDatabase: TypeAlias = Callable[[str, Path], AbstractContextManager[str]]
"""``migrated_database(dialect, folder)``: a context with the address of a migrated, empty database."""


@pytest.fixture(scope="session")
def migrated_database(request: pytest.FixtureRequest) -> MigratedDatabase:
    """Copies the migrated database of a dialect; on SQLite into a folder. PostgreSQL starts at its first use."""

    @contextmanager
    def copied(dialect: str, folder: Path) -> Iterator[str]:
        if dialect == "sqlite":
            path = folder / "grovekeeper.sqlite3"
            shutil.copyfile(request.getfixturevalue("_migrated_sqlite"), path)
            yield f"sqlite:///{path}"
            return
        template = request.getfixturevalue("_migrated_postgresql")
        with fresh_database(request.getfixturevalue("postgres_url"), template=template) as url:
            yield url

    return copied


@pytest.fixture
def sqlite_database_url(migrated_database: MigratedDatabase, tmp_path: Path) -> Iterator[str]:
    """Address of a migrated, empty SQLite database for one test."""
    with migrated_database("sqlite", tmp_path) as url:
        yield url


@pytest.fixture
def postgresql_database_url(migrated_database: MigratedDatabase, tmp_path: Path) -> Iterator[str]:
    """Address of a migrated, empty PostgreSQL database for one test, as the owner of its tables."""
    with migrated_database("postgresql", tmp_path) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, migrated_database: MigratedDatabase, tmp_path: Path) -> Iterator[str]:
    """Address of a migrated, empty database; the test runs once on each dialect."""
    with migrated_database(request.param, tmp_path) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Address of a database without any table; the test runs once on each dialect."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.sqlite3'}"
        return
    with fresh_database(request.getfixturevalue("postgres_url")) as url:
        yield url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A migrated, empty, open database; the test runs once on each dialect."""
    opened = Database.open(database_url)
    try:
        yield opened
    finally:
        opened.close()
