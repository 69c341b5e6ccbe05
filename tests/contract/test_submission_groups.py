"""Tests groups of requests for jobs: they are answered as one by one, and no request affects its neighbours."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import Engine, event, text

from app.access import keys
from app.access.idempotency import Answer
from app.core import clock
from app.core.errors import (
    BudgetExceeded,
    DatasetDeleted,
    GrovekeeperError,
    IdempotencyKeyReused,
    InvalidRequest,
    NotFound,
    Unauthenticated,
)
from app.jobs import queue
from app.ledger import repository
from app.services.datasets.delete_dataset import delete_dataset
from app.services.spending import accept
from tests.support import job_kinds
from tests.support.crash_scene import OWNER, Scene, open_with
from tests.support.databases import on_one_database
from tests.support.groups import in_one_group
from tests.support.ruled import SECOND, grant
from tests.support.two_datasets import Pair


@pytest.fixture
def revoked(scene: Scene) -> Callable[[], None]:
    """Revokes the second key."""

    def revoke() -> None:
        with scene.installation.database.write() as session:
            keys.find(session, SECOND.key_id).revoked_at = clock.now()

    return revoke


def _submissions(scene: Scene, *names: str, **request: Any) -> list[Callable[[], Answer]]:
    return [partial(scene.submit, key=name, **request) for name in names]


def _job_of(answer: Answer) -> str:
    return str(json.loads(answer.body)["job_id"])


def _queued(scene: Scene) -> list[str]:
    with scene.installation.database.read() as session:
        newest_first = queue.jobs(session, dataset_ids=None, before=None, limit=100)
    return [row.id for row in reversed(newest_first)]


def test_a_group_is_one_transaction_and_keeps_the_order_of_arrival(scene: Scene) -> None:
    begin, writes = scene.installation.database.write, []

    def counted() -> Any:
        writes.append(1)
        return begin()

    with patch.object(scene.installation.database, "write", counted):
        answers = in_one_group(scene.installation, _submissions(scene, *"abcdefgh"))
    assert len(writes) == 1
    job_ids = [_job_of(answer) for answer in answers]
    assert [entry.job_id for entry in scene.entries()[1:]] == job_ids
    assert _queued(scene) == job_ids
    assert scene.verified().kinds == {"open": 1, "reserve": 8}


def test_requests_after_a_refused_one_get_what_is_left(scene: Scene) -> None:
    first, second, third, fourth = in_one_group(
        scene.installation,
        [
            partial(scene.submit, key="a", epsilon="2"),
            partial(scene.submit, key="b", epsilon="1.1"),
            partial(scene.submit, key="c", epsilon="1"),
            partial(scene.submit, key="d", epsilon="0.1"),
        ],
    )
    assert [type(each) for each in (first, second, third, fourth)] == [Answer, BudgetExceeded, Answer, BudgetExceeded]
    assert (second.what_fits(), fourth.what_fits()) == ("1", "0")
    assert scene.verified().kinds == {"open": 1, "reserve": 2}
    assert _job_of(scene.submit(key="a", epsilon="2")) == _job_of(first)


def test_twins_in_a_group_get_the_bytes_of_the_first(scene: Scene) -> None:
    answers = in_one_group(scene.installation, _submissions(scene, "twin", "other", "twin", "twin"))
    assert answers[0] == answers[2] == answers[3] == scene.submit(key="twin")
    assert _queued(scene) == [_job_of(answers[0]), _job_of(answers[1])]
    assert dict(scene.installation.admissions.counts()) == {True: 2, False: 3}


def test_a_twin_of_a_refused_request_is_judged_by_itself(scene: Scene) -> None:
    outcomes = in_one_group(
        scene.installation,
        [
            partial(scene.submit, key="k", epsilon="4"),
            partial(scene.submit, key="k", epsilon="1"),
            partial(scene.submit, key="k", epsilon="2", digest="other"),
        ],
    )
    assert [type(each) for each in outcomes] == [BudgetExceeded, Answer, IdempotencyKeyReused]
    assert scene.submit(key="k", epsilon="1") == outcomes[1]
    with pytest.raises(IdempotencyKeyReused):
        scene.submit(key="k", epsilon="1", digest="other")


def test_a_refused_request_leaves_its_key_unused(scene: Scene) -> None:
    outcomes = in_one_group(
        scene.installation, [partial(scene.submit, key="k", epsilon="4"), *_submissions(scene, "a", "b")]
    )
    assert [type(each) for each in outcomes] == [BudgetExceeded, Answer, Answer]
    assert type(scene.submit(key="k", epsilon="1", digest="other")) is Answer


def test_a_group_of_refusals_writes_nothing(scene: Scene) -> None:
    before = scene.export()
    outcomes = in_one_group(scene.installation, _submissions(scene, "a", "b", "c", epsilon="4"))
    assert [type(each) for each in outcomes] == [BudgetExceeded] * 3
    assert scene.export() == before
    with scene.installation.database.read() as session:
        assert session.execute(text("SELECT count(*) FROM idempotent_answers")).scalar_one() == 0


def test_broken_requests_and_callers_do_not_affect_their_neighbours(scene: Scene, revoked: Callable[[], None]) -> None:
    grant(scene, "analyst")
    other = Pair.beside(scene).second
    delete_dataset(scene.installation, OWNER, other.dataset_id)
    missing = Scene(scene.installation, "ds_missing")
    revoked()
    outcomes = in_one_group(
        scene.installation,
        [
            *_submissions(scene, "a"),
            *_submissions(scene, "b", by=SECOND),
            *_submissions(other, "c"),
            *_submissions(missing, "d"),
            *_submissions(scene, "e", scope={"shard": [99]}),
            *_submissions(scene, "f"),
        ],
    )
    expected = [Answer, Unauthenticated, DatasetDeleted, NotFound, InvalidRequest, Answer]
    assert [type(each) for each in outcomes] == expected
    assert scene.verified().kinds == {"open": 1, "reserve": 2}


@pytest.mark.parametrize("loss", ["key", "dataset"])
def test_what_is_lost_before_the_write_is_lost_for_one_request(
    scene: Scene, revoked: Callable[[], None], loss: str
) -> None:
    """The callers' authority and the datasets are read in the transaction that writes."""
    grant(scene, "analyst")
    other = Pair.beside(scene).second
    begin = scene.installation.database.write

    def lose_first() -> Any:
        patched.stop()
        revoked() if loss == "key" else delete_dataset(scene.installation, OWNER, other.dataset_id)
        return begin()

    patched = patch.object(scene.installation.database, "write", lose_first)
    patched.start()
    outcomes = in_one_group(
        scene.installation,
        [*_submissions(scene, "a"), *_submissions(scene, "b", by=SECOND), *_submissions(other, "c")],
    )
    lost = [Answer, Unauthenticated, Answer] if loss == "key" else [Answer, Answer, DatasetDeleted]
    assert [type(each) for each in outcomes] == lost


@pytest.mark.parametrize("epsilon", ["1", "2.9"])
def test_a_request_that_another_process_answers_meanwhile_gets_that_answer(scene: Scene, epsilon: str) -> None:
    """Also where the request would be refused, because the first one used up the budget."""
    twins: list[Answer] = []

    def twin(process: Scene) -> None:
        twins.append(process.submit(key="twin", epsilon=epsilon))

    outcomes = _in_one_group_after(
        twin, scene, [partial(scene.submit, key="twin", epsilon=epsilon), *_submissions(scene, "a")]
    )
    assert outcomes[0] == twins[0]
    assert _queued(scene) == [_job_of(twins[0]), _job_of(outcomes[1])]
    assert scene.verified().kinds == {"open": 1, "reserve": 2}


@pytest.mark.parametrize("epsilon", ["1", "4"])
def test_a_key_that_another_process_uses_meanwhile_is_reused(scene: Scene, epsilon: str) -> None:
    def twin(process: Scene) -> None:
        process.submit(key="twin", digest="other")

    outcomes = _in_one_group_after(
        twin, scene, [partial(scene.submit, key="twin", epsilon=epsilon), *_submissions(scene, "a")]
    )
    assert [type(each) for each in outcomes] == [IdempotencyKeyReused, Answer]
    assert scene.verified().kinds == {"open": 1, "reserve": 2}


def _in_one_group_after(
    meanwhile: Callable[[Scene], None], scene: Scene, requests: list[Callable[[], Answer]]
) -> list[Any]:
    """Submits requests as one group, between whose two transactions another process does something."""
    begin = scene.installation.database.write

    def second() -> Any:
        patched.stop()
        other = open_with(scene.installation.settings)
        try:
            meanwhile(Scene(other, scene.dataset_id))
        finally:
            other.close()
        return begin()

    patched = patch.object(scene.installation.database, "write", second)
    patched.start()
    return in_one_group(scene.installation, requests)


def test_a_group_that_fails_runs_again_one_by_one(scene: Scene) -> None:
    """A statement that fails for one request fails no other request."""
    write = repository.insert_entries
    sizes = []

    def fail(session: Any, entries: Any) -> None:
        sizes.append(len(entries))
        write(session, entries)
        if any(entry.amount == 2 * 10**7 for _, entry in entries):
            session.execute(text("SELECT * FROM no_such_table"))

    with patch.object(repository, "insert_entries", fail):
        outcomes = in_one_group(
            scene.installation,
            [*_submissions(scene, "a"), *_submissions(scene, "b", epsilon="0.02"), *_submissions(scene, "c")],
        )
    assert sizes[0] == 3
    assert sorted(sizes[1:]) == [1, 1, 1]
    assert [isinstance(each, Answer) for each in outcomes] == [True, False, True]
    assert not isinstance(outcomes[1], GrovekeeperError)
    assert scene.verified().kinds == {"open": 1, "reserve": 2}


def test_a_bug_in_one_request_fails_no_other(scene: Scene) -> None:
    uploads_in = accept.scopes.uploads_in

    def fail(dataset: Any, scope: Any, uploads: Any) -> Any:
        if scope:
            raise ZeroDivisionError
        return uploads_in(dataset, scope, uploads)

    with patch.object(accept.scopes, "uploads_in", fail):
        outcomes = in_one_group(
            scene.installation,
            [*_submissions(scene, "a"), *_submissions(scene, "b", scope={"shard": [1]}), *_submissions(scene, "c")],
        )
    assert [type(each) for each in outcomes] == [Answer, ZeroDivisionError, Answer]
    assert scene.verified().kinds == {"open": 1, "reserve": 2}


def test_an_idle_process_submits_at_once(scene: Scene) -> None:
    assert [_job_of(scene.submit(key=name)) for name in "ab"] == _queued(scene)


@on_one_database
def test_an_evaluation_that_loads_its_model_delays_no_group(scene: Scene) -> None:
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
    assert _queued(scene)[-2:] == [job_id, evaluation_id]


def test_a_request_in_a_group_takes_few_statements(scene: Scene) -> None:
    """A group of 16 takes hardly more than a request alone. The beginnings of transactions count on SQLite."""
    scene.submit(key="first")
    engine = scene.installation.database.engine
    alone = _n_statements(engine, lambda: scene.submit(key="alone"))
    names = [f"k{number}" for number in range(16)]
    together = _n_statements(engine, lambda: in_one_group(scene.installation, _submissions(scene, *names)))
    assert alone <= 15  # one of them locks the keys, and one the datasets, each in order of their ids
    assert together <= alone + 4


def _n_statements(engine: Engine, work: Callable[[], object]) -> int:
    statements: list[object] = []

    def note(*arguments: object) -> None:
        statements.append(arguments)

    event.listen(engine, "before_cursor_execute", note)
    work()
    event.remove(engine, "before_cursor_execute", note)
    return len(statements)
