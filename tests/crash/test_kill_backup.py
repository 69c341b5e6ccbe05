"""A backup or a restore that is killed (SIGKILL) leaves nothing that passes for a
complete one, and can be repeated.
"""

import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import InstallationError
from app.core.settings import Settings
from app.services.backup import layout, make
from app.services.backup.restore import Restored, _Restore, restore_backup
from app.services.installation import Installation
from app.services.ledger.heads import Heads
from tests.support.crash_scene import Scene, opened
from tests.support.databases import MigratedDatabase
from tests.support.postgres import fresh_database


@pytest.fixture(params=["sqlite", "postgresql"])
def scene(
    request: pytest.FixtureRequest, migrated_database: MigratedDatabase, tmp_path: Path
) -> Iterator[Scene]:
    """A scene with one queued job and its heads."""
    with (
        migrated_database(request.param, tmp_path) as url,
        opened(url, tmp_path / "home") as scene,
    ):
        scene.submit(key="before")
        Heads(scene.installation).publish()
        yield scene


@pytest.fixture
def empty_settings(
    scene: Scene, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Settings]:
    """An empty database of the scene's kind, and a home with keys and heads."""
    home = tmp_path / "restored"
    with ExitStack() as databases:
        url = f"sqlite:///{tmp_path / 'restored.sqlite3'}"
        if scene.installation.database.dialect == "postgresql":
            url = databases.enter_context(
                fresh_database(request.getfixturevalue("postgres_url"))
            )
        home.mkdir()
        for key in ("signing.key", "storage.key"):
            shutil.copyfile(scene.installation.home / key, home / key)
        yield Settings(home=home, database_url=url)


def _killed(
    function: Callable[[], object], owner: Any, name: str, *, after_calls: int
) -> None:
    """Runs a function in a fork that is killed when another function has returned some
    times.
    """
    wrapped, calls = getattr(owner, name), []

    def call(*arguments: Any, **options: Any) -> Any:
        result = wrapped(*arguments, **options)
        calls.append(name)
        if len(calls) == after_calls:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    def run() -> None:
        setattr(owner, name, call)
        function()

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def test_a_killed_backup_has_no_name(scene: Scene, tmp_path: Path) -> None:
    def back_up() -> None:
        # no connection of this process
        installation = Installation.open(scene.installation.settings, pool_size=1)
        make.make_backup(installation, tmp_path / "backup")
        installation.close()

    _killed(back_up, layout, "copy", after_calls=2)
    assert not (tmp_path / "backup").exists()
    assert len(list(tmp_path.glob(".backup.*.part"))) == 1
    back_up()
    assert (tmp_path / "backup" / "manifest.note").exists()


@pytest.mark.parametrize(
    ("owner", "name", "after_calls"),
    [
        (layout, "copy_rows", 1),
        (layout, "copy", 2),
        (_Restore, "run", 1),
        (_Restore, "set_heads_aside", 1),
    ],
    ids=["rows-inserted", "files-copied", "not-committed", "committed"],
)
def test_a_killed_restore_is_repeated(
    scene: Scene,
    tmp_path: Path,
    empty_settings: Settings,
    owner: Any,
    name: str,
    after_calls: int,
) -> None:
    backup = tmp_path / "backup"
    make.make_backup(scene.installation, backup)
    scene.submit(key="lost")
    Heads(scene.installation).publish()
    shutil.copytree(
        scene.installation.home / "checkpoints", empty_settings.home / "checkpoints"
    )

    def restore() -> Restored:
        return restore_backup(empty_settings, backup, accept_loss=True)

    _killed(restore, owner, name, after_calls=after_calls)
    with pytest.raises(InstallationError, match="not complete"):
        Installation.open(empty_settings, pool_size=1)
    restore()
    installation = Installation.open(empty_settings, pool_size=2)
    Heads(installation).confirm()
    restored = Scene(installation, scene.dataset_id)
    assert [entry.kind.value for entry in restored.entries()] == [
        "open",
        "reserve",
        "cap",
    ]
    assert len(list(empty_settings.home.rglob("*.parquet"))) == 1
    assert [file.name for file in empty_settings.home.rglob("*.lost")] == [
        f"{scene.dataset_id}.3.lost"
    ]
    installation.close()
