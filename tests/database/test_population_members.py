"""Stored totals of a population's members: always equal to those of their boxes, and
updated without reading a box.
"""

import random
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

import pytest
from sqlalchemy.orm import Session

from app.core import stamps
from app.core.errors import BudgetExceeded
from app.db.database import transaction_time
from app.ledger import accounts, kept_states, populations, tables
from app.ledger import reservations as ledger
from app.ledger.admission import MemberTotal
from app.ledger.populations import NewPopulation
from app.services.installation import Installation
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import WHOLE, Scope
from tests.support import reserving
from tests.support.crash_scene import EVENT, OWNER
from tests.support.evidence import verified
from tests.support.set_limits import SetLimit
from tests.support.settling import ENDS

pytestmark = pytest.mark.contract

NAMES = ("ds_1", "ds_2", "ds_3")
CUT = Partitions.from_json(
    [{"name": name, "kind": "hash", "cells": 3} for name in ("a", "b", "c")]
)


def opened(session: Session, *, cap: int, members: Sequence[str] = NAMES) -> None:
    populations.open_population(
        session,
        NewPopulation("pop_a", "patients", "pure", cap, None, OWNER.key_id),
        at=stamps.now(),
    )
    for name in NAMES:
        new_account = accounts.NewAccount(
            id=name, name=name, accountant="pure", adjacency="add_remove", cap=100, delta=None,
            privacy_unit={"column": None, "max_rows": 1}, partitions=CUT,
        )  # fmt: skip
        accounts.open_account(session, new_account, actor=OWNER.key_id)
        if name in members:
            populations.join(
                session, "pop_a", name, actor=OWNER.key_id, at=stamps.now()
            )


def reserve(
    session: Session,
    name: str,
    amount: int,
    job: str,
    scope: dict[str, tuple[int, ...]],
) -> str:
    return reserving.reserve(
        session,
        [ledger.NewReservation(name, amount, Scope(scope), EVENT, job)],
        actor="key_a",
    )[0]


def recomputed(session: Session) -> dict[str, MemberTotal]:
    """Totals recomputed from all boxes of all members; no load exceeds the bound that
    follows from the load before.
    """
    results = {}
    for name, kept in populations.of_population(session, "pop_a").members.items():
        tightest = kept_states.state_of(
            session, tables.account(session, name)
        ).budget.tightest(WHOLE)
        results[name] = MemberTotal(
            min(tightest.load, kept.load), tightest.reserved, tightest.is_exact
        )
    return results


@pytest.mark.parametrize(
    "work", [forest_limits.MAX_COMPOSITION_WORK, 0], ids=["exact", "bounds"]
)
def test_stored_totals_of_members_equal_their_boxes_after_every_step(
    installation: Installation, set_limit: SetLimit, work: int
) -> None:
    set_limit("MAX_COMPOSITION_WORK", work)
    generator, held = random.Random(5), list[str]()
    seen = set[MemberTotal]()
    with installation.database.write() as session:
        opened(session, cap=150)
        for number in range(120):
            if held and generator.random() < 0.5:
                end = generator.choice(["charge", "charge", "charge", "void", "expire"])
                ENDS[end](
                    session, held.pop(generator.randrange(len(held))), actor="worker"
                )
            else:
                picked = {
                    each: generator.sample(range(3), generator.randint(1, 2))
                    for each in generator.sample("abc", 2)
                }
                scope = {
                    each: tuple(sorted(cells)) for each, cells in sorted(picked.items())
                }
                with suppress(BudgetExceeded):
                    amount = generator.randint(1, 12)
                    held.append(
                        reserve(
                            session,
                            generator.choice(NAMES),
                            amount,
                            f"jb_{number}",
                            scope,
                        )
                    )
            kept = populations.of_population(session, "pop_a").members
            assert kept == recomputed(session)
            seen.update(kept.values())
    assert all(each.is_exact for each in seen) == bool(work)
    assert any(0 < each.reserved < each.load for each in seen)


@pytest.mark.parametrize("member", NAMES[:2])
def test_a_job_on_a_member_and_on_another_account_reads_each_membership_by_the_account(
    installation: Installation, member: str
) -> None:
    """In either order of the ids: the one is counted in the population, and the other
    by its own cap alone.
    """
    [other] = {*NAMES[:2]} - {member}
    both = [
        ledger.NewReservation(name, 40, WHOLE, EVENT, "jb_both") for name in NAMES[:2]
    ]
    with installation.database.write() as session:
        opened(session, cap=50, members=[member])
    with installation.database.write() as session:
        reserving.reserve(session, both, actor="key_a")
    # what the first job has read of an account holds for the next one
    for name, amount in ((other, 30), (member, 5)):
        with installation.database.write() as session:
            reserve(session, name, amount, f"jb_{name}", {})
    with (
        installation.database.write() as session,
        pytest.raises(BudgetExceeded) as refused,
    ):
        reserve(session, member, 6, "jb_refused", {})
    with installation.database.read() as session:
        counted = populations.of_population(session, "pop_a").loads
        loads = [
            kept_states.state_of(
                session, tables.account(session, name)
            ).budget.whole.load
            for name in (member, other)
        ]

    assert (counted, loads) == ({member: 45}, [45, 70])
    assert refused.value.population == "patients"


def test_a_refusal_in_a_population_states_what_all_members_carry(
    installation: Installation,
) -> None:
    with installation.database.write() as session:
        opened(session, cap=100)
        for number, name in enumerate(NAMES[1:]):
            reservation_id = reserve(
                session, name, 40, f"jb_{number}", {"a": (number,)}
            )
            reserve(session, name, 5, f"jb_beside_{number}", {"b": (number,)})
            ledger.charge(session, reservation_id, actor="worker")
    with (
        installation.database.write() as session,
        pytest.raises(BudgetExceeded) as refused,
    ):
        reserve(session, "ds_1", 11, "jb_more", {"c": (1,)})
    reported = refused.value.population, refused.value.charged, refused.value.reserved
    assert reported == ("patients", "0.00000008", "0.00000001")
    with installation.database.read() as session:
        kept = populations.of_population(session, "pop_a").members.values()
        assert [(each.charged, each.reserved) for each in kept] == [
            (0, 0),
            (40, 5),
            (40, 5),
        ]


def test_a_load_takes_the_time_of_its_entry_where_that_is_of_a_clock_ahead(
    installation: Installation,
) -> None:
    """A charge, which no load entry follows, may put the member's clock ahead of the
    population's.
    """
    with installation.database.write() as session:
        opened(session, cap=100)
        reservation_id = reserve(session, "ds_1", 5, "jb_1", {})
        ahead, behind = stamps.now() + timedelta(seconds=5), stamps.now()
        transaction_time(session, read=ahead)
        ledger.charge(session, reservation_id, actor="worker")
        transaction_time(session, read=behind)
        reserve(session, "ds_1", 20, "jb_2", {})
        newest = [
            tables.entries(session, name, after=0, limit=99)[-1]
            for name in ("ds_1", "pop_a")
        ]
        assert [entry.at for entry in newest] == [stamps.to_text(ahead)] * 2
        assert verified(session, "pop_a").together == 25
