"""What a charge compares where nothing else would refuse: of each kind of job, the
honest one is charged, and one that differs in a single way is not.
"""

import copy
import json
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import delete

from app.access import keys
from app.core.errors import SubmitterRevoked
from app.datasets.catalog import DatasetRow
from app.db.database import transaction_time
from app.jobs.tables import JobRow
from app.ledger import tables
from app.ledger.tables import ReservationRow
from app.services.execution import charge
from app.services.execution.charge import (
    TaskNotPaid,
    charge_claimed,
    charged_task,
    require_paid,
)
from app.services.installation import Installation
from app.services.releases.training import TrainKind
from app.wire.training import TrainIn
from tests.support import people
from tests.support.asking import submit_training
from tests.support.crash_scene import OWNER, Scene
from tests.support.databases import on_one_database
from tests.support.job_kinds import claimed, evaluation, model, profile, request
from tests.support.two_datasets import Pair

pytestmark = pytest.mark.contract


def _changed(
    scene: Scene, job_id: str, change: Callable[[dict[str, Any]], object]
) -> None:
    with scene.installation.database.write() as session:
        row = session.get_one(JobRow, job_id)
        task = copy.deepcopy(row.task)
        change(task)
        row.task = task


def _refused(scene: Scene, job_id: str) -> None:
    """The charge of the oldest job, which nothing was drawn for."""
    with pytest.raises(TaskNotPaid):
        charge_claimed(scene.installation, claimed(scene.installation))
    assert scene.job(job_id).charged_at is None


KINDS: dict[str, Callable[[Scene], object]] = {
    "train": lambda scene: scene.submit_job(key="k", scope={"shard": [0]}),
    "two-parts": lambda scene: Pair.beside(scene).submit(key="k"),
    "profile": profile,
    "evaluation": lambda scene: evaluation(scene, model(scene, "a")),
    "best": lambda scene: evaluation(scene, model(scene, "a"), model(scene, "b")),
}


@on_one_database
@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_job_is_planned_before_its_charge_and_is_charged_without_that_plan(
    scene: Scene, kind: str
) -> None:
    job_id = KINDS[kind](scene)
    claim = claimed(scene.installation)
    planned = charge._planned_before(scene.installation, claim)
    assert planned is not None
    assert charged_task(scene.installation, claim) is None
    with scene.installation.database.write() as session:
        row = session.get_one(JobRow, job_id)
        require_paid(session, row, None)
        session.rollback()
    task = charge_claimed(scene.installation, claim)
    assert charged_task(scene.installation, claim) == task


@on_one_database
@pytest.mark.parametrize(
    "named", [(0, 0, 0, 0), (0, 0, 1, 0), (0, 1, 1, 1), (0, 1, 0, 0), (1, 1, 1, 1)]
)
def test_every_model_of_a_job_is_named_once_with_its_own_file(
    scene: Scene, named: tuple[int, ...]
) -> None:
    """Names and files of two models, in the order of the plan."""
    job_id = evaluation(scene, model(scene, "a"), model(scene, "b"))

    def change(task: dict[str, Any]) -> None:
        models = task["work"]["models"]
        task["work"]["models"] = [
            {**models[name], "digest": models[file]["digest"]}
            for name, file in (named[:2], named[2:])
        ]

    _changed(scene, job_id, change)
    _refused(scene, job_id)


@on_one_database
def test_a_job_without_parts_and_reservations_is_not_charged(scene: Scene) -> None:
    job_id = scene.submit_job(key="k")
    _changed(scene, job_id, lambda task: task.update(parts=[]))
    with scene.installation.database.write() as session:
        session.execute(delete(ReservationRow).where(ReservationRow.job_id == job_id))
    _refused(scene, job_id)


@on_one_database
def test_a_part_that_was_reserved_is_in_the_task(scene: Scene) -> None:
    """A charge is for all reservations of a job."""
    job_id = scene.submit_job(key="k")
    with scene.installation.database.write() as session:
        [reserved] = tables.reservations_of(session, [job_id])
        values = {
            column.key: getattr(reserved, column.key)
            for column in ReservationRow.__table__.columns
        }
        session.add(ReservationRow(**values | {"id": "rs_other", "part": 1}))
    _refused(scene, job_id)


@on_one_database
@pytest.mark.parametrize("position", [0, 1])
def test_every_part_of_a_job_is_compared_with_its_reservation(
    scene: Scene, position: int
) -> None:
    job_id = Pair.beside(scene).submit(key="k")
    _changed(
        scene,
        job_id,
        lambda task: task["parts"][position].update(scope={"shard": [0]}),
    )
    _refused(scene, job_id)


CHEAPER = {
    "type": "discrete-laplace/1",
    "adjacency": "add_remove",
    "l1_sensitivity": "1",
    "inverse_scale": "1/1000",
    "coordinates": 1,
}


@on_one_database
def test_an_event_that_costs_less_is_not_that_of_the_reservation(scene: Scene) -> None:
    """Where the work is not planned again, the entry says what it pays for."""
    job_id = scene.submit_job(key="k", scope={"shard": [0]})
    _changed(scene, job_id, lambda task: task["work"]["plan"].update(event=CHEAPER))
    with patch.object(TrainKind, "is_planned", lambda *_: True):
        _refused(scene, job_id)


@on_one_database
def test_a_key_that_ended_after_the_claim_charges_nothing(scene: Scene) -> None:
    job_id = scene.submit_job(key="k")
    claim = claimed(scene.installation)
    with scene.installation.database.write() as session:
        keys.find(session, OWNER.key_id).expires_at = transaction_time(session)
    with pytest.raises(SubmitterRevoked):
        charge_claimed(scene.installation, claim)
    assert scene.end(job_id) == ("running", None, ["reserve"])


@on_one_database
def test_a_charge_locks_the_dataset_of_every_part(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that none is deleted before the commit; on SQLite no other transaction writes."""
    pair = Pair.beside(scene)
    pair.submit(key="k")
    locked: list[Any] = []
    lock_rows = charge.lock_rows

    def noted(session: Any, *rows: Any) -> None:
        locked.extend(rows)
        lock_rows(session, *rows)

    monkeypatch.setattr(charge, "lock_rows", noted)
    charge_claimed(scene.installation, claimed(scene.installation))
    assert locked == [(DatasetRow.id, {scene.dataset_id, pair.second.dataset_id})]


@on_one_database
@pytest.mark.parametrize("purpose", [None, "a pilot"])
@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_a_job_is_charged_whatever_else_its_reservation_states(
    installation: Installation, accountant: str, purpose: str | None
) -> None:
    """With several labels, the details of a reservation name one beside the purpose."""
    delta = {} if accountant == "pure" else {"delta": "0.000001"}
    budget = {"accountant": accountant, "epsilon": "3", **delta}
    labels = [
        {"name": "income", "classes": ["low", "high"]},
        {"name": "back", "classes": ["low", "high", "higher"]},
    ]
    schema = {"features": people.SCHEMA["features"], "labels": labels}
    declared = people.declared(installation, budget=budget, schema=schema)
    scene = Scene(installation, declared["id"])
    people.upload(installation, scene.dataset_id, b"age,income,back\n1,low,high\n")
    for label in ("income", "back"):
        body = {
            "dataset": scene.dataset_id,
            "algorithm": "rdt-ta",
            "epsilon": "0.01",
            "parameters": {"n_estimators": 2, "max_depth": 2},
            "label": label,
            "purpose": purpose,
        }
        answer = submit_training(
            installation,
            OWNER,
            TrainIn.model_validate(body),
            request=request("POST /train", label),
        )
        charge_claimed(installation, claimed(installation))
        job_id = str(json.loads(answer.body)["job_id"])
        assert scene.kinds_of(job_id) == ["reserve", "charge"]
