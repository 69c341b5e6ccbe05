"""A job runs only if its reservations pay for the exact releases of its task."""

import copy
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, make_url, update

from app.core.errors import BalanceMismatch
from app.jobs.tables import JobRow
from app.ledger.tables import ReservationRow
from app.services.installation import Installation
from app.services.jobs.task import JobTask
from tests.support import people
from tests.support.crash_scene import Scene
from tests.support.job_kinds import evaluation, model, profile, run
from tests.support.two_datasets import Pair

ROOT = Path(__file__).parents[2]

COSTLY = {
    "type": "discrete-laplace/1",
    "adjacency": "add_remove",
    "l1_sensitivity": "1",
    "inverse_scale": "1",
    "coordinates": 1,
}
"""ε = 1, although 0.01 was reserved."""


def _of_task(change: Callable[[dict[str, Any]], None]) -> Callable[[Scene, str], None]:
    def tamper(scene: Scene, job_id: str) -> None:
        with scene.installation.database.write() as session:
            row = session.get_one(JobRow, job_id)
            task = copy.deepcopy(row.task)
            change(task)
            row.task = task

    return tamper


def _other_event(task: dict[str, Any]) -> None:
    task["work"]["plan"]["event"] = COSTLY


def _other_cells(task: dict[str, Any]) -> None:
    task["parts"][0]["scope"] = {"shard": [1]}


def _smaller_price(task: dict[str, Any]) -> None:
    task["parts"][0]["price"]["amount"] = "0.001"


def _reservation_of_another_job(task: dict[str, Any]) -> None:
    task["parts"][0]["reservation_id"] = "rs_other"


def _the_part_twice(task: dict[str, Any]) -> None:
    task["parts"].append(task["parts"][0])


def _no_parts(task: dict[str, Any]) -> None:
    task["parts"] = []


def _twice_the_event(task: dict[str, Any]) -> None:
    plan = task["work"]["plan"]
    plan["event"] = {"type": "sequential/1", "parts": [{"times": 2, "event": plan["event"]}]}


def _on_both_sides(change: Callable[[dict[str, Any]], None]) -> Callable[[Scene, str], None]:
    def tamper(scene: Scene, job_id: str) -> None:
        _of_task(change)(scene, job_id)
        event = scene.job(job_id).task["work"]["plan"]["event"]
        with scene.installation.database.write() as session:
            session.execute(update(ReservationRow).where(ReservationRow.job_id == job_id).values(event=event))

    return tamper


def _smaller_reservation(scene: Scene, job_id: str) -> None:
    with scene.installation.database.write() as session:
        session.execute(update(ReservationRow).where(ReservationRow.job_id == job_id).values(amount=10**6))


def _price_in_another_unit(task: dict[str, Any]) -> None:
    price = task["parts"][0]["price"]
    assert price["accountant"] == "pure"
    price |= {"accountant": "zcdp", "amount": str(Decimal(price["amount"]) / 1000)}  # as many steps


def _other_event_of_the_reservation(scene: Scene, job_id: str) -> None:
    with scene.installation.database.write() as session:
        session.execute(update(ReservationRow).where(ReservationRow.job_id == job_id).values(event=COSTLY))


def _more_trees(task: dict[str, Any]) -> None:
    task["work"]["plan"]["parameters"]["n_estimators"] = task["work"]["plan"]["n_trees"] = 100


def _all_rows_in_every_tree(task: dict[str, Any]) -> None:
    parameters = task["work"]["plan"]["parameters"]
    assert parameters["assignment"] == "sharded"
    parameters["assignment"] = "sequential"


TAMPERED = {
    "event": _of_task(_other_event),
    "cells": _of_task(_other_cells),
    "event-on-both-sides": _on_both_sides(_other_event),
    "price": _of_task(_smaller_price),
    "unit": _of_task(_price_in_another_unit),
    "event-of-the-reservation": _other_event_of_the_reservation,
    "another-reservation": _of_task(_reservation_of_another_job),
    "part-twice": _of_task(_the_part_twice),
    "no-parts": _of_task(_no_parts),
    "more-trees": _of_task(_more_trees),
}


def _never(task: JobTask, _kept: object) -> None:
    raise AssertionError("a job ran that was not paid for")


@pytest.mark.parametrize("change", TAMPERED)
def test_a_job_whose_task_is_not_what_was_reserved_reads_no_row(scene: Scene, change: str) -> None:
    job_id = scene.submit_job(key="k", scope={"shard": [0]})
    TAMPERED[change](scene, job_id)
    run(scene, _never)
    row = scene.job(job_id)
    assert (row.state, row.reason, row.charged_at) == ("failed", "failed", None)
    assert scene.kinds_of(job_id) == ["reserve", "void"]


def test_a_job_whose_reservations_belong_to_the_accounts_of_each_other_reads_no_row(scene: Scene) -> None:
    """Events, prices and scopes are those that were reserved: only the accounts show that each dataset's rows are read
    at the price of the other one."""
    pair = Pair.beside(scene)
    job_id = pair.submit(key="k", of_second="0.01")

    def exchanged(task: dict[str, Any]) -> None:
        first, second = task["parts"]
        task["parts"] = [
            {**second, "reservation_id": first["reservation_id"]},
            {**first, "reservation_id": second["reservation_id"]},
        ]

    _of_task(exchanged)(scene, job_id)
    run(scene, _never)
    assert (scene.job(job_id).state, scene.job(job_id).charged_at) == ("failed", None)
    assert pair.kinds_of(job_id) == (["reserve", "void"], ["reserve", "void"])


def test_a_job_with_a_changed_reservation_reads_no_row_and_gives_nothing_back(scene: Scene) -> None:
    """No entry says what was reserved besides the entry that reserved it, so the job waits for the operator."""
    job_id = scene.submit_job(key="k", scope={"shard": [0]})
    _smaller_reservation(scene, job_id)
    with pytest.raises(BalanceMismatch):
        run(scene, _never)
    assert scene.job(job_id).charged_at is None
    assert scene.kinds_of(job_id) == ["reserve"]


def test_a_job_without_a_reservation_fails_before_rows_are_read(scene: Scene) -> None:
    job_id = scene.submit_job(key="k")
    _of_task(lambda task: task["parts"][0].update(reservation_id=None, price=None))(scene, job_id)
    with scene.installation.database.write() as session:
        session.execute(delete(ReservationRow).where(ReservationRow.job_id == job_id))
    run(scene, _never)
    assert (scene.job(job_id).state, scene.job(job_id).charged_at) == ("failed", None)


def test_a_job_that_paid_for_disjoint_trees_does_not_grow_them_on_all_rows(scene: Scene) -> None:
    """The event of disjoint trees costs one tree; all rows in every tree cost as many as there are trees."""
    job_id = scene.submit_job(key="k", scope={"shard": [0]}, assignment="sharded")
    _of_task(_all_rows_in_every_tree)(scene, job_id)
    run(scene, _never)
    assert scene.end(job_id) == ("failed", "failed", ["reserve", "void"])


@pytest.mark.parametrize("kind", ["profile", "evaluation"])
def test_a_profile_or_an_evaluation_that_costs_more_than_was_reserved_reads_no_row(scene: Scene, kind: str) -> None:
    """Their parameters are not priced again, as those of a forest are: only the loss of the event shows the price."""
    job_id = profile(scene) if kind == "profile" else evaluation(scene, model(scene, "a"))
    _on_both_sides(_other_event)(scene, job_id)
    run(scene, _never)
    assert scene.end(job_id) == ("failed", "failed", ["reserve", "void"])


def test_an_event_that_would_cost_one_row_what_was_reserved_for_a_unit_of_two_rows_reads_no_row(
    installation: Installation,
) -> None:
    cells = [{"name": "shard", "kind": "hash", "cells": 4}]
    declared = people.declared(installation, privacy_unit=people.per_patient(2), partitions=cells)
    people.upload(installation, declared["id"], people.visits([("ann", 1), ("ben", 2)]))
    scene = Scene(installation, declared["id"])
    untouched = profile(scene, "untouched")
    run(scene)
    assert scene.end(untouched) == ("succeeded", None, ["reserve", "charge"])
    job_id = profile(scene)
    _on_both_sides(_twice_the_event)(scene, job_id)
    run(scene, _never)
    assert scene.end(job_id) == ("failed", "failed", ["reserve", "void"])


def test_a_job_that_was_not_touched_runs(scene: Scene) -> None:
    job_id = scene.submit_job(key="k", scope={"shard": [0]})
    run(scene)
    assert scene.job(job_id).state == "succeeded"
    assert scene.kinds_of(job_id) == ["reserve", "charge"]


CHARGES = """
import shutil, sys, tempfile
from pathlib import Path
from app.services.execution import run_job
from tests.contract.test_paid_jobs import TAMPERED
from tests.support.crash_scene import opened

def run(task, _kept):
    raise SystemExit("a job ran that was not paid for")

for name, tamper in TAMPERED.items():
    with tempfile.TemporaryDirectory() as folder:
        database = shutil.copy(sys.argv[1], folder)
        with opened(f"sqlite:///{database}", Path(folder) / "home") as scene:
            job_id = scene.submit_job(key="k", scope={"shard": [0]})
            tamper(scene, job_id)
            run_job.run_job(scene.installation, run_job.claim_next(scene.installation), run)
            if scene.job(job_id).state != "failed" or scene.kinds_of(job_id) != ["reserve", "void"]:
                raise SystemExit(name)
print("all refused")
"""


def test_a_job_that_is_not_paid_for_is_refused_where_python_removes_asserts(sqlite_database_url: str) -> None:
    migrated = str(make_url(sqlite_database_url).database)
    ended = subprocess.run(
        [sys.executable, "-O", "-c", CHARGES, migrated],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "all refused\n"
