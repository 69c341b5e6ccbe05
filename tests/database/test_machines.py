"""Machines of one installation: one database and one object store, and a home of its
own for each machine.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import PermissionDeniedError

from app.core.errors import InstallationError, LedgerRewound, Unavailable
from app.core.sealed_files import StorageKeys
from app.core.settings import Settings
from app.datasets import row_files
from app.jobs.states import EndReason, JobState
from app.ledger.checkpoints import Checkpoint
from app.registry import models
from app.services.backup.make import make_backup
from app.services.backup.restore import restore_backup
from app.services.datasets.erase import delete_dataset, erase_upload
from app.services.datasets.unit_erasure import erase_unit
from app.services.drawing.perform import perform
from app.services.execution import run_job as running
from app.services.execution.run_job import claim_next
from app.services.execution.sweep import tidy_rows
from app.services.installation import Installation
from app.services.jobs.task import JobTask
from app.services.ledger.heads import Heads
from tests.support import people
from tests.support.crash_scene import OWNER, Scene, open_with
from tests.support.databases import on_one_database
from tests.support.failing_store import failing
from tests.support.job_kinds import claimed, must_not_run, run_here
from tests.support.sweeping import expired_at

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]

CHARGED = ["reserve", "charge"]


class Machines:
    """Opens machines; all share a database, a bucket and the keys that an operator
    hands out.
    """

    def __init__(self, url: str, folder: Path, closes: ExitStack) -> None:
        self._url = url
        self._folder = folder
        self._closes = closes
        self._storage_key = StorageKeys.new_text()
        self.bucket = folder / "bucket"

    def settings(self, name: str, **changes: Any) -> Settings:
        return replace(
            Settings(
                home=self._folder / name,
                database_url=self._url,
                store=f"file://{self.bucket}",
                storage_key=self._storage_key,
                signing_key_file=self._folder / "first" / "signing.key"
                if name != "first"
                else None,
                lease_ttl_s=3,
            ),
            **changes,
        )

    def open(self, name: str, **changes: Any) -> Installation:
        opened = open_with(self.settings(name, **changes))
        self._closes.callback(opened.close)
        return opened


@pytest.fixture
def machines(database_url: str, tmp_path: Path) -> Iterator[Machines]:
    with ExitStack() as closes:
        yield Machines(database_url, tmp_path, closes)


@pytest.fixture
def first(machines: Machines) -> Installation:
    return machines.open("first")


@pytest.fixture
def second(machines: Machines) -> Installation:
    return machines.open("second")


def _run(task: JobTask, _kept: object) -> None:
    perform(task, on_tree_done=lambda: None)


def _files(folder: Path) -> list[str]:
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    )


@pytest.fixture
def cut() -> Iterator[Callable[[], None]]:
    """Ends all answers of the object store."""
    with ExitStack() as until_the_end:
        yield lambda: until_the_end.enter_context(failing())


def test_rows_of_one_machine_train_on_another_and_a_third_has_the_model(
    machines: Machines, first: Installation, second: Installation
) -> None:
    scene = Scene.declared(first)
    job = scene.submit_job(key="k")
    run_here(second, claimed(second), _run)
    assert scene.end(job) == (JobState.SUCCEEDED, None, CHARGED)
    with first.database.read() as session:
        (digest,) = models.digests(session)
    assert machines.open("third").cache.get(digest).plan
    assert not (first.home / "rows").exists()
    assert not (second.home / "artifacts").exists()
    assert {name.partition("/")[0] for name in _files(second.home)} <= {"cache"}, (
        "a lost machine loses nothing"
    )


def test_a_store_that_takes_no_object_costs_nothing(
    first: Installation,
    second: Installation,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The credential of the second machine has lost its right to write."""
    scene = Scene.declared(first)
    job, claim = scene.submit_job(key="k"), claimed(second)

    without_right = failing("put", error=PermissionDeniedError("canary"))
    with without_right, pytest.raises(Unavailable):
        run_here(second, claim, must_not_run)
    assert scene.end(job) == (JobState.QUEUED, "no-room", ["reserve"])
    assert "a job waits, uncharged: a file for it cannot be" in caplog.text
    assert "canary" not in caplog.text
    expired_at(second, datetime.now(UTC) + timedelta(hours=1))
    run_here(second, claimed(second), _run)
    assert scene.end(job) == (JobState.SUCCEEDED, None, CHARGED)


def test_places_of_units_hold_over_machines(
    first: Installation, second: Installation
) -> None:
    dataset = people.declared(first, privacy_unit=people.per_patient(2))["id"]
    people.upload(first, dataset, people.visits([("ann", 1), ("ben", 2)]))
    people.upload(second, dataset, people.visits([("ann", 3), ("ann", 4), ("cyd", 5)]))
    report = people.upload(
        first, dataset, people.visits([("ann", 6), ("ben", 7), ("ben", 8)])
    )
    assert report["dropped"] == {"without_unit": 0, "over_bound": 2}
    assert [
        [age for _, age in rows] for rows in people.stored_rows(second, dataset)
    ] == [[1, 2], [3, 5], [7]]
    names = _files(
        Path(second.settings.store.removeprefix("file://")) / "rows" / dataset
    )  # type: ignore[union-attr]
    assert sum(name.endswith(".units") for name in names) == 1, "older books are gone"
    assert not (first.home / "rows").exists()


def test_an_upload_that_no_job_read_gives_its_places_back_on_every_machine(
    first: Installation, second: Installation
) -> None:
    dataset = people.declared(first, privacy_unit=people.per_patient(1))["id"]
    wrong = people.upload(first, dataset, people.visits([("ann", 1), ("ben", 2)]))[
        "epoch"
    ]
    people.upload(first, dataset, people.visits([("cyd", 3)]))
    assert erase_upload(second, OWNER, dataset, upload=wrong).places == "free"
    report = people.upload(first, dataset, people.visits([("ann", 4), ("cyd", 5)]))
    assert report["dropped"] == {"without_unit": 0, "over_bound": 1}
    report = people.upload(second, dataset, people.visits([("ann", 6), ("ben", 7)]))
    assert report["dropped"] == {"without_unit": 0, "over_bound": 1}, (
        "ann's place is taken again"
    )
    assert [
        [age for _, age in rows] for rows in people.stored_rows(second, dataset)
    ] == [[], [3], [4], [7]]


@on_one_database
def test_no_object_and_no_copy_shows_a_row_or_a_unit(
    machines: Machines, first: Installation, second: Installation
) -> None:
    dataset = people.declared(first, privacy_unit=people.per_patient(2))["id"]
    upload = people.upload(first, dataset, people.visits([("canary-patient", 1)] * 2))[
        "epoch"
    ]
    second.files.local(row_files.rows_name(dataset, upload))
    stored = [
        path.read_bytes()
        for path in machines.bucket.parent.rglob("*")
        if path.is_file()
    ]
    unit = people.id_of(first, dataset, "canary-patient")
    assert len(stored) > 5
    assert not [
        content
        for content in stored
        if b"canary-patient" in content or b"PAR1" in content or unit in content
    ]


@on_one_database
def test_an_outage_after_the_commit_of_an_upload_does_not_deny_the_upload(
    first: Installation,
) -> None:
    dataset = people.declared(first, privacy_unit=people.per_patient(2))["id"]
    people.upload(first, dataset, people.visits([("ann", 1)]))

    with failing("delete"):
        assert people.upload(first, dataset, people.visits([("ann", 2)]))["epoch"]
    people.upload(first, dataset, people.visits([("ann", 3)]))
    names = _files(
        Path(first.settings.store.removeprefix("file://")) / "rows" / dataset
    )  # type: ignore[union-attr]
    assert sum(name.endswith(".units") for name in names) == 1, (
        "the next upload removes what stayed"
    )


@on_one_database
def test_an_upload_without_the_book_of_the_upload_before_is_refused(
    first: Installation, second: Installation
) -> None:
    dataset = people.declared(first, privacy_unit=people.per_patient(2))["id"]
    epoch = people.upload(first, dataset, people.visits([("ann", 1)]))["epoch"]
    first.files.delete(row_files.book_name(dataset, epoch))
    with pytest.raises(InstallationError, match="the book of admitted rows is absent"):
        people.upload(second, dataset, people.visits([("ann", 2)]))


@on_one_database
def test_a_job_reads_no_row_that_another_machine_erased_after_the_copy(
    first: Installation, second: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = people.declared(first, privacy_unit=people.per_patient(2))["id"]
    upload = people.upload(first, dataset, people.visits([("ann", 1), ("ben", 2)]))[
        "epoch"
    ]
    copy = second.files.local(row_files.rows_name(dataset, upload)).read_bytes()
    assert erase_unit(first, OWNER, dataset, unit="ann").erased == 1
    assert second.files.local(row_files.rows_name(dataset, upload)).read_bytes() != copy
    assert people.stored_rows(second, dataset) == [
        [(people.id_of(second, dataset, "ben"), 2)]
    ]
    erase_upload(second, OWNER, dataset, upload=upload)
    assert people.stored_rows(first, dataset) == [[]]


@on_one_database
def test_a_deleted_dataset_leaves_no_object_and_no_copy(
    machines: Machines,
    first: Installation,
    second: Installation,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene.declared(first)
    (rows,) = first.files.files(f"rows/{scene.dataset_id}")
    copy = second.files.local(rows.name)
    delete_dataset(first, OWNER, scene.dataset_id)
    assert [
        name for name in _files(machines.bucket) if name.startswith(("rows", "prints"))
    ] == []
    monkeypatch.setattr("app.core.limits.CACHED_OBJECT_STAYS_S", -1)
    tidy_rows(second)
    assert not copy.exists()


@on_one_database
def test_an_outage_before_the_charge_leaves_the_job_waiting(
    first: Installation, second: Installation, cut: Callable[[], None]
) -> None:
    scene = Scene.declared(first)
    job, claim = scene.submit_job(key="k"), claimed(second)
    cut()
    with pytest.raises(Unavailable, match="the rows of a job cannot be read"):
        run_here(second, claim, _run)
    assert scene.end(job) == (JobState.QUEUED, "rows-absent", ["reserve"])


@on_one_database
def test_an_outage_after_the_charge_fails_the_job_as_a_broken_disk_does(
    first: Installation,
    second: Installation,
    cut: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "STORE_RETRY_S", (0.01, 0.01))

    def run_and_cut(task: JobTask, kept: object) -> None:
        _run(task, kept)
        cut()

    scene = Scene.declared(first)
    job = scene.submit_job(key="k")
    run_here(second, claimed(second), run_and_cut)
    assert scene.end(job) == (JobState.FAILED, EndReason.FAILED, CHARGED)
    assert claim_next(second) is None


@on_one_database
def test_an_upload_during_an_outage_stores_nothing(first: Installation) -> None:
    scene = Scene.declared(first)
    before = _files(Path(first.settings.store.removeprefix("file://")))  # type: ignore[union-attr]

    with (
        failing("put"),
        pytest.raises(OSError, match="the object store does not answer") as refused,
    ):
        scene.upload()
    assert "canary" not in str(refused.value)
    assert _files(Path(first.settings.store.removeprefix("file://"))) == before  # type: ignore[union-attr]
    scene.upload()


def test_machines_write_and_compare_the_same_heads(
    machines: Machines, first: Installation, second: Installation
) -> None:
    one, other = Heads(first), Heads(second)
    scene = Scene.declared(first)
    one.publish()
    scene.submit(key="k")
    other.publish()
    one.publish()
    assert (
        len(
            [
                name
                for name in _files(machines.bucket / "checkpoints")
                if name.startswith(scene.dataset_id)
            ]
        )
        == 1
    )
    forged = Checkpoint(scene.dataset_id, 9, bytes(32), "2026-01-01T00:00:00Z")
    (machines.bucket / "checkpoints" / f"{scene.dataset_id}.9.checkpoint").write_text(
        one.signer.sign(forged)
    )
    with pytest.raises(LedgerRewound):
        Heads(machines.open("third")).confirm()


@on_one_database
def test_an_outage_is_not_taken_for_a_damaged_head(
    machines: Machines,
    first: Installation,
    caplog: pytest.LogCaptureFixture,
) -> None:
    heads, scene = Heads(first), Scene.declared(first)
    heads.publish()
    scene.submit(key="k")

    with failing("get"):
        with pytest.raises(OSError, match="the object store does not answer"):
            heads.publish()
        with pytest.raises(
            InstallationError,
            match="heads cannot be read: the object store does not answer",
        ):
            Heads(machines.open("second")).confirm()
    heads.publish()
    assert (
        len(
            [
                name
                for name in _files(machines.bucket / "checkpoints")
                if name.startswith(scene.dataset_id)
            ]
        )
        == 1
    )
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@on_one_database
def test_a_store_without_conditional_writes_is_refused(
    first: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = obstore.put

    def overwrite(*arguments: Any, **named: Any) -> Any:
        return put(*arguments, **named | {"mode": "overwrite"})

    with monkeypatch.context() as patched:
        patched.setattr(obstore, "put", overwrite)
        with pytest.raises(
            InstallationError, match="has to support conditional writes"
        ):
            Heads(first).confirm()
    Heads(first).confirm()


@on_one_database
def test_no_machine_makes_a_storage_key_of_its_own(machines: Machines) -> None:
    with pytest.raises(InstallationError, match=r"the storage key .* is missing"):
        machines.open("first", storage_key=None)


@on_one_database
@pytest.mark.parametrize(
    "is_from_store", [True, False], ids=["of-a-store", "of-a-home"]
)
def test_a_backup_is_restored_into_a_store(
    machines: Machines, tmp_path: Path, is_from_store: bool
) -> None:
    source = (
        machines.open("first") if is_from_store else machines.open("first", store=None)
    )
    Heads(source).confirm()
    dataset = people.declared(source, privacy_unit=people.per_patient(1))["id"]
    people.upload(source, dataset, people.visits([("ann", 1), ("ben", 2)]))
    make_backup(source, tmp_path / "backup")
    erase_unit(source, OWNER, dataset, unit="ann")
    empty = tmp_path / "empty"
    (empty / "home").mkdir(parents=True)
    shutil.copyfile(source.home / "signing.key", empty / "home" / "signing.key")
    shutil.copytree(
        (machines.bucket if is_from_store else source.home) / "checkpoints",
        empty / "heads",
    )
    settings = machines.settings(
        "first",
        home=empty / "home",
        database_url=f"sqlite:///{empty / 'db.sqlite3'}",
        checkpoint_dir=empty / "heads",
        store=f"file://{empty / 'bucket'}",
    )
    assert (
        restore_backup(settings, tmp_path / "backup", accept_loss=True).problems == []
    )
    again = Installation.open(settings, pool_size=2)
    assert people.stored_rows(again, dataset) == [
        [(people.id_of(again, dataset, "ben"), 2)]
    ]
    assert not (again.home / "rows").exists()
    assert _over_bound(again, dataset) == 1
    again.close()


def _over_bound(installation: Installation, dataset: str) -> int:
    """The rows of a unit without places that an upload drops."""
    report = people.upload(installation, dataset, people.visits([("ann", 3)]))
    return int(report["dropped"]["over_bound"])
