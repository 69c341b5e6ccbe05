"""The entries of a population on both databases, checked by the verifier with and
without the members' exports.
"""

import dataclasses
from contextlib import suppress
from datetime import timedelta

import pytest

from app.core import stamps
from app.core.errors import (
    BudgetExceeded,
    PopulationMismatch,
)
from app.db.database import transaction_time
from app.ledger import (
    accounts,
    populations,
    reservations,
    statements,
    tables,
)
from app.ledger import reservations as ledger
from app.services.installation import Installation
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import WHOLE, Scope
from grovekeeper_verifier.member_comparison import MemberLedger
from grovekeeper_verifier.population_replay import verify
from tests.support import reserving, settling
from tests.support.crash_scene import ADMIN, EVENT, OWNER
from tests.support.databases import on_one_database
from tests.support.evidence import export, verified
from tests.support.population_accounts import (
    PURE,
    ZCDP,
    account,
    join,
    opened,
    reserve,
    said,
)
from tests.support.set_limits import SetLimit, limits_of

pytestmark = pytest.mark.contract


def test_entries_say_what_happened_and_to_which_entry_of_which_member(
    installation: Installation,
) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1")
        reservation_id = reserve(session, "ds_1", 60, "jb_1", 0)
        reserve(session, "ds_1", 30, "jb_2", 1)
        settling.void(session, reservation_id, actor="key_b")
        entries = tables.entries(session, "pop_a", after=0, limit=9)
        (own, *_, voided) = tables.entries(session, "ds_1", after=0, limit=9)
    objects = [entry.to_json() for entry in entries]
    assert [
        (each["kind"], each["amount"], each["job_id"], each["actor"])
        for each in objects
    ] == [
        ("open", "0.0000001", None, OWNER.key_id),
        ("join", "0", None, OWNER.key_id),
        ("load", "0.00000006", "jb_1", "key_a"),
        ("load", "0.00000006", "jb_2", "key_a"),
        ("load", "0.00000003", "jb_1", "key_b"),
    ]
    assert all((each["scope"], each["event"]) == ({}, None) for each in objects)
    assert objects[0]["details"] == {
        "population": "pop_a",
        "accountant": "pure",
        "delta": None,
    }
    assert objects[1]["details"] == {
        "member": {
            "dataset": "ds_1", "sequence": 1, "hash": own.hash, "adjacency": "add_remove", "unit_column": None,
            "highest_cap": "0.0000001",
        }
    }  # fmt: skip
    assert objects[4]["details"] == {
        "member": {"dataset": "ds_1", "sequence": 4, "hash": voided.hash}
    }


def test_every_end_but_a_charge_is_followed_by_a_load(
    installation: Installation,
) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1", "ds_2")
        first, second = (
            reserve(session, "ds_1", 10, "jb_1"),
            reserve(session, "ds_2", 20, "jb_2"),
        )
        third = reserve(session, "ds_1", 30, "jb_3")
        ledger.charge(session, first, actor="worker")
        assert said(session)[-1] == ("load", 40)
        settling.expire(session, second, actor="sweeper")
        settling.void(session, third, actor="key_a")
        one = ledger.NewReservation(
            "ds_2", 7, WHOLE, None, None, details={"attested_by": "key_a"}
        )
        reservations.charge_external(session, one, actor="key_a")
        assert said(session) == [
            ("open", 100), ("join", 0), ("join", 0), ("load", 10), ("load", 20), ("load", 40), ("load", 0),
            ("load", 10), ("load", 7),
        ]  # fmt: skip
        assert verify(export(session, "pop_a"), []).together == 17


def test_entries_of_a_member_are_never_older_than_the_populations_newest_entry(
    installation: Installation,
) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1", "ds_2")
        reservation_id = reserve(session, "ds_1", 5, "jb_1")
        ahead, behind = stamps.now() + timedelta(seconds=5), stamps.now()
        transaction_time(session, read=ahead)
        reserve(session, "ds_2", 10, "jb_2")
        early = list(export(session, "pop_a"))
        # of another machine, which runs the next transaction
        transaction_time(session, read=behind)
        reserve(session, "ds_1", 20, "jb_3")
        settling.void(session, reservation_id, actor="key_b")
        members = [
            MemberLedger(list(export(session, name)), (), file=name)
            for name in ("ds_1", "ds_2")
        ]
    assert verify(early, members).compared["ds_1"].n_later == 2, (
        "nothing was kept quiet"
    )


def test_a_job_on_two_members_writes_two_loads_and_its_end_writes_two_more(
    installation: Installation,
) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1", "ds_2")
        reservations = [
            ledger.NewReservation(each, 20, WHOLE, EVENT, "jb_1")
            for each in ("ds_2", "ds_1")
        ]
        reserving.reserve(session, reservations, actor="key_a")
        ledger.void_jobs(session, ["jb_1"], actor="key_a")
        loads_of = [
            (entry.details["member"]["dataset"], entry.amount)
            for entry in tables.entries(session, "pop_a", after=3, limit=9)
            if entry.details is not None
        ]
        assert loads_of == [("ds_1", 20), ("ds_2", 20), ("ds_1", 0), ("ds_2", 0)]
        assert verified(session, "pop_a").together == 0


def test_a_refusal_and_a_rollback_leave_no_entry(installation: Installation) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1", "ds_2")
        reserve(session, "ds_1", 60, "jb_1")
    with pytest.raises(BudgetExceeded), installation.database.write() as session:
        reserve(session, "ds_2", 41, "jb_2")
    with pytest.raises(RuntimeError), installation.database.write() as session:
        reserve(session, "ds_2", 40, "jb_3")
        raise RuntimeError
    with installation.database.read() as session:
        assert said(session)[3:] == [("load", 60)]
        assert said(session, "ds_2") == [("open", 100)]
        assert verified(session, "pop_a").together == 60


def test_datasets_outside_a_population_write_no_entries_to_it(
    installation: Installation,
) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1")
        account(session, "ds_2")
        settling.void(session, reserve(session, "ds_2", 90, "jb_1"), actor="key_a")
        assert said(session) == [("open", 100), ("join", 0)]


def test_the_chain_verifies_with_cells_late_joins_and_caps_that_move(
    installation: Installation,
) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1")
        reservation_id = [
            reserve(session, "ds_1", 40, f"jb_{shard}", shard) for shard in range(3)
        ]
        ledger.charge(session, reservation_id[0], actor="worker")
        account(session, "ds_2")
        reserve(session, "ds_2", 90, "jb_late", 0)
        accounts.change_cap(session, "pop_a", 70, reason="less", actor=OWNER.key_id)
        join(session, "ds_2")
        assert verified(session, "pop_a").printable == 130
        with pytest.raises(BudgetExceeded):
            reserve(session, "ds_1", 1, "jb_no", 1)
        accounts.change_cap(session, "pop_a", 170, reason="more", actor=ADMIN.key_id)
        reserve(session, "ds_1", 40, "jb_4", 1)
        settling.void(session, reservation_id[1], actor="key_a")
        summary = verified(session, "pop_a")
    assert summary.kinds == {"open": 1, "join": 2, "load": 5, "cap": 2}
    assert (summary.together, summary.printable) == (130, 170)
    assert {name: each.n_bounds for name, each in summary.compared.items()} == {
        "ds_1": 0,
        "ds_2": 0,
    }


def test_with_a_delta_the_highest_cap_counts_since_something_is_held(
    installation: Installation,
) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1", like=ZCDP)
        accounts.change_cap(session, "pop_a", 300, reason="unused", actor=ADMIN.key_id)
        accounts.change_cap(session, "pop_a", 90, reason="unused", actor=ADMIN.key_id)
        assert verified(session, "pop_a").printable == 90
        reservation_id = reserve(session, "ds_1", 10, "jb_1")
        accounts.change_cap(session, "pop_a", 50, reason="used", actor=OWNER.key_id)
        assert verified(session, "pop_a").printable == 90
        account(session, "ds_2", ZCDP, cap=70)
        late = reserve(session, "ds_2", 5, "jb_2")
        join(session, "ds_2")
        assert verified(session, "pop_a").printable == 160
        accounts.change_cap(session, "pop_a", 200, reason="used", actor=ADMIN.key_id)
        assert verified(session, "pop_a").printable == 200
        for reservation in (reservation_id, late):
            settling.void(session, reservation, actor="key_a")
        accounts.change_cap(
            session, "pop_a", 20, reason="nothing was ever charged", actor=OWNER.key_id
        )
        assert verified(session, "pop_a").printable == 20


@on_one_database
def test_a_late_member_adds_a_highest_cap_that_was_lowered_before_it_joined(
    installation: Installation,
) -> None:
    with installation.database.write() as session:
        opened(session, like=ZCDP)
        account(session, "ds_1", ZCDP, cap=70)
        reserve(session, "ds_1", 5, "jb_1")
        accounts.change_cap(session, "ds_1", 20, reason="used", actor=OWNER.key_id)
        join(session, "ds_1")
        assert verified(session, "pop_a").printable == 100 + 70


def test_caps_that_cannot_be_added_up_in_64_bits_do_not_join(
    installation: Installation,
) -> None:
    huge = dataclasses.replace(ZCDP, cap=2**62)
    with installation.database.write() as session:
        opened(session, like=huge, cap=2**62)
        account(session, "ds_1", huge)
        reserve(session, "ds_1", 1, "jb_1")
        with pytest.raises(PopulationMismatch) as refused:
            join(session, "ds_1")
        assert refused.value.differs == ("highest_cap",)
        assert said(session) == [("open", 2**62)]


@pytest.mark.parametrize(
    ("like", "cap", "spends"),
    [(ZCDP, 2**62 - 1, True), (ZCDP, 2**62, False), (PURE, 2**62, True)],
)
def test_caps_that_are_not_added_or_add_up_to_the_last_step_join(
    installation: Installation, like: accounts.NewAccount, cap: int, spends: bool
) -> None:
    """Only with a δ, and only where something was spent before, does the sum count the
    highest cap of an account.
    """
    with installation.database.write() as session:
        opened(session, like=like, cap=2**62)
        account(session, "ds_1", like, cap=cap)
        if spends:
            reserve(session, "ds_1", 1, "jb_1")
        join(session, "ds_1")
        assert said(session) == [("open", 2**62), ("join", int(spends))]


def test_a_bound_is_never_more_than_what_follows_from_the_load_before(
    installation: Installation, set_limit: SetLimit
) -> None:
    """If the maximum is too much work, the sum in the chain still stays within the cap."""
    cut = Partitions.from_json(
        [{"name": name, "kind": "hash", "cells": 4} for name in ("a", "b", "c")]
    )
    with installation.database.write() as session:
        opened(session)
        for name in ("ds_1", "ds_2"):
            account(session, name, partitions=cut)
            join(session, name)
        set_limit("MAX_COMPOSITION_WORK", 0)
        n_admitted = 0
        for number in range(60):
            box = {
                name: (number % 4, (number + at) % 4)
                for at, name in enumerate(("a", "b", "c"), start=1)
            }
            scope = {name: tuple(sorted(cells)) for name, cells in box.items()}
            with suppress(BudgetExceeded):
                new_reservation = ledger.NewReservation(
                    f"ds_{number % 2 + 1}", 9, Scope(scope), EVENT, f"jb_{number}"
                )
                reserving.reserve(session, [new_reservation], actor="key_a")
                n_admitted += 1
        assert not statements.balance(session, "ds_1").is_exact
        assert 2 < n_admitted < 60
        assert verified(session, "pop_a").together <= 100


@on_one_database
def test_a_population_is_shown_with_the_loads_that_its_entries_state(
    installation: Installation,
) -> None:
    """Admission adds the stated loads, also where more work finds smaller ones."""
    cut = Partitions.from_json(
        [{"name": name, "kind": "hash", "cells": 3} for name in ("a", "b")]
    )
    boxes = [
        {"a": (0,), "b": (0,)},
        {"a": (0,), "b": (1,)},
        {"a": (1,), "b": (0,)},
        {"a": (0, 1), "b": (0, 1)},
    ]
    with (
        installation.database.write() as session,
        limits_of(MAX_COMPOSITION_WORK=0),
    ):
        opened(session)
        account(session, "ds_1", partitions=cut)
        join(session, "ds_1")
        for number, box in enumerate(boxes):
            new_reservation = ledger.NewReservation(
                "ds_1", 4, Scope(box), EVENT, f"jb_{number}"
            )
            reserving.reserve(session, [new_reservation], actor="key_a")
    with installation.database.read() as session:
        assert statements.balance(session, "ds_1").reserved == 8
        shown = populations.of_population(session, "pop_a")
        assert shown.together == verified(session, "pop_a").together == 12


def test_boxes_that_do_not_meet_are_one_load_even_where_they_are_not_composed(
    installation: Installation, set_limit: SetLimit
) -> None:
    """A bound over all joint cells would add the loads of two disjoint boxes, and would
    exceed the cap.
    """
    cut = Partitions.from_json(
        [{"name": name, "kind": "hash", "cells": 3} for name in ("a", "b")]
    )
    set_limit("MAX_COMPOSITION_WORK", 0)
    with installation.database.write() as session:
        opened(session, cap=9)
        account(session, "ds_1", partitions=cut)
        join(session, "ds_1")
        for cell in (0, 1):
            new_reservation = ledger.NewReservation(
                "ds_1", 5, Scope({"a": (0,), "b": (cell,)}), EVENT, f"jb_{cell}"
            )
            reserving.reserve(session, [new_reservation], actor="key_a")
        balance = statements.balance(session, "ds_1")
        assert (balance.charged + balance.reserved, balance.is_exact) == (10, False)
        assert verified(session, "pop_a").together == 5
        new_reservation = ledger.NewReservation(
            "ds_1", 1, Scope({"a": (1,), "b": (2,)}), EVENT, "jb_2"
        )
        settling.void(
            session,
            reserving.reserve(session, [new_reservation], actor="key_a")[0],
            actor="key_a",
        )
        assert said(session)[2:] == [("load", 5)] * 4, (
            "what is given back raises no load"
        )
        verified(session, "pop_a")
