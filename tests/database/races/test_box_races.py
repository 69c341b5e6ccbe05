"""Tests many concurrent processes on one account with three partitions, on both
databases.

The entries are replayed through the model, which computes every joint cell: no prefix
has a joint cell over the cap.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.ledger import kept_states, statements, tables
from app.services.installation import Installation
from grovekeeper_forests.privacy.partitions import (
    ColumnPartition,
    EpochPartition,
    HashPartition,
    Partitions,
)
from tests.database.races.conftest import Race
from tests.support.crash_scene import open_account, open_installation
from tests.support.ledger_model import frozen, replay

ACCOUNT = "ds_hot"
CELLS = {
    "month": ["ep_1", "ep_2"],
    "region": ["EU", "OTHER", "US"],
    "shard": [0, 1, 2, 3],
}
PARTITIONS = Partitions(
    (
        HashPartition("shard", 4),
        ColumnPartition("region", "land", False, ("EU", "US"), has_missing=False),
        EpochPartition("month", "one file per month"),
    )
)


@pytest.fixture
def installation(database_url: str, tmp_path: Path) -> Iterator[Installation]:
    installation = open_installation(database_url, tmp_path / "home", lease_ttl_s=600)
    yield installation
    installation.close()


@pytest.mark.parametrize("n_processes", [20, pytest.param(64, marks=pytest.mark.long)])
def test_no_joint_cell_exceeds_the_cap_and_all_joint_cells_are_filled(
    race: Race, installation: Installation, n_processes: int
) -> None:
    cap, smallest = 150, 3  # room for many boxes; the race decides which are admitted
    open_account(installation, ACCOUNT, cap=cap, partitions=PARTITIONS)
    results = race(
        installation, "reserve_boxes", account=ACCOUNT, cells=CELLS, uploads="month",
        rounds=4, smallest=smallest, largest=12,
    )  # fmt: skip
    admitted = {
        job_id: (amount, box, end)
        for result in results
        for job_id, amount, box, end in result
    }
    assert sum(map(bool, results)) > n_processes // 4, (
        "many processes took part in the race"
    )
    with installation.database.read() as session:
        entries = tables.entries(session, ACCOUNT, after=0, limit=1_000_000)
        now = kept_states.state_of(session, tables.account(session, ACCOUNT))
        tightest = statements.balance(session, ACCOUNT)
        by_cell = statements.detail(session, ACCOUNT).cells
    # at every admission: the largest of all joint cells inside the box fits the cap
    model = replay(entries, CELLS)
    assert {
        job_id: (job.amount, frozen(job.box), job.state)
        for job_id, job in model.jobs.items()
    } == {
        job_id: (amount, frozen(box), end or "reserve")
        for job_id, (amount, box, end) in admitted.items()
    }
    assert {
        frozen(now.scopes[digest]): amounts for digest, amounts in now.totals.items()
    } == model.by_box()
    loads = [sum(model.carried(cell)) for cell in model.joint_cells({})]
    assert all(cap - smallest < load <= cap for load in loads), (
        "in every joint cell, not even the smallest amount fits"
    )
    assert len(set(map(frozen, (job.box for job in model.jobs.values())))) > 30, (
        "many different boxes"
    )
    assert (
        tightest.tightest_cell,
        tightest.charged,
        tightest.reserved,
    ) == model.tightest({})
    for name, cells in by_cell.items():
        for cell in cells:
            assert cell.charged + cell.reserved == sum(
                model.tightest({name: (cell.cell[name],)})[1:]
            )
