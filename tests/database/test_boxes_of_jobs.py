"""A job reads exactly the rows of the box that it paid for: no row of another cell and
no row of a later upload.
"""

import json
from typing import Any

import pytest

from app.access.idempotency import IdempotentRequest
from app.core.errors import BudgetExceeded
from app.datasets import private_rows
from app.datasets.private_rows import Selection
from app.ledger import tables
from app.services.execution import charge, run_job
from app.services.installation import Installation
from app.wire.training import TrainIn
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.privacy.partitions import Partitions
from tests.support import people
from tests.support.asking import submit_training
from tests.support.crash_scene import OWNER
from tests.support.job_kinds import claimed

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]

PARTITIONS: list[dict[str, Any]] = [
    {"name": "month", "kind": "epoch", "how": "one file per month"},
    {"name": "region", "kind": "column", "column": "land", "categories": ["EU", "US"]},
    {"name": "shard", "kind": "hash", "cells": 2},
]
LANDS = ("EU", "US", "XX", "")


def _upload(installation: Installation, dataset: str, first_age: int) -> str:
    """Forty rows with ages from ``first_age`` upward, ten in each land."""
    rows = b"".join(
        f"{first_age + at},low,{LANDS[at % 4]}\n".encode() for at in range(40)
    )
    return str(
        people.upload(
            installation, dataset, b"age,income,land\n" + rows, accept_unknown=True
        )["epoch"]
    )


def _submit(
    installation: Installation,
    dataset: str,
    key: str,
    scope: dict[str, Any],
    *,
    epsilon: str = "1",
) -> None:
    body = TrainIn(
        dataset=dataset,
        algorithm="rdt-ta",
        epsilon=epsilon,  # type: ignore[arg-type]  # as it comes over the wire
        parameters={"n_estimators": 1, "max_depth": 1},
        scope=scope,
    )
    request = IdempotentRequest(
        OWNER.key_id, "POST /train", key, key.encode().ljust(32, b".")
    )
    assert submit_training(installation, OWNER, body, request=request).status == 202


def _ages_read(installation: Installation) -> set[int]:
    """The ages that the next job in the queue would read after its charge."""
    claim = claimed(installation)
    task = run_job.located(installation, charge.charge_claimed(installation, claim))
    [part] = type(task).from_text(task.to_text()).parts
    selection = Selection(
        Schema.from_json(part.schema), Partitions.from_json(part.partitions), part.scope
    )
    rows = private_rows.read(part.files, selection)
    ages = [int(age) for age in rows.features.columns[0]]
    assert len(set(ages)) == len(ages)
    return set(ages)


def test_a_job_reads_its_box_alone(installation: Installation) -> None:
    dataset = people.declared(installation, partitions=PARTITIONS)["id"]
    first, second = (
        _upload(installation, dataset, first_age) for first_age in (0, 100)
    )
    everything = {*range(40), *range(100, 140)}
    boxes: list[tuple[dict[str, Any], set[int]]] = [
        ({}, everything),
        ({"month": [second]}, set(range(100, 140))),
        ({"region": ["EU"]}, {age for age in everything if age % 4 == 0}),
        (
            {"region": ["MISSING", "OTHER"], "month": [first]},
            {age for age in range(40) if age % 4 > 1},
        ),
    ]
    for number, (scope, ages) in enumerate(boxes):
        _submit(installation, dataset, f"key-{number}", scope, epsilon="0.5")
        assert _ages_read(installation) == ages
    halves = []
    for cell in (0, 1):
        _submit(
            installation, dataset, f"shard-{cell}", {"shard": [cell]}, epsilon="0.5"
        )
        halves.append(_ages_read(installation))
    assert halves[0] | halves[1] == everything
    assert not halves[0] & halves[1]


def test_a_queued_job_reads_the_uploads_that_existed_at_submission(
    installation: Installation,
) -> None:
    """Otherwise a job would read rows of a new cell without a charge to that cell."""
    dataset = people.declared(installation, partitions=PARTITIONS)["id"]
    _upload(installation, dataset, 0)
    _submit(installation, dataset, "everything", {}, epsilon="3")
    second = _upload(installation, dataset, 100)
    assert _ages_read(installation) == set(range(40))
    with pytest.raises(BudgetExceeded):
        _submit(installation, dataset, "too much", {}, epsilon="0.1")
    _submit(installation, dataset, "the new cell", {"month": [second]}, epsilon="3")
    assert _ages_read(installation) == set(range(100, 140))


def test_without_a_partition_by_upload_later_rows_share_earlier_charges(
    installation: Installation,
) -> None:
    """Without a partition by upload, uploads are not cells: a later upload does not
    open a fresh budget.
    """
    dataset = people.declared(installation, partitions=PARTITIONS[1:])["id"]
    _upload(installation, dataset, 0)
    _submit(installation, dataset, "everything", {}, epsilon="3")
    assert _ages_read(installation) == set(range(40))
    _upload(installation, dataset, 100)
    with pytest.raises(BudgetExceeded) as refused:
        _submit(installation, dataset, "again", {}, epsilon="0.1")
    assert refused.value.largest_that_fits == "0"


def test_the_entries_of_a_job_name_the_box_that_it_read(
    installation: Installation,
) -> None:
    dataset = people.declared(installation, partitions=PARTITIONS)["id"]
    epochs = sorted(_upload(installation, dataset, first_age) for first_age in (0, 100))
    _submit(installation, dataset, "key", {"region": ["US", "EU", "US"]})
    with installation.database.read() as session:
        entry = tables.entries(session, dataset, after=1, limit=9)[0]
    assert json.loads(json.dumps(entry.scope)) == {
        "month": epochs,
        "region": ["EU", "US"],
    }


def test_the_one_row_of_a_unit_is_in_one_cell_of_each_partition(
    installation: Installation,
) -> None:
    """Rows beyond the unit's bound are in no cell; admitted rows keep their column and
    their unit's hash.
    """
    dataset = people.declared(
        installation, partitions=PARTITIONS, privacy_unit=people.per_patient(1)
    )["id"]
    rows = [f"patient {age % 20},{age},low,{LANDS[age % 4]}" for age in range(40)]
    body = "\n".join(["patient,age,income,land", *rows, ",77,low,EU", ""]).encode()
    report = people.upload(installation, dataset, body, accept_unknown=True)
    assert report["dropped"] == {"without_unit": 1, "over_bound": 20}
    read = []
    for number, scope in enumerate(
        [
            {},
            {"region": ["EU"]},
            {"region": ["MISSING"]},
            {"shard": [0]},
            {"shard": [1]},
        ]
    ):
        _submit(installation, dataset, f"key-{number}", scope, epsilon="0.5")
        read.append(_ages_read(installation))
    kept = set(range(20))
    assert read[:3] == [
        kept,
        {age for age in kept if age % 4 == 0},
        {age for age in kept if age % 4 == 3},
    ]
    assert read[3] | read[4] == kept
    assert not read[3] & read[4]
