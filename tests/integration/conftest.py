"""Servers that the HTTP tests share, one of each kind on each database, started once."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.postgres import fresh_database
from tests.support.server import Server, running_server


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one worker; every test that asks for it runs once on each database, on datasets of its own."""
    with _server(request, tmp_path_factory, n_workers=1) as running:
        yield running


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def idle_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The same without a worker: its jobs stay queued until a test starts one."""
    with _server(request, tmp_path_factory, n_workers=0) as running:
        yield running


@contextmanager
def _server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, *, n_workers: int
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with _database(request, folder) as url, running_server(url, folder / "home", n_workers=n_workers) as running:
        yield running


@contextmanager
def _database(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    if request.param == "sqlite":
        shutil.copyfile(request.getfixturevalue("_migrated_sqlite"), folder / "grovekeeper.sqlite3")
        yield f"sqlite:///{folder / 'grovekeeper.sqlite3'}"
        return
    template = request.getfixturevalue("_migrated_postgresql")
    with fresh_database(request.getfixturevalue("postgres_url"), template=template) as url:
        yield url
