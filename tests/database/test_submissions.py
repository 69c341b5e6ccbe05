"""Requests that spend budget are decided in one transaction each: in order, once, and
without effects on each other.
"""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from threading import Event
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.orm import Session

from app.access import keys
from app.access.idempotency import Answer, IdempotentRequest
from app.core import stamps
from app.core.errors import (
    BudgetExceeded,
    DatasetDeleted,
    IdempotencyKeyReused,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from app.datasets import catalog
from app.datasets.catalog import DatasetRow
from app.ledger import reservations
from app.services.datasets.erase import delete_dataset
from app.services.keys import remove_grant
from app.services.releases import evaluations, profiles, training
from app.services.spending.asked import AskedDataset
from app.wire.training import TrainIn
from grovekeeper_forests.errors import ParameterInvalid
from tests.support import job_kinds
from tests.support.asking import submit_training
from tests.support.crash_scene import OWNER, Scene, open_with
from tests.support.databases import on_one_database
from tests.support.ruled import SECOND, grant
from tests.support.two_datasets import Pair

pytestmark = pytest.mark.contract


def _job_of(answer: Answer) -> str:
    return str(json.loads(answer.body)["job_id"])


def _n_answers(scene: Scene) -> int:
    with scene.installation.database.read() as session:
        return int(
            session.execute(
                text("SELECT count(*) FROM idempotent_answers")
            ).scalar_one()
        )


def test_a_refused_request_writes_nothing_and_leaves_its_key_unused(
    scene: Scene,
) -> None:
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
    for key, epsilon, refusal in (
        ("k", "1", IdempotencyKeyReused),
        ("other", "4", BudgetExceeded),
    ):
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
        (
            lambda scene: delete_dataset(scene.installation, OWNER, scene.dataset_id),
            DatasetDeleted,
        ),
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


def _before_the_transaction(scene: Scene, meanwhile: Callable[[], object]) -> Any:
    """Something that happens when a request has been planned, before its transaction
    begins.
    """
    begin = scene.installation.database.write

    def act_first() -> Any:
        patched.stop()
        meanwhile()
        return begin()

    patched = patch.object(scene.installation.database, "write", act_first)
    return patched.start()


@pytest.mark.parametrize("kind", ["train", "profile", "evaluation"])
def test_no_request_is_planned_while_others_wait_to_write(
    scene: Scene, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning a forest of 1,400 features takes a second, and so does reading their
    declaration again and again.
    """
    model_id = job_kinds.model(scene, "trained") if kind == "evaluation" else ""
    writes, planned = [False], list[str]()
    begin = scene.installation.database.write

    @contextmanager
    def noted() -> Iterator[Session]:
        with begin() as session:
            writes[0] = True
            try:
                yield session
            finally:
                writes[0] = False

    def watched(work: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            assert not writes[0], f"{name} in the transaction that writes"
            planned.append(name)
            return work(*arguments, **options)

        return call

    monkeypatch.setattr(scene.installation.database, "write", noted)
    for module, name in (
        (training, "plan"), (profiles.price, "plan"), (evaluations, "_plan"), (catalog.Schema, "from_json"),
        (scene.installation.cache, "get"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, watched(getattr(module, name), name))
    match kind:
        case "train":
            scene.submit(key="k")
            with pytest.raises(BudgetExceeded):
                scene.submit(key="large", epsilon="4")
            with pytest.raises(ParameterInvalid):
                scene.submit(key="other", parameters={"n_estimators": 0})
        case "profile":
            job_kinds.profile(scene)
        case _:
            job_kinds.evaluation(scene, model_id)
    assert {"from_json", "get" if kind == "evaluation" else "plan"} <= set(planned)


def test_an_upload_that_comes_while_a_job_is_planned_is_read_and_charged(
    scene: Scene,
) -> None:
    _before_the_transaction(scene, scene.upload)
    job = scene.job(scene.submit_job(key="k"))
    assert len(job.parts[0].epochs) == 2


def test_a_plan_is_not_used_for_another_dataset_that_took_the_name_meanwhile(
    scene: Scene,
) -> None:
    with scene.installation.database.read() as session:
        name = catalog.find(session, scene.dataset_id).name

    successors: list[Scene] = []

    def replace_dataset() -> None:
        delete_dataset(scene.installation, OWNER, scene.dataset_id)
        successors.append(Pair.beside(scene, name=name).second)

    _before_the_transaction(scene, replace_dataset)
    named = Scene(scene.installation, name)
    with pytest.raises(Unavailable, match="nothing was charged"):
        named.submit(key="k")
    assert {entry.kind.value for entry in successors[0].entries()} == {"open"}
    assert named.submit(key="k").status == 202


def test_a_profile_is_reused_by_those_who_may_when_the_job_is_accepted(
    scene: Scene,
) -> None:
    other = Pair.beside(scene).second
    profile_id = scene.job(_ran(scene, job_kinds.profile(scene))).release_id
    for dataset in (scene, other):
        grant(dataset, "analyst")
    lose = partial(
        remove_grant, scene.installation, OWNER, scene.dataset_id, SECOND.key_id
    )
    _before_the_transaction(scene, lose)
    request = IdempotentRequest(SECOND.key_id, "POST /train", "k", b"k" * 32)
    body = TrainIn.model_validate(
        {
            "dataset": other.dataset_id,
            "algorithm": "rpf",
            "epsilon": "0.01",
            "profile": profile_id,
        }
    )
    with pytest.raises(NotFound):
        submit_training(scene.installation, SECOND, body, request=request)
    assert {entry.kind.value for entry in other.entries()} == {"open"}


def _ran(scene: Scene, job_id: str) -> str:
    job_kinds.run(scene)
    return job_id


@pytest.mark.parametrize(
    "column",
    ["id", "name", "schema", "privacy_unit", "protects", "partitions", "public_size"],
)
def test_a_plan_holds_for_one_declaration_and_one_account(column: str) -> None:
    declared = {
        "id": "ds", "name": "n", "schema": {"features": []}, "privacy_unit": {"column": None, "max_rows": 1},
        "protects": "row", "partitions": [], "public_size": 9,
    }  # fmt: skip

    def asked(
        *uploads: str,
        accountant: str = "zcdp",
        delta: Fraction = Fraction(1, 9),
        **changed: Any,
    ) -> AskedDataset:
        return AskedDataset(
            catalog.Dataset(DatasetRow(**{**declared, **changed})),
            uploads,
            accountant,
            delta,
        )

    earlier = asked("a", "b")
    assert asked("a", "b", "c").continues(earlier)
    assert not asked("a", "b", **{column: "another"}).continues(earlier)
    assert not asked("a").continues(earlier)
    assert not asked("a", "b", accountant="gdp").continues(earlier)
    assert not asked("a", "b", delta=Fraction(1, 8)).continues(earlier)


def _during(
    scene: Scene, meanwhile: Callable[[], Answer], submit: Callable[[], Answer]
) -> tuple[Any, Answer]:
    """Starts a request of another process, holds it before it writes, and sends a
    request meanwhile.
    """
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
def test_a_twin_in_another_process_waits_and_gets_the_first_ones_answer(
    scene: Scene, epsilon: str
) -> None:
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


def test_a_key_that_is_in_use_for_another_dataset_is_reused(
    postgresql_scene: Scene,
) -> None:
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


def test_a_twin_whose_name_means_another_dataset_by_now_gets_the_first_ones_answer(
    postgresql_scene: Scene,
) -> None:
    pair = Pair.beside(postgresql_scene)
    second, first = _during(
        postgresql_scene,
        lambda: pair.first.submit(key="k"),
        lambda: pair.second.submit(key="k"),
    )
    assert second.result(60) == first
    assert pair.first.verified().kinds == {"open": 1, "reserve": 1}
    assert pair.second.verified().kinds == {"open": 1}
    assert pair.second.submit(key="next").status == 202, "the account was not changed"


@on_one_database
def test_an_evaluation_that_loads_its_model_delays_no_other_request(
    scene: Scene,
) -> None:
    model_id = job_kinds.model(scene, "trained")
    load, loads, may_end = scene.installation.cache.get, Event(), Event()

    def load_slowly(digest: str) -> Any:
        loads.set()
        assert may_end.wait(60)
        return load(digest)

    with (
        patch.object(scene.installation.cache, "get", load_slowly),
        ThreadPoolExecutor(2) as pool,
    ):
        evaluation = pool.submit(job_kinds.evaluation, scene, model_id)
        assert loads.wait(60)
        other = pool.submit(scene.submit, key="other")
        try:
            job_id = _job_of(other.result(timeout=60))
        finally:
            may_end.set()
        evaluation_id = evaluation.result()
    assert scene.job(job_id).submitted_at < scene.job(evaluation_id).submitted_at


def test_a_request_takes_few_statements(scene: Scene) -> None:
    """One reads what is planned from; one begins each transaction on SQLite; three lock
    key, dataset and account on PostgreSQL.
    """
    scene.submit(key="first")
    assert (
        _n_statements(
            scene.installation.database.engine, lambda: scene.submit(key="alone")
        )
        <= 13
    )


def _n_statements(engine: Engine, work: Callable[[], object]) -> int:
    statements: list[object] = []

    def note(*arguments: object) -> None:
        statements.append(arguments[2])

    event.listen(engine, "before_cursor_execute", note)
    work()
    event.remove(engine, "before_cursor_execute", note)
    return len(statements)
