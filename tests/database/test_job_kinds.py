"""Profiles and evaluations pass through the queue, the charge and the settling of
training jobs.
"""

import json
import shutil
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from sqlalchemy import select, update

from app.core import stamps
from app.core.errors import LeaseLost, NotFound, Unavailable
from app.core.processes import Stop
from app.datasets import private_rows
from app.jobs import queue
from app.jobs.tables import JobRow
from app.registry import releases
from app.registry.tables import ReleaseRow
from app.services import models, predict
from app.services.datasets.erase import delete_dataset
from app.services.execution import run_job
from app.services.execution.run_job import JobFailed
from app.services.jobs import show_jobs
from app.services.jobs.task import JobTask
from app.services.ledger.evidence import show_deployment
from app.services.ledger.heads import Heads
from app.services.pagination import PageRequest
from app.services.releases import kinds
from app.services.releases.evaluations import show_evaluation
from app.services.releases.profiles import show_profile
from app.worker import main, supervise
from grovekeeper_forests import catalogue
from tests.support.crash_scene import OWNER, Scene
from tests.support.databases import on_one_database
from tests.support.job_kinds import (
    claimed,
    evaluation,
    model,
    perform_here,
    profile,
    run,
    run_here,
)
from tests.support.set_limits import SetLimit
from tests.support.sweeping import expired_at

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]


@on_one_database
def test_models_are_laid_out_unreadable_to_others(scene: Scene) -> None:
    job_id = evaluation(scene, model(scene, "a"))
    claim = claimed(scene.installation)

    def perform_later(task: JobTask, _kept: object) -> None:
        files = [path for path in scene.installation.home.rglob("*") if path.is_file()]
        assert [
            path for path in files if stat.S_IMODE(path.stat().st_mode) != 0o600
        ] == []
        perform_here(task)

    run_here(scene.installation, claim, perform_later)
    assert scene.end(job_id) == ("succeeded", None, ["reserve", "charge"])


@on_one_database
def test_models_that_nobody_asks_are_loaded_up_to_a_limit(
    scene: Scene, set_limit: SetLimit
) -> None:
    cache = scene.installation.cache
    model(scene, "a")
    predict.prepare_newest(scene.installation)
    size = cache.size_bytes
    assert size > 0
    set_limit("MAX_AHEAD_BYTES", size - 1)
    model(scene, "b")
    predict.prepare_newest(scene.installation)
    assert cache.size_bytes == size


@on_one_database
def test_what_a_prediction_keeps_counts_as_memory_of_its_model(scene: Scene) -> None:
    cache, model_id = scene.installation.cache, model(scene, "a")
    with scene.installation.database.read() as session:
        artifact = cache.get(releases.find(session, "train", model_id).digest)
    sizes = [cache.size_bytes]
    for read_out in artifact.predictor.read_outs[:2]:
        body = json.dumps({"columns": {"age": [3]}, "read_out": read_out}).encode()
        predict.predict(scene.installation, OWNER, model_id, body)
        sizes.append(cache.size_bytes)
    assert sizes == sorted(set(sizes)), "each read-out keeps values of its own"


def test_the_newest_model_is_prepared_before_a_request_needs_it(scene: Scene) -> None:
    predict.prepare_newest(scene.installation)  # there is no model yet
    model_id = model(scene, "a")
    predict.prepare_newest(scene.installation)
    with scene.installation.database.read() as session:
        artifact = scene.installation.cache.loaded(
            releases.find(session, "train", model_id).digest
        )
    assert artifact is not None
    assert artifact.predictor.is_prepared


@on_one_database
def test_a_home_that_cannot_be_written_leaves_the_job_uncharged_and_the_worker_alive(
    scene: Scene,
) -> None:
    job_id = evaluation(scene, model(scene, "a"))
    folder = scene.installation.home / "jobs"
    shutil.rmtree(folder)
    folder.write_text("in the way")
    with pytest.raises(Unavailable):
        run(scene)
    assert scene.end(job_id) == ("queued", "no-room", ["reserve"])
    folder.unlink()
    expired_at(scene.installation, datetime.now(UTC) + timedelta(hours=1))
    run(scene)
    assert scene.end(job_id) == ("succeeded", None, ["reserve", "charge"])


def test_a_job_whose_rows_are_absent_waits_uncharged_and_the_log_names_it(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = profile(scene)
    (rows,) = scene.installation.home.glob("rows/*/*.parquet")
    away = rows.rename(scene.installation.home / "away")
    with pytest.raises(Unavailable):
        run(scene)
    assert scene.end(job_id) == ("queued", "rows-absent", ["reserve"])
    [line] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert (vars(line)["job_id"], vars(line)["dataset_id"]) == (
        job_id,
        scene.dataset_id,
    )
    away.rename(rows)
    expired_at(scene.installation, datetime.now(UTC) + timedelta(hours=1))
    run(scene)
    assert scene.end(job_id) == ("succeeded", None, ["reserve", "charge"])


def test_a_profile_is_charged_before_the_first_read_and_leaves_nothing_else(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, read, seen = profile(scene), private_rows.read, list[list[str]]()

    def witnessed(*arguments: Any, **named: Any) -> Any:
        seen.append(scene.kinds_of(job_id))
        return read(*arguments, **named)

    monkeypatch.setattr(private_rows, "read", witnessed)
    run(scene)
    assert seen == [["reserve", "charge"]]
    row = scene.job(job_id)
    assert scene.end(job_id) == ("succeeded", None, ["reserve", "charge"])
    assert (row.kind, row.algorithm) == ("profile", None)
    shown = show_profile(scene.installation, OWNER, str(row.release_id))
    assert shown.scope == {"shard": [1]}
    scene.assert_no_orphans()
    scene.verified()


def test_evaluations_charge_the_held_out_cells_and_survive_their_models(
    scene: Scene,
) -> None:
    first, second = model(scene, "a"), model(scene, "b")
    one, several = (
        evaluation(scene, first),
        evaluation(scene, first, second, key="several"),
    )
    for job_id in (one, several):
        run(scene)
        assert scene.end(job_id) == ("succeeded", None, ["reserve", "charge"])
    released = show_evaluation(
        scene.installation, OWNER, str(scene.job(several).release_id)
    )
    assert released.best in (first, second)
    assert released.warnings == []
    models.delete_model(scene.installation, OWNER, first)
    assert show_evaluation(scene.installation, OWNER, released.id) == released
    scene.assert_no_orphans()
    scene.verified()


@on_one_database
def test_a_card_shows_the_time_of_the_request_and_no_time_of_the_job(
    scene: Scene,
) -> None:
    """The time of the charge tells how long the jobs before took, and the end of a job
    how long the job took.
    """
    model_id = model(scene, "a")
    trained = models.show_model(scene.installation, OWNER, model_id)
    evaluated, profiled = evaluation(scene, model_id), profile(scene)
    for _ in range(2):
        run(scene)
    cards = [
        (trained.job_id, trained),
        (
            evaluated,
            show_evaluation(
                scene.installation, OWNER, str(scene.job(evaluated).release_id)
            ),
        ),
        (
            profiled,
            show_profile(
                scene.installation, OWNER, str(scene.job(profiled).release_id)
            ),
        ),
    ]
    for job_id, card in cards:
        row = scene.job(job_id)
        assert row.charged_at is not None
        assert row.submitted_at < row.charged_at
        assert card.created_at == stamps.to_text(row.submitted_at)
        assert card.model_dump_json().count(f"{row.submitted_at:%Y-%m-%d}") == 1, (
            "a card shows one time"
        )
    assert trained.created_at[:10] not in str(
        scene.installation.cache.get(trained.digest).metadata
    )


@on_one_database
@pytest.mark.parametrize(
    ("name", "why"), [("artifacts", "model-absent"), ("rows", "rows-absent")]
)
def test_a_job_whose_files_are_lost_waits_uncharged_for_the_files(
    scene: Scene, name: str, why: str
) -> None:
    job_id = evaluation(scene, model(scene, "a"))
    folder = scene.installation.home / name
    folder.rename(folder.with_name("away"))
    with pytest.raises(Unavailable):
        run(scene)
    assert scene.end(job_id) == ("queued", why, ["reserve"])
    folder.with_name("away").rename(folder)
    expired_at(scene.installation, datetime.now(UTC) + timedelta(hours=1))
    run(scene)
    assert scene.end(job_id) == ("succeeded", None, ["reserve", "charge"])


def test_an_evaluation_of_a_model_deleted_before_the_start_costs_nothing(
    scene: Scene,
) -> None:
    trained = model(scene, "a")
    job_id = evaluation(scene, trained)
    models.delete_model(scene.installation, OWNER, trained)
    assert evaluation(scene, trained) == job_id, "the same key, the same answer"
    with pytest.raises(NotFound):
        evaluation(scene, trained, key="another")

    def never(task: JobTask, _kept: object) -> None:
        raise AssertionError("no row may be read")

    run(scene, never)
    assert scene.end(job_id) == ("failed", "model-deleted", ["reserve", "void"])
    scene.assert_no_orphans()
    scene.verified()


def test_a_model_deleted_during_its_evaluation_is_evaluated(scene: Scene) -> None:
    trained = model(scene, "a")
    job_id = evaluation(scene, trained)

    def late(task: JobTask, _kept: object) -> None:
        models.delete_model(scene.installation, OWNER, trained)
        perform_here(task)

    run(scene, late)
    assert scene.end(job_id) == ("succeeded", None, ["reserve", "charge"])


@pytest.mark.parametrize("unknown", ["profile", "rdt-ta"])
def test_a_job_of_an_unknown_kind_or_algorithm_waits_for_a_newer_worker(
    scene: Scene,
    unknown: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """During an upgrade, a newer version may have queued it."""
    jobs = {"profile": profile(scene, "one"), "rdt-ta": scene.submit_job(key="two")}
    ran, stop, n_waits = list[str](), Stop(), count(1)
    with monkeypatch.context() as older:
        older.setattr(
            kinds,
            "KINDS",
            {name: kind for name, kind in kinds.KINDS.items() if name != unknown},
        )
        older.setattr(
            catalogue,
            "BY_SLUG",
            {slug: it for slug, it in catalogue.BY_SLUG.items() if slug != unknown},
        )
        older.setattr(supervise.Supervisor, "load", nothing_to_load_here)
        older.setattr(
            supervise.Supervisor,
            "run",
            lambda _, task, _kept: (perform_here(task), ran.append(task.job_id)),
        )
        older.setattr(
            main._Loop,
            "_wait_for_a_job",
            lambda _: stop.begun.set() if next(n_waits) == 3 else None,
        )
        run_job._warn_of_newer_jobs.cache_clear()
        main._Loop(scene.installation, stop).run()
    assert scene.end(jobs.pop(unknown)) == ("queued", None, ["reserve"])
    assert [scene.end(job) for job in jobs.values()] == [
        ("succeeded", None, ["reserve", "charge"])
    ]
    assert caplog.text.count("jobs wait for a newer worker") == 1
    run(scene)
    assert run_job.claim_next(scene.installation) is None


def nothing_to_load_here(*_: object) -> None:
    """In place of a child that loads its code."""


def test_a_job_of_a_newer_version_hides_no_other_job(scene: Scene) -> None:
    newer, other = profile(scene, "one"), scene.submit_job(key="two")
    ended = {
        "kind": "synthesis",
        "state": "failed",
        "reason": "withdrawn",
        "finished_at": datetime.now(UTC),
    }
    with scene.installation.database.write() as session:
        session.execute(update(JobRow).where(JobRow.id == newer).values(ended))
    listed = show_jobs.list_jobs(scene.installation, OWNER, PageRequest()).jobs
    assert [(job.id, job.kind, job.reason) for job in listed] == [
        (other, "train", None),
        (newer, "synthesis", "withdrawn"),
    ]
    assert show_jobs.show_job(scene.installation, OWNER, newer).kind == "synthesis"
    with scene.installation.database.read() as session:
        assert show_jobs.charged_jobs(session, [newer])[newer].kind == "synthesis"
        assert queue.failed(session) == {}


def _fail(task: JobTask, _kept: object) -> None:
    raise JobFailed


def _leave_garbage(task: JobTask, _kept: object) -> None:
    task.output_path.write_bytes(b'{"plan": {}}')


def _leave_another_kind(task: JobTask, _kept: object) -> None:
    task.output_path.write_bytes(b"\xff not text")


@on_one_database
@pytest.mark.parametrize("work", [_fail, _leave_garbage, _leave_another_kind])
@pytest.mark.parametrize("kind", ["profile", "evaluation"])
def test_a_child_that_leaves_no_release_fails_the_job_and_the_charge_stays(
    scene: Scene, kind: str, work: Callable[[JobTask], None]
) -> None:
    job_id = (
        profile(scene) if kind == "profile" else evaluation(scene, model(scene, "a"))
    )
    run(scene, work)
    assert scene.end(job_id) == ("failed", "failed", ["reserve", "charge"])
    with scene.installation.database.read() as session:
        assert (
            session.execute(select(ReleaseRow).where(ReleaseRow.kind == kind)).first()
            is None
        )
    scene.assert_no_orphans()


def test_cancelling_a_job_or_deleting_its_dataset_ends_every_kind(scene: Scene) -> None:
    queued, other = profile(scene, "one"), profile(scene, "two")
    show_jobs.cancel_job(scene.installation, OWNER, queued)
    assert scene.end(queued) == ("cancelled", "cancelled", ["reserve", "void"])

    def bury(task: JobTask, _kept: object) -> None:
        perform_here(task)
        delete_dataset(scene.installation, OWNER, scene.dataset_id)

    with pytest.raises(LeaseLost):
        run(scene, bury)
    assert scene.end(other) == ("cancelled", "dataset-erased", ["reserve", "charge"])
    with pytest.raises(NotFound):
        show_profile(scene.installation, OWNER, "pf_none")
    scene.assert_no_orphans()


@on_one_database
def test_the_record_of_an_account_names_the_algorithms_of_deleted_models(
    scene: Scene,
) -> None:
    models.delete_model(scene.installation, OWNER, model(scene, "a"))
    signer = Heads(scene.installation).signer
    document = show_deployment(
        scene.installation, OWNER, scene.dataset_id, signer=signer
    )
    assert document.facts["algorithms"] == ["rdt-ta"]
    assert "no model yet" not in str(document.record)
