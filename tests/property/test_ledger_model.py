"""Random programs of uploads, reservations, their ends, caps and crashes against a small model, on both databases.

The model (:mod:`tests.support.ledger_model`) looks at every joint cell, one by one. After every step the ledger answers
as it does; after every program the entries alone give the same state, the chain is recomputed, and the verifier accepts
the export.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from app.core.errors import BudgetExceeded, ReservationSettled
from app.ledger import caps
from app.ledger import service as ledger
from app.ledger.tables import BoxRow
from app.privacy import accountants
from app.privacy.composition import Partitions, Scope
from app.services.installation import Installation
from app.verifier.replay import verify
from tests.support.crash_scene import DELTA, EVENT, open_account, open_installation
from tests.support.ledger_model import Cell, Model, frozen, replay

_ENDS: dict[str, Callable[..., None]] = {"charge": ledger.charge, "void": ledger.void, "expire": ledger.expire}
_UPLOADS = "month"
_serial = count()

PARTITIONS: dict[str, dict[str, Any]] = {
    "shard": {"kind": "hash", "cells": 3},
    "coin": {"kind": "hash", "cells": 2},
    "region": {"kind": "column", "column": "land", "feature": False, "sizes": None, "cells": ["EU", "US", "OTHER"]},
    _UPLOADS: {"kind": "epoch", "how": "one file per month"},
}


@dataclass(frozen=True)
class Reserve:
    """Asks for an amount in a box, which picks cells of some partitions by number (counted round); ``exactly`` = what
    fits, ``over`` = one step more."""

    size: int | str
    picks: dict[str, frozenset[int]]


@dataclass(frozen=True)
class Settle:
    """Ends the reservation of an earlier job (counted round), which may have ended before."""

    job: int
    end: str


@dataclass(frozen=True)
class SetCap:
    """Puts another cap in force, of so many tenths of the first one."""

    tenths: int


@dataclass(frozen=True)
class Upload:
    """A new cell, where uploads are cells."""


@dataclass(frozen=True)
class Crash:
    """A step whose transaction ends before its commit, when all of it has been written."""

    step: Reserve | Settle | SetCap


class _Crashed(Exception):
    """Stands for the end of the process."""


@dataclass(frozen=True)
class Program:
    accountant: str
    cap: int
    names: list[str]
    steps: list[Reserve | Settle | SetCap | Upload | Crash]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    names = draw(st.lists(st.sampled_from(sorted(PARTITIONS)), unique=True, max_size=4))
    cap = draw(st.integers(0, 40) | st.sampled_from([10**9, 10**18]))
    picks = st.frozensets(st.integers(0, 3), min_size=1, max_size=3)
    boxes = st.dictionaries(st.sampled_from(names), picks) if names else st.just({})
    sizes = st.integers(1, max(cap // 3, 2)) | st.sampled_from(["exactly", "over"])
    steps = st.builds(Reserve, sizes, boxes) | st.builds(Settle, st.integers(0, 29), st.sampled_from(sorted(_ENDS)))
    steps |= st.builds(SetCap, st.integers(0, 20))
    steps |= st.builds(Crash, steps) | st.builds(Upload)
    accountant = draw(st.sampled_from(accountants.NAMES))
    return Program(accountant, cap, names, draw(st.lists(steps, min_size=8, max_size=30)))


class Account:
    """The ledger under test: one new account of an installation that all programs share."""

    def __init__(self, installation: Installation, program: Program) -> None:
        self.database = installation.database
        self.id = f"ds_{next(_serial)}"
        self.accountant = accountants.by_name(program.accountant)
        self.reservations: list[str] = []
        self.partitions = Partitions.from_json([{"name": name, **PARTITIONS[name]} for name in program.names])
        open_account(installation, self.id, cap=program.cap, accountant=program.accountant, partitions=self.partitions)

    def reserve(self, amount: int, scope: Scope) -> BudgetExceeded | None:
        job_id = f"jb_{len(self.reservations)}"
        new = ledger.NewReservation(account_id=self.id, amount=amount, scope=scope, event=EVENT, job_id=job_id)
        try:
            with self.database.write() as session:
                self.reservations.append(ledger.reserve(session, new, actor="key_analyst"))
        except BudgetExceeded as refused:
            return refused
        return None

    def settle(self, job: int, end: str) -> bool:
        try:
            with self.database.write() as session:
                _ENDS[end](session, self.reservations[job], actor="worker")
        except ReservationSettled:
            return False
        return True

    def crash(self, step: Reserve | Settle | SetCap, model: Model) -> None:
        """Writes all that a step writes, and goes before the commit."""
        with pytest.raises(_Crashed), self.database.write() as session:
            match step:
                case Reserve():
                    box = _box(model, step.picks)
                    amount = model.fits(box)
                    if amount:
                        new = ledger.NewReservation(self.id, amount, box, EVENT, f"jb_{len(self.reservations)}")
                        ledger.reserve(session, new, actor="key_analyst")
                case Settle(job, end):
                    unsettled = [i for i in range(len(self.reservations)) if model.jobs[f"jb_{i}"].state == "reserve"]
                    if unsettled:
                        reservation_id = self.reservations[unsettled[job % len(unsettled)]]
                        _ENDS[end](session, reservation_id, actor="worker")
                case SetCap(tenths):
                    caps.change(session, self.id, model.cap * tenths // 10, reason="a test", actor="key_owner")
            raise _Crashed

    def price_of(self, epsilon: str) -> int:
        """What a job of this ε, at the account's δ, would cost; nothing costs nothing."""
        return self.accountant.price(Fraction(epsilon), Fraction(DELTA)) if Fraction(epsilon) else 0

    def set_cap(self, cap: int) -> None:
        with self.database.write() as session:
            caps.change(session, self.id, cap, reason="a test", actor="key_owner")

    def check_balances(self, model: Model, box: Scope) -> None:
        """The tightest joint cell of a box, that of every cell of every partition, and the highest cap."""
        with self.database.read() as session:
            balance = ledger.balance(session, self.id, box)
            by_cell = ledger.cells(session, self.id, box)
            assert ledger.highest_cap(session, self.id).amount == model.highest
        assert (balance.tightest_cell, balance.charged, balance.reserved) == model.tightest(box)
        assert balance.is_exact
        assert balance.charged + balance.reserved <= model.highest
        for name, shown in by_cell.items():
            assert [cell.cell[name] for cell in shown] == sorted(box.get(name, model.cells[name]), key=_order)
            for cell in shown:
                expected = model.tightest({**box, name: (cell.cell[name],)})
                assert cell.charged + cell.reserved == sum(expected[1:])
                assert (cell.charged, cell.reserved) == model.carried(tuple(dict(sorted(cell.cell.items())).values()))

    def check_history(self, model: Model) -> None:
        """Recomputes state and chain from the entries alone, and runs the verifier on the export."""
        with self.database.read() as session:
            entries = ledger.entries(session, self.id, after=0, limit=1_000)
            header, last = ledger.export_header(session, self.id)
            rows = session.execute(select(BoxRow).where(BoxRow.account_id == self.id)).scalars().all()
        again = replay(entries, model.cells)
        assert again.by_box() == model.by_box()
        assert {frozen(row.scope): (row.charged, row.reserved) for row in rows} == again.by_box()
        assert {row.delta_charged for row in rows} <= {0}
        assert [entry.sequence for entry in entries] == list(range(1, last + 1))
        previous = "0" * 64
        for entry in entries:
            body = entry.to_json()
            stated = body.pop("hash")
            assert body["previous_hash"] == previous
            # An oracle of its own: entries hold text, small integers, lists and objects with ASCII names only.
            text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            assert hashlib.sha256(text.encode()).hexdigest() == stated
            previous = stated
        summary = verify(rfc8785.dumps(line) + b"\n" for line in [header, *(entry.to_json() for entry in entries)])
        assert summary.cap == model.cap
        assert summary.tightest.load == sum(model.tightest({})[1:])


def _order(cell: Cell) -> tuple[int, str]:
    return (cell, "") if isinstance(cell, int) else (0, cell)


def _box(model: Model, picks: dict[str, frozenset[int]]) -> Scope:
    """The cells that were picked; where uploads are cells, all of them unless some were picked."""
    box = {
        name: tuple(sorted({model.cells[name][pick % len(model.cells[name])] for pick in picked}, key=_order))
        for name, picked in picks.items()
    }
    if _UPLOADS in model.cells:
        box.setdefault(_UPLOADS, tuple(model.cells[_UPLOADS]))
    return dict(sorted(box.items()))


def _take(step: Reserve, model: Model, account: Account) -> None:
    box = _box(model, step.picks)
    fits = model.fits(box)
    amount = fits + (step.size == "over") if isinstance(step.size, str) else step.size
    if amount < 1:
        return
    tightest, charged, reserved = model.tightest(box)
    refused = account.reserve(amount, box)
    assert model.reserve(f"jb_{len(model.jobs)}", amount, box) is (refused is None)
    if refused is None:
        return
    unit = 10**account.accountant.PLACES
    assert refused.tightest_cell == tightest
    said = refused.requested, refused.charged, refused.reserved, refused.remaining
    assert tuple(map(Fraction, said)) == tuple(Fraction(each, unit) for each in (amount, charged, reserved, fits))
    assert Fraction(refused.cap) == Fraction(model.cap, unit)
    if account.accountant.TAKES_DELTA:
        assert account.price_of(refused.largest_that_fits) <= fits, "what is said to fit does"
    else:
        assert Fraction(refused.largest_that_fits) == Fraction(fits, unit)


def _run(installation: Installation, program: Program) -> None:
    account = Account(installation, program)
    known = {partition.name: list(partition.known_cells or ["ep_00"]) for partition in account.partitions.declared}
    model = Model(program.cap, known)
    for step in program.steps:
        match step:
            case Reserve():
                _take(step, model, account)
            case SetCap(tenths):
                model.set_cap(program.cap * tenths // 10)
                account.set_cap(program.cap * tenths // 10)
            case Crash(unfinished):
                account.crash(unfinished, model)
            case Upload():
                uploads = model.cells.get(_UPLOADS, [])
                uploads.append(f"ep_{len(uploads):02}")
            case Settle(job, end):
                if model.jobs:
                    number = job % len(model.jobs)
                    assert account.settle(number, end) is model.settle(f"jb_{number}", end)
        account.check_balances(model, _box(model, {}))
    account.check_history(model)


def _settings(n_examples: int) -> settings:
    # The database is shared by all examples of a test; each program opens an account of its own on it. Programs are not
    # made smaller after a failure: on a database that takes minutes.
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    return settings(
        max_examples=n_examples,
        phases=phases,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@_settings(100)
@given(program=programs())
def test_the_ledger_is_the_model_on_sqlite(sqlite_database_url: str, home: Path, program: Program) -> None:
    installation = open_installation(sqlite_database_url, home)
    try:
        _run(installation, program)
    finally:
        installation.close()


@_settings(30)
@given(program=programs())
def test_the_ledger_is_the_model_on_postgresql(postgresql_database_url: str, home: Path, program: Program) -> None:
    installation = open_installation(postgresql_database_url, home)
    try:
        _run(installation, program)
    finally:
        installation.close()
