"""Provides fixtures of a migrated database per test, on both dialects.

Migrations run once per session and dialect; each test gets a copy of the migrated database.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture
def sqlite_database_url(_migrated_sqlite: Path, tmp_path: Path) -> str:
    """Address of a migrated, empty SQLite database for one test."""
    path = tmp_path / "grovekeeper.sqlite3"
    shutil.copyfile(_migrated_sqlite, path)
    return f"sqlite:///{path}"


@pytest.fixture
def postgresql_database_url(postgres_url: str, _migrated_postgresql: str) -> Iterator[str]:
    """Address of a migrated, empty PostgreSQL database for one test, as the owner of its tables."""
    with fresh_database(postgres_url, template=_migrated_postgresql) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Address of a migrated, empty database; the test runs once on each dialect."""
    url: str = request.getfixturevalue(f"{request.param}_database_url")
    return url


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
