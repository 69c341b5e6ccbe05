"""Walks of a service whose exact loads take too much work: whatever it admits or
states, the verifier can check.

Both programs have their limits of work lowered alike, so that most loads near the cap
are bounds.
"""

import random
from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy.orm import Session

from app.core.errors import BudgetExceeded
from app.ledger import accounts, kept_states, tables
from app.ledger import reservations as ledger
from app.ledger.reservations import NewReservation
from app.services.installation import Installation
from grovekeeper_forests.privacy.partitions import (
    ColumnPartition,
    EpochPartition,
    HashPartition,
    Partitions,
)
from grovekeeper_forests.privacy.scope import Scope
from grovekeeper_verifier import dataset_replay, result_text
from tests.support import population_accounts as members
from tests.support import reserving
from tests.support.crash_scene import EVENT
from tests.support.evidence import export, verified
from tests.support.set_limits import SetLimit
from tests.support.stated_states import StateEvery

pytestmark = pytest.mark.property

PARTITIONS = Partitions(
    (
        HashPartition("a", 5),
        HashPartition("b", 4),
        ColumnPartition(
            "c", "c", is_feature=False, categories=("x", "y"), has_missing=True
        ),
        EpochPartition("d", "monthly"),
    )
)
CELLS: Mapping[str, tuple[Any, ...]] = {
    "a": tuple(range(5)), "b": tuple(range(4)), "c": ("MISSING", "OTHER", "x", "y"), "d": ("ep_1", "ep_2", "ep_3"),
}  # fmt: skip
NAMES = ("ds_1", "ds_2", "ds_alone")
N_STEPS = 120


@pytest.fixture
def low_limits(state_every: StateEvery, set_limit: SetLimit) -> None:
    set_limit("MAX_COMPOSITION_WORK", 120)
    set_limit("MAX_ELIMINATION_WORK", 120)
    set_limit("MAX_WORK", 0)
    state_every(16)


@pytest.mark.usefixtures("low_limits")
@pytest.mark.parametrize(
    "walk", [0, 1, *(pytest.param(walk, marks=pytest.mark.long) for walk in (2, 3))]
)
def test_whatever_the_service_admits_by_a_bound_is_verified(
    installation: Installation, walk: int
) -> None:
    chance = random.Random(walk)
    with installation.database.write() as session:
        like = accounts.NewAccount(
            "",
            "",
            "pure",
            "add_remove",
            60,
            None,
            {"column": None, "max_rows": 1},
            PARTITIONS,
        )
        members.opened(session, "ds_1", like=like, cap=100)
        for name in NAMES[1:]:
            members.account(session, name, like)
    waiting: list[str] = []
    n_refused = 0
    for step in range(N_STEPS):
        with installation.database.write() as session:
            if step == N_STEPS // 3:
                members.join(session, "ds_2")
            match chance.choices(
                ["reserve", "charge", "void", "look", "start"], [30, 5, 6, 2, 1]
            )[0]:
                case "reserve":
                    n_refused += not _admits(
                        session, _reservation(chance, f"jb_{step}"), waiting
                    )
                case "charge" if waiting:
                    ledger.charge_job(
                        session,
                        waiting.pop(chance.randrange(len(waiting))),
                        actor="worker",
                    )
                case "void" if waiting:
                    ledger.void_jobs(
                        session,
                        [waiting.pop(chance.randrange(len(waiting)))],
                        actor="key_owner",
                    )
                case "look":
                    looked_at = kept_states.state_of(
                        session, tables.account(session, chance.choice(NAMES))
                    )
                    assert looked_at.budget.whole.load <= looked_at.highest_cap
                case "start":
                    installation.database.kept.clear()  # as in a new process
    assert n_refused > N_STEPS // 20, "the walk is near the caps"
    with installation.database.read() as session:
        summary = verified(session, "pop_a")
        alone = dataset_replay.verify(export(session, "ds_alone"))
        shown = kept_states.state_of(
            session, tables.account(session, "ds_alone")
        ).budget.whole
    assert any(each.n_bounds for each in summary.compared.values())
    assert not alone.tightest.is_exact
    assert (alone.tightest.load, alone.tightest.is_exact) == (
        shown.load,
        shown.is_exact,
    )
    assert result_text.population_to_json(summary)["verdict"] == "CONSISTENT (bounded)"
    assert result_text.to_json(alone)["verdict"] == "CONSISTENT (bounded)"
    with installation.database.write() as session:
        for job_id in waiting:
            ledger.charge_job(session, job_id, actor="worker")
        for erased_id, population_id in (("ds_alone", None), ("ds_1", "pop_a")):
            members.account(session, f"{erased_id}_next", like)
            names = (f"{erased_id}_next", erased_id)
            assert accounts.continue_account(
                session, *names, population_id=population_id, actor="key_owner"
            )
            erased = dataset_replay.read(list(export(session, erased_id)), ())
            continued = dataset_replay.verify(
                export(session, f"{erased_id}_next"), (), [erased]
            )
            assert continued.opening_load == continued.tightest.load
            assert continued.compared is not None
            is_bounded = not continued.compared.tightest.is_exact
            assert (
                result_text.to_json(continued)["verdict"]
                == "CONSISTENT" + " (bounded)" * is_bounded
            )
        members.join(session, "ds_1_next")
        verified(session, "pop_a")


def _reservation(chance: random.Random, job_id: str) -> NewReservation:
    amount = chance.choice([1, 3, 9, 20])
    return NewReservation(chance.choice(NAMES), amount, _scope(chance), EVENT, job_id)


def _scope(chance: random.Random) -> Scope:
    names = sorted(
        chance.sample(sorted(CELLS), chance.choices([0, 1, 2, 3], [1, 3, 6, 6])[0])
    )
    return Scope(
        {name: chance.sample(CELLS[name], chance.randint(1, 3)) for name in names}
    )


def _admits(session: Session, reservation: NewReservation, waiting: list[str]) -> bool:
    try:
        with session.begin_nested():
            reserving.reserve(session, [reservation], actor="key_analyst")
    except BudgetExceeded:
        return False
    assert reservation.job_id is not None
    waiting.append(reservation.job_id)
    return True
