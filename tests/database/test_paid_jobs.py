"""A job runs only if its reservations pay for the exact releases of its task."""

import copy
import dataclasses
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import delete, make_url, update
from sqlalchemy.orm import Session

from app.core.errors import BalanceMismatch
from app.datasets.catalog import DatasetRow
from app.db.database import Database
from app.jobs.tables import JobRow
from app.ledger.tables import ReservationRow
from app.services.execution import charge
from app.services.execution.charge import TaskNotPaid, charge_claimed
from app.services.installation import Installation
from app.services.jobs.task import JobTask
from app.services.releases import training
from app.services.releases.kinds import KINDS
from app.services.releases.profiles import ProfileKind
from app.services.releases.training import TrainKind
from app.services.spending import spend
from grovekeeper_forests.releases.forest import price as forest_price
from tests.support import people
from tests.support.crash_scene import ADMIN, Scene
from tests.support.job_kinds import (
    claimed,
    evaluation,
    model,
    perform_here,
    profile,
    run,
)
from tests.support.two_datasets import Pair

pytestmark = pytest.mark.contract

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


@contextmanager
def wrongly_priced(change: Callable[[Any], Any]) -> Iterator[None]:
    """Submissions of a version that prices wrongly: entry, reservation and plan state
    another event.
    """
    reservation, row = spend._reservation, spend._row

    def changed_reservation(*job: Any, **more: Any) -> Any:
        reserved = reservation(*job, **more)
        return dataclasses.replace(reserved, event=change(reserved.event))

    def changed_row(*job: Any, **more: Any) -> JobRow:
        changed = row(*job, **more)
        plan = changed.task["work"]["plan"]
        plan["event"] = change(plan["event"])
        return changed

    with (
        patch.object(spend, "_reservation", changed_reservation),
        patch.object(spend, "_row", changed_row),
    ):
        yield


def costly(_: Any) -> Any:
    return COSTLY


def twice(event: Any) -> Any:
    return {"type": "sequential/1", "parts": [{"times": 2, "event": event}]}


def _price_in_another_unit(task: dict[str, Any]) -> None:
    price = task["parts"][0]["price"]
    assert price["accountant"] == "pure"
    # as many steps
    price |= {"accountant": "zcdp", "amount": str(Decimal(price["amount"]) / 1000)}


def _smaller_epsilon(task: dict[str, Any]) -> None:
    task["parts"][0]["price"]["epsilon"] = "0.005"


def _an_upload_twice(task: dict[str, Any]) -> None:
    task["parts"][0]["epochs"] *= 2


def _another_purpose(task: dict[str, Any]) -> None:
    task["purpose"] = "a pilot"


def _another_submitter(scene: Scene, job_id: str) -> None:
    with scene.installation.database.write() as session:
        session.execute(
            update(JobRow).where(JobRow.id == job_id).values(submitted_by=ADMIN.key_id)
        )


def _more_trees(task: dict[str, Any]) -> None:
    task["work"]["plan"]["parameters"]["n_estimators"] = task["work"]["plan"][
        "n_trees"
    ] = 100


def _all_rows_in_every_tree(task: dict[str, Any]) -> None:
    parameters = task["work"]["plan"]["parameters"]
    assert parameters["assignment"] == "sharded"
    parameters["assignment"] = "sequential"


TAMPERED = {  # attacks; every column and every field: test_tampered_rows.py
    "event": _of_task(_other_event),
    "cells": _of_task(_other_cells),
    "price": _of_task(_smaller_price),
    "unit": _of_task(_price_in_another_unit),
    "epsilon": _of_task(_smaller_epsilon),
    "upload-twice": _of_task(_an_upload_twice),
    "purpose": _of_task(_another_purpose),
    "submitter": _another_submitter,
    "another-reservation": _of_task(_reservation_of_another_job),
    "part-twice": _of_task(_the_part_twice),
    "no-parts": _of_task(_no_parts),
    "more-trees": _of_task(_more_trees),
}


def _never(task: JobTask, _kept: object) -> None:
    raise AssertionError("a job ran that was not paid for")


@pytest.mark.parametrize("change", TAMPERED)
def test_a_job_whose_task_is_not_what_was_reserved_reads_no_row(
    scene: Scene, change: str
) -> None:
    job_id = scene.submit_job(key="k", scope={"shard": [0]})
    TAMPERED[change](scene, job_id)
    run(scene, _never)
    row = scene.job(job_id)
    assert (row.state, row.reason, row.charged_at) == ("failed", "failed", None)
    assert scene.kinds_of(job_id) == ["reserve", "void"]


def test_a_job_whose_reservations_belong_to_the_accounts_of_each_other_reads_no_row(
    scene: Scene,
) -> None:
    """Events, prices and scopes are those that were reserved: only the accounts show
    that each dataset's rows are read at the price of the other one.
    """
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


@pytest.mark.parametrize("change", ["amount", "event", "details", "scope"])
def test_a_job_with_a_changed_reservation_reads_no_row_and_gives_nothing_back(
    scene: Scene, change: str
) -> None:
    """No entry says what was reserved besides the entry that reserved it, so the job
    waits for the operator.
    """
    job_id = scene.submit_job(key="k", scope={"shard": [0]})
    values: dict[str, Any] = {
        "amount": 10**6,
        "event": COSTLY,
        "details": {"delta": "1e-9"},
        "scope": {"shard": [1]},
    }
    with scene.installation.database.write() as session:
        reservation = update(ReservationRow).where(ReservationRow.job_id == job_id)
        session.execute(reservation.values({change: values[change]}))
    with pytest.raises(BalanceMismatch):
        run(scene, _never)
    assert scene.job(job_id).charged_at is None
    assert scene.kinds_of(job_id) == ["reserve"]
    scene.verified()


def test_a_job_without_a_reservation_fails_before_rows_are_read(scene: Scene) -> None:
    job_id = scene.submit_job(key="k")
    _of_task(lambda task: task["parts"][0].update(reservation_id=None, price=None))(
        scene, job_id
    )
    with scene.installation.database.write() as session:
        session.execute(delete(ReservationRow).where(ReservationRow.job_id == job_id))
    run(scene, _never)
    assert (scene.job(job_id).state, scene.job(job_id).charged_at) == ("failed", None)


def test_a_job_that_paid_for_disjoint_trees_does_not_grow_them_on_all_rows(
    scene: Scene,
) -> None:
    """The event of disjoint trees costs one tree; all rows in every tree cost as many
    as there are trees.
    """
    job_id = scene.submit_job(key="k", scope={"shard": [0]}, assignment="sharded")
    _of_task(_all_rows_in_every_tree)(scene, job_id)
    run(scene, _never)
    assert scene.end(job_id) == ("failed", "failed", ["reserve", "void"])


@pytest.mark.parametrize("kind", ["train", "profile", "evaluation"])
def test_an_event_that_costs_more_than_was_reserved_reads_no_row(
    scene: Scene, kind: str
) -> None:
    """Neither where the entry says so, too, nor where the work is not planned again."""
    submit: dict[str, Callable[[str], str]] = {
        "train": lambda key: scene.submit_job(key=key),
        "profile": lambda key: profile(scene, key),
        "evaluation": lambda key: evaluation(scene, models[0], key=key),
    }
    models = [model(scene, "a")] if kind == "evaluation" else []
    with wrongly_priced(costly):
        first, second = submit[kind]("first"), submit[kind]("second")
    run(scene, _never)
    with patch.object(type(KINDS[kind]), "is_planned", lambda *_: True):
        run(scene, _never)
    for job_id in (first, second):
        assert scene.end(job_id) == ("failed", "failed", ["reserve", "void"])


def test_a_price_says_what_was_charged_where_the_work_is_not_planned_again(
    scene: Scene,
) -> None:
    job_id = scene.submit_job(key="k", scope={"shard": [0]})
    _of_task(_smaller_epsilon)(scene, job_id)
    with patch.object(TrainKind, "is_planned", lambda *_: True):
        run(scene, _never)
    assert scene.end(job_id) == ("failed", "failed", ["reserve", "void"])


@pytest.mark.parametrize("kind", ["profile", "evaluation"])
def test_the_parameters_of_a_profile_and_of_an_evaluation_are_priced_again(
    scene: Scene, kind: str
) -> None:
    job_id = (
        profile(scene) if kind == "profile" else evaluation(scene, model(scene, "a"))
    )

    def changed(task: dict[str, Any]) -> None:
        plan = task["work"]["plan"]
        if kind == "profile":
            plan["parameters"]["class_share"] = "0.5"
            plan["parameters"]["size_share"] = "0.25"
        else:
            plan["releases"] = ["confusion"]

    _of_task(changed)(scene, job_id)
    run(scene, _never)
    assert scene.end(job_id) == ("failed", "failed", ["reserve", "void"])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_model_that_is_named_twice_with_another_file_is_not_read(
    scene: Scene, order: tuple[int, int]
) -> None:
    """The number of models and one of the two files are those of the plan."""
    models = [model(scene, "a"), model(scene, "b")]
    job_id = evaluation(scene, *models)

    def changed(task: dict[str, Any]) -> None:
        first, second = task["work"]["models"]
        named = [first, {**first, "digest": second["digest"]}]
        task["work"]["models"] = [named[index] for index in order]

    _of_task(changed)(scene, job_id)
    run(scene, _never)
    assert scene.end(job_id) == ("failed", "failed", ["reserve", "void"])


def test_an_event_that_would_cost_one_row_what_was_reserved_for_a_unit_of_two_rows_reads_no_row(
    installation: Installation,
) -> None:
    cells = [{"name": "shard", "kind": "hash", "cells": 4}]
    declared = people.declared(
        installation, privacy_unit=people.per_patient(2), partitions=cells
    )
    people.upload(installation, declared["id"], people.visits([("ann", 1), ("ben", 2)]))
    scene = Scene(installation, declared["id"])
    untouched = profile(scene, "untouched")
    run(scene)
    assert scene.end(untouched) == ("succeeded", None, ["reserve", "charge"])
    with wrongly_priced(twice):
        job_id = profile(scene)
    with patch.object(ProfileKind, "is_planned", lambda *_: True):
        run(scene, _never)
    assert scene.end(job_id) == ("failed", "failed", ["reserve", "void"])


MONTHS = [{"name": "month", "kind": "epoch", "how": "one per month"}]


@pytest.mark.parametrize("names_uploads", [True, False])
def test_a_charge_for_some_uploads_opens_no_other_upload(
    installation: Installation, names_uploads: bool
) -> None:
    """A job opens the files of the uploads that its queue row names."""
    dataset = people.declared(installation, partitions=MONTHS if names_uploads else [])[
        "id"
    ]
    stranger = people.declared(installation)["id"]
    of_stranger = people.upload(installation, stranger, b"age,income\n9,low\n")["epoch"]
    first, second = (
        people.upload(installation, dataset, b"age,income\n" + body.encode())["epoch"]
        for body in ("1,low\n2,high\n3,low\n", "4,low\n")
    )
    scene, scope = (
        Scene(installation, dataset),
        {"month": [second]} if names_uploads else {},
    )
    others = [
        [first, second],
        [first],
        [second, second],
        [],
        [second, of_stranger],
        [f"../{stranger}/{of_stranger}"],
    ]
    # one charge covers all uploads; a job reads those that were there
    if not names_uploads:
        others = [
            [second, first],
            [first, first],
            [first, second, of_stranger],
            [second],
        ]
    for at, uploads in enumerate(others):
        job_id = scene.submit_job(key=f"key-{at}", scope=scope)
        _of_task(lambda task, uploads=uploads: task["parts"][0].update(epochs=uploads))(
            scene, job_id
        )  # type: ignore[misc]
        with pytest.raises(TaskNotPaid):
            charge_claimed(installation, claimed(installation))
        assert scene.end(job_id) == ("running", None, ["reserve"]), uploads
    honest = scene.submit_job(key="honest", scope=scope)
    files: list[tuple[Path, ...]] = []
    run(
        scene,
        lambda task, _: files.append(task.parts[0].row_files) or perform_here(task),
    )  # type: ignore[func-returns-value]
    assert scene.end(honest) == ("succeeded", None, ["reserve", "charge"])
    assert [path.stem for [*paths] in files for path in paths] == [
        *([] if names_uploads else [first]),
        second,
    ]


def test_a_job_is_planned_again_before_the_transaction_that_charges_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With thousands of columns that takes seconds, for which everybody who writes
    would wait on SQLite.
    """
    write, priced, is_writing, seen = (
        Database.write,
        forest_price.require_priced,
        False,
        list[bool](),
    )

    @contextmanager
    def writing(database: Database) -> Iterator[Session]:
        nonlocal is_writing
        with write(database) as session:
            is_writing = True
            try:
                yield session
            finally:
                is_writing = False

    def price_again(*planned: Any) -> None:
        seen.append(is_writing)
        priced(*planned)

    scene.submit_job(key="k", scope={"shard": [0]})
    claim = claimed(scene.installation)
    monkeypatch.setattr(Database, "write", writing)
    monkeypatch.setattr(training, "require_priced", price_again)
    charge_claimed(scene.installation, claim)
    assert seen == [False]


def _nearly_the_same_delta(task: dict[str, Any]) -> None:
    task["parts"][0]["price"]["delta"] += "00000000000000000001"  # at the same amount


def _another_algorithm(scene: Scene, job_id: str) -> None:
    with scene.installation.database.write() as session:
        session.execute(
            update(JobRow).where(JobRow.id == job_id).values(algorithm="rdt-mv")
        )


def _another_column(scene: Scene, _: str) -> None:
    with scene.installation.database.write() as session:
        row = session.get_one(DatasetRow, scene.dataset_id)
        schema = copy.deepcopy(row.schema)
        schema["features"][0]["upper"] += 1
        row.schema = schema


@pytest.mark.parametrize(
    "change", [_of_task(_nearly_the_same_delta), _another_algorithm, _another_column]
)
def test_a_job_that_changed_since_it_was_planned_again_is_planned_under_the_lock(
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Scene, str], None],
) -> None:
    budget = {"accountant": "zcdp", "epsilon": "3", "delta": "0.000001"}
    scene = Scene(installation, people.declared(installation, budget=budget)["id"])
    people.upload(installation, scene.dataset_id, b"age,income\n1,low\n")
    job_id = scene.submit_job(key="k")
    claim, planned_before, n_planned = claimed(installation), charge._planned_before, 0

    def planned_and_changed(*job: Any) -> Any:
        planned = planned_before(*job)
        assert planned is not None
        change(scene, job_id)
        return planned

    def is_planned(*_: Any) -> bool:
        nonlocal n_planned
        n_planned += 1
        return n_planned == 1

    monkeypatch.setattr(charge, "_planned_before", planned_and_changed)
    monkeypatch.setattr(TrainKind, "is_planned", is_planned)
    with pytest.raises(TaskNotPaid):
        charge_claimed(installation, claim)
    assert n_planned == 2


def test_a_job_that_was_not_touched_runs(scene: Scene) -> None:
    job_id = scene.submit_job(key="k", scope={"shard": [0]})
    run(scene)
    assert scene.job(job_id).state == "succeeded"
    assert scene.kinds_of(job_id) == ["reserve", "charge"]


CHARGES = """
import shutil, sys, tempfile
from pathlib import Path
from app.services.execution import run_job
from tests.database.test_paid_jobs import TAMPERED
from tests.support.crash_scene import opened
from tests.support.job_kinds import run_here

def run(task, _kept):
    raise SystemExit("a job ran that was not paid for")

for name, tamper in TAMPERED.items():
    with tempfile.TemporaryDirectory() as folder:
        database = shutil.copy(sys.argv[1], folder)
        with opened(f"sqlite:///{database}", Path(folder) / "home") as scene:
            job_id = scene.submit_job(key="k", scope={"shard": [0]})
            tamper(scene, job_id)
            run_here(scene.installation, run_job.claim_next(scene.installation), run)
            if scene.job(job_id).state != "failed" or scene.kinds_of(job_id) != ["reserve", "void"]:
                raise SystemExit(name)
print("all refused")
"""


def test_a_job_that_is_not_paid_for_is_refused_where_python_removes_asserts(
    sqlite_database_url: str,
) -> None:
    migrated = str(make_url(sqlite_database_url).database)
    ended = subprocess.run(
        [sys.executable, "-O", "-c", CHARGES, migrated],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "all refused\n"


def _another_label(task: dict[str, Any]) -> None:
    task["parts"][0]["label"] = "back"


def _no_label(task: dict[str, Any]) -> None:
    del task["parts"][0]["label"]


@pytest.mark.parametrize("change", [_another_label, _no_label])
def test_a_job_reads_the_label_that_its_entry_names(
    installation: Installation, change: Callable[[dict[str, Any]], None]
) -> None:
    classes = ["low", "high"]
    labels = [{"name": name, "classes": classes} for name in ("income", "back")]
    schema = {"features": people.SCHEMA["features"], "labels": labels}
    scene = Scene(installation, people.declared(installation, schema=schema)["id"])
    body = b"age,income,back\n1,low,high\n"
    people.upload(installation, scene.dataset_id, body)
    job_id = scene.submit_job(key="k")
    assert scene.job(job_id).label == "income"
    (entry,) = (entry for entry in scene.entries() if entry.job_id == job_id)
    assert entry.details == {"label": "income"}
    _of_task(change)(scene, job_id)
    with pytest.raises(TaskNotPaid):
        charge_claimed(installation, claimed(installation))
