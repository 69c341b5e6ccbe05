"""Stated states name scopes and all uploads are a number: their size, their limits,
tampering, and earlier ledgers.
"""

import dataclasses
import hashlib
import json
import random
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from sqlalchemy import text, update
from sqlalchemy.orm import Session

from app.core import limits, stamps
from app.core.errors import (
    BalanceMismatch,
    BudgetExceeded,
    TooManyCells,
    TooManyRequests,
)
from app.ledger import chain, control, kept_states, statements, tables
from app.ledger import reservations as ledger
from app.ledger.state import State
from app.ledger.tables import AccountRow, Entry, EntryKind, EntryRow, ReservationRow
from app.services.installation import Installation
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import Scope
from grovekeeper_verifier import dataset_replay
from grovekeeper_verifier.export_lines import NotVerified
from tests.support import population_accounts as members
from tests.support import reserving
from tests.support.crash_scene import EVENT
from tests.support.databases import on_one_database
from tests.support.evidence import export
from tests.support.set_limits import SetLimit
from tests.support.stated_states import StateEvery

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]

EARLIER = Path(__file__).parent / "data" / "states_of_the_first_form.jsonl"
"""An export that the version before wrote, with every eighth entry a state."""
LONG = [f"{number:03d}{'ü' * 250}" for number in range(255)]
BY_REGION = {"name": "region", "kind": "column", "column": "region", "feature": False, "cells": [*LONG, "OTHER"],
             "sizes": None}  # fmt: skip
PARTITIONS = [
    {"name": "shard", "kind": "hash", "cells": 3},
    BY_REGION,
    {"name": "upload", "kind": "epoch", "how": "-"},
]
CAP = 10**9


def uploads(n_uploads: int) -> tuple[str, ...]:
    """Ids of the first uploads, sorted; like real ones, they do not sort by time."""
    ids = [
        f"ep_{random.Random(number).getrandbits(64):016x}"
        for number in range(n_uploads)
    ]
    return tuple(sorted(ids))


def reserve(
    session: Session,
    scope: Scope,
    job: str,
    amount: int = 1,
    *,
    account: str = "ds_a",
    key: str = "key_a",
) -> None:
    part = ledger.NewReservation(
        account, amount, Scope(scope), EVENT, job, details={"purpose": "a test"}
    )
    reserving.reserve(session, [part], actor=key)


def entries_of(session: Session) -> list[Entry]:
    return tables.entries(session, "ds_a", after=0, limit=100_000)


def state_of(session: Session) -> State:
    return kept_states.state_of(session, tables.account(session, "ds_a"))


@pytest.fixture
def account(installation: Installation, state_every: StateEvery) -> Installation:
    """An account with shards, regions of long names and uploads, which states its state
    in every eighth entry.
    """
    state_every(8)
    with installation.database.write() as session:
        members.account(
            session, "ds_a", cap=CAP, partitions=Partitions.from_json(PARTITIONS)
        )
    return installation


def test_all_uploads_are_a_number_and_each_upload_is_named_once(
    account: Installation,
) -> None:
    with account.database.write() as session:
        reserve(session, {"upload": uploads(20)}, "jb_1")
        reserve(session, {"upload": uploads(21), "shard": (1,)}, "jb_2")
        ledger.charge_job(session, "jb_1", actor="worker")
        reserve(session, {"upload": uploads(21)[4:]}, "jb_part")
        reserve(session, {"upload": uploads(21)[18:]}, "jb_few")
    with account.database.read() as session:
        stated = {
            (entry.job_id, entry.kind.value): entry for entry in entries_of(session)
        }
        lines = list(export(session, "ds_a"))
    added = sorted(set(uploads(21)) - set(uploads(20)))
    reserved = stated["jb_1", "reserve"]
    assert reserved.scope == {"upload": 20}
    assert reserved.details == {"purpose": "a test", "uploads": list(uploads(20))}
    reserved = stated["jb_2", "reserve"]
    assert (reserved.scope, (reserved.details or {})["uploads"]) == (
        {"shard": [1], "upload": 21},
        added,
    )
    charged = stated["jb_1", "charge"]
    assert (charged.scope, charged.details) == ({"upload": 20}, {"purpose": "a test"})
    assert stated["jb_few", "reserve"].scope == {"upload": list(uploads(21)[18:])}
    part = stated["jb_part", "reserve"].scope["upload"]
    assert part == list(uploads(21)[4:]), (
        "a part of the uploads that is no range stays a list"
    )
    assert dataset_replay.verify(lines).tightest.load == 4


@on_one_database
def test_acts_of_administration_have_no_state(account: Installation) -> None:
    for _ in range(2 * chain.STATE_EVERY):
        with account.database.write() as session:
            control.record(
                session, EntryKind.UNIT_ERASED, actor="key_a", dataset="ds_a"
            )
    with account.database.read() as session:
        acts = tables.entries(session, tables.CONTROL_CHAIN, after=1, limit=100)
    assert [act.kind for act in acts] == [EntryKind.UNIT_ERASED] * 2 * chain.STATE_EVERY


def test_a_state_is_small_whatever_the_cells_of_its_scopes(
    account: Installation,
) -> None:
    chance = random.Random(0)
    for number in range(40):
        with account.database.write() as session:
            reserve(
                session,
                {"region": tuple(sorted(chance.sample(LONG, 250)))},
                f"jb_{number}",
            )
    with account.database.read() as session:
        stated = [
            entry for entry in entries_of(session) if entry.kind is EntryKind.STATE
        ]
        assert len(stated) >= 5
        assert (
            max(len(rfc8785.dumps(entry.to_json())) for entry in stated)
            < 1_000 + 400 * 40
        )
        assert dataset_replay.verify(export(session, "ds_a")).kinds["state"] == len(
            stated
        )


def _walk(installation: Installation, n_jobs: int) -> None:
    """Jobs on ranges, lists and mixtures of them, of which some are charged and some
    given back.
    """
    chance = random.Random(n_jobs)
    for number in range(n_jobs):
        job, n_uploads = f"jb_{number}", 16 + number
        scope = chance.choice(
            [
                {"upload": uploads(n_uploads)},
                {
                    "upload": tuple(
                        sorted(
                            chance.sample(uploads(n_uploads), 18 if number > 2 else 2)
                        )
                    )
                },
                {"region": tuple(LONG[:3]), "upload": uploads(n_uploads)},
                {"shard": (number % 3,)},
                {},
            ]
        )
        with installation.database.write() as session:
            reserve(session, scope, job, number + 1)
        with installation.database.write() as session:
            if number % 3 == 1:
                ledger.charge_job(session, job, actor="worker")
            elif number % 3 == 2:
                ledger.void_jobs(session, [job], actor="key_a")


def test_a_process_that_starts_at_a_stated_state_has_ranges_lists_sources_and_bound(
    account: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    _walk(account, 40)

    def shown() -> list[Any]:
        with account.database.read() as session:
            now = state_of(session)
            amounts = {cell: amount for cell, amount in now.widened.items() if amount}
            assert now.bound >= now.budget.whole.load
            listed = {
                digest: sorted(scope.items()) for digest, scope in now.scopes.items()
            }
            return [
                now.totals,
                listed,
                now.sources,
                now.uploads,
                now.reservations,
                now.bound,
                amounts,
                now.to_json(),
            ]

    before = shown()
    account.database.kept.clear()
    assert shown() == before
    account.database.kept.clear()
    monkeypatch.setattr(kept_states, "_stated", lambda _, row: State(row.id))
    assert shown() == before, "the fold of all entries is the same"
    with account.database.read() as session:
        assert kept_states.is_intact(session, "ds_a")
        summary = dataset_replay.verify(export(session, "ds_a"))
        assert summary.kinds["state"] >= 8
        assert summary.tightest.load == state_of(session).budget.whole.load


def test_a_job_that_a_stated_state_holds_is_charged_and_given_back(
    account: Installation,
) -> None:
    with account.database.write() as session:
        for number in range(8):
            reserve(session, {"upload": uploads(20 + number)}, f"jb_{number}")
    for number, end in enumerate([ledger.charge_job, ledger.expire_job] * 4):
        account.database.kept.clear()
        with account.database.write() as session:
            end(session, f"jb_{number}", actor="worker")
    with account.database.read() as session:
        assert state_of(session).budget.whole.charged == 4
        assert not state_of(session).reservations
        assert dataset_replay.verify(export(session, "ds_a")).tightest.charged == 4


@pytest.fixture
def tampering(account: Installation) -> Callable[..., None]:
    """Changes the row of an entry, as somebody who may drop triggers can, and forgets
    what the process read.
    """
    _walk(account, 40)

    def change(sequence: int, **values: Any) -> None:
        with account.database.write() as session:
            if account.database.dialect == "postgresql":
                session.execute(text("ALTER TABLE entries DISABLE TRIGGER USER"))
            else:
                named = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'entries'"
                for name in session.execute(text(named)).scalars().all():
                    session.execute(text(f'DROP TRIGGER "{name}"'))
            row = (EntryRow.account_id == "ds_a", EntryRow.sequence == sequence)
            session.execute(update(EntryRow).where(*row).values(**values))
        account.database.kept.clear()

    return change


def test_a_changed_entry_that_a_state_names_admits_nothing(
    account: Installation, tampering: Callable[..., None]
) -> None:
    """The entry lies before the stated state, so its hash is not read; the state has
    the digest of its scope.
    """
    with account.database.read() as session:
        ranged = {
            entry.sequence: entry.scope
            for entry in entries_of(session)
            if "upload" in entry.scope
        }
        sources = state_of(session).sources.values()
    sequence = next(
        at for at, *_ in sources if isinstance(ranged.get(at, {}).get("upload"), int)
    )
    for scope in ({"upload": 1}, {}, {"shard": [0]}, {"upload": 10**6}):
        tampering(sequence, scope=scope)
        with pytest.raises(BalanceMismatch), account.database.write() as session:
            reserve(session, {"shard": (0,)}, "jb_refused")
    tampering(sequence, scope=ranged[sequence])
    with account.database.write() as session:
        reserve(session, {"shard": (0,)}, "jb_healthy")


WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "facts": lambda state: {"facts": "0" * 64},
    "cap": lambda state: {"cap": "2"},
    "form": lambda state: {"form": 3},
    "uploads": lambda state: {"uploads": state["uploads"][::-1]},
    "totals": lambda state: {"totals": state["totals"][1:]},
    "reservations": lambda state: {"reservations": state["reservations"][1:]},
    "scope of totals": lambda state: {
        "totals": [{**each, "scope": "0" * 64} for each in state["totals"]]
    },
    "entry of totals": lambda state: {
        "totals": [{**each, "entry": 1} for each in state["totals"]]
    },
    "scope of reservations": lambda state: {
        "reservations": [{**each, "scope": ""} for each in state["reservations"]]
    },
}


@on_one_database
@pytest.mark.parametrize("part", WRONG)
def test_the_verifier_finds_a_wrong_part_of_a_state(
    account: Installation, part: str
) -> None:
    _walk(account, 40)
    with account.database.read() as session:
        header, *_ = export(session, "ds_a")
        entries = entries_of(session)
    assert dataset_replay.verify(
        _made_anew(header, entries, lambda entry: entry)
    ).last.sequence == len(entries)

    def changed(entry: Entry) -> Entry:
        if entry.sequence != 40:
            return entry
        state = (entry.details or {})["state"]
        return dataclasses.replace(
            entry, details={"state": {**state, **WRONG[part](state)}}
        )

    with pytest.raises(
        NotVerified, match=f"line 41: the stated {part.split()[-1]} differs"
    ):
        dataset_replay.verify(_made_anew(header, entries, changed))


LINES: dict[str, tuple[Callable[[Entry], dict[str, Any]], str]] = {
    "more than were named": (
        lambda entry: {"scope": {"upload": 10**6}},
        "more uploads than entries have named",
    ),
    "none": (
        lambda entry: {"scope": {"upload": 0}},
        "more uploads than entries have named",
    ),
    "true": (
        lambda entry: {"scope": {"upload": True}},
        "does not map a partition to a list",
    ),
    "a number of shards": (
        lambda entry: {"scope": {"shard": 2}},
        "does not map a partition to a list",
    ),
    "named again": (
        lambda entry: {"details": {"uploads": [uploads(20)[0]]}},
        "an upload was named before",
    ),
    "named twice": (
        lambda entry: {"details": {"uploads": ["ep_x", "ep_x"]}},
        "an upload was named before",
    ),
    "no list": (lambda entry: {"details": {"uploads": "ep_x"}}, "not a list of texts"),
    "no text": (lambda entry: {"details": {"uploads": [1]}}, "not a list of texts"),
}


@on_one_database
@pytest.mark.parametrize("change", LINES)
def test_the_verifier_refuses_a_range_that_no_entry_made(
    account: Installation, change: str
) -> None:
    with account.database.write() as session:
        reserve(session, {"upload": uploads(20)}, "jb_1")
        reserve(session, {"upload": uploads(20)}, "jb_2")
    with account.database.read() as session:
        header, *_ = export(session, "ds_a")
        entries = entries_of(session)
    values, reason = LINES[change]
    lines = _made_anew(
        header,
        entries,
        lambda entry: (
            dataclasses.replace(entry, **values(entry))
            if entry.sequence == 3
            else entry
        ),
    )
    with pytest.raises(NotVerified, match=f"line 4: .*{reason}"):
        dataset_replay.verify(lines)


def _made_anew(
    header: bytes, entries: Sequence[Entry], changed: Callable[[Entry], Entry]
) -> Iterator[bytes]:
    """The lines of a chain whose hashes somebody made anew."""
    yield header
    previous = tables.FIRST_PREVIOUS_HASH
    for entry in entries:
        sealed = dataclasses.replace(changed(entry), previous_hash=previous).sealed()
        previous = sealed.hash
        yield rfc8785.dumps(sealed.to_json()) + b"\n"


def test_cells_of_distinct_scopes_have_a_limit_and_ranges_count_none(
    account: Installation, set_limit: SetLimit
) -> None:
    set_limit("MAX_LISTED_CELLS", 20)
    with account.database.write() as session:
        reserve(session, {"region": tuple(LONG[:7])}, "jb_7")
        reserve(session, {"region": tuple(LONG[:1]), "shard": (0, 1)}, "jb_10")
    before = _n_entries(account)
    for scope in (
        {"shard": (0,)},
        {"upload": uploads(1)},
        {"upload": uploads(20), "shard": (1,)},
    ):
        with (
            pytest.raises(TooManyCells) as refused,
            account.database.write() as session,
        ):
            reserve(session, scope, "jb_refused")
        assert "at most 20 cells" in str(refused.value)
        assert "take all uploads" in str(refused.value)
        assert _n_entries(account) == before, "nothing was reserved"
    with account.database.write() as session:
        reserve(session, {"region": tuple(LONG[:7])}, "jb_again")
        reserve(session, {}, "jb_everything")
        for number in range(20):
            reserve(session, {"upload": uploads(20 + number)}, f"jb_uploads_{number}")
    account.database.kept.clear()
    with pytest.raises(TooManyCells), account.database.write() as session:
        reserve(session, {"shard": (0,)}, "jb_refused")
    with pytest.raises(BudgetExceeded), account.database.write() as session:
        reserve(session, {"shard": (0,)}, "jb_refused", CAP)
    with account.database.write() as session:
        ledger.void_jobs(session, ["jb_10"], actor="key_a")
        reserve(session, {"shard": (0,)}, "jb_fits")


def test_a_key_lists_as_many_cells_as_it_leaves_to_others(
    account: Installation, set_limit: SetLimit
) -> None:
    set_limit("MAX_LISTED_CELLS", 20)
    with account.database.write() as session:
        reserve(session, {"region": tuple(LONG[:10])}, "jb_half")
        reserve(session, {"region": tuple(LONG[:5])}, "jb_quarter", key="key_b")
        reserve(session, {"region": tuple(LONG[:2])}, "jb_eighth", key="key_c")
        for number in range(6):
            reserve(session, {"region": tuple(LONG[:10])}, f"jb_again_{number}")
    for is_restarted in (False, True):
        if is_restarted:
            account.database.kept.clear()
        for key, shards in (
            ("key_a", (0,)),
            ("key_b", (0,)),
            ("key_c", (0,)),
            ("key_d", (0, 1)),
        ):
            part = ledger.NewReservation(
                "ds_a", 1, Scope({"shard": shards}), EVENT, "jb_refused"
            )
            with account.database.read() as session:
                [balance] = statements.balances_of_job(session, [part], key)
                assert (balance.room, balance.limited_by) == (0, "listed_cells")
                [other] = statements.balances_of_job(
                    session, [part], "key_e" if key != "key_d" else "key_d"
                )
                assert other.room == (0 if key == "key_d" else CAP - 9)
            with pytest.raises(TooManyCells), account.database.write() as session:
                reserve(session, {"shard": shards}, "jb_refused", key=key)
    with account.database.write() as session:
        reserve(session, {"shard": (0,)}, "jb_fits", key="key_d")


def test_parts_of_one_job_and_external_mechanisms_count_together(
    account: Installation, set_limit: SetLimit
) -> None:
    set_limit("MAX_LISTED_CELLS", 1)
    parts = [
        ledger.NewReservation("ds_a", 1, Scope({"shard": (cell,)}), EVENT, "jb_1")
        for cell in (0, 1)
    ]
    with pytest.raises(TooManyCells), account.database.write() as session:
        reserving.reserve(session, parts, actor="key_a")
    details = {"attested_by": "key_a", "description": "a mean", "per": "row"}
    part = ledger.NewReservation(
        "ds_a", 1, Scope({"shard": (0, 1)}), EVENT, None, details=details
    )
    with pytest.raises(TooManyCells), account.database.write() as session:
        ledger.charge_external(session, part, actor="key_a")
    assert _n_entries(account) == 1


def test_open_reservations_of_an_account_have_a_limit(
    account: Installation, set_limit: SetLimit
) -> None:
    set_limit("MAX_OPEN_RESERVATIONS", 2)
    with account.database.write() as session:
        reserve(session, {}, "jb_1")
        reserve(session, {}, "jb_2")
    with pytest.raises(TooManyRequests), account.database.write() as session:
        reserve(session, {}, "jb_3")
    with account.database.write() as session:
        ledger.charge_job(session, "jb_1", actor="worker")
        reserve(session, {}, "jb_3")


def _n_entries(installation: Installation) -> int:
    with installation.database.read() as session:
        return statements.size(session, "ds_a")


@on_one_database
def test_states_of_accounts_with_long_categories_stay_within_their_bytes(
    installation: Installation, set_limit: SetLimit
) -> None:
    """Each declaration has 255 categories of 250 characters; the process reads
    balances, and admits.
    """
    set_limit("MAX_KEPT_STATE_BYTES", 2_000_000)
    installation.database.kept.clear()
    tracemalloc.start()
    peaks = []
    for number in range(60):
        cells = [f"{category:03d}{number:03d}{'x' * 244}" for category in range(255)]
        partitions = Partitions.from_json([{**BY_REGION, "cells": [*cells, "OTHER"]}])
        with installation.database.write() as session:
            members.account(session, f"ds_{number}", cap=CAP, partitions=partitions)
            reserve(
                session,
                {"region": tuple(cells[:250])},
                f"jb_{number}",
                account=f"ds_{number}",
            )
        with installation.database.read() as session:
            assert statements.balance(session, f"ds_{number}").reserved == 1
        del cells, partitions
        peaks.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    states = installation.database.kept["states"]
    assert 2 <= len(states) < 30
    assert peaks[-1] - peaks[29] < limits.MAX_KEPT_STATE_BYTES // 4, (
        "half as many accounts had filled it"
    )


@pytest.fixture
def earlier(installation: Installation, state_every: StateEvery) -> Installation:
    """The ledger of :data:`EARLIER` in a database, with two of its open reservations."""
    state_every(8)
    header, *lines = map(json.loads, EARLIER.read_bytes().splitlines())
    with installation.database.write() as session:
        facts = {
            "adjacency": "add_remove",
            "delta": None,
            "delta_set_aside": None,
            "partitions": header["partitions"],
        }
        last = {
            "last_sequence": len(lines),
            "last_hash": lines[-1]["hash"],
            "last_at": lines[-1]["at"],
        }
        unit = {"privacy_unit": header["privacy_unit"]}
        session.add(
            AccountRow(
                id="ds_a", name="census", accountant="pure", **facts, **last, **unit
            )
        )
        for line in lines:
            amount, kind = int(float(line["amount"]) * 10**9 + 0.5), line["kind"]
            session.add(
                EntryRow(
                    account_id="ds_a",
                    **{**line, "amount": amount, "details": line.get("details")},
                )
            )
            if kind == "reserve" and line["job_id"] in ("jb_4", "jb_5"):
                session.add(
                    ReservationRow(
                        id=stamps.new(stamps.RESERVATION), account_id="ds_a", job_id=line["job_id"], part=0,
                        amount=amount, scope=line["scope"], event=line["event"], state="reserved",
                        details=line["details"], reserved_by=line["actor"],
                    )
                )  # fmt: skip
    return installation


def test_states_of_the_first_form_still_verify() -> None:
    with EARLIER.open("rb") as lines:
        summary = dataset_replay.verify(lines)
    assert (
        summary.kinds["state"],
        summary.tightest.charged,
        summary.tightest.reserved,
    ) == (2, 36, 65)
    header, *lines = EARLIER.read_bytes().splitlines()
    entries = [json.loads(line) for line in lines]
    previous, made = tables.FIRST_PREVIOUS_HASH, [header + b"\n"]
    for entry in entries:
        if entry["sequence"] == 16:
            entry["details"]["state"]["totals"][0]["charged"] = "0.5"
        body = {name: value for name, value in entry.items() if name != "hash"} | {
            "previous_hash": previous
        }
        previous = hashlib.sha256(rfc8785.dumps(body)).hexdigest()
        made.append(rfc8785.dumps({**body, "hash": previous}) + b"\n")
    with pytest.raises(NotVerified, match="the stated totals differs"):
        dataset_replay.verify(made)


def test_a_ledger_with_states_of_the_first_form_loads_and_goes_on(
    earlier: Installation,
) -> None:
    with earlier.database.read() as session:
        assert list(export(session, "ds_a")) == EARLIER.read_bytes().splitlines(
            keepends=True
        )
        assert kept_states.is_intact(session, "ds_a")
        balance = statements.balance(session, "ds_a")
        assert (balance.charged, balance.reserved) == (36, 65)
    all_uploads = tuple(f"ep_{letter * 16}" for letter in "abcdefghijklmnopqrstuvwx")
    with earlier.database.write() as session:
        # its reservation lists 22 uploads
        ledger.charge_job(session, "jb_5", actor="worker")
        reserve(session, {"upload": all_uploads}, "jb_new")
        ledger.void_jobs(session, ["jb_4"], actor="key_a")
        for number in range(4):
            reserve(session, {"shard": (0,)}, f"jb_new_{number}")
    earlier.database.kept.clear()
    with earlier.database.write() as session:
        reserve(session, {"shard": (1,)}, "jb_last")
    with earlier.database.read() as session:
        entries = {
            (entry.job_id, entry.kind.value): entry for entry in entries_of(session)
        }
        assert entries["jb_5", "charge"].scope == {"upload": list(all_uploads[:22])}
        assert entries["jb_new", "reserve"].scope == {"upload": 24}
        summary = dataset_replay.verify(export(session, "ds_a"))
        balance = statements.balance(session, "ds_a")
    assert summary.kinds["state"] == 3
    assert (summary.tightest.charged, summary.tightest.reserved) == (
        balance.charged,
        balance.reserved,
    )
