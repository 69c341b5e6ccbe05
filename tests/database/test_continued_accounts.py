"""Accounts that take over the load of an erased dataset's account, and accounts that
are closed, on both databases: what keeps two loads from being added, and what is
refused of an entry that says otherwise.
"""

from datetime import timedelta
from typing import Any

import pytest

from app.core import stamps
from app.core.errors import AccountDiffers, BalanceMismatch, InvalidRequest
from app.ledger import accounts, chain, kept_states, populations, statements, tables
from app.ledger import reservations as ledger
from app.ledger.statements import EntryFilter
from app.ledger.tables import EntryKind
from app.services.installation import Installation
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import Scope
from tests.support import settling
from tests.support.crash_scene import OWNER
from tests.support.population_accounts import PURE, ZCDP, account, join, opened, reserve
from tests.support.set_limits import SetLimit

pytestmark = pytest.mark.contract

WITHOUT_FORM = {"column": "patient", "max_rows": 2}
TEXT, INTEGER = ({**WITHOUT_FORM, "form": form} for form in ("text", "integer"))


def _continue(session: Any, name: str, erased: str) -> bool:
    return accounts.continue_account(
        session, name, erased, population_id=None, actor=OWNER.key_id
    )


@pytest.mark.parametrize(
    ("old", "new", "differs"),
    [
        (TEXT, TEXT, ()),
        (WITHOUT_FORM, TEXT, ()),
        (WITHOUT_FORM, INTEGER, ()),
        (TEXT, INTEGER, ("privacy_unit",)),
        (TEXT, WITHOUT_FORM, ("privacy_unit",)),
        (TEXT, {**TEXT, "column": "case"}, ("privacy_unit",)),
        (WITHOUT_FORM, {**TEXT, "column": "case"}, ("privacy_unit",)),
        ({"column": None, "max_rows": 1}, WITHOUT_FORM, ("privacy_unit",)),
    ],
)
def test_two_loads_are_added_where_a_person_is_spelt_alike(
    installation: Installation,
    old: dict[str, Any],
    new: dict[str, Any],
    differs: tuple[str, ...],
) -> None:
    with installation.database.write() as session:
        account(session, "ds_old", privacy_unit=old)
        reserved = reserve(session, "ds_old", 100, "jb_1")
        ledger.charge(session, reserved, actor="worker")
        account(session, "ds_new", privacy_unit=new)
        if differs:
            with pytest.raises(AccountDiffers) as refused:
                _continue(session, "ds_new", "ds_old")
            assert refused.value.differs == differs
        else:
            assert _continue(session, "ds_new", "ds_old")
            assert statements.balance(session, "ds_new").charged == 100
            spent = statements.spent_after(session, "ds_new", {}, 2)
            assert spent == statements.Spent(100, 0)


def test_an_opening_load_is_not_before_the_last_entry_of_the_erased_account(
    installation: Installation,
) -> None:
    later = stamps.to_text(stamps.now() + timedelta(hours=1))
    with installation.database.write() as session:
        account(session, "ds_old")
        reserve_ended = reserve(session, "ds_old", 7, "jb_1")
        ledger.charge(session, reserve_ended, actor="worker")
        tables.account(session, "ds_old").last_at = later
        account(session, "ds_new")
        assert _continue(session, "ds_new", "ds_old")
        *_, last = tables.entries(session, "ds_new", after=0, limit=9)
    assert last.at == later


def test_no_entry_states_a_highest_cap_below_the_load_or_the_cap(
    installation: Installation,
) -> None:
    for load, highest_cap, is_refused in ((100, 100, False), (100, 99, True), (1, 99, True)):  # fmt: skip
        continued = {"dataset": "ds_old", "sequence": 3, "hash": "0" * 64}
        continued["highest_cap"] = f"0.{highest_cap:09}"
        opening = chain.NewEntry(
            EntryKind.LOAD, load, actor="key_a", details={"continues": continued}
        )
        name = f"ds_{load}_{highest_cap}"
        with installation.database.write() as session:
            account(session, name)
            row = tables.locked_account(session, name)
            if is_refused:
                with pytest.raises(BalanceMismatch):
                    chain.append(session, row, opening)
            else:
                chain.append(session, row, opening)
                assert statements.highest_cap(session, name).amount.steps == 100


def test_the_first_account_with_a_load_is_one_that_reserved_or_took_a_load_over(
    installation: Installation,
) -> None:
    with installation.database.write() as session:
        for name in ("ds_none", "ds_void", "ds_spent", "ds_other", "ds_again"):
            account(session, name)
        voided = reserve(session, "ds_void", 1, "jb_1")
        settling.void(session, voided, actor="key_a")
        for name in ("ds_spent", "ds_other"):
            spent = reserve(session, name, 5, f"jb_{name}")
            ledger.charge(session, spent, actor="worker")
        assert not _continue(session, "ds_again", "ds_void")
        assert _continue(session, "ds_again", "ds_spent")
        unused = ["ds_none", "ds_void"]
        assert accounts.newest_with_load(session, unused) is None
        ids = [*unused, "ds_other", "ds_again"]
        assert accounts.newest_with_load(session, ids) == "ds_other"
        assert accounts.newest_with_load(session, ids[::-1]) == "ds_again"
        assert accounts.newest_with_load(session, ["ds_again"]) == "ds_again"


def test_a_closed_account_stays_closed_and_a_small_cap_does_not_close_one(
    installation: Installation,
) -> None:
    with installation.database.write() as session:
        account(session, "ds_1", cap=1)
        accounts.change_cap(session, "ds_1", 5, reason="more", actor="key_a")
        accounts.change_cap(session, "ds_1", 1, reason="less", actor="key_a")
        assert accounts.locked_cap(session, "ds_1") == 1
        accounts.close_account(session, "ds_1", reason="lost", actor="operator")
        n_entries = statements.size(session, "ds_1")
        accounts.close_account(session, "ds_1", reason="lost", actor="operator")
        assert statements.size(session, "ds_1") == n_entries
        with pytest.raises(InvalidRequest):
            accounts.locked_cap(session, "ds_1")
        with pytest.raises(InvalidRequest):
            accounts.change_cap(session, "ds_1", 5, reason="more", actor="key_a")
        row = tables.locked_account(session, "ds_1")
        again, raised = (
            chain.NewEntry(EntryKind.CAP, cap, actor="key_a", details={"reason": ""})
            for cap in (0, 1)
        )
        chain.append(session, row, again)
        with pytest.raises(BalanceMismatch):
            chain.append(session, row, raised)
        entries = tables.entries(session, "ds_1", after=0, limit=9)
        closing = [entry.details for entry in entries if entry.amount == 0]
        assert closing == [{"reason": "lost"}, {"reason": ""}]


def test_an_unused_account_that_is_closed_keeps_its_highest_cap(
    installation: Installation,
) -> None:
    with installation.database.write() as session:
        account(session, "ds_1")
        accounts.change_cap(session, "ds_1", 40, reason="less", actor="key_a")
        assert statements.highest_cap(session, "ds_1").amount.steps == 40
        accounts.close_account(session, "ds_1", reason="lost", actor="operator")
        row = tables.account(session, "ds_1")
        assert kept_states.state_of(session, row).highest_cap == 40


def test_a_member_that_continues_another_adds_no_second_highest_cap(
    installation: Installation, set_limit: SetLimit
) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1", like=ZCDP, cap=100)
        spent = reserve(session, "ds_1", 30, "jb_1")
        ledger.charge(session, spent, actor="worker")
        before = statements.highest_cap(session, "pop_a").amount.steps
        account(session, "ds_2", like=ZCDP)
        assert accounts.continue_account(
            session, "ds_2", "ds_1", population_id="pop_a", actor=OWNER.key_id
        )
        set_limit("MAX_STEPS", before)
        join(session, "ds_2")
        assert statements.highest_cap(session, "pop_a").amount.steps == before
        set_limit("MAX_STEPS", 2 * before)
        account(session, "ds_3", like=ZCDP)
        reserve(session, "ds_3", 30, "jb_2")
        join(session, "ds_3")
        assert statements.highest_cap(session, "pop_a").amount.steps == before + 100


def test_two_accounts_in_two_populations_have_the_room_of_each(
    installation: Installation,
) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1", cap=60)
        new_population = populations.NewPopulation(
            "pop_b", "others", "pure", 50, None, OWNER.key_id
        )
        populations.open_population(session, new_population, at=stamps.now())
        account(session, "ds_2", cap=70)
        populations.join(session, "pop_b", "ds_2", actor=OWNER.key_id, at=stamps.now())
        for name, amount in (("ds_1", 10), ("ds_2", 20)):
            reserve(session, name, amount, f"jb_{name}")
        found = statements.balances(session, ["ds_1", "ds_2"])
        assert {id_: (each.cap, each.room, each.limited_by) for id_, each in found.items()} == {
            "ds_1": (PURE.cap, 50, "population"),
            "ds_2": (70, 30, "population"),
        }  # fmt: skip


def test_what_a_key_submitted_of_a_population_is_found_by_its_loads(
    installation: Installation,
) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1")
        settling.void(session, reserve(session, "ds_1", 9, "jb_1"), actor="sweeper")
        chosen = EntryFilter(actor="key_a")
        entries = statements.oldest_entries(
            session, "pop_a", after=0, limit=9, chosen=chosen
        )
    assert [(entry.kind, entry.actor) for entry in entries] == [
        (EntryKind.LOAD, "key_a"),
        (EntryKind.LOAD, "sweeper"),
    ]


def test_an_opening_load_carries_no_more_delta_than_was_set_aside(
    installation: Installation, set_limit: SetLimit
) -> None:
    """Two disjoint boxes and one that meets both: a bound adds all three."""
    partitions = Partitions.from_json(
        [{"name": name, "kind": "hash", "cells": 4} for name in ("first", "second")]
    )
    facts = {"partitions": partitions, "delta_set_aside": "0.0000003"}
    scopes = [
        Scope({"first": (0,), "second": (0,)}),
        Scope({"first": (0, 1), "second": (0, 1)}),
        Scope({"first": (0,), "second": (2, 3)}),
    ]
    with installation.database.write() as session:
        account(session, "ds_old", ZCDP, **facts)
        for scope in scopes:
            new = ledger.NewReservation(
                "ds_old", 1, scope, None, None, details={"attested_by": "key_a"}
            )
            ledger.charge_external(session, new, delta=15 * 10**10, actor="key_a")
    set_limit("MAX_COMPOSITION_WORK", 1)
    installation.database.kept.clear()
    with installation.database.write() as session:
        account(session, "ds_new", ZCDP, **facts)
        assert _continue(session, "ds_new", "ds_old")
        *_, opening = tables.entries(session, "ds_new", after=0, limit=9)
    assert (opening.details or {})["continues"]["delta"] == "0.0000003"
