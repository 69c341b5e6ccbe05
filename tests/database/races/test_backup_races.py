"""Backups that are made while other threads spend, upload, erase and delete are
consistent.
"""

import itertools
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from app.core.errors import NoRowsOfUnit
from app.core.settings import Settings
from app.datasets import catalog
from app.services.backup.make import make_backup
from app.services.backup.restore import restore_backup
from app.services.datasets.erase import delete_dataset
from app.services.datasets.unit_erasure import erase_unit
from app.services.installation import Installation
from app.services.ledger.heads import open_log
from tests.support import people
from tests.support.crash_scene import OWNER, Scene, opened
from tests.support.databases import MigratedDatabase
from tests.support.postgres import fresh_database


@pytest.fixture(params=["sqlite", "postgresql"])
def scene(
    request: pytest.FixtureRequest, migrated_database: MigratedDatabase, tmp_path: Path
) -> Iterator[Scene]:
    """A dataset with rows and much budget."""
    with (
        migrated_database(request.param, tmp_path) as url,
        opened(url, tmp_path / "home", epsilon="1000") as scene,
    ):
        yield scene


@contextmanager
def _repeated(works: list[Callable[[int], None]]) -> Iterator[list[int]]:
    """Repeats each work in a thread of its own, with a growing number, until the block
    ends; yields the numbers.
    """
    stopping, failures, reached = (
        threading.Event(),
        list[BaseException](),
        [0] * len(works),
    )

    def run(index: int, work: Callable[[int], None]) -> None:
        try:
            for number in itertools.takewhile(
                lambda _: not stopping.is_set(), itertools.count()
            ):
                work(number)
                reached[index] = number + 1
        except BaseException as error:  # noqa: BLE001 - the test fails in its own thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=item) for item in enumerate(works)]
    for thread in threads:
        thread.start()
    try:
        yield reached
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    assert failures == []


def _back_up_under_load(
    scene: Scene, folder: Path, *, n_backups: int, empty: Callable[[int], str]
) -> None:
    """Makes some backups under load and restores each; the chain, balances and
    admission books of each are right.
    """
    installation = scene.installation
    patients = people.declared(installation, privacy_unit=people.per_patient(3))["id"]

    def spend(number: int) -> None:
        scene.submit(key=f"k{number}", epsilon="0.001")

    def upload(number: int) -> None:
        people.upload(
            installation,
            patients,
            people.visits([(f"p{number % 5}", number), ("ann", number)]),
        )
        if number % 3 == 2:
            with suppress(NoRowsOfUnit):  # ann's places are taken for good
                erase_unit(installation, OWNER, patients, unit="ann")

    def delete(_: int) -> None:
        doomed = people.declared(installation)["id"]
        people.upload(installation, doomed, b"age,income\n1,low\n")
        delete_dataset(installation, OWNER, doomed)

    with _repeated([spend, upload, delete]) as reached:
        for number in range(n_backups):
            before = list(reached)
            while any(now < at + 2 for now, at in zip(reached, before, strict=True)):
                threading.Event().wait(0.01)
            make_backup(installation, folder / f"backup-{number}")
    for number in range(n_backups):
        settings = Settings(
            home=folder / f"restored-{number}", database_url=empty(number)
        )
        settings.home.mkdir()
        for key in ("signing.key", "storage.key"):
            shutil.copyfile(installation.home / key, settings.home / key)
        shutil.copytree(
            installation.home / "checkpoints", settings.home / "checkpoints"
        )
        assert (
            restore_backup(
                settings, folder / f"backup-{number}", accept_loss=True
            ).problems
            == []
        )
        _assert_consistent(Installation.open(settings, pool_size=2), patients)


def _assert_consistent(installation: Installation, patients: str) -> None:
    """Every upload of the database has its file, and no row from before the last
    erasure of its unit is left.
    """
    ann, rows = (
        people.id_of(installation, patients, "ann"),
        people.stored_rows(installation, patients),
    )
    with installation.database.read() as session:
        key = catalog.find(session, patients).data_key(installation.storage_keys)
    erasures = list(open_log(installation).units(patients, key=key))
    assert {unit.row_id for unit in erasures} <= {ann}
    erased_until = max((unit.last_upload for unit in erasures), default=0)
    assert [
        row for upload in rows[:erased_until] for row in upload if row[0] == ann
    ] == []
    assert len(list((installation.home / "rows" / patients).glob("*.parquet"))) == len(
        rows
    )
    installation.close()


def _empty_databases(
    scene: Scene, request: pytest.FixtureRequest, folder: Path, databases: ExitStack
) -> Callable[[int], str]:
    def empty(number: int) -> str:
        if scene.installation.database.dialect == "sqlite":
            return f"sqlite:///{folder / f'restored-{number}.sqlite3'}"
        return databases.enter_context(
            fresh_database(request.getfixturevalue("postgres_url"))
        )

    return empty


def test_a_backup_under_load_is_consistent(
    scene: Scene, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as databases:
        empty = _empty_databases(scene, request, tmp_path, databases)
        _back_up_under_load(scene, tmp_path, n_backups=1, empty=empty)


@pytest.mark.long
def test_backups_under_load_are_consistent(
    scene: Scene, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as databases:
        empty = _empty_databases(scene, request, tmp_path, databases)
        _back_up_under_load(scene, tmp_path, n_backups=4, empty=empty)
