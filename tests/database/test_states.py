"""Balances are the fold of the entries, on both databases: changed rows admit nothing
more, changed entries nothing.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import rfc8785
from sqlalchemy import Executable, delete, event, func, select, text, update
from sqlalchemy.orm import Session

from app.core import limits
from app.core.errors import BalanceMismatch, BudgetExceeded
from app.ledger import accounts as ledger_accounts
from app.ledger import chain, kept_states, populations, reservations, statements, tables
from app.ledger import reservations as ledger
from app.ledger.state import State
from app.ledger.tables import (
    AccountRow,
    Entry,
    EntryKind,
    EntryRow,
    MemberRow,
    ReservationRow,
)
from app.services.installation import Installation
from grovekeeper_forests.privacy.scope import WHOLE, Scope
from grovekeeper_verifier import dataset_replay, population_replay
from grovekeeper_verifier.export_lines import NotVerified
from tests.support import people, reserving
from tests.support import population_accounts as members
from tests.support.crash_scene import Scene, open_installation
from tests.support.databases import MigratedDatabase, on_one_database
from tests.support.evidence import export
from tests.support.set_limits import SetLimit
from tests.support.settling import ENDS
from tests.support.stated_states import StateEvery
from tests.support.sweeping import expired_at

pytestmark = pytest.mark.contract

ASIDE = "0.00000025"
_serial = count()


def test_a_state_is_not_kept_before_its_entries_are_committed(
    installation: Installation,
) -> None:
    def lost(_: Session) -> None:
        raise ConnectionError

    with installation.database.write() as session:
        members.account(session, "ds_c")
    with (
        pytest.raises(ConnectionError),
        installation.database.write() as session,
    ):
        members.reserve(session, "ds_c", 40, "jb_a")
        event.listen(session, "before_commit", lost)
    with installation.database.write() as session:
        members.reserve(session, "ds_c", 100, "jb_b")


@pytest.fixture
def accounts(installation: Installation) -> Installation:
    """Two members of a population, which spend 40 of 100, and a ``zcdp`` account that
    sets δ aside.
    """
    with installation.database.write() as session:
        members.opened(session, "ds_a", "ds_b")
        members.account(session, "ds_c", members.ZCDP, delta_set_aside=ASIDE)
        for name, job in (("ds_a", "jb_a"), ("ds_b", "jb_b")):
            members.reserve(session, name, 20, job, 0, 1)
            ledger.charge_job(session, job, actor="worker")
        members.reserve(session, "ds_a", 10, "jb_open", 2)
        declared = {
            "adjacency": "add_remove",
            "epsilon": "0.000001",
            "delta": "0.0000001",
        }
        details = {
            "attested_by": "key_a",
            "description": "a mean",
            "per": "row",
            "declared": declared,
        }
        part = ledger.NewReservation("ds_c", 7, WHOLE, None, None, details=details)
        reservations.charge_external(session, part, delta=10**11, actor="key_a")
    return installation


@pytest.fixture
def restart(installation: Installation) -> Callable[[], None]:
    """Forgets what this process read before."""
    return installation.database.kept.clear


def _on(
    table: type[Any], account_id: str, kind: Any = update, **values: Any
) -> Executable:
    statement = kind(table).where(table.account_id == account_id)
    return statement.values(**values) if values else statement


def _account(account_id: str, **values: Any) -> Executable:
    return update(AccountRow).where(AccountRow.id == account_id).values(**values)


def _reserved(installation: Installation, account_id: str, amount: int = 1) -> None:
    with installation.database.write() as session:
        members.reserve(session, account_id, amount, f"jb_{next(_serial)}")


UNREAD = {
    "another member removed": _on(MemberRow, "ds_b", delete),
    "reservations emptied": delete(ReservationRow),
}
REFUSED = {
    "privacy unit changed": (
        "ds_a",
        _account("ds_a", privacy_unit={"column": None, "max_rows": 2}),
    ),
    "accountant changed": ("ds_a", _account("ds_a", accountant="gdp")),
    "head changed": ("ds_a", _account("ds_a", last_hash="0" * 64)),
    "head shortened": ("ds_a", _account("ds_a", last_sequence=2)),
    "cells changed": ("ds_a", _account("ds_a", partitions=[])),
    "own membership removed": ("ds_a", _on(MemberRow, "ds_a", delete)),
    "own membership moved": ("ds_a", _on(MemberRow, "ds_a", population_id="pop_b")),
    "delta set aside raised": ("ds_c", _account("ds_c", delta_set_aside="0.0000005")),
}


@pytest.mark.parametrize("is_first", [False, True])
def test_rows_beside_the_entries_admit_no_more(
    accounts: Installation, restart: Callable[[], None], is_first: bool
) -> None:
    for change, statement in UNREAD.items():
        if is_first:
            restart()
        with accounts.database.write() as session:
            before = statements.balance(session, "ds_a")
            session.execute(statement)
            assert statements.balance(session, "ds_a") == before, change
            with pytest.raises(BudgetExceeded):
                members.reserve(session, "ds_a", 61, "jb_too_much")
            members.reserve(session, "ds_a", 60, "jb_fits")
            session.rollback()


@pytest.mark.parametrize("is_first", [False, True])
def test_an_account_that_is_not_that_of_its_entries_admits_nothing(
    accounts: Installation, restart: Callable[[], None], is_first: bool
) -> None:
    for change, (account_id, statement) in REFUSED.items():
        if is_first:
            restart()
        with accounts.database.write() as session:
            before = session.execute(
                select(func.count()).select_from(EntryRow)
            ).scalar_one()
            session.execute(statement)
            session.expire_all()
            with pytest.raises(BalanceMismatch):
                members.reserve(session, account_id, 1, "jb_refused")
                pytest.fail(change)
            assert (
                session.execute(select(func.count()).select_from(EntryRow)).scalar_one()
                == before
            ), change
            members.reserve(
                session, "ds_c" if account_id == "ds_a" else "ds_a", 1, "jb_healthy"
            )
            session.rollback()
    _reserved(accounts, "ds_a")


def test_every_fact_that_a_dataset_repeats_is_compared_with_that_of_its_account(
    accounts: Installation,
) -> None:
    with accounts.database.read() as session:
        row = tables.account(session, "ds_a")
        stated = kept_states.state_of(session, row).facts
        facts = {
            name: stated[name] for name in ("adjacency", "privacy_unit", "partitions")
        }
        kept_states.require_declared(session, row, facts)
        for name in facts:
            with pytest.raises(BalanceMismatch):
                kept_states.require_declared(session, row, facts | {name: "another"})


@contextmanager
def _without_triggers(installation: Installation) -> Iterator[Session]:
    """A transaction of somebody who may drop the triggers that keep entries as they
    are.
    """
    with installation.database.write() as session:
        if installation.database.dialect == "postgresql":
            session.execute(text("ALTER TABLE entries DISABLE TRIGGER USER"))
        else:
            for name in (
                session.execute(
                    text(
                        "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'entries'"
                    )
                )
                .scalars()
                .all()
            ):
                session.execute(text(f'DROP TRIGGER "{name}"'))
        yield session


ENTRIES = {
    "amount lowered": update(EntryRow).values(amount=1),
    "kind changed": update(EntryRow).values(kind="void"),
    "deleted": delete(EntryRow),
}


@pytest.mark.parametrize("change", ENTRIES)
def test_changed_entries_admit_nothing_in_a_process_that_reads_them(
    accounts: Installation, restart: Callable[[], None], change: str
) -> None:
    with accounts.database.read() as session:
        assert statements.balance(session, "ds_a").room == 60
    with _without_triggers(accounts) as session:
        session.execute(
            ENTRIES[change].where(EntryRow.account_id == "ds_a", EntryRow.sequence == 3)
        )
    with pytest.raises(BudgetExceeded):
        _reserved(accounts, "ds_a", 61)
    restart()
    with pytest.raises(BalanceMismatch):
        _reserved(accounts, "ds_a")
    _reserved(accounts, "ds_c")
    with accounts.database.read() as session:
        assert [
            name
            for name in ("ds_a", "ds_b", "ds_c", "pop_a")
            if not kept_states.is_intact(session, name)
        ] == ["ds_a"]


@pytest.mark.parametrize("field", ["last_sequence", "last_hash"])
def test_an_account_whose_head_is_not_its_last_entry_is_not_intact(
    accounts: Installation, field: str
) -> None:
    with accounts.database.write() as session:
        row = tables.account(session, "ds_a")
        other = {"last_sequence": row.last_sequence + 1, "last_hash": "0" * 64}
        session.execute(_account("ds_a", **{field: other[field]}))
        session.expire_all()
        assert not kept_states.is_intact(session, "ds_a")
        session.rollback()


MANY_ROWS = 7_712_377_123_771
"""More digits than by chance are equal to those of a time or a thread in a log record."""


def test_a_refusal_logs_the_account_and_no_amount(
    accounts: Installation, caplog: pytest.LogCaptureFixture
) -> None:
    with accounts.database.write() as session:
        session.execute(
            _account("ds_a", privacy_unit={"column": None, "max_rows": MANY_ROWS})
        )
    with pytest.raises(BalanceMismatch) as refusal:
        _reserved(accounts, "ds_a")
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert vars(record)["account_id"] == "ds_a"
    assert str(MANY_ROWS) not in f"{vars(record)} {refusal.value}"
    assert "ds_a" not in str(refusal.value)


def test_a_difference_in_one_database_refuses_nothing_in_a_copy_of_it(
    accounts: Installation, migrated_database: MigratedDatabase, tmp_path: Path
) -> None:
    """One process may open both, and accounts have the same ids."""
    home = tmp_path / "other"
    home.mkdir()
    with (
        migrated_database("sqlite", home) as url,
        closing(open_installation(url, home)) as other,
    ):
        with other.database.write() as session:
            members.account(session, "ds_a", members.PURE)
        with accounts.database.write() as session:
            session.execute(_account("ds_a", last_hash="0" * 64))
        with pytest.raises(BalanceMismatch):
            _reserved(accounts, "ds_a")
        _reserved(other, "ds_a", 100)


_SHARD = {"shard": [0]}
RESERVATIONS = {
    "amount lowered": {"amount": 1},
    "scope changed": {"scope": _SHARD},
    "event changed": {"event": {"type": "gift/1"}},
    "details changed": {"details": {"purpose": "another"}},
    "submitter changed": {"reserved_by": "key_b"},
    "charge taken back": {"state": "reserved"},
}


@pytest.mark.parametrize("change", RESERVATIONS)
@pytest.mark.parametrize("end", ["charge", "void"])
def test_a_changed_reservation_ends_in_no_entry(
    accounts: Installation, change: str, end: str
) -> None:
    """What the entries do not reserve is neither charged nor given back."""
    job = "jb_a" if change == "charge taken back" else "jb_open"
    with accounts.database.write() as session:
        session.execute(
            update(ReservationRow)
            .where(ReservationRow.job_id == job)
            .values(**RESERVATIONS[change])
        )
    with accounts.database.read() as session:
        before = statements.balance(session, "ds_a")
    with pytest.raises(BalanceMismatch), accounts.database.write() as session:
        if end == "charge":
            ledger.charge_job(session, job, actor="worker")
        else:
            ledger.void_jobs(session, [job], actor="key_a")
    with accounts.database.read() as session:
        assert statements.balance(session, "ds_a") == before
        assert kept_states.is_intact(session, "ds_a")


@pytest.mark.parametrize("other", ["another account", "another job"])
def test_an_entry_of_another_account_or_job_reserves_nothing_here(
    accounts: Installation, other: str
) -> None:
    """The reservation says what such an entry reserved."""
    with accounts.database.write() as session:
        name = "ds_b" if other == "another account" else "ds_a"
        job_id = "jb_open" if name == "ds_b" else "jb_x"
        part = ledger.NewReservation(
            name, 10, Scope({"shard": (0,)}), members.EVENT, job_id
        )
        reserving.reserve(session, [part], actor="key_a")
    with accounts.database.write() as session:
        session.execute(
            _on(ReservationRow, "ds_a")
            .where(ReservationRow.job_id == "jb_open")
            .values(scope=_SHARD)
        )
    with (
        pytest.raises(BalanceMismatch) as refused,
        accounts.database.write() as session,
    ):
        ledger.charge_job(session, "jb_open", actor="worker")
    assert refused.value.part == "reservation"


def test_two_parts_of_a_job_keep_their_scopes(accounts: Installation) -> None:
    """Equal amounts on cells that both parts reserved: only the events tell them apart."""
    events = [members.EVENT, members.EVENT | {"coordinates": 2}]
    scopes = [{"shard": (n,)} for n in range(2)]
    with accounts.database.write() as session:
        pairs = zip(scopes, events, strict=True)
        parts = [
            ledger.NewReservation("ds_a", 10, Scope(scope), event, "jb_x")
            for scope, event in pairs
        ]
        ids = reserving.reserve(session, parts, actor="key_a")
    with accounts.database.write() as session:
        for own, scope in zip(ids, reversed(scopes), strict=True):
            session.execute(
                update(ReservationRow)
                .where(ReservationRow.id == own)
                .values(scope=scope)
            )
    with (
        pytest.raises(BalanceMismatch) as refused,
        accounts.database.write() as session,
    ):
        ledger.charge_job(session, "jb_x", actor="worker")
    assert refused.value.part == "reservation"


def test_a_reservation_that_was_changed_with_its_entry_is_not_charged(
    accounts: Installation,
) -> None:
    """Both say another event, but the entry has the hash of its own."""
    with _without_triggers(accounts) as session:
        gift = {"event": {"type": "gift/1"}}
        session.execute(
            update(ReservationRow)
            .where(ReservationRow.job_id == "jb_open")
            .values(**gift)
        )
        session.execute(
            update(EntryRow).where(EntryRow.job_id == "jb_open").values(**gift)
        )
    with (
        pytest.raises(BalanceMismatch) as refused,
        accounts.database.write() as session,
    ):
        ledger.charge_job(session, "jb_open", actor="worker")
    assert refused.value.part == "reservation"


def test_a_transaction_that_was_rolled_back_leaves_no_state(
    accounts: Installation,
) -> None:
    with pytest.raises(ZeroDivisionError), accounts.database.write() as session:
        members.reserve(session, "ds_a", 30, "jb_lost")
        ledger_accounts.change_cap(
            session, "ds_b", 1000, reason="a test", actor="key_owner"
        )
        assert (
            statements.balance(session, "ds_a").room,
            statements.balance(session, "ds_b").cap,
        ) == (30, 1000)
        1 / 0  # noqa: B018
    with accounts.database.read() as session:
        assert (
            statements.balance(session, "ds_a").room,
            statements.balance(session, "ds_b").cap,
        ) == (60, 100)
    _reserved(accounts, "ds_a", 60)


def _fields(installation: Installation, account_id: str) -> dict[str, Any]:
    """A copy of what this process keeps of an account."""
    with installation.database.read() as session:
        kept = kept_states.state_of(session, tables.account(session, account_id))
    # copies share it
    names = [
        each.name for each in dataclasses.fields(kept) if each.name != "_numbering"
    ]
    return {name: copy.deepcopy(getattr(kept, name)) for name in names}


@pytest.mark.parametrize("end", ENDS)
def test_a_step_that_was_rolled_back_leaves_every_field_of_the_state(
    accounts: Installation, end: str
) -> None:
    """What was to be given back takes its room, also where an admission looks at a
    bound and at no cell.
    """
    with accounts.database.write() as session:
        members.account(session, "ds_alone")
        held = members.reserve(session, "ds_alone", 60, "jb_held")
    before = _fields(accounts, "ds_alone")
    with pytest.raises(ZeroDivisionError), accounts.database.write() as session:
        ENDS[end](session, held, actor="key_a")
        1 / 0  # noqa: B018
    assert _fields(accounts, "ds_alone") == before
    with pytest.raises(BudgetExceeded):
        _reserved(accounts, "ds_alone", 41)
    _reserved(accounts, "ds_alone", 40)


def test_a_state_after_as_many_entries_of_another_history_is_not_believed(
    accounts: Installation,
) -> None:
    """As after a restore at the same address while the process runs."""
    with accounts.database.read() as session:
        row = tables.account(session, "ds_a")
        kept = kept_states.state_of(session, row)
        other = dataclasses.replace(kept, hash="f" * 64, cap=2 * kept.cap, totals={})
        kept_states._keep(session, other)
        read = kept_states.state_of(session, row)
        balance = statements.balance(session, "ds_a")
    assert (read.hash, read.cap, read.totals) == (row.last_hash, kept.cap, kept.totals)
    assert balance.load == kept.budget.whole.load > 0


def _read_entries(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Account and sequence of each entry that is read from here on."""
    taken: list[tuple[str, int]] = []
    intact = kept_states._intact

    def noted(account_id: str, entries: Iterable[Entry]) -> Iterable[Entry]:
        entries = list(entries)
        taken.extend((account_id, entry.sequence) for entry in entries)
        return intact(account_id, entries)

    monkeypatch.setattr(kept_states, "_intact", noted)
    return taken


def test_an_entry_moves_the_whole_head_and_is_not_before_what_it_follows(
    accounts: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the subtrees of every account of a transaction are completed."""
    later, completed = "2999-01-01T00:00:00.000000Z", list[tuple[str, int]]()
    with accounts.database.write() as session:
        row = tables.locked_account(session, "ds_a")
        changed = chain.NewEntry(
            EntryKind.CAP, 90, actor="key_a", details={"reason": "a test"}
        )
        entry = chain.append(session, row, changed, not_before=later)
        assert (entry.at, entry.details) == (later, {"reason": "a test"})
        assert (row.last_at, row.last_hash, row.last_sequence) == (
            later,
            entry.hash,
            entry.sequence,
        )
        session.expire_all()
        assert tables.account(session, "ds_a").last_at == later
        monkeypatch.setattr(
            chain,
            "Log",
            lambda _, name: SimpleNamespace(
                complete=lambda at: completed.append((name, at))
            ),
        )
        chain.complete_subtrees(
            session, [("ds_a", entry), ("ds_b", entry), ("ds_c", entry)]
        )
        session.rollback()
    assert completed == [(name, entry.sequence) for name in ("ds_a", "ds_b", "ds_c")]


def test_the_state_at_a_head_has_no_entry_that_was_not_written(
    accounts: Installation,
) -> None:
    with accounts.database.write() as session, session.no_autoflush:
        row = tables.locked_account(session, "ds_a")
        before = kept_states.state_of(session, row)
        changed = chain.NewEntry(
            EntryKind.CAP, 90, actor="key_a", details={"reason": "a test"}
        )
        chain.extend(session, row, changed)
        assert kept_states.state_of(session, row).hash == row.last_hash != before.hash
        session.refresh(row)
        assert kept_states.state_of(session, row).hash == row.last_hash == before.hash


def test_a_newer_state_than_that_of_a_row_is_not_read_again(
    accounts: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    with accounts.database.write() as session, session.no_autoflush:
        row = tables.locked_account(session, "ds_a")
        newest = kept_states.state_of(session, row)
        taken = _read_entries(monkeypatch)
        session.expunge(row)
        row.last_sequence, row.last_hash = row.last_sequence - 1, "0" * 64
        assert kept_states.state_of(session, row) is newest
    assert taken == []


def test_every_account_of_a_transaction_is_kept_as_it_left_it(
    accounts: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The accounts of a job and their population."""
    taken = _read_entries(monkeypatch)
    for name in ("jb_x", "jb_y"):
        with accounts.database.write() as session:
            names = ("ds_a", "ds_c", "ds_b")
            each = [
                ledger.NewReservation(account, 1, WHOLE, members.EVENT, name)
                for account in names
            ]
            reserving.reserve(session, each, actor="key_a")
    assert taken == []


def test_an_admission_reads_only_entries_after_the_last_state(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = _read_entries(monkeypatch)
    with installation.database.write() as session:
        members.account(session, "ds_a")
    for _ in range(4):
        _reserved(installation, "ds_a")
    assert taken == [], "this process wrote all of them"
    states = installation.database.kept["states"]
    known = dict(states)
    _reserved(installation, "ds_a")
    states.update(known)  # as in a process beside the one that wrote it
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            _reserved(installation, "ds_a", 100)
    assert taken == [("ds_a", 6)]


def test_a_process_keeps_the_states_of_the_accounts_that_it_used_last(
    installation: Installation, set_limit: SetLimit
) -> None:
    """Anybody who may declare datasets may do so without end, and erase them."""
    set_limit("MAX_KEPT_STATE_BYTES", 30_000)
    installation.database.kept.clear()
    names = [f"ds_{number}" for number in range(20)]
    for number, name in enumerate(names):
        with installation.database.write() as session:
            members.account(session, name)
            members.reserve(session, name, number + 1, f"jb_{name}")
    states = installation.database.kept["states"]
    assert names[-1] in states
    assert 2 <= len(states) < 12
    with installation.database.read() as session:
        assert [statements.balance(session, name).reserved for name in names] == list(
            range(1, 21)
        )
    with pytest.raises(BudgetExceeded):
        _reserved(installation, names[0], 100)
    _reserved(installation, names[0], 99)


def test_an_account_weighs_the_cells_that_it_declares_and_those_of_its_scopes(
    installation: Installation,
) -> None:
    cells = [f"{number}{'x' * 100}" for number in range(200)]
    wide = [
        {
            "name": "c",
            "kind": "column",
            "column": "c",
            "feature": False,
            "cells": cells,
            "sizes": None,
        }
    ]
    state = State("ds_a", facts={"partitions": wide})
    assert kept_states._size(state) - kept_states._size(State("ds_a")) > 200 * 150
    state._add(Scope({"c": cells}), reserved=1)
    assert kept_states._size(state) - kept_states._size(State("ds_a")) > 2 * 200 * 150
    state._add(Scope({"c": cells}), reserved=-1)
    assert state.scopes_size == 0
    huge = dataclasses.replace(state, scopes_size=10**9)
    assert kept_states._size(huge) == limits.MAX_KEPT_STATE_BYTES // 2, (
        "others stay beside it"
    )


@pytest.mark.parametrize("field", ["totals", "reservations", "loads", "widened"])
def test_every_item_of_a_state_weighs(field: str) -> None:
    fields: dict[str, Any] = {
        **dict.fromkeys(("totals", "reservations", "loads", "widened"), ()),
        "facts": {},
        "scopes_size": 0,
    }
    empty: Any = SimpleNamespace(**fields)
    full: Any = SimpleNamespace(**fields | {field: range(3)})
    weight = kept_states._size(full) - kept_states._size(empty)
    assert weight == 3 * kept_states._ITEM_BYTES


def test_the_expiry_of_other_jobs_goes_on(scene: Scene) -> None:
    other = dataclasses.replace(
        scene, dataset_id=people.declared(scene.installation)["id"]
    )
    other.upload()
    stuck, waiting = scene.submit_job(key="first"), other.submit_job(key="second")
    with scene.installation.database.write() as session:
        session.execute(_account(scene.dataset_id, last_hash="0" * 64))
    deadline = other.job(waiting).submitted_at + timedelta(
        seconds=limits.MAX_QUEUE_S + 1
    )
    assert expired_at(scene.installation, deadline) == 1
    assert scene.end(stuck) == ("queued", None, ["reserve"])
    assert other.end(waiting) == ("failed", "not-started", ["reserve", "expire"])


@pytest.fixture
def long(state_every: StateEvery, accounts: Installation) -> Installation:
    """Accounts whose state stands in every eighth entry, with charges, open
    reservations and what was given back.
    """
    state_every(8)
    for number in range(12):
        job = f"jb_long_{number}"
        with accounts.database.write() as session:
            members.reserve(session, "ds_a", 2, job, number % 3)
            members.reserve(session, "ds_c", 1, job)
        with accounts.database.write() as session:
            if number % 3 == 1:
                ledger.charge_job(session, job, actor="worker")
            elif number % 3 == 2:
                ledger.void_jobs(session, [job], actor="key_a")
    return accounts


def _stated(session: Session, account_id: str) -> list[int]:
    entries = tables.entries(session, account_id, after=0, limit=1_000)
    return [entry.sequence for entry in entries if entry.kind is EntryKind.STATE]


def test_a_process_that_starts_at_a_stated_state_has_the_state_of_all_entries(
    long: Installation, restart: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown() -> list[object]:
        with long.database.read() as session:
            row = tables.account(session, "ds_a")
            now = kept_states.state_of(session, row)
            assert now.bound >= now.budget.whole.load
            return [
                *(
                    statements.detail(session, account_id)
                    for account_id in ("ds_a", "ds_c")
                ),
                statements.delta_balance(session, "ds_c", WHOLE),
                populations.of_population(session, "pop_a"),
                (
                    now.totals,
                    now.scopes,
                    now.reservations,
                    now.facts,
                    now.population_id,
                    now.bound,
                    now.sources,
                ),
                statements.printable_of_each(session, ["ds_a", "ds_b", "ds_c"]),
            ]

    with long.database.read() as session:
        assert _stated(session, "ds_a") == [8, 16, 24]
        assert {_stated(session, name)[0] for name in ("ds_c", "pop_a")} == {8}
    before = shown()
    restart()
    assert shown() == before
    restart()
    with monkeypatch.context() as patched:
        patched.setattr(
            kept_states, "_stated", lambda _, row: State(row.id, population_id="pop_a")
        )
        assert shown()[4] == before[4], "the fold of all entries is the same"


def test_the_entries_that_a_state_names_are_all_read_and_are_those_of_its_account(
    long: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_states, "_CHECKED_AT_ONCE", 2)
    with long.database.read() as session:
        entries = {
            entry.sequence: entry
            for entry in tables.entries(session, "ds_a", after=0, limit=99)
        }
        asked = [2, 3, 5, 6, 9]
        named = kept_states._named_entries(session, "ds_a", asked)
    assert named == {
        number: (entries[number].scope, entries[number].actor) for number in asked
    }


def test_the_newest_state_up_to_the_head_of_the_account_is_read(
    long: Installation,
) -> None:
    """Whatever another transaction wrote since the head was read, and whatever other
    accounts state.
    """
    with long.database.read() as session:
        row = tables.account(session, "ds_a")
        session.expunge(row)
        for head, sequence in ((24, 24), (23, 16), (16, 16), (8, 8), (7, 0)):
            row.last_sequence = head
            assert kept_states._stated(session, row).sequence == sequence


def test_the_population_of_an_account_is_that_of_the_entry_that_names_it_whole(
    installation: Installation,
) -> None:
    """The ids of other members may contain its id, and such entries may come first."""
    with installation.database.write() as session:
        members.opened(session, "ds_10", "xds_1", "dsx1", "ds_1", "ds_2", "ds_30")
        members.account(session, "ds_3")
    installation.database.kept.clear()
    with installation.database.read() as session:
        found = {
            name: kept_states.state_of(
                session, tables.account(session, name)
            ).population_id
            for name in ("ds_1", "ds_10", "ds_2", "ds_3")
        }
    assert found == {"ds_1": "pop_a", "ds_10": "pop_a", "ds_2": "pop_a", "ds_3": None}


def test_a_first_admission_reads_no_entry_before_the_stated_state(
    long: Installation, restart: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = _read_entries(monkeypatch)
    restart()
    _reserved(long, "ds_a")
    assert (
        min(sequence for account_id, sequence in taken if account_id == "ds_a") == 24
    ), "which states the state"


def test_a_changed_state_in_an_entry_admits_nothing(
    long: Installation, restart: Callable[[], None]
) -> None:
    """The state is part of a hashed entry: whoever changes it breaks the chain."""
    with long.database.read() as session:
        last = _stated(session, "ds_a")[-1]
        forged = dict(
            tables.entries(session, "ds_a", after=last - 1, limit=1)[0].details or {}
        )
    forged["state"] = {**forged["state"], "totals": [], "reservations": []}
    chosen = (EntryRow.account_id == "ds_a", EntryRow.sequence == last)
    for statement in (
        update(EntryRow).values(details=forged),
        update(EntryRow).values(kind="cap"),
        delete(EntryRow),
    ):
        with pytest.raises(BalanceMismatch), _without_triggers(long) as session:
            session.execute(statement.where(*chosen))
            restart()
            members.reserve(session, "ds_a", 1, f"jb_{next(_serial)}")
    restart()
    _reserved(long, "ds_a")


def test_a_forged_state_with_its_own_hash_is_refused_by_a_process_that_knows_the_state(
    long: Installation,
) -> None:
    _reserved(long, "ds_a")
    with long.database.write() as session:
        row = tables.locked_account(session, "ds_a")
        form = kept_states.state_of(session, row).to_json()
        with pytest.raises(BalanceMismatch):
            forged = {"state": {**form, "totals": [], "reservations": []}}
            chain.append(
                session,
                row,
                chain.NewEntry(EntryKind.STATE, 0, actor="key_a", details=forged),
            )
        session.rollback()


@on_one_database
def test_the_verifier_recomputes_every_stated_state(long: Installation) -> None:
    with long.database.read() as session:
        for account_id in ("ds_a", "ds_b", "ds_c"):
            summary = dataset_replay.verify(export(session, account_id))
            assert summary.last.sequence == statements.size(session, account_id)
        assert population_replay.verify(export(session, "pop_a")).kinds["state"] >= 1


@on_one_database
@pytest.mark.parametrize("part", ["cap", "totals", "reservations", "facts"])
def test_the_verifier_finds_a_wrong_state_in_a_chain_that_was_made_anew(
    long: Installation, part: str
) -> None:
    with long.database.read() as session:
        header, *_ = export(session, "ds_a")
        entries = tables.entries(session, "ds_a", after=0, limit=1_000)
    lines, previous = [header], "0" * 64
    for entry in entries:
        details = entry.details
        if entry.sequence == 16:
            stated = (details or {})["state"]
            details = {
                "state": {**stated, part: {"cap": "1", "facts": {}}.get(part, [])}
            }
        sealed = dataclasses.replace(
            entry, details=details, previous_hash=previous
        ).sealed()
        previous = sealed.hash
        lines.append(rfc8785.dumps(sealed.to_json()) + b"\n")
    with pytest.raises(NotVerified, match=f"the stated {part} differs"):
        dataset_replay.verify(lines)
