"""Applies steps to a ledger and to its model, and asserts that both agree."""

import copy
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from itertools import count
from typing import Any, TypeAlias

import rfc8785
from sqlalchemy.orm import Session

from app.core import stamps
from app.core.errors import BudgetExceeded, PopulationMismatch, ReservationSettled
from app.ledger import (
    accounts,
    kept_states,
    populations,
    reservations,
    statements,
    tables,
)
from app.ledger import reservations as ledger
from app.services.installation import Installation
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import WHOLE, Scope
from grovekeeper_verifier import dataset_replay as verifier
from grovekeeper_verifier import population_replay
from grovekeeper_verifier.member_comparison import MemberLedger
from tests.support import reserving
from tests.support.checked_exports import judge_population, verdict
from tests.support.crash_scene import DELTA, EVENT
from tests.support.ledger_model import (
    Job,
    Model,
    PopulationModel,
    box_of,
    frozen,
    order_of,
    picked_cells,
    second_part,
)
from tests.support.ledger_steps import (
    PARTITIONS,
    UPLOADS,
    Cap,
    Crash,
    Erase,
    External,
    Join,
    Open,
    Reserve,
    Settle,
    Step,
    Upload,
)

ASIDE = 60
"""Steps of δ that accounts of kind ``ASIDE`` set aside."""

_serial = count()


_Part: TypeAlias = tuple[str, str, int, Scope]
"""A part of a job: account, the model's name of the job on the account, amount, box."""


class _Crashed(Exception):
    """Simulates the end of the process."""


@dataclass
class _Models:
    """The state of the models, which a crash restores; ``jobs`` are ids in order, with
    account and name of each part.
    """

    together: PopulationModel
    accounts: dict[str, Model] = field(default_factory=dict)
    jobs: list[tuple[str, list[tuple[str, str]]]] = field(default_factory=list)
    erased: set[str] = field(default_factory=set)


class World:
    """Accounts and one population of an installation, and their models. Every step
    asserts that both agree.
    """

    def __init__(
        self, installation: Installation, *, accountant: str, cap: int
    ) -> None:
        self._database = installation.database
        self._population = f"pop_{next(_serial)}"
        delta = None if accountant == "pure" else DELTA
        self._models = _Models(PopulationModel(cap, (accountant, delta, None, None)))
        new_population = populations.NewPopulation(
            self._population, self._population, accountant, cap, delta, "key_owner"
        )
        with self._database.write() as session:
            populations.open_population(session, new_population, at=stamps.now())

    def take(self, step: Step) -> str:
        """Applies a step to the ledger and to the model, and returns its outcome in
        words.
        """
        before = copy.deepcopy(self._models)
        with suppress(_Crashed), self._database.write() as session:
            outcome = self._done(
                session, step.step if isinstance(step, Crash) else step
            )
            if isinstance(step, Crash):
                self._models, outcome = before, "crashed"
                raise _Crashed
        with self._database.read() as session:
            for account_id, model in self._models.accounts.items():
                self._check_account(session, account_id, model)
            self._check_population(session)
        return outcome

    def _done(self, session: Session, step: Step) -> str:
        match step:
            case Open():
                return self._open(session, step)
            case Settle(number, end) if self._models.jobs:
                return self._settle(
                    session,
                    *self._models.jobs[number % len(self._models.jobs)],
                    end=end,
                )
            case Cap(None, cap):
                accounts.change_cap(
                    session, self._population, cap, reason="a test", actor="key_owner"
                )
                self._models.together.set_cap(cap)
                return "done"
            case Reserve() | External() | Cap() | Join() | Upload() | Erase() if (
                self._models.accounts
            ):
                account_id = self._named(step.account or 0)
                return self._done_to(
                    session, step, account_id, self._models.accounts[account_id]
                )
        return "no account"

    def _done_to(
        self, session: Session, step: Step, account_id: str, model: Model
    ) -> str:
        is_erased = account_id in self._models.erased
        match step:
            case Cap(_, cap):
                accounts.change_cap(
                    session, account_id, cap, reason="a test", actor="key_owner"
                )
                model.set_cap(cap)
            case Upload() if UPLOADS in model.cells and not is_erased:
                model.cells[UPLOADS].append(f"ep_{len(model.cells[UPLOADS]):02}")
            case Join():
                return self._join(session, account_id, model)
            case Erase():
                return self._erase(session, account_id)
            case Reserve() if not is_erased:
                return self._reserve(session, step, account_id)
            case External() if not is_erased:
                return self._charge_external(session, step, account_id, model)
        return "done"

    def _open(self, session: Session, step: Open) -> str:
        account_id = f"ds_{next(_serial)}"
        adjacency, column, max_rows, may_aside = step.kind.value
        has_aside = may_aside and step.accountant == "zcdp"
        delta = None if step.accountant == "pure" else DELTA
        partitions = Partitions.from_json(
            [{"name": name, **PARTITIONS[name]} for name in step.names]
        )
        new_account = accounts.NewAccount(
            id=account_id,
            name=account_id,
            accountant=step.accountant,
            adjacency=adjacency,
            cap=step.cap,
            delta=delta,
            privacy_unit={"column": column, "max_rows": max_rows},
            partitions=partitions,
            delta_set_aside=accountants.delta_text(ASIDE) if has_aside else None,
        )
        accounts.open_account(session, new_account, actor="key_owner")
        cells = {
            partition.name: list(partition.known_cells or ["ep_00"])
            for partition in partitions.declared
        }
        kind = (step.accountant, delta, adjacency, column or "")
        self._models.accounts[account_id] = Model(
            step.cap, cells, aside=ASIDE if has_aside else 0, kind=kind
        )
        return "done"

    def _reserve(self, session: Session, step: Reserve, account_id: str) -> str:
        box, job_id = (
            box_of(self._models.accounts[account_id], step.picks),
            f"jb_{next(_serial)}",
        )
        parts = [(account_id, job_id, self._size(step.size, account_id, box), box)]
        if not parts[0][2]:
            return "nothing fits"
        parts += self._second_part(step, account_id, job_id, box)
        reservations = [
            ledger.NewReservation(payer, amount, Scope(scope), EVENT, job_id)
            for payer, _, amount, scope in parts
        ]
        fits = _fits(session, reservations)
        refused: BudgetExceeded | None = None
        try:
            _reserve(session, reservations)
        except BudgetExceeded as error:
            refused = error
        ordered = sorted(parts, key=lambda part: part[:2])
        for place, (payer, name, amount, scope) in enumerate(ordered, start=1):
            if self._refuses(refused, payer, amount, scope, beside=ordered[place:]):
                assert not fits, "quote and admission agree"
                for other, other_name, *_ in parts:
                    self._models.accounts[other].jobs.pop(other_name, None)
                return "refused"
            assert self._models.accounts[payer].reserve(name, amount, scope)
        assert fits
        assert refused is None, "a job that fits is admitted"
        self._models.jobs.append((job_id, [(payer, name) for payer, name, *_ in parts]))
        self._check_admitted(parts[0][0], parts[-1][0])
        n_accounts = len({payer for payer, *_ in parts})
        return "admitted in two parts" if n_accounts < len(parts) else "admitted"

    def _second_part(
        self, step: Reserve, account_id: str, job_id: str, box: Scope
    ) -> list[_Part]:
        """The second part of a job, if it has one."""
        other = (
            None if step.second_account is None else self._named(step.second_account)
        )
        if other is None or other in self._models.erased:
            return []
        model = self._models.accounts[other]
        if other != account_id:
            return [(other, job_id, 1, box_of(model, {}))]
        other_cells = {
            name: [cell for cell in model.cells[name] if cell not in cells]
            for name, cells in box.items()
        }
        disjoint = next(
            ({name: tuple(cells)} for name, cells in other_cells.items() if cells), None
        )
        if disjoint is None:
            return []
        return [
            (other, second_part(job_id), 1, Scope({**box_of(model, {}), **disjoint}))
        ]

    def _charge_external(
        self, session: Session, step: External, account_id: str, model: Model
    ) -> str:
        # if uploads are cells and none was picked, later uploads, too
        box = picked_cells(model, step.picks)
        amount, delta = (
            self._size(step.size, account_id, box),
            step.delta if model.aside else 0,
        )
        if not amount:
            return "nothing fits"
        details: dict[str, Any] = {
            "attested_by": "key_ann",
            "description": "a test",
            "per": "row",
        }
        if delta:
            text = accountants.delta_text(delta)
            details["declared"] = {
                "adjacency": "add_remove",
                "epsilon": "0.000001",
                "delta": text,
            }
        new_reservation = ledger.NewReservation(
            account_id,
            amount,
            Scope(box),
            None if delta else EVENT,
            None,
            details=details,
        )
        charged, refused = "", None
        try:
            charged = reservations.charge_external(
                session, new_reservation, delta=delta, actor="key_ann"
            )
        except BudgetExceeded as error:
            refused = error
        spent = model.delta_spent(box)
        if delta and spent + delta > model.aside:
            assert refused is not None
            assert (refused.unit, refused.remaining) == (
                "delta",
                accountants.delta_text(model.aside - spent),
            )
            return "refused for delta"
        if self._refuses(refused, account_id, amount, box):
            return "refused"
        assert refused is None, "a job that fits is admitted"
        model.jobs[charged] = Job(amount, box, "charge", delta)
        self._models.jobs.append((charged, [(account_id, charged)]))
        self._check_admitted(account_id)
        return "admitted with delta" if delta else "admitted"

    def _settle(
        self, session: Session, job_id: str, parts: list[tuple[str, str]], *, end: str
    ) -> str:
        try:
            # of an external mechanism: charged at once, and no call gives it back
            if job_id.startswith("rs_"):
                ledger.charge(session, job_id, actor="worker")
            else:
                _ENDS[end](session, job_id)
        except ReservationSettled:
            assert not any(
                self._models.accounts[account_id].settle(name, end)
                for account_id, name in parts
            )
            return "was settled"
        assert all(
            self._models.accounts[account_id].settle(name, end)
            for account_id, name in parts
        )
        return "settled"

    def _erase(self, session: Session, account_id: str) -> str:
        jobs = self._models.accounts[account_id].jobs
        waiting = [
            (job_id, parts)
            for job_id, parts in self._models.jobs
            if any(
                other == account_id and jobs[name].state == "reserve"
                for other, name in parts
            )
        ]
        ledger.void_jobs(session, [job_id for job_id, _ in waiting], actor="key_owner")
        assert all(
            self._models.accounts[other].settle(name, "void")
            for _, parts in waiting
            for other, name in parts
        )
        self._models.erased.add(account_id)
        return "done"

    def _join(self, session: Session, account_id: str, model: Model) -> str:
        try:
            populations.join(
                session,
                self._population,
                account_id,
                actor="key_owner",
                at=stamps.now(),
            )
        except PopulationMismatch:
            assert not self._models.together.join(account_id, model)
            return "does not match"
        if account_id not in self._models.together.members:
            assert self._models.together.join(account_id, model)
        together = self._models.together
        return "joined over the cap" if together.load > together.cap else "joined"

    def _named(self, number: int) -> str:
        return list(self._models.accounts)[number % len(self._models.accounts)]

    def _room(self, account_id: str, box: Scope) -> int:
        room = self._models.accounts[account_id].fits(box)
        together = self._models.together
        return (
            min(room, together.fits(account_id, box))
            if account_id in together.members
            else room
        )

    def _size(self, size: int | str, account_id: str, box: Scope) -> int:
        return (
            self._room(account_id, box) + (size == "over")
            if isinstance(size, str)
            else size
        )

    def _fits(self, account_id: str, box: Scope, beside: Sequence[_Part]) -> int:
        """The largest amount that fits in a box beside other parts of the job."""
        for other, name, amount, scope in beside:
            self._models.accounts[other].jobs[name] = Job(amount, scope, "reserve", 0)
        room = self._room(account_id, box)
        for other, name, *_ in beside:
            del self._models.accounts[other].jobs[name]
        return room

    def _refuses(
        self,
        refused: BudgetExceeded | None,
        account_id: str,
        amount: int,
        box: Scope,
        beside: Sequence[_Part] = (),
    ) -> bool:
        """Whether the model refuses an amount; if so, asserts that the ledger's refusal
        states the right amounts.
        """
        model, room = self._models.accounts[account_id], self._room(account_id, box)
        if amount <= room:
            return False
        assert refused is not None, "an amount that does not fit is refused"
        assert refused.dataset == account_id
        accountant = accountants.by_name(refused.accountant)
        unit, together = 10**accountant.PLACES, self._models.together
        cell, charged, reserved = model.tightest(box)
        if room < model.fits(box):
            assert (refused.population, refused.tightest_cell) == (self._population, {})
            assert (
                Fraction(refused.charged) + Fraction(refused.reserved)
            ) * unit == together.load
            assert Fraction(refused.cap) * unit == together.cap
        else:
            # If uploads are cells and the box names none, all uploads that no box names
            # are one cell.
            tightest_cell: dict[str, Any] = {
                **{name: listed[0] for name, listed in model.cells.items()},
                **refused.tightest_cell,
            }
            assert (refused.population, tightest_cell) == (None, cell) or (
                UPLOADS in tightest_cell and UPLOADS not in box
            )
            assert model.carried(tuple(tightest_cell[name] for name in sorted(tightest_cell))) == (
                Fraction(refused.charged) * unit, Fraction(refused.reserved) * unit,
            )  # fmt: skip
            assert (
                Fraction(refused.charged) + Fraction(refused.reserved)
            ) * unit == charged + reserved
            assert [
                Fraction(amount) * unit for amount in (refused.cap, refused.remaining)
            ] == [model.cap, room]
        assert Fraction(refused.requested) * unit == amount
        fits = self._fits(account_id, box, beside)
        if accountant.TAKES_DELTA:
            largest, delta = (
                Fraction(refused.largest_that_fits),
                Fraction(DELTA) - Fraction(model.aside, 10**18),
            )
            assert not largest or accountant.price(largest, delta) <= fits, (
                "the stated largest amount fits"
            )
        else:
            assert Fraction(refused.largest_that_fits) * unit == fits
        return True

    def _check_admitted(self, *account_ids: str) -> None:
        together = self._models.together
        for account_id in account_ids:
            model = self._models.accounts[account_id]
            box = next(reversed(model.jobs.values())).box
            assert sum(model.tightest(box)[1:]) <= model.cap
            assert account_id not in together.members or together.load <= together.cap

    def _check_account(self, session: Session, account_id: str, model: Model) -> None:
        """Compares the tightest joint cells of the account and of every cell, the room,
        and the printed guarantee.
        """
        box = box_of(model, {})
        balance = statements.balance(session, account_id, Scope(box))
        assert (
            balance.tightest_cell,
            balance.charged,
            balance.reserved,
        ) == model.tightest(box)
        assert (balance.cap, balance.room, balance.is_exact) == (
            model.cap,
            self._room(account_id, box),
            True,
        )
        assert balance.charged + balance.reserved <= model.highest
        assert statements.highest_cap(session, account_id).amount.steps == model.highest
        assert statements.printable(session, account_id).amount.steps == model.printable
        for name, shown in statements.detail(
            session, account_id, Scope(box)
        ).cells.items():
            assert [cell.cell[name] for cell in shown] == sorted(
                model.cells[name], key=order_of
            )
            for cell in shown:
                expected = model.tightest({**box, name: (cell.cell[name],)})
                assert cell.charged + cell.reserved == sum(expected[1:])
                assert (cell.charged, cell.reserved) == model.carried(
                    tuple(dict(sorted(cell.cell.items())).values())
                )
        delta = statements.delta_balance(session, account_id, Scope(box))
        assert (0 if delta is None else delta.charged) == model.delta_spent(box)

    def _check_population(self, session: Session) -> None:
        together = self._models.together
        population = populations.of_population(session, self._population)
        assert (
            population.cap,
            statements.highest_cap(session, population.id).amount.steps,
        ) == (
            together.cap,
            together.highest,
        )
        assert population.loads == {
            name: member.load for name, member in together.members.items()
        }
        for account_id, carried in population.members.items():
            # The entries of the population state the totals of all boxes.
            tightest = kept_states.state_of(
                session, tables.account(session, account_id)
            ).budget.tightest(WHOLE)
            stored = carried.load, carried.charged, carried.reserved, carried.is_exact
            assert stored == (
                tightest.load,
                tightest.charged,
                tightest.reserved,
                tightest.is_exact,
            )
            assert tightest.is_exact
        assert population.charged + population.reserved == together.load
        assert (
            statements.printable_of(
                population, statements.highest_cap(session, population.id)
            ).amount.steps
            == together.printable
        )

    def check_history(self) -> None:
        """Recomputes state and chain from the entries alone, and runs the verifier on
        all exports.
        """
        together, exports = self._models.together, dict[str, list[bytes]]()
        with self._database.read() as session:
            for account_id, model in self._models.accounts.items():
                exports[account_id] = self._exported(session, account_id)
                now = kept_states.state_of(session, tables.account(session, account_id))
                assert {
                    frozen(now.scopes[digest]): amounts
                    for digest, amounts in now.totals.items()
                } == model.by_box()
                summary = verifier.verify(exports[account_id])
                assert (summary.cap, summary.highest_cap, summary.tightest.load) == (
                    model.cap, model.highest, model.load,
                )  # fmt: skip
                assert verdict(exports[account_id]) == (None, model.load)
            lines = self._exported(session, self._population)
        members = [exports[name] for name in together.members]
        world = judge_population(lines, members)
        assert world.standing == (
            together.load,
            together.cap,
            together.highest,
            together.printable,
        )
        ledgers = [
            MemberLedger(exports[name], (), file=name) for name in together.members
        ]
        people = population_replay.verify(lines, ledgers)
        assert (people.cap, people.highest_cap, people.together) == (
            together.cap,
            together.highest,
            together.load,
        )
        assert people.printable == together.printable

    def _exported(self, session: Session, account_id: str) -> list[bytes]:
        entries = tables.entries(session, account_id, after=0, limit=1_000)
        header, last = statements.export_header(session, account_id)
        assert [entry.sequence for entry in entries] == list(range(1, last + 1))
        previous = "0" * 64
        for entry in entries:
            body = entry.to_json()
            stated = body.pop("hash")
            assert body["previous_hash"] == previous
            # Entries contain only text, small integers, lists and objects with ASCII
            # names, so json.dumps is canonical.
            text = json.dumps(
                body, sort_keys=True, separators=(",", ":"), ensure_ascii=False
            )
            assert sha256(text.encode()).hexdigest() == stated
            previous = stated
        return [
            rfc8785.dumps(line) + b"\n"
            for line in [header, *(entry.to_json() for entry in entries)]
        ]


def _reserve(session: Session, reservations: list[ledger.NewReservation]) -> None:
    """Reserves as a request for a job does: judged, reserved in memory, written."""
    reserving.reserve(session, reservations, actor="key_analyst")


def _fits(session: Session, reservations: list[ledger.NewReservation]) -> bool:
    """Whether the parts of a job fit according to a quote."""
    balances = statements.balances_of_job(session, reservations, "key_analyst")
    return all(
        part.amount <= balance.room
        for part, balance in zip(reservations, balances, strict=True)
    )


_ENDS: dict[str, Callable[[Session, str], None]] = {
    "charge": lambda session, job_id: ledger.charge_job(
        session, job_id, actor="worker"
    ),
    "void": lambda session, job_id: ledger.void_jobs(
        session, [job_id], actor="key_analyst"
    ),
    "expire": lambda session, job_id: ledger.expire_job(
        session, job_id, actor="sweeper"
    ),
}
