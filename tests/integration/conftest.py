"""Servers that the HTTP tests share: one of each kind on each database, started once per test process.

A module runs on one database and then on the other. Both servers of a kind stay up until the last HTTP test. If the
fixture that starts them were parametrised, every change of database would stop one server and start another.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.postgres import fresh_database
from tests.support.server import Server, running_server


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest) -> Server:
    """A server with one worker. Each test that uses it runs once on each database, with its own datasets."""
    fixture: Server = request.getfixturevalue(f"_{request.param}_server")
    return fixture


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def idle_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server without a worker: jobs stay queued until a test starts a worker, and are cancelled after the module."""
    fixture: Server = request.getfixturevalue(f"_idle_{request.param}_server")
    yield fixture
    fixture.cancel_what_waits()


@pytest.fixture(scope="package")
def _sqlite_server(_migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with _on_sqlite(_migrated_sqlite, tmp_path_factory.mktemp("server"), n_workers=1) as running:
        yield running


@pytest.fixture(scope="package")
def _idle_sqlite_server(_migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with _on_sqlite(_migrated_sqlite, tmp_path_factory.mktemp("server"), n_workers=0) as running:
        yield running


@pytest.fixture(scope="package")
def _postgresql_server(
    postgres_url: str, _migrated_postgresql: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with (
        fresh_database(postgres_url, template=_migrated_postgresql) as url,
        running_server(url, tmp_path_factory.mktemp("server") / "home", n_workers=1) as running,
    ):
        yield running


@pytest.fixture(scope="package")
def _idle_postgresql_server(
    postgres_url: str, _migrated_postgresql: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with (
        fresh_database(postgres_url, template=_migrated_postgresql) as url,
        running_server(url, tmp_path_factory.mktemp("server") / "home", n_workers=0) as running,
    ):
        yield running


@contextmanager
def _on_sqlite(migrated: Path, folder: Path, *, n_workers: int) -> Iterator[Server]:
    shutil.copyfile(migrated, folder / "grovekeeper.sqlite3")
    url = f"sqlite:///{folder / 'grovekeeper.sqlite3'}"
    with running_server(url, folder / "home", n_workers=n_workers) as running:
        yield running
