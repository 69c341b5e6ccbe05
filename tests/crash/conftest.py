"""Starts workers and requests of the crash launcher on scenes, each on both databases."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import psutil
import pytest

from tests.support.crash_scene import Scene, opened
from tests.support.databases import MigratedDatabase
from tests.support.forked_program import ForkedProgram, start
from tests.support.line_process import line_process
from tests.support.waiting import wait_for

_ROOT = Path(__file__).parents[2]
LEASE_TTL_S = 3


@dataclass(frozen=True)
class Launcher:
    """Starts workers of ``tests.support.crash`` on the installation of a scene."""

    scene: Scene
    folder: Path

    @contextmanager
    def running(self, point: str) -> Iterator[ForkedProgram]:
        """Runs a worker that is killed at a point, or not (``for-ever``), and at the
        latest when the block ends.
        """
        process = self._start("worker", point, str(self.journal(point)))
        try:
            yield process
        finally:
            process.kill()  # not its child, which must end by itself
            process.close()

    def exit_codes(self, points: Sequence[str]) -> dict[str, int]:
        """Runs a worker to its end at each point, a few at a time, and returns their
        exit codes.
        """
        workers = self._start("workers", str(self.folder), *points)
        try:
            assert workers.wait() == 0
        finally:
            workers.kill()
            workers.close()
        return {
            point: int(code)
            for point in points
            for (code,) in self.facts(point, "exit")
        }

    def journal(self, point: str) -> Path:
        """The journal of the worker of a point."""
        return self.folder / f"{point}.journal"

    def facts(self, point: str, about: str) -> list[list[str]]:
        """The fields of the journal's lines that begin with a word, without the word."""
        journal = self.journal(point)
        lines = journal.read_text().splitlines() if journal.exists() else []
        return [line.split()[1:] for line in lines if line.startswith(f"{about} ")]

    def wait_for_children(self, point: str) -> None:
        """Waits until the children of the worker end, which take longer than any wait
        unless they are killed.
        """
        wait_for(f"children of {point} end", lambda: not self.living_children(point))

    def living_children(self, point: str) -> list[int]:
        """The ids of the worker's children that have not ended."""
        pids = [int(pid) for (pid,) in self.facts(point, "child")]
        return [pid for pid in pids if _lives(pid)]

    def _start(self, *arguments: str) -> ForkedProgram:
        settings = self.scene.installation.settings
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("GROVEKEEPER_")
        }
        ours = {
            "PYTHONPATH": str(_ROOT),
            "GROVEKEEPER_HOME": str(settings.home),
            "GROVEKEEPER_DATABASE_URL": settings.database_url,
            "GROVEKEEPER_LEASE_TTL_S": str(LEASE_TTL_S),
            "GROVEKEEPER_POLL_INTERVAL_S": "0.25",
        }
        return start(
            "tests.support.crash",
            *arguments,
            folder=self.folder,
            environ=clean | ours,
            log=self.folder / "log",
        )


KillRequest: TypeAlias = Callable[..., None]
"""``kill_request(point, scene)`` or ``kill_request(point, scene, dataset_id)``."""


@pytest.fixture(scope="session")
def kill_request(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KillRequest]:
    """Runs a request of the crash launcher in a process that is killed at a point."""
    errors = tmp_path_factory.mktemp("requests") / "errors"
    with line_process("tests.support.crash", "requests", errors=errors) as call:

        def kill(point: str, scene: Scene, dataset_id: str | None = None) -> None:
            settings = scene.installation.settings
            request = [
                point,
                settings.database_url,
                str(settings.home),
                dataset_id or scene.dataset_id,
            ]
            assert call(request) == f"{-signal.SIGKILL}\n"

        yield kill


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def launcher(
    request: pytest.FixtureRequest,
    migrated_database: MigratedDatabase,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Launcher]:
    """The launcher of workers on a scene that the tests of a module share."""
    folder = tmp_path_factory.mktemp("crash")
    with (
        migrated_database(request.param, folder) as url,
        _launcher(url, folder) as launcher,
    ):
        yield launcher


@pytest.fixture
def own_launcher(database_url: str, tmp_path: Path) -> Iterator[Launcher]:
    """The launcher of workers on a scene of one test."""
    with _launcher(database_url, tmp_path) as launcher:
        yield launcher


@contextmanager
def _launcher(url: str, folder: Path) -> Iterator[Launcher]:
    with opened(url, folder / "home", lease_ttl_s=LEASE_TTL_S) as scene:
        yield Launcher(scene, folder)
