"""Tests kill -9 of a process that serves a request or sweeps: the request is done
completely, or not at all.
"""

import json
from datetime import UTC, datetime, timedelta

import pytest

from app.core.errors import NoRowsOfUnit
from app.datasets import catalog
from app.jobs import queue
from app.services.datasets.unit_erasure import erase_unit
from app.services.ledger.heads import Heads
from tests.crash.conftest import KillRequest, Launcher
from tests.support import people
from tests.support.crash import HEAD_POINTS
from tests.support.crash_scene import OWNER, Scene
from tests.support.databases import on_one_database
from tests.support.evidence import head_folder
from tests.support.sweeping import expired_at, tidy_all_rows


@pytest.fixture
def scene(own_launcher: Launcher) -> Scene:
    return own_launcher.scene


def _jobs(scene: Scene) -> list[str]:
    with scene.installation.database.read() as session:
        return queue.page(session, dataset_ids=None, before=None, limit=9)


def _epochs(scene: Scene) -> list[str]:
    with scene.installation.database.read() as session:
        return [epoch.id for epoch in catalog.epochs(session, scene.dataset_id)]


def _row_files(scene: Scene) -> set[str]:
    return {
        path.stem
        for path in (scene.installation.home / "rows" / scene.dataset_id).iterdir()
    }


@pytest.mark.parametrize("point", ["answer-stored", "reserved", "enqueued"])
def test_an_uncommitted_submission_leaves_nothing_and_its_key_is_free(
    scene: Scene, point: str, kill_request: KillRequest
) -> None:
    kill_request(point, scene)
    assert _jobs(scene) == []
    assert scene.verified().kinds == {"open": 1}
    job_id = scene.submit_job(key=point, epsilon="3")
    assert _jobs(scene) == [job_id]
    assert scene.verified().kinds == {"open": 1, "reserve": 1}


def test_repeating_a_submission_after_a_lost_answer_returns_the_answer_and_charges_once(
    scene: Scene, kill_request: KillRequest
) -> None:
    kill_request("accepted", scene)
    (job_id,) = _jobs(scene)
    assert scene.submit_job(key="accepted") == job_id
    assert _jobs(scene) == [job_id]
    assert scene.verified().kinds == {"open": 1, "reserve": 1}


@pytest.mark.parametrize("point", ["external-reserved", "external-charged"])
def test_an_external_charge_that_did_not_commit_left_nothing(
    scene: Scene, point: str, kill_request: KillRequest
) -> None:
    kill_request(point, scene)
    assert scene.verified().kinds == {"open": 1}
    assert (
        json.loads(scene.charge_external(key=point, epsilon="3").body)["state"]
        == "charged"
    )
    assert scene.verified().kinds == {"open": 1, "reserve": 1, "charge": 1}


def test_an_external_charge_whose_answer_was_lost_is_answered_again_and_paid_once(
    scene: Scene, kill_request: KillRequest
) -> None:
    kill_request("external-answered", scene)
    before = scene.export()
    answer = json.loads(scene.charge_external(key="external-answered").body)
    assert answer["reservation_id"] == scene.entries()[-1].job_id
    assert scene.export() == before
    assert scene.verified().kinds == {"open": 1, "reserve": 1, "charge": 1}


@pytest.mark.parametrize(
    ("point", "caps"), [("cap-written", [3]), ("cap-answered", [3, 1])]
)
def test_a_cap_is_changed_once_or_not_at_all(
    scene: Scene, point: str, caps: list[int], kill_request: KillRequest
) -> None:
    kill_request(point, scene)
    assert [entry.amount for entry in scene.entries()] == [cap * 10**9 for cap in caps]
    scene.lower_cap("1", key=point)
    assert [entry.amount for entry in scene.entries()] == [3 * 10**9, 10**9]
    assert scene.verified().cap == 10**9


@pytest.mark.parametrize("point", ["rows-written", "epoch-added"])
def test_rows_of_an_uncommitted_upload_are_in_no_epoch_and_are_erased(
    scene: Scene, point: str, kill_request: KillRequest
) -> None:
    epochs = _epochs(scene)
    kill_request(point, scene)
    assert _epochs(scene) == epochs
    assert len(_row_files(scene)) == 2
    job = scene.job(scene.submit_job(key="k"))
    assert job.parts[0].epochs == epochs, "a job reads committed epochs only"
    tidy_all_rows(scene.installation)
    assert _row_files(scene) == set(epochs)


@on_one_database
def test_the_text_of_an_upload_ends_with_its_process(
    scene: Scene, kill_request: KillRequest
) -> None:
    kill_request("rows-written", scene)
    files = [path for path in scene.installation.home.rglob("*") if path.is_file()]
    assert [path for path in files if b"age,income\n" in path.read_bytes()] == []


@on_one_database
@pytest.mark.parametrize("point", ["admitted", "book-closed"])
def test_rows_of_an_uncommitted_upload_do_not_count_for_their_units(
    scene: Scene, point: str, kill_request: KillRequest
) -> None:
    installation = scene.installation
    dataset = people.declared(installation, privacy_unit=people.per_patient(1))["id"]
    people.upload(installation, dataset, people.visits([("ben", 0)]))
    kill_request(point, scene, dataset)
    assert [len(epoch) for epoch in people.stored_rows(installation, dataset)] == [1]
    report = people.upload(
        installation, dataset, people.visits([("ann", 3), ("ben", 4)])
    )
    assert report["dropped"] == {"without_unit": 0, "over_bound": 1}
    assert [
        age for epoch in people.stored_rows(installation, dataset) for _, age in epoch
    ] == [0, 3]


@on_one_database
@pytest.mark.parametrize("point", ["admitted", "book-closed"])
def test_rows_of_an_uncommitted_upload_do_not_outlive_the_erasure_of_their_unit(
    scene: Scene, point: str, kill_request: KillRequest
) -> None:
    installation = scene.installation
    dataset = people.declared(installation, privacy_unit=people.per_patient(1))["id"]
    people.upload(installation, dataset, people.visits([("ben", 0)]))
    stored = people.row_files_of(installation, dataset)
    kill_request(point, scene, dataset)
    assert people.row_files_of(installation, dataset) > stored
    with pytest.raises(NoRowsOfUnit):  # no committed row
        erase_unit(installation, OWNER, dataset, unit="ann")
    assert people.row_files_of(installation, dataset) == stored


def test_an_uncommitted_sweep_is_repeated(
    scene: Scene, kill_request: KillRequest
) -> None:
    job_id = scene.submit_job(key="k")
    kill_request("expired-not-committed", scene)
    assert (scene.job(job_id).state, scene.kinds_of(job_id)) == ("queued", ["reserve"])
    assert expired_at(scene.installation, datetime.now(UTC) + timedelta(days=2)) == 1
    assert (scene.job(job_id).state, scene.kinds_of(job_id)) == (
        "failed",
        ["reserve", "expire"],
    )
    assert scene.verified().tightest.load == 0


@pytest.mark.parametrize("point", HEAD_POINTS)
def test_a_database_is_not_refused_after_a_kill_between_a_commit_and_its_head(
    scene: Scene, point: str, kill_request: KillRequest
) -> None:
    kill_request(point, scene)
    folder = head_folder(scene.installation)
    (head,) = (
        head for head in folder.read_all() if head.account_id == scene.dataset_id
    )
    assert head.size == (2 if point == "head-written" else 1)
    assert scene.verified().kinds == {"open": 1, "reserve": 1}, (
        "the entry was committed before its head"
    )
    heads = Heads(scene.installation)
    heads.confirm()
    scene.submit(key="after")
    heads.publish()
    assert {head.account_id: head.size for head in folder.read_all()}[
        scene.dataset_id
    ] == 3
