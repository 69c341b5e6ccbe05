"""Tests many concurrent processes on one account with three partitions, on both
databases.

The checked function takes the entries again, and computes every joint cell: no prefix
has a joint cell over the cap.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import TypeAlias

import pytest

from app.ledger import kept_states, statements, tables
from app.services.installation import Installation
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.partitions import (
    ColumnPartition,
    EpochPartition,
    HashPartition,
    Partitions,
)
from grovekeeper_forests.privacy.scope import Cell
from tests.database.races.conftest import Race
from tests.support.checked_exports import replayed
from tests.support.crash_scene import open_account, open_installation
from tests.support.evidence import export

_Frozen: TypeAlias = tuple[tuple[str, tuple[Cell, ...]], ...]

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
        lines = list(export(session, ACCOUNT))
        now = kept_states.state_of(session, tables.account(session, ACCOUNT))
        tightest = statements.balance(session, ACCOUNT)
        by_cell = statements.detail(session, ACCOUNT).cells
    # at every admission: the largest of all joint cells inside the box fits the cap
    refused, account = replayed(lines)
    assert refused is None
    assert _last_of_jobs(lines) == {
        job_id: (end or "reserve", amount, _frozen(box))
        for job_id, (amount, box, end) in admitted.items()
    }
    sums: dict[_Frozen, tuple[int, int]] = {}
    for amount, box, end in admitted.values():
        if end in (None, "charge"):
            charged, reserved = sums.get(_frozen(box), (0, 0))
            is_charged = end == "charge"
            sums[_frozen(box)] = (
                charged + amount * is_charged,
                reserved + amount * (not is_charged),
            )
    assert {
        _frozen(now.scopes[digest]): amounts for digest, amounts in now.totals.items()
    } == sums
    loads = {
        joint: account.load(
            {name: (cell,) for name, cell in zip(CELLS, joint, strict=True)}
        )
        for joint in product(*CELLS.values())
    }
    assert all(cap - smallest < load <= cap for load in loads.values()), (
        "in every joint cell, not even the smallest amount fits"
    )
    assert len({_frozen(box) for _, box, _ in admitted.values()}) > 30, (
        "many different boxes"
    )
    covering = [
        amounts
        for box, amounts in sums.items()
        if all(tightest.tightest_cell[name] in cells for name, cells in box)
    ]
    assert (tightest.charged, tightest.reserved) == tuple(
        map(sum, zip(*covering, strict=True))
    )
    largest = max(loads.values())
    assert loads[tuple(tightest.tightest_cell[name] for name in CELLS)] == largest
    assert tightest.charged + tightest.reserved == largest
    for place, name in enumerate(CELLS):
        for shown in by_cell[name]:
            inside = [
                load
                for joint, load in loads.items()
                if joint[place] == shown.cell[name]
            ]
            assert shown.charged + shown.reserved == max(inside)


def _frozen(box: Mapping[str, Sequence[Cell]]) -> _Frozen:
    """A box as a dictionary key."""
    return tuple((name, tuple(cells)) for name, cells in sorted(box.items()))


def _last_of_jobs(lines: Iterable[bytes]) -> dict[str, tuple[str, int, _Frozen]]:
    """Kind, amount and box of the last entry of each job."""
    _, _, *entries = map(json.loads, lines)
    return {
        entry["job_id"]: (
            entry["kind"],
            int(Fraction(entry["amount"]) * 10**pure.PLACES),
            _frozen(entry["scope"]),
        )
        for entry in entries
    }
