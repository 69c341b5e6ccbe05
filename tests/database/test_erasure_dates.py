"""Dates of erasure on both databases: what goes, what stays, and what happens between
the date and the sweep.
"""

from datetime import datetime, timedelta
from unittest.mock import patch

import pytest

from app.cli.serve import upkeep
from app.core import stamps
from app.core.errors import DatasetDeleted, ErasureDue, InvalidRequest
from app.datasets import row_files
from app.ledger import rules
from app.services.datasets.erase import delete_dataset, erase_due, erase_upload
from app.services.datasets.show import list_uploads, show_dataset
from app.services.execution import run_job
from app.services.execution.sweep import tidy_rows
from app.services.jobs import show_jobs
from app.services.jobs.task import JobTask
from app.services.ledger.audit import list_acts
from app.services.ledger.heads import Heads
from app.services.models import list_models
from app.services.pagination import PageRequest
from app.wire.training import PlanIn
from tests.support import job_kinds
from tests.support.asking import show_plan
from tests.support.clocks import database_tells
from tests.support.crash_scene import ADMIN, OWNER, Scene
from tests.support.databases import on_one_database
from tests.support.job_kinds import claimed, run_here
from tests.support.ruled import SECOND, grant, set_rules
from tests.support.two_datasets import Pair
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]

A_MICROSECOND = timedelta(microseconds=1)


def _dated(scene: Scene) -> datetime:
    """Sets a date of erasure in an hour."""
    date = stamps.now() + timedelta(hours=1)
    set_rules(scene, erase_rows_at=stamps.to_text(date))
    return date


def _due(scene: Scene) -> None:
    """Lets the date of erasure have come."""
    _dated(scene)
    with scene.installation.database.write() as session:
        row = rules.row_of(session, scene.dataset_id)
        assert row is not None
        row.erase_rows_at = stamps.now() - timedelta(seconds=1)


def _freeze(scene: Scene) -> None:
    """Freezes a dataset whose date of erasure has come, which nobody can do any more,
    but may have done before.
    """
    with scene.installation.database.write() as session:
        row = rules.row_of(session, scene.dataset_id)
        assert row is not None
        row.is_frozen = True


def _has_rows(scene: Scene) -> bool:
    return any((scene.installation.home / row_files.ROWS_FOLDER).rglob("*.parquet"))


def _deletions(scene: Scene) -> list[tuple[str, dict[str, object]]]:
    acts = list_acts(scene.installation, ADMIN, PageRequest(limit=500)).acts
    return [(act.actor, act.details) for act in acts if act.kind == "dataset-deleted"]


def test_rows_are_erased_at_the_date_and_spend_and_models_stay(scene: Scene) -> None:
    job_kinds.model(scene, "m")
    queued = scene.submit_job(key="k")
    date = _dated(scene)
    with database_tells(date - A_MICROSECOND):
        assert erase_due(scene.installation) == []
    assert _has_rows(scene)
    with database_tells(date):
        assert erase_due(scene.installation) == [scene.dataset_id]
        assert erase_due(scene.installation) == []
    assert not _has_rows(scene)
    assert scene.end(queued) == ("cancelled", "dataset-erased", ["reserve", "void"])
    assert scene.verified().tightest.load == 10_000_000, "the charge of the model"
    assert len(list_models(scene.installation, OWNER, PageRequest()).models) == 1
    assert _deletions(scene) == [("sweeper", {"dataset": scene.dataset_id})]
    with pytest.raises(DatasetDeleted):
        scene.submit(key="l")


def test_an_upload_says_when_it_was_erased_by_itself_or_with_its_dataset(
    scene: Scene,
) -> None:
    installation, dataset = scene.installation, scene.dataset_id
    scene.upload()
    uploads = show_dataset(installation, OWNER, dataset).epochs
    kept, gone = (each.epoch for each in uploads)
    at = erase_upload(installation, OWNER, dataset, upload=gone).erased_at
    erased = {kept: None, gone: at}
    for _ in range(2):
        shown = show_dataset(installation, OWNER, dataset)
        listed = list_uploads(installation, OWNER, dataset, PageRequest())
        for uploads in (shown.epochs, listed.uploads):
            assert {each.epoch: each.erased_at for each in uploads} == erased
        delete_dataset(installation, OWNER, dataset)
        erased[kept] = show_dataset(installation, OWNER, dataset).deleted_at
    assert erased[kept] is not None


def test_between_the_date_and_the_sweep_no_row_is_read(scene: Scene) -> None:
    claim_of = scene.submit_job(key="a")
    claim = claimed(scene.installation)
    waiting = scene.submit_job(key="b")
    _due(scene)
    for spend in (
        lambda: scene.submit(key="c"),
        lambda: scene.charge_external(key="d"),
    ):
        with pytest.raises(ErasureDue, match="the date has come at which the rows"):
            spend()
    body = PlanIn.model_validate(
        {"dataset": scene.dataset_id, "algorithm": "rdt-ta", "epsilon": "0.1"}
    )
    quote = show_plan(scene.installation, OWNER, body)
    assert (quote.fits, quote.limited_by) == (False, "erasure_due")
    assert any("The date has come" in warning for warning in quote.warnings)
    assert _has_rows(scene)
    assert run_job.claim_next(scene.installation) is None

    def must_not_run(_: JobTask) -> None:
        raise AssertionError("rows would be read")

    run_here(scene.installation, claim, must_not_run)
    assert scene.job(claim_of).state == "queued"
    _freeze(scene)
    assert (
        show_jobs.show_job(scene.installation, OWNER, waiting).held_by == "erasure-due"
    ), "no owner can end that"
    erase_due(scene.installation)
    assert [scene.end(job_id)[::2] for job_id in (claim_of, waiting)] == [
        ("cancelled", ["reserve", "void"])
    ] * 2


def test_a_date_that_has_come_cannot_be_moved(scene: Scene) -> None:
    _due(scene)
    with pytest.raises(ErasureDue):
        set_rules(scene, by=ADMIN)


def test_an_earlier_date_is_a_tightening_and_a_later_date_is_not(scene: Scene) -> None:
    grant(scene, "owner")
    date = _dated(scene)
    for later in (stamps.to_text(date + A_MICROSECOND), None):
        assert set_rules(scene, erase_rows_at=later).erase_rows_at == stamps.to_text(
            date
        )
    earlier = date - timedelta(minutes=30)
    assert set_rules(
        scene, erase_rows_at=stamps.to_text(earlier)
    ).erase_rows_at == stamps.to_text(earlier)
    set_rules(scene)
    assert set_rules(scene, by=SECOND).erase_rows_at is None


def test_a_past_date_is_rejected(scene: Scene) -> None:
    with pytest.raises(InvalidRequest):
        set_rules(scene, erase_rows_at="2020-01-01T00:00:00Z")


@on_one_database
@pytest.mark.parametrize(
    "text",
    ["2030-01-01", "2030-01-01T00:00:00", "tomorrow", "9999-12-31T23:59:59-23:59", 1],
)
def test_a_date_states_its_zone(scene: Scene, text: object) -> None:
    with pytest.raises(
        ValueError, match="not-a-time" if isinstance(text, str) else "not-a-string"
    ):
        set_rules(scene, erase_rows_at=text)


def test_a_process_that_dies_before_the_files_are_erased_leaves_them_to_the_next_sweep(
    scene: Scene,
) -> None:
    _due(scene)
    with (
        patch.object(row_files, "erase_dataset", side_effect=OSError),
        pytest.raises(OSError),
    ):
        erase_due(scene.installation)
    assert _has_rows(scene)
    records = scene.installation.home / "checkpoints" / "erasures"
    assert (records / f"{scene.dataset_id}.dataset").exists(), "first of all"
    assert erase_due(scene.installation) == []
    tidy_rows(scene.installation)
    assert not _has_rows(scene)


def test_a_job_on_two_datasets_ends_with_the_erasure_of_one(scene: Scene) -> None:
    pair = Pair.beside(scene)
    job_id = pair.submit(key="k")
    _due(pair.second)
    erase_due(scene.installation)
    assert pair.kinds_of(job_id) == (["reserve", "void"], ["reserve", "void"])
    pair.verify()


def test_a_serving_process_erases_at_its_start(scene: Scene) -> None:
    _due(scene)
    tasks = upkeep(scene.installation, Heads(scene.installation))
    for task in tasks:
        task.start()
    wait_for("the rows are erased", lambda: not _has_rows(scene))
    for task in tasks:
        task.stop()
