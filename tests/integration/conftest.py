"""Servers that the HTTP tests share: one with a worker on each database, started once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.db import migrate
from tests.support.postgres import fresh_database
from tests.support.server import Server, running_server


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one worker; every test that asks for it runs once on each database, on datasets of its own."""
    folder = tmp_path_factory.mktemp(f"server-{request.param}")
    if request.param == "sqlite":
        url = f"sqlite:///{folder / 'grovekeeper.sqlite3'}"
        migrate.upgrade(url)
        with running_server(url, folder / "home", n_workers=1) as running:
            yield running
        return
    template = request.getfixturevalue("_migrated_postgresql")
    with (
        fresh_database(request.getfixturevalue("postgres_url"), template=template) as url,
        running_server(url, folder / "home", n_workers=1) as running,
    ):
        yield running


@pytest.fixture
def idle_server(database_url: str, tmp_path: Path) -> Iterator[Server]:
    """A server of this test's own without a worker: its jobs stay queued."""
    with running_server(database_url, tmp_path / "home", n_workers=0) as running:
        yield running
