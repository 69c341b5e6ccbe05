"""Idempotency keys on both databases: each key has one permanent answer, and a refusal
leaves the key free.
"""

import json
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest
from sqlalchemy import select

from app.access.idempotency import Answer, IdempotentRequest, hiding, once, stored
from app.access.tables import AnswerRow
from app.core.errors import BudgetExceeded, IdempotencyKeyReused, InvalidRequest
from app.services.datasets.erase import delete_dataset
from app.services.jobs import show_jobs
from tests.support.crash_scene import OWNER, Scene

pytestmark = pytest.mark.contract

REQUEST = IdempotentRequest("key_a", "POST /train", "k", b"a" * 32)
ANSWER = Answer(202, b'{"n": 1}', "/jobs/jb_1")


class Refused(Exception):
    """The error that a service would raise."""


def _must_not_run() -> Answer:
    raise AssertionError("the work was done twice")


def _refuse() -> Answer:
    raise Refused


def test_the_second_request_gets_the_first_ones_bytes_without_its_work(
    scene: Scene,
) -> None:
    for work in (lambda: ANSWER, _must_not_run, _must_not_run):
        with scene.installation.database.write() as session:
            assert once(session, REQUEST, work) == ANSWER
    with scene.installation.database.read() as session:
        assert stored(session, REQUEST) == ANSWER


def test_a_secret_in_a_stored_answer_is_read_by_the_key_of_its_request_alone(
    scene: Scene,
) -> None:
    """The database has neither the key of the request nor anything from which the
    secret follows.
    """
    sent = replace(REQUEST, key="a-random-value-of-a-form")
    secret = Answer(201, b'{"key": "key_1.SECRET"}')
    for work in (lambda: secret, _must_not_run):
        with scene.installation.database.write() as session:
            assert once(session, hiding(sent), work) == secret
    with scene.installation.database.read() as session:
        [row] = session.scalars(select(AnswerRow).where(AnswerRow.route == sent.route))
        kept = (
            f"{row.principal} {row.route} {row.idempotency_key} {row.location}".encode()
            + row.body
        )
    assert b"SECRET" not in kept
    assert sent.key.encode() not in kept
    with scene.installation.database.write() as session:
        for route in ("POST /other", f"{sent.route}/train"):
            elsewhere = hiding(replace(sent, route=route))
            once(session, elsewhere, lambda: secret)
        bodies = session.scalars(select(AnswerRow.body)).all()
    assert len(set(bodies)) == 3, (
        "the forms of a page have one value, and no two answers one stream"
    )


def test_the_same_key_with_another_body_is_refused(scene: Scene) -> None:
    other = replace(REQUEST, body_sha256=b"b" * 32)
    with scene.installation.database.write() as session:
        once(session, REQUEST, lambda: ANSWER)
    with (
        pytest.raises(IdempotencyKeyReused),
        scene.installation.database.write() as session,
    ):
        once(session, other, _must_not_run)
    with (
        pytest.raises(IdempotencyKeyReused),
        scene.installation.database.read() as session,
    ):
        stored(session, other)


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, principal="key_b"),
        replace(REQUEST, route="POST /x"),
        replace(REQUEST, key="l"),
    ],
)
def test_a_key_belongs_to_its_principal_and_route(
    scene: Scene, other: IdempotentRequest
) -> None:
    theirs = replace(ANSWER, body=b"{}")
    with scene.installation.database.write() as session:
        once(session, REQUEST, lambda: ANSWER)
        assert once(session, other, lambda: theirs) == theirs
        assert once(session, REQUEST, _must_not_run) == ANSWER


def test_a_refusal_leaves_the_key_free_for_any_body(scene: Scene) -> None:
    with pytest.raises(Refused), scene.installation.database.write() as session:
        once(session, REQUEST, _refuse)
    with scene.installation.database.write() as session:
        assert stored(session, REQUEST) is None
        assert (
            once(
                session,
                replace(REQUEST, body_sha256=b"b" * 32),
                lambda: ANSWER,
            )
            == ANSWER
        )


def test_without_a_key_the_work_is_done_every_time(scene: Scene) -> None:
    answers = iter([ANSWER, replace(ANSWER, status=201)])
    with scene.installation.database.write() as session:
        assert [
            once(session, None, lambda: next(answers)).status for _ in range(2)
        ] == [202, 201]


@pytest.mark.parametrize("commits", [True, False])
def test_a_concurrent_request_with_the_same_key_waits_and_gets_the_stored_answer(
    scene: Scene, commits: bool
) -> None:
    database = scene.installation.database
    theirs = replace(ANSWER, body=b"theirs")

    def twin() -> Answer:
        with database.write() as session:
            return once(session, REQUEST, lambda: theirs)

    waiting: Future[Answer]
    with ThreadPoolExecutor(1) as pool:
        with suppress(Refused), database.write() as session:
            once(session, REQUEST, lambda: ANSWER)
            waiting = pool.submit(twin)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.3)
            if not commits:
                raise Refused
        assert waiting.result(timeout=60) == (ANSWER if commits else theirs)


def test_a_repeated_submission_is_one_job_and_the_same_bytes_even_after_the_end(
    scene: Scene,
) -> None:
    first = scene.submit(key="k")
    assert scene.submit(key="k") == first
    job_id = str(json.loads(first.body)["job_id"])
    show_jobs.cancel_job(scene.installation, OWNER, job_id)
    delete_dataset(scene.installation, OWNER, scene.dataset_id)
    assert scene.submit(key="k") == first
    assert (first.status, first.location) == (202, f"/jobs/{job_id}")
    assert scene.kinds_of(job_id) == ["reserve", "void"]
    assert len(scene.entries()) == 3


def test_a_refused_submission_leaves_no_job_no_reservation_and_its_key(
    scene: Scene,
) -> None:
    with pytest.raises(BudgetExceeded):
        scene.submit(key="k", epsilon="3.000000001")
    with pytest.raises(InvalidRequest):
        scene.submit(key="k", scope={"shard": [4]})
    assert [entry.kind.value for entry in scene.entries()] == ["open"]
    scene.submit(key="k", epsilon="3")
    assert [entry.kind.value for entry in scene.entries()] == ["open", "reserve"]
