"""Provides installations and scenes for the tests that need a database, each on both databases.

An installation and a scene are made once per process and database, and each test gets a
copy of database and home: otherwise, half of the processor time of the suites would go
into making them again and again.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from app.services.installation import Installation
from app.worker import supervise
from tests.support.crash_scene import Scene, open_copy, open_installation, opened
from tests.support.databases import CopiedDatabase, MigratedDatabase

Original: TypeAlias = tuple[str, Path]
"""Address and home of a closed installation, which tests copy."""


@contextmanager
def _made(
    what: str,
    dialect: str,
    migrated_database: MigratedDatabase,
    folders: pytest.TempPathFactory,
) -> Iterator[Original]:
    folder = folders.mktemp(what)
    with migrated_database(dialect, folder) as url:
        if what == "scene":
            with opened(url, folder / "home"):
                pass  # closed again, for copies
        else:
            open_installation(url, folder / "home").close()
        yield url, folder / "home"


def _original(what: str, dialect: str) -> Any:
    @pytest.fixture(scope="session", name=f"_{what}_on_{dialect}")
    def original(
        request: pytest.FixtureRequest,
        migrated_database: MigratedDatabase,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Iterator[Original]:
        if dialect == "postgresql":
            # so that its database is dropped before the server stops
            request.getfixturevalue("postgres_url")
        with _made(what, dialect, migrated_database, tmp_path_factory) as made:
            yield made

    return original


_scene_on_sqlite, _scene_on_postgresql = (
    _original("scene", "sqlite"),
    _original("scene", "postgresql"),
)
_installation_on_sqlite = _original("installation", "sqlite")
_installation_on_postgresql = _original("installation", "postgresql")


@pytest.fixture
def _scene_is_stored() -> None:
    """Makes the database of a test that of a scene, whose home is beside it."""


@pytest.fixture
def _installation_is_stored() -> None:
    """Makes the database of a test that of an installation, whose home is beside it."""


Stored: TypeAlias = Callable[[str], AbstractContextManager[str]]
"""``stored(dialect)``: a context with the address of the database that the fixtures of
a test ask for.
"""


@pytest.fixture
def _stored(
    request: pytest.FixtureRequest,
    migrated_database: MigratedDatabase,
    copied_database: CopiedDatabase,
    tmp_path: Path,
) -> Stored:
    @contextmanager
    def stored(dialect: str) -> Iterator[str]:
        for what in ("scene", "installation"):
            if f"_{what}_is_stored" in request.fixturenames:
                url, home = request.getfixturevalue(f"_{what}_on_{dialect}")
                shutil.copytree(home, tmp_path / "home")
                with copied_database(url, tmp_path) as copy:
                    yield copy
                return
        with migrated_database(dialect, tmp_path) as empty:
            yield empty

    return stored


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, _stored: Stored) -> Iterator[str]:
    """Address of the database of a test, which runs once on each dialect; empty without
    an installation.
    """
    with _stored(request.param) as url:
        yield url


@pytest.fixture
def postgresql_database_url(_stored: Stored) -> Iterator[str]:
    """Address of a PostgreSQL database for one test, as the owner of its tables; empty
    without an installation.
    """
    with _stored("postgresql") as url:
        yield url


@pytest.fixture
def installation(
    database_url: str, _installation_is_stored: None, tmp_path: Path
) -> Iterator[Installation]:
    """An installation without accounts."""
    empty = open_copy(database_url, tmp_path / "home")
    yield empty
    empty.close()


@pytest.fixture
def scene(database_url: str, _scene_is_stored: None, tmp_path: Path) -> Iterator[Scene]:
    """A dataset with rows and a pure account of ε = 3 over four hash cells."""
    copy = open_copy(database_url, tmp_path / "home")
    yield Scene.stored(copy)
    copy.close()


@pytest.fixture
def postgresql_scene(
    postgresql_database_url: str, _scene_is_stored: None, tmp_path: Path
) -> Iterator[Scene]:
    """A scene for transactions at once: on SQLite, a write transaction excludes every
    other one.
    """
    copy = open_copy(postgresql_database_url, tmp_path / "home")
    yield Scene.stored(copy)
    copy.close()


@pytest.fixture(autouse=True)
def _no_child_outlives_its_test() -> Iterator[None]:
    """A worker that a test runs in this process keeps a loaded child for its next job."""
    yield
    supervise.CHILDREN.stop()
