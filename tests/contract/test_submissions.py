"""Requests that spend budget are decided in one transaction each: in order, once, and without effects on each other."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.orm import Session

from app.access import keys
from app.access.idempotency import Answer
from app.core import stamps
from app.core.errors import BudgetExceeded, DatasetDeleted, IdempotencyKeyReused, Unauthenticated
from app.ledger import reservations
from app.services.datasets.erase import delete_dataset
from tests.support import job_kinds
from tests.support.crash_scene import OWNER, Scene, open_with
from tests.support.databases import on_one_database
from tests.support.ruled import SECOND, grant
from tests.support.two_datasets import Pair


def _job_of(answer: Answer) -> str:
    return str(json.loads(answer.body)["job_id"])


def _n_answers(scene: Scene) -> int:
    with scene.installation.database.read() as session:
        return int(session.execute(text("SELECT count(*) FROM idempotent_answers")).scalar_one())


def test_a_refused_request_writes_nothing_and_leaves_its_key_unused(scene: Scene) -> None:
    before = scene.export()
    with pytest.raises(BudgetExceeded) as refused:
        scene.submit(key="k", epsilon="3.1")
    assert refused.value.what_fits() == "3"
    assert (scene.export(), _n_answers(scene)) == (before, 0)
    assert scene.submit(key="k", epsilon="1", digest="other").status == 202
    assert scene.verified().kinds == {"open": 1, "reserve": 1}


def test_a_request_is_counted_once_by_its_outcome(scene: Scene) -> None:
    first = scene.submit(key="k")
    assert scene.submit(key="k") == first
    for key, epsilon, refusal in (("k", "1", IdempotencyKeyReused), ("other", "4", BudgetExceeded)):
        with pytest.raises(refusal):
            scene.submit(key=key, epsilon=epsilon, digest="other")
    assert dict(scene.installation.admissions.counts()) == {
        True: 1, False: 1, IdempotencyKeyReused: 1, BudgetExceeded: 1,
    }  # fmt: skip


def test_many_requests_at_once_spend_no_more_than_the_cap(scene: Scene) -> None:
    """Each of twelve requests is sent twice at once: three pairs fit."""

    def submit(number: int) -> str | None:
        try:
            return _job_of(scene.submit(key=f"k{number // 2}", epsilon="0.9"))
        except BudgetExceeded:
            return None

    with ThreadPoolExecutor(8) as pool:
        job_ids = list(pool.map(submit, range(24)))
    assert job_ids[::2] == job_ids[1::2], "twins have one answer"
    admitted = {job_id for job_id in job_ids if job_id is not None}
    assert len(admitted) == 3
    assert {entry.job_id for entry in scene.entries()[1:]} == admitted
    assert scene.verified().kinds == {"open": 1, "reserve": 3}


def _revoke(scene: Scene) -> None:
    with scene.installation.database.write() as session:
        keys.find(session, SECOND.key_id).revoked_at = stamps.now()


@pytest.mark.parametrize(
    ("lose", "refusal"),
    [
        (_revoke, Unauthenticated),
        (lambda scene: delete_dataset(scene.installation, OWNER, scene.dataset_id), DatasetDeleted),
    ],
    ids=["key", "dataset"],
)
def test_what_is_lost_before_the_transaction_is_not_used(
    scene: Scene, lose: Callable[[Scene], None], refusal: type[Exception]
) -> None:
    """The caller's authority and the datasets are read in the transaction that writes."""
    grant(scene, "analyst")
    begin = scene.installation.database.write

    def lose_first() -> Any:
        patched.stop()
        lose(scene)
        return begin()

    patched = patch.object(scene.installation.database, "write", lose_first)
    patched.start()
    with pytest.raises(refusal):
        scene.submit(key="k", by=SECOND)
    assert {entry.kind.value for entry in scene.entries()} == {"open"}


def _during(scene: Scene, meanwhile: Callable[[], Answer], submit: Callable[[], Answer]) -> tuple[Any, Answer]:
    """Starts a request of another process, holds it before it writes, and sends a request meanwhile."""
    writes, goes_on = Event(), Event()
    write = reservations.write

    def held(session: Session, judged: reservations.Judged) -> None:
        patched.stop()
        writes.set()
        assert goes_on.wait(60)
        write(session, judged)

    patched = patch.object(reservations, "write", held)
    patched.start()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(meanwhile)
        assert writes.wait(60)
        second = pool.submit(submit)
        with pytest.raises(TimeoutError):
            second.result(0.5)
        goes_on.set()
        return second, first.result(60)


@pytest.mark.parametrize("epsilon", ["1", "2.9"])
def test_a_twin_in_another_process_waits_and_gets_the_first_ones_answer(scene: Scene, epsilon: str) -> None:
    """Also where it would be refused, because the first request used up the budget."""
    other = open_with(scene.installation.settings)
    elsewhere = Scene(other, scene.dataset_id)
    second, first = _during(
        scene,
        lambda: elsewhere.submit(key="twin", epsilon=epsilon),
        lambda: scene.submit(key="twin", epsilon=epsilon),
    )
    assert second.result(60) == first
    other.close()
    assert scene.verified().kinds == {"open": 1, "reserve": 1}


def test_a_key_that_is_in_use_for_another_dataset_is_reused(postgresql_scene: Scene) -> None:
    """Locks of datasets do not make such requests wait; the row of the answer does."""
    pair = Pair.beside(postgresql_scene)
    second, _ = _during(
        postgresql_scene,
        lambda: pair.first.submit(key="k"),
        lambda: pair.second.submit(key="k", digest="other"),
    )
    with pytest.raises(IdempotencyKeyReused):
        second.result(60)
    assert pair.first.verified().kinds == {"open": 1, "reserve": 1}
    assert pair.second.verified().kinds == {"open": 1}


def test_a_twin_whose_name_means_another_dataset_by_now_gets_the_first_ones_answer(postgresql_scene: Scene) -> None:
    pair = Pair.beside(postgresql_scene)
    second, first = _during(postgresql_scene, lambda: pair.first.submit(key="k"), lambda: pair.second.submit(key="k"))
    assert second.result(60) == first
    assert pair.first.verified().kinds == {"open": 1, "reserve": 1}
    assert pair.second.verified().kinds == {"open": 1}
    assert pair.second.submit(key="next").status == 202, "the account was not changed"


@on_one_database
def test_an_evaluation_that_loads_its_model_delays_no_other_request(scene: Scene) -> None:
    model_id = job_kinds.model(scene, "trained")
    load, loads, may_end = scene.installation.cache.get, Event(), Event()

    def load_slowly(digest: str) -> Any:
        loads.set()
        assert may_end.wait(60)
        return load(digest)

    with patch.object(scene.installation.cache, "get", load_slowly), ThreadPoolExecutor(2) as pool:
        evaluation = pool.submit(job_kinds.evaluation, scene, model_id)
        assert loads.wait(60)
        other = pool.submit(scene.submit, key="other")
        try:
            job_id = _job_of(other.result(timeout=10))
        finally:
            may_end.set()
        evaluation_id = evaluation.result()
    assert scene.job(job_id).submitted_at < scene.job(evaluation_id).submitted_at


def test_a_request_takes_few_statements(scene: Scene) -> None:
    """One of them begins the transaction on SQLite; three lock key, dataset and account on PostgreSQL."""
    scene.submit(key="first")
    assert _n_statements(scene.installation.database.engine, lambda: scene.submit(key="alone")) <= 12


def _n_statements(engine: Engine, work: Callable[[], object]) -> int:
    statements: list[object] = []

    def note(*arguments: object) -> None:
        statements.append(arguments[2])

    event.listen(engine, "before_cursor_execute", note)
    work()
    event.remove(engine, "before_cursor_execute", note)
    return len(statements)
