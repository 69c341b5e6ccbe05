"""The steps of the ledger on both databases: the effect of each step, and the steps
that are refused.
"""

import csv
import io
import json
import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from app.access.grants import Principal
from app.core import json_text, stamps
from app.core.errors import BudgetExceeded, NotFound, ReservationSettled
from app.ledger import chain, statements, tables
from app.ledger import reservations as ledger
from app.ledger.tables import FIRST_PREVIOUS_HASH, Entry, EntryKind
from app.services.installation import Installation
from app.services.ledger import history
from app.services.ledger.history import Search
from app.services.pagination import PageRequest
from grovekeeper_forests.privacy.scope import WHOLE, Scope
from tests.support import reserving, settling
from tests.support.crash_scene import EVENT, OWNER, Scene, cell_balances, open_account
from tests.support.databases import on_one_database
from tests.support.set_limits import SetLimit

pytestmark = pytest.mark.contract

ACCOUNT = "ds_account"
CAP = 100
ENDS = [
    (ledger.charge, "charged"),
    (settling.void, "void"),
    (settling.expire, "expired"),
]
End = Callable[..., None]


@pytest.fixture
def installation(installation: Installation) -> Installation:
    """An account of 100 nano-ε over four cells."""
    open_account(installation, ACCOUNT, cap=CAP)
    return installation


def _reserve(
    installation: Installation, job_id: str, amount: int, scope: Scope | None = None
) -> str:
    new_reservation = ledger.NewReservation(
        account_id=ACCOUNT,
        amount=amount,
        scope=Scope(scope or {}),
        event=EVENT,
        job_id=job_id,
    )
    with installation.database.write() as session:
        return reserving.reserve(session, [new_reservation], actor="key_analyst")[0]


def _settle(installation: Installation, end: End, reservation_id: str) -> None:
    with installation.database.write() as session:
        end(session, reservation_id, actor="worker")


def _cells(installation: Installation) -> list[tuple[int, int]]:
    with installation.database.read() as session:
        return cell_balances(session, ACCOUNT)


def _kinds(installation: Installation) -> list[str]:
    with installation.database.read() as session:
        return [
            entry.kind.value
            for entry in tables.entries(session, ACCOUNT, after=0, limit=100)
        ]


def test_an_account_opens_with_its_cap_and_empty_cells(
    installation: Installation,
) -> None:
    with installation.database.read() as session:
        (first,) = tables.entries(session, ACCOUNT, after=0, limit=9)
    assert (first.sequence, first.kind, first.amount, first.previous_hash) == (
        1,
        "open",
        CAP,
        FIRST_PREVIOUS_HASH,
    )
    assert (first.scope, first.event, first.job_id) == ({}, None, None)
    assert first.details == {
        "dataset": ACCOUNT,
        "accountant": "pure",
        "delta": None,
        "adjacency": "add_remove",
        "privacy_unit": {"column": None, "max_rows": 1},
        "partitions": [{"name": "shard", "kind": "hash", "cells": 4}],
    }
    assert _cells(installation) == [(0, 0)] * 4


def test_a_reservation_covers_the_cells_of_its_scope_and_no_other(
    installation: Installation,
) -> None:
    _reserve(installation, "jb_1", 60, {"shard": (1, 3)})
    assert _cells(installation) == [(0, 0), (0, 60), (0, 0), (0, 60)]
    _reserve(installation, "jb_2", 40)
    assert _cells(installation) == [(0, 40), (0, 100), (0, 40), (0, 100)]


@pytest.mark.parametrize(("end", "state"), ENDS)
def test_a_reservation_ends_once(
    installation: Installation, end: End, state: str
) -> None:
    reservation_id = _reserve(installation, "jb_1", 60, {"shard": (1,)})
    _settle(installation, end, reservation_id)
    charged = 60 if state == "charged" else 0
    assert _cells(installation) == [(0, 0), (charged, 0), (0, 0), (0, 0)]
    kinds = _kinds(installation)
    for again, _ in ENDS:
        with pytest.raises(
            ReservationSettled, match=f"the reservation is {state} already"
        ):
            _settle(installation, again, reservation_id)
    assert _kinds(installation) == kinds
    assert _cells(installation) == [(0, 0), (charged, 0), (0, 0), (0, 0)]


@pytest.mark.parametrize(("end", "_state"), ENDS)
def test_every_step_of_a_reservation_says_its_details(
    installation: Installation, end: End, _state: str
) -> None:
    details = {"attested_by": "key_analyst"}
    new_reservation = ledger.NewReservation(
        account_id=ACCOUNT,
        amount=1,
        scope=WHOLE,
        event=EVENT,
        job_id="jb_1",
        details=details,
    )
    with installation.database.write() as session:
        reservation_id = reserving.reserve(
            session, [new_reservation], actor="key_analyst"
        )[0]
    _settle(installation, end, reservation_id)
    with installation.database.read() as session:
        steps = tables.entries(session, ACCOUNT, after=1, limit=9)
    assert [entry.details for entry in steps] == [details, details]
    assert [entry.to_json() for entry in steps] == [
        entry.sealed().to_json() for entry in steps
    ]


def test_a_refusal_says_what_would_fit_and_changes_nothing(
    installation: Installation,
) -> None:
    _settle(
        installation, ledger.charge, _reserve(installation, "jb_1", 50, {"shard": (2,)})
    )
    _reserve(installation, "jb_2", 20, {"shard": (2,)})
    _reserve(installation, "jb_3", 10, {"shard": (0,)})
    before = _kinds(installation), _cells(installation)
    with pytest.raises(BudgetExceeded) as refused:
        _reserve(installation, "jb_4", 31)
    assert (_kinds(installation), _cells(installation)) == before
    error = refused.value
    assert error.tightest_cell == {"shard": 2}
    assert (error.charged, error.reserved, error.requested) == (
        "0.00000005",
        "0.00000002",
        "0.000000031",
    )
    assert (error.cap, error.remaining, error.largest_that_fits) == (
        "0.0000001",
        "0.00000003",
        "0.00000003",
    )
    assert (error.dataset, error.accountant, error.unit) == (ACCOUNT, "pure", "epsilon")
    _reserve(installation, "jb_4", 30)
    with pytest.raises(BudgetExceeded) as full:
        _reserve(installation, "jb_5", 1)
    assert full.value.largest_that_fits == "0"


def test_voided_and_expired_amounts_fit_again_and_charged_amounts_do_not(
    installation: Installation,
) -> None:
    for number, (end, _) in enumerate([*ENDS[1:], ENDS[0]]):
        _settle(installation, end, _reserve(installation, f"jb_{number}", CAP))
    with pytest.raises(BudgetExceeded):
        _reserve(installation, "jb_last", 1)


def test_a_reservation_that_states_nothing_has_no_details(
    installation: Installation,
) -> None:
    """Nothing has one form in the chain, and so one hash."""
    new_reservation = ledger.NewReservation(
        account_id=ACCOUNT,
        amount=1,
        scope=WHOLE,
        event=EVENT,
        job_id="jb_1",
        details={},
    )
    with installation.database.write() as session:
        reserving.reserve(session, [new_reservation], actor="key_analyst")
    with installation.database.read() as session:
        *_, reserved = tables.entries(session, ACCOUNT, after=0, limit=9)
    assert (reserved.kind, reserved.details) == ("reserve", None)


def test_every_1024th_entry_of_an_account_states_the_state(
    installation: Installation,
) -> None:
    cap = chain.NewEntry(EntryKind.CAP, CAP, actor="key_owner")
    with installation.database.write() as session:
        row = tables.locked_account(session, ACCOUNT)
        entries = [
            entry for _ in range(2_046) for entry in chain.extend(session, row, cap)
        ]
        chain.write(session, entries)
    of_states = [
        entry.sequence for _, entry in entries if entry.kind is EntryKind.STATE
    ]
    assert of_states == [1_024, 2_048]


@pytest.mark.parametrize("amount", [0, -1])
def test_only_a_positive_amount_is_reserved(
    installation: Installation, amount: int
) -> None:
    with pytest.raises(ValueError, match="a reservation is positive"):
        _reserve(installation, "jb_1", amount)
    assert _kinds(installation) == ["open"]


def test_an_amount_beyond_64_bits_is_refused_like_any_other(
    installation: Installation,
) -> None:
    with pytest.raises(BudgetExceeded):
        _reserve(installation, "jb_1", 10**40)
    assert _kinds(installation) == ["open"]


def test_a_job_has_one_reservation(installation: Installation) -> None:
    _settle(installation, settling.void, _reserve(installation, "jb_1", 1))
    with pytest.raises(IntegrityError):
        _reserve(installation, "jb_1", 1)
    assert _kinds(installation) == ["open", "reserve", "void"]
    assert _cells(installation) == [(0, 0)] * 4


def test_accounts_and_reservations_that_are_not_there_are_not_found(
    installation: Installation,
) -> None:
    new_reservation = ledger.NewReservation(
        account_id="ds_none", amount=1, scope=WHOLE, event=EVENT, job_id="jb_1"
    )
    with installation.database.write() as session:
        with pytest.raises(NotFound, match="no such account"):
            reserving.reserve(session, [new_reservation], actor="key_analyst")
        with pytest.raises(NotFound, match="no such account"):
            statements.balance(session, "ds_none")
        for end, _ in ENDS:
            with pytest.raises(NotFound, match="no such reservation"):
                end(session, "rs_none", actor="worker")


def test_a_balance_is_that_of_the_tightest_cell_of_the_box(
    installation: Installation,
) -> None:
    _settle(
        installation, ledger.charge, _reserve(installation, "jb_1", 70, {"shard": (3,)})
    )
    _reserve(installation, "jb_2", 20, {"shard": (1, 2)})
    with installation.database.read() as session:
        everywhere = statements.balance(session, ACCOUNT)
        inside = statements.balance(session, ACCOUNT, Scope({"shard": (0, 2)}))
    assert (everywhere.charged, everywhere.reserved, everywhere.remaining) == (
        70,
        0,
        30,
    )
    assert everywhere.tightest_cell == {"shard": 3}
    assert (inside.charged, inside.reserved, inside.remaining) == (0, 20, 80)
    assert inside.tightest_cell == {"shard": 2}


def test_accounts_do_not_see_one_another(installation: Installation) -> None:
    open_account(installation, "ds_other", cap=CAP)
    _reserve(installation, "jb_1", CAP)
    with installation.database.write() as session:
        new_reservation = ledger.NewReservation(
            account_id="ds_other", amount=CAP, scope=WHOLE, event=EVENT, job_id="jb_1"
        )
        reserving.reserve(session, [new_reservation], actor="key_analyst")
        assert [
            entry.sequence
            for entry in tables.entries(session, "ds_other", after=0, limit=9)
        ] == [1, 2]
    assert _kinds(installation) == ["open", "reserve"]


def test_a_clock_that_steps_back_does_not_turn_the_chain_back(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    future, past = datetime(2100, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)
    for number, now in enumerate((future, past, future + timedelta(seconds=1))):
        monkeypatch.setattr(chain, "transaction_time", lambda _, now=now: now)
        _reserve(installation, f"jb_{number}", 1)
    with installation.database.read() as session:
        times = [
            entry.at for entry in tables.entries(session, ACCOUNT, after=1, limit=9)
        ]
    assert times == [
        stamps.to_text(now) for now in (future, future, future + timedelta(seconds=1))
    ]


@pytest.fixture
def scene(scene: Scene) -> Scene:
    for number in range(5):
        scene.submit(key=f"k{number}", scope={"shard": [number % 4]} if number else {})
    return scene


def _searched(
    installation: Installation,
    by: Principal,
    dataset: str,
    page: PageRequest,
    search: Search,
) -> object:
    return history.search_entries(installation, by, dataset, search, page)


def test_exports_say_the_same_in_batches_of_any_size(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = scene.export()
    shown = [json.loads(line) for line in whole[1:]]
    assert shown == [entry.to_json() for entry in scene.entries()]
    for size in (1, 2, 6):
        monkeypatch.setattr(history, "EXPORT_BATCH", size)
        assert scene.export() == whole
    table = b"".join(
        history.export_csv(scene.installation, OWNER, scene.dataset_id)
    ).decode()
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["hash"] for row in rows] == [entry["hash"] for entry in shown]
    assert json.loads(rows[1]["event"]) == shown[1]["event"]
    assert json.loads(rows[0]["details"]) == shown[0]["details"]
    assert {row["details"] for row in rows[1:]} == {""}


def test_entries_are_answered_as_the_object_that_was_hashed(scene: Scene) -> None:
    page = PageRequest(cursor=None, limit=500)
    listed = history.list_entries(scene.installation, OWNER, scene.dataset_id, page)
    answered = json.loads(listed.model_dump_json())
    assert answered["entries"] == [json.loads(line) for line in scene.export()[1:]]
    assert ["details" in entry for entry in answered["entries"]] == [True] + [False] * 5


@on_one_database
@pytest.mark.parametrize(
    "ask", [history.list_entries, _searched], ids=["list", "dashboard"]
)
def test_a_search_keeps_no_scope_of_an_entry_that_does_not_match(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    set_limit: SetLimit,
    ask: Callable[..., object],
) -> None:
    """A scope may name thousands of uploads."""
    set_limit("DEFAULT_PAGE_SIZE", 2)
    read, most = list[weakref.ref[Entry]](), 0
    read_entries = tables.read_entries

    def counted(*request: Any) -> list[Entry]:
        nonlocal most
        entries = read_entries(*request)
        read.extend(map(weakref.ref, entries))
        most = max(most, sum(reference() is not None for reference in read))
        return entries

    for number in range(20):
        scene.submit(key=f"other {number}", scope={"shard": [1, 2]})
    monkeypatch.setattr(tables, "read_entries", counted)
    page = PageRequest(cursor="3" if ask is history.list_entries else "26", limit=500)
    ask(scene.installation, OWNER, scene.dataset_id, page, Search(scope={"shard": [0]}))
    assert len(read) > 20
    assert most <= 8, "beside two batches, the matches"


@on_one_database
@pytest.mark.parametrize("n_bytes", [1, 500, 1_000, 2_000, 10**6])
def test_a_page_of_entries_ends_where_its_scopes_events_and_details_are_large(
    scene: Scene, set_limit: SetLimit, n_bytes: int
) -> None:
    for number, cells in enumerate(([0, 1, 2], [1, 2], [1])):
        scene.submit(key=f"large {number}", scope={"shard": cells})
    set_limit("MAX_PAGE_BYTES", n_bytes)
    sequences: list[int] = []
    cursor: str | None = None
    while cursor is not None or not sequences:
        page = history.list_entries(
            scene.installation, OWNER, scene.dataset_id, PageRequest(500, cursor)
        )
        sizes = [
            json_text.n_bytes(
                (entry.scope, entry.event, getattr(entry, "details", None))
            )
            for entry in page.entries
        ]
        assert sum(sizes[:-1]) < n_bytes
        assert page.next is None or sum(sizes) >= n_bytes
        sequences += [entry.sequence for entry in page.entries]
        cursor = page.next
    assert sequences == list(range(1, 10))


def test_an_export_ends_where_it_began_to_be_read(scene: Scene) -> None:
    lines = history.export_json_lines(scene.installation, OWNER, scene.dataset_id)
    scene.submit(key="later")
    assert len(list(lines)) == 1 + 6
    assert len(scene.export()) == 1 + 7
