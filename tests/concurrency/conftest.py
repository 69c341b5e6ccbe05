"""Runs the races of :mod:`tests.concurrency.racer`, all of them in forks of one process."""

import json
from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from app.services.installation import Installation
from tests.support.line_process import line_process

N_PROCESSES = 16


class Race(Protocol):
    """Runs a race between processes and returns the result of each process."""

    def __call__(
        self, installation: Installation, name: str, *, n_processes: int = ..., **options: object
    ) -> list[Any]: ...


@pytest.fixture(scope="session")
def race(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Race]:
    """Runs a race on an installation."""
    errors = tmp_path_factory.mktemp("races") / "errors"
    with line_process("tests.concurrency.racer", errors=errors) as call:

        def run(
            installation: Installation, name: str, *, n_processes: int = N_PROCESSES, **options: object
        ) -> list[Any]:
            settings = installation.settings
            place = {"url": settings.database_url, "home": str(settings.home), "seed": 0}
            results = json.loads(call([name, n_processes, place | options]))
            assert results is not None, "a process failed"
            return list(results)

        yield run
