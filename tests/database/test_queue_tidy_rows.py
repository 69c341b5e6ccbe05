"""The rows and uploads that the sweeper erases, and the files that it must keep."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from app.core.errors import DatasetDeleted
from app.core.sealed_files import SealedFile
from app.datasets import ingest, row_files
from app.datasets.upload_bodies import BodyForm
from app.registry.store import name_of
from app.registry.tables import ReleaseRow
from app.services.datasets import upload
from app.services.datasets.erase import delete_dataset
from app.services.execution.sweep import (
    STALE_UPLOAD,
    tidy_artifacts,
    tidy_jobs,
    tidy_rows,
)
from tests.support.crash_scene import OWNER, Scene, opened
from tests.support.uploads import path_of

pytestmark = pytest.mark.contract

LONG_AGO = STALE_UPLOAD + timedelta(hours=1)
JUST_NOW = STALE_UPLOAD - timedelta(hours=1)


@pytest.fixture
def scene(sqlite_database_url: str, tmp_path: Path) -> Iterator[Scene]:
    with opened(sqlite_database_url, tmp_path / "home") as opened_scene:
        yield opened_scene


def _aged(path: Path, age: timedelta) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    at = (datetime.now(UTC) - age).timestamp()
    os.utime(path, (at, at))
    return path


def _rows(scene: Scene) -> list[Path]:
    return list((scene.installation.home / "rows" / scene.dataset_id).iterdir())


def test_rows_of_a_living_dataset_stay_however_old(scene: Scene) -> None:
    (epoch,) = _rows(scene)
    _aged(epoch, LONG_AGO)
    tidy_rows(scene.installation)
    assert _rows(scene) == [epoch]


@pytest.mark.parametrize(
    "name", ["rows/{dataset}/ep_none.parquet", "rows/{dataset}/.ep_x.parquet.0a.part"]
)
def test_files_of_an_interrupted_upload_are_removed_once_no_upload_can_be_that_old(
    scene: Scene, name: str
) -> None:
    left = scene.installation.home / name.format(dataset=scene.dataset_id)
    (epoch,) = _rows(scene)
    _aged(left, JUST_NOW)
    tidy_rows(scene.installation)
    assert left.exists()
    _aged(left, LONG_AGO)
    tidy_rows(scene.installation)
    assert not left.exists()
    assert epoch.exists()


def test_rows_of_a_deleted_dataset_go_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: object) -> None:
        raise KeyboardInterrupt  # the process ends between the commit and the erasure

    with monkeypatch.context() as patched:
        patched.setattr(row_files, "erase_dataset", cut)
        with pytest.raises(KeyboardInterrupt):
            delete_dataset(scene.installation, OWNER, scene.dataset_id)
    assert len(_rows(scene)) == 1
    tidy_rows(scene.installation)
    assert _rows(scene) == []


def test_a_file_that_disappears_during_tidying_is_ignored(scene: Scene) -> None:
    folder = scene.installation.home / "rows" / scene.dataset_id
    (folder / "ep_gone.parquet").symlink_to(folder / "nowhere")
    stale = _aged(folder / "ep_none.parquet", LONG_AGO)
    tidy_rows(scene.installation)
    assert not stale.exists()


def test_files_of_other_people_are_left_alone(scene: Scene) -> None:
    home = scene.installation.home
    names = (
        "rows/note.parquet",
        "rows/{dataset}/a copy.parquet",
        "rows/My Rows/ep_a.parquet",
        "jobs/.listing",
    )
    theirs = [
        _aged(home / name.format(dataset=scene.dataset_id), LONG_AGO) for name in names
    ]
    tidy_rows(scene.installation)
    tidy_jobs(scene.installation)
    assert all(path.exists() for path in theirs)


def test_rows_that_arrive_while_their_dataset_is_deleted_are_not_kept(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest_rows = ingest.ingest_rows

    def delete_after(
        body: BinaryIO, destination: SealedFile, **named: Any
    ) -> ingest.IngestReport:
        report = ingest_rows(body, destination, **named)
        delete_dataset(scene.installation, OWNER, scene.dataset_id)
        # a slower disk shows the file only at this moment
        path_of(destination).write_bytes(b"rows")
        return report

    monkeypatch.setattr(ingest, "ingest_rows", delete_after)
    with scene.installation.spool() as file, pytest.raises(DatasetDeleted):
        file.write(b"age,income\n40,low\n")
        spooled = upload.SpooledBody(file, upload.UploadTerms(BodyForm.CSV), b"." * 32)
        upload.upload_rows(
            scene.installation, OWNER, scene.dataset_id, spooled, request=None
        )
    assert _rows(scene) == []


def test_an_unreferenced_artifact_is_removed_once_no_registration_can_be_pending(
    scene: Scene,
) -> None:
    """The process that deleted the model ended before it removed the file."""
    store = scene.installation.store
    needed, orphan, young = (
        store.put(name) for name in (b"needed", b"orphan", b"young")
    )
    with scene.installation.database.write() as session:
        row = ReleaseRow(
            kind="train",
            id="md_1", name=None, dataset_id=scene.dataset_id, dataset_name="census", job_id="jb_1", algorithm="mrf",
            digest=needed, size_bytes=6, created_at=datetime.now(UTC),
        )  # fmt: skip
        session.add(row)
    home = scene.installation.home
    files = {digest: home / name_of(digest) for digest in (needed, orphan, young)}
    for digest in (needed, orphan):
        _aged(files[digest], LONG_AGO)
    _aged(files[young], JUST_NOW)
    stray = _aged(files[orphan].with_name("notes.safetensors"), LONG_AGO)
    tidy_artifacts(scene.installation)
    assert [file.exists() for file in files.values()] == [True, False, True]
    assert stray.exists(), "the home may hold files that are not ours"
    tidy_artifacts(scene.installation)
