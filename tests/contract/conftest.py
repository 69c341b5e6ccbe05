"""Provides installations and scenes of the contract suites, each on both databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.services.installation import Installation
from app.worker import supervise
from tests.support.crash_scene import Scene, open_installation, opened


@pytest.fixture
def installation(database_url: str, tmp_path: Path) -> Iterator[Installation]:
    """An installation without accounts."""
    empty = open_installation(database_url, tmp_path / "home")
    yield empty
    empty.close()


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    """A dataset with rows and a pure account of ε = 3 over four hash cells."""
    with opened(database_url, tmp_path / "home") as scene:
        yield scene


@pytest.fixture
def postgresql_scene(postgresql_database_url: str, tmp_path: Path) -> Iterator[Scene]:
    """A scene for transactions at once: on SQLite, a write transaction excludes every other one."""
    with opened(postgresql_database_url, tmp_path / "home") as scene:
        yield scene


@pytest.fixture(autouse=True)
def _no_child_outlives_its_test() -> Iterator[None]:
    """A worker that a test runs in this process keeps a loaded child for its next job."""
    yield
    supervise.CHILDREN.stop()
