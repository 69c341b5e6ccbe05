"""Random programs of open, reserve, charge, void, expire and caps against a small model, on both databases.

The model keeps what the rules say and nothing else: no rows, no hashes, no SQL. After every step the ledger answers as
the model does; after every program the entries alone give the same balances, the chain is recomputed, and the verifier
accepts the export.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from pathlib import Path

import pytest
import rfc8785
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.core.errors import BudgetExceeded, ReservationSettled
from app.ledger import caps
from app.ledger import service as ledger
from app.privacy import accountants
from app.privacy.composition import Scope
from app.services.installation import Installation
from app.verifier.replay import Summary, verify
from tests.support.crash_scene import DELTA, EVENT, cell_balances, open_account, open_installation, replayed

_ENDS: dict[str, Callable[..., None]] = {"charge": ledger.charge, "void": ledger.void, "expire": ledger.expire}
_serial = count()


@dataclass
class Model:
    """An account, as the rules describe it: a cap, and for each job its amount, its cells and where it stands."""

    cap: int
    n_cells: int
    jobs: list[tuple[int, frozenset[int], str]] = field(default_factory=list)
    highest: int = 0

    def load(self, cell: int) -> int:
        return sum(amount for amount, cells, state in self.jobs if cell in cells and state in ("reserve", "charge"))

    def fits(self, cells: frozenset[int]) -> int:
        return max(self.cap - max(self.load(cell) for cell in cells), 0)

    def reserve(self, amount: int, cells: frozenset[int]) -> bool:
        if amount > self.fits(cells):
            return False
        self.jobs.append((amount, cells, "reserve"))
        return True

    def settle(self, job: int, end: str) -> bool:
        amount, cells, state = self.jobs[job]
        if state != "reserve":
            return False
        self.jobs[job] = (amount, cells, end)
        return True

    def set_cap(self, cap: int) -> None:
        is_used = any(state in ("reserve", "charge") for _, _, state in self.jobs)
        self.cap, self.highest = cap, max(self.highest, cap) if is_used else cap

    def balances(self) -> list[tuple[int, int]]:
        def total(cell: int, state: str) -> int:
            return sum(amount for amount, cells, now in self.jobs if cell in cells and now == state)

        return [(total(cell, "charge"), total(cell, "reserve")) for cell in range(self.n_cells)]


@dataclass(frozen=True)
class Reserve:
    """Asks for an amount in some cells (``None`` = all); ``exactly`` = what fits, ``over`` = one step more."""

    size: int | str
    cells: frozenset[int] | None


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
class Program:
    accountant: str
    cap: int
    n_cells: int
    steps: list[Reserve | Settle | SetCap]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    n_cells = draw(st.sampled_from([4, 3, 2, 1, 0]))
    cap = draw(st.integers(0, 40) | st.sampled_from([10**9, 10**18]))
    cells = st.none()
    if n_cells:
        cells |= st.frozensets(st.integers(0, n_cells - 1), min_size=1)
    sizes = st.integers(1, max(cap // 3, 2)) | st.sampled_from(["exactly", "over"])
    steps = st.builds(Reserve, sizes, cells) | st.builds(Settle, st.integers(0, 29), st.sampled_from(sorted(_ENDS)))
    steps |= st.builds(SetCap, st.integers(0, 20))
    accountant = draw(st.sampled_from(accountants.NAMES))
    return Program(accountant, cap, n_cells, draw(st.lists(steps, min_size=8, max_size=30)))


class Account:
    """The ledger under test: one new account of an installation that all programs share."""

    def __init__(self, installation: Installation, program: Program) -> None:
        self.database = installation.database
        self.id = f"ds_{next(_serial)}"
        self.accountant = accountants.by_name(program.accountant)
        self.reservations: list[str] = []
        open_account(installation, self.id, cap=program.cap, n_cells=program.n_cells, accountant=program.accountant)

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

    def price_of(self, epsilon: str) -> int:
        """What a job of this ε, at the account's δ, would cost; nothing costs nothing."""
        return self.accountant.price(Fraction(epsilon), Fraction(DELTA)) if Fraction(epsilon) else 0

    def set_cap(self, cap: int) -> None:
        with self.database.write() as session:
            caps.change(session, self.id, cap, reason="a test", actor="key_owner")

    def highest_cap(self) -> int:
        with self.database.read() as session:
            return ledger.highest_cap(session, self.id).amount

    def balances(self) -> list[tuple[int, int]]:
        with self.database.read() as session:
            return cell_balances(session, self.id)

    def check_history(self, n_cells: int) -> Summary:
        """Replays the entries, recomputes the chain, and runs the verifier on the export."""
        with self.database.read() as session:
            entries = ledger.entries(session, self.id, after=0, limit=1_000)
            header, last = ledger.export_header(session, self.id)
        assert replayed(entries, n_cells=n_cells) == self.balances()
        previous = "0" * 64
        for entry in entries:
            body = entry.to_json()
            stated = body.pop("hash")
            assert body["previous_hash"] == previous
            # An oracle of its own: entries hold text, small integers, lists and objects with ASCII names only.
            text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            assert hashlib.sha256(text.encode()).hexdigest() == stated
            previous = stated
        assert last == len(entries)
        return verify(rfc8785.dumps(line) + b"\n" for line in [header, *(entry.to_json() for entry in entries)])


def _take(step: Reserve, model: Model, account: Account) -> None:
    cells = step.cells if step.cells is not None else frozenset(range(model.n_cells))
    scope: Scope = {} if step.cells is None else {"shard": tuple(sorted(step.cells))}
    fits = model.fits(cells)
    amount = fits + (step.size == "over") if isinstance(step.size, str) else step.size
    if amount < 1:
        return
    refused = account.reserve(amount, scope)
    assert model.reserve(amount, cells) is (refused is None)
    if refused is not None:
        unit = 10**account.accountant.PLACES
        assert Fraction(refused.requested) == Fraction(amount, unit)
        assert Fraction(refused.remaining) == Fraction(fits, unit)
        load = Fraction(refused.charged) + Fraction(refused.reserved)
        assert Fraction(refused.cap) == load + Fraction(fits, unit) or (load > Fraction(refused.cap) and fits == 0)
        if account.accountant.TAKES_DELTA:
            assert account.price_of(refused.largest_that_fits) <= fits, "what is said to fit does"
        else:
            assert Fraction(refused.largest_that_fits) == Fraction(fits, unit)
        if step.cells is not None:
            assert refused.tightest_cell["shard"] in cells


def _run(installation: Installation, program: Program) -> None:
    model = Model(program.cap, max(program.n_cells, 1), highest=program.cap)
    account = Account(installation, program)
    for step in program.steps:
        if isinstance(step, Reserve):
            _take(step, model, account)
        elif isinstance(step, SetCap):
            cap = program.cap * step.tenths // 10
            model.set_cap(cap)
            account.set_cap(cap)
        elif model.jobs:
            job = step.job % len(model.jobs)
            assert account.settle(job, step.end) is model.settle(job, step.end)
        balances = account.balances()
        assert balances == model.balances()
        assert max(charged + reserved for charged, reserved in balances) <= model.highest
        assert account.highest_cap() == model.highest
    summary = account.check_history(model.n_cells)
    assert summary.cap == model.cap
    assert summary.tightest.load == max(sum(pair) for pair in model.balances())


def _settings(n_examples: int) -> settings:
    # The database is shared by all examples of a test; each program opens an account of its own on it.
    return settings(max_examples=n_examples, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@_settings(60)
@given(program=programs())
def test_the_ledger_is_the_model_on_sqlite(sqlite_database_url: str, home: Path, program: Program) -> None:
    installation = open_installation(sqlite_database_url, home)
    try:
        _run(installation, program)
    finally:
        installation.close()


@_settings(20)
@given(program=programs())
def test_the_ledger_is_the_model_on_postgresql(postgresql_database_url: str, home: Path, program: Program) -> None:
    installation = open_installation(postgresql_database_url, home)
    try:
        _run(installation, program)
    finally:
        installation.close()
