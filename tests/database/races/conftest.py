"""Runs the races of :mod:`tests.database.races.racer`, all of them in forks of one
process.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from app.services.installation import Installation
from tests.support.line_process import line_process


class Race(Protocol):
    """Runs a race between processes and returns the result of each process."""

    def __call__(
        self,
        installation: Installation,
        name: str,
        *,
        n_processes: int | None = ...,
        **options: object,
    ) -> list[Any]: ...


@pytest.fixture(
    params=[8, pytest.param(16, marks=pytest.mark.long)],
    ids=lambda number: f"{number} processes",
)
def n_processes(request: pytest.FixtureRequest) -> int:
    """The number of processes of a race that states no other number."""
    return int(request.param)


@pytest.fixture(scope="session")
def _racer(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[object], str]]:
    errors = tmp_path_factory.mktemp("races") / "errors"
    with line_process("tests.database.races.racer", errors=errors) as call:
        yield call


@pytest.fixture
def race(_racer: Callable[[object], str], n_processes: int) -> Race:
    """Runs a race on an installation."""
    usual = n_processes

    def run(
        installation: Installation,
        name: str,
        *,
        n_processes: int | None = None,
        **options: object,
    ) -> list[Any]:
        settings = installation.settings
        place = {"url": settings.database_url, "home": str(settings.home), "seed": 0}
        results = json.loads(_racer([name, n_processes or usual, place | options]))
        assert results is not None, "a process failed"
        return list(results)

    return run
