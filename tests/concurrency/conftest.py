"""Runs the races of :mod:`tests.concurrency.racer`, all of them in forks of one process."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from app.services.installation import Installation

N_PROCESSES = 16
_ROOT = Path(__file__).parents[2]


class Race(Protocol):
    """Runs a race between processes and returns the result of each process."""

    def __call__(
        self, installation: Installation, name: str, *, n_processes: int = ..., **options: object
    ) -> list[Any]: ...


@pytest.fixture(scope="session")
def race(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Race]:
    """Runs a race on an installation."""
    errors = tmp_path_factory.mktemp("races") / "errors"
    command = [sys.executable, "-m", "tests.concurrency.racer"]

    def run(installation: Installation, name: str, *, n_processes: int = N_PROCESSES, **options: object) -> list[Any]:
        settings = installation.settings
        place = {"url": settings.database_url, "home": str(settings.home), "seed": 0}
        process.stdin.write(f"{json.dumps([name, n_processes, place | options])}\n")
        process.stdin.flush()
        results = json.loads(process.stdout.readline() or "null")
        assert (results is None, errors.read_text()) == (False, "")
        return list(results)

    with (
        errors.open("w") as log,
        subprocess.Popen(
            command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        yield run
