"""Servers that the HTTP tests share: one of each kind on each database, started once
per test process.

A module runs on one database and then on the other. Both servers of a kind stay up
until the last HTTP test. If the fixture that starts them were parametrised, every
change of database would stop one server and start another.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import TypeAlias

import pytest

from tests.support.databases import MigratedDatabase
from tests.support.server import Server, running_server

StartServer: TypeAlias = Callable[[str, int], Server]
"""``start_server(dialect, n_workers)``"""


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, start_server: StartServer) -> Server:
    """A server with one worker. Each test that uses it runs once on each database, with
    its own datasets.
    """
    return start_server(request.param, 1)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def idle_server(
    request: pytest.FixtureRequest, start_server: StartServer
) -> Iterator[Server]:
    """A server without a worker: jobs stay queued until a test starts a worker, and are
    cancelled after the module.
    """
    idle = start_server(request.param, 0)
    yield idle
    idle.cancel_what_waits()


@pytest.fixture(scope="package")
def start_server(
    migrated_database: MigratedDatabase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartServer]:
    """Starts each server at its first use, and stops all of them after the last HTTP
    test.
    """
    with ExitStack() as running:

        @cache
        def start(dialect: str, n_workers: int) -> Server:
            folder = tmp_path_factory.mktemp("server")
            url = running.enter_context(migrated_database(dialect, folder))
            return running.enter_context(
                running_server(url, folder / "home", n_workers=n_workers)
            )

        yield start
