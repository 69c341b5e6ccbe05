"""Tests thousands of admissions of one process on one account against brute force over
its 64 joint cells.

An admission leaves a bound of the loads in memory, by which the next transaction
decides without a look at any cell. So the walk commits each job as a request does,
mixes charges, voids, smaller and larger caps, and processes that start with nothing in
memory, at a state that an entry states. Partition ``c`` is by upload, so that scopes
are ranges of uploads, lists of uploads, and parts of a range.
"""

import random
from itertools import product

import pytest

from app.core.errors import BudgetExceeded
from app.ledger import accounts, kept_states, tables
from app.ledger import reservations as ledger
from app.ledger.reservations import NewReservation
from app.services.installation import Installation
from grovekeeper_forests.privacy.partitions import (
    EpochPartition,
    HashPartition,
    Partitions,
)
from grovekeeper_forests.privacy.scope import Cell, Scope
from grovekeeper_verifier import dataset_replay
from tests.support.crash_scene import EVENT
from tests.support.evidence import export
from tests.support.reserving import reserve
from tests.support.set_limits import SetLimit
from tests.support.stated_states import StateEvery

pytestmark = pytest.mark.property

DOMAINS: dict[str, tuple[Cell, ...]] = {
    "a": (0, 1, 2, 3),
    "b": (0, 1, 2, 3),
    "c": ("ep_m", "ep_k", "ep_x", "ep_a"),
}
CELLS = [dict(zip(DOMAINS, cell, strict=True)) for cell in product(*DOMAINS.values())]
N_STEPS = 700


@pytest.mark.parametrize(
    "walk", [0, *(pytest.param(walk, marks=pytest.mark.long) for walk in (1, 2))]
)
def test_a_walk_of_admissions_decides_as_brute_force(
    installation: Installation,
    walk: int,
    state_every: StateEvery,
    set_limit: SetLimit,
) -> None:
    state_every(8)
    set_limit("MIN_RANGE_UPLOADS", 2)
    chance, account_id, cap = random.Random(walk), "ds_1", 100
    jobs: dict[str, tuple[int, Scope]] = {}  # that are reserved or charged
    waiting: list[str] = []
    n_admitted = n_refused = 0

    def load(cell: dict[str, Cell]) -> int:
        return sum(
            amount
            for amount, scope in jobs.values()
            if all(cell[name] in scope[name] for name in scope)
        )

    partitions = Partitions(
        (HashPartition("a", 4), HashPartition("b", 4), EpochPartition("c", "by day"))
    )
    unit = {"column": None, "max_rows": 1}
    with installation.database.write() as session:
        new_account = accounts.NewAccount(
            account_id, account_id, "pure", "add_remove", cap, None, unit, partitions
        )
        accounts.open_account(session, new_account, actor="key_owner")
    for step in range(N_STEPS):
        match chance.choices(
            ["reserve", "charge", "void", "cap", "start"], [40, 4, 8, 1, 4]
        )[0]:
            case "reserve":
                job_id, amount, scope = (
                    f"jb_{step}",
                    chance.randint(1, 12),
                    _scope(chance),
                )
                covered = [
                    cell
                    for cell in CELLS
                    if all(cell[name] in scope[name] for name in scope)
                ]
                fits = all(load(cell) + amount <= cap for cell in covered)
                assert (
                    _admits(
                        installation,
                        NewReservation(account_id, amount, Scope(scope), EVENT, job_id),
                    )
                    is fits
                )
                n_admitted, n_refused = n_admitted + fits, n_refused + (not fits)
                if fits:
                    jobs[job_id] = amount, scope
                    waiting.append(job_id)
            case "charge" | "void" as end if waiting:
                job_id = waiting.pop(chance.randrange(len(waiting)))
                with installation.database.write() as session:
                    if end == "charge":
                        ledger.charge_job(session, job_id, actor="worker")
                    else:
                        ledger.void_jobs(session, [job_id], actor="key_owner")
                        del jobs[job_id]
            case "cap":
                cap = max(map(load, CELLS)) + chance.randint(-5, 30)
                with installation.database.write() as session:
                    accounts.change_cap(
                        session, account_id, cap, reason="a test", actor="key_owner"
                    )
            case "start":
                bound = _bound(installation, account_id)
                assert bound >= max(map(load, CELLS))
                installation.database.kept.clear()  # as in a new process
                assert _bound(installation, account_id) == bound, (
                    "a bound depends on the entries alone"
                )
    assert min(n_admitted, n_refused) > N_STEPS // 10, "the walk is near the cap"
    with installation.database.read() as session:
        entries = tables.entries(session, account_id, after=0, limit=10 * N_STEPS)
        assert {type(entry.scope["c"]) for entry in entries if "c" in entry.scope} == {
            int,
            list,
        }
        summary = dataset_replay.verify(export(session, account_id))
    assert summary.kinds["state"] > N_STEPS // 16
    assert summary.tightest.load == max(map(load, CELLS))


def _bound(installation: Installation, account_id: str) -> int:
    with installation.database.read() as session:
        return kept_states.state_of(session, tables.account(session, account_id)).bound


def _scope(chance: random.Random) -> Scope:
    names = chance.sample(
        sorted(DOMAINS), chance.choices([0, 1, 2, 3], [1, 4, 4, 2])[0]
    )
    n_most = {"a": 2, "b": 2, "c": 4}
    return Scope(
        {
            name: chance.sample(DOMAINS[name], chance.randint(1, n_most[name]))
            for name in sorted(names)
        }
    )


def _admits(installation: Installation, reservation: NewReservation) -> bool:
    """Reserves in a transaction of its own, as a request for a job does."""
    try:
        with installation.database.write() as session:
            reserve(session, [reservation], actor="key_analyst")
    except BudgetExceeded:
        return False
    return True
