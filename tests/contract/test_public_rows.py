"""A private dataset never takes the public path: the declaration, the key, the charge and the files each refuse."""

from typing import Any

import pytest
from sqlalchemy import delete, text, update
from sqlalchemy.exc import DatabaseError

from app.core.errors import InstallationError
from app.datasets import row_layout
from app.datasets.tables import DatasetRow
from app.forests.planning import plan_reference
from app.jobs.tables import JobRow
from app.ledger.tables import ReservationRow
from app.services.execution import run_job
from tests.support.crash_scene import Scene
from tests.support.job_kinds import must_not_run, perform_here, run


def _without_privacy(scene: Scene) -> str:
    """A job whose stored task trains an algorithm without privacy on the scene's private dataset, for nothing."""
    job_id = scene.submit_job(key="k")
    with scene.installation.database.write() as session:
        row = session.get_one(JobRow, job_id)
        part = {**row.task["parts"][0], "reservation_id": None, "price": None}
        row.task = {"work": {"plan": plan_reference("cart", {}).to_json()}, "parts": [part]}
        row.algorithm = "cart"
        session.execute(delete(ReservationRow).where(ReservationRow.job_id == job_id))
    return job_id


def _make_public(scene: Scene) -> None:
    with scene.installation.database.write() as session:
        session.execute(update(DatasetRow).where(DatasetRow.id == scene.dataset_id).values(visibility="public"))


def _drop_the_trigger(scene: Scene) -> None:
    with scene.installation.database.write() as session:
        on = "" if session.get_bind().dialect.name == "sqlite" else " ON datasets"
        session.execute(text(f"DROP TRIGGER fixed_datasets_visibility{on}"))


def test_the_database_refuses_a_change_of_the_visibility(scene: Scene) -> None:
    with pytest.raises(DatabaseError, match="visibility of datasets never changes"):
        _make_public(scene)


def test_a_job_without_a_reservation_on_a_private_dataset_fails_before_rows_are_read(scene: Scene) -> None:
    job_id = _without_privacy(scene)
    run(scene, must_not_run)
    assert (scene.job(job_id).state, scene.job(job_id).charged_at) == ("failed", None)


def test_the_key_of_a_private_dataset_does_not_open_under_another_visibility(scene: Scene) -> None:
    _without_privacy(scene)
    _drop_the_trigger(scene)
    _make_public(scene)
    with pytest.raises(InstallationError):
        run(scene, must_not_run)


@pytest.mark.parametrize("flipped", ["none", "mark"])
def test_the_files_of_a_private_dataset_are_refused_by_the_reader_of_public_rows(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, flipped: str
) -> None:
    """Every other check is taken away. With the mark of files taken away, too, the rows are read."""
    job_id = _without_privacy(scene)
    monkeypatch.setattr(run_job, "require_paid", _admit_everything)
    if flipped == "mark":
        monkeypatch.setattr(row_layout, "PUBLIC_FORMAT", row_layout.FORMAT)
    run(scene, _failing_as_a_child)
    assert scene.job(job_id).state == ("failed" if flipped == "none" else "succeeded")


def _admit_everything(*_: Any) -> None:
    """Stands in for the check of the charge."""


def _failing_as_a_child(task: Any) -> None:
    try:
        perform_here(task)
    except InstallationError:
        raise run_job.JobFailed from None
