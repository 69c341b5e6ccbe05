"""Provides the server whose pages the tests open."""

from collections.abc import Iterator

import pytest

from tests.support.databases import MigratedDatabase
from tests.support.server import Server, running_server


@pytest.fixture(scope="module")
def idle_server(
    request: pytest.FixtureRequest,
    migrated_database: MigratedDatabase,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    """A server without a worker, on the database that a test names."""
    folder = tmp_path_factory.mktemp("server")
    with (
        migrated_database(request.param, folder) as url,
        running_server(url, folder / "home", n_workers=0) as server,
    ):
        yield server
