"""Locks and reads accounts once, judges jobs in memory in order, and writes all admitted reservations at once.

Rules and budgets of a job are those after the jobs before it, so the entries are those of one transaction for each job.
A job that is refused changes nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from app.core import ids
from app.core.errors import BalanceMismatch, NeedsApproval, NotFound
from app.db.locks import lock_rows, sent_together
from app.db.upsert import insert_rows
from app.ledger import admission, chain, populations, refusals, repository, rules, state
from app.ledger.admission import Admitted, Budgets, Placed, Refused
from app.ledger.chain import NewEntry
from app.ledger.entries import Entry, EntryKind
from app.ledger.refusals import NewReservation
from app.ledger.rules import Rules
from app.ledger.stored_rules import RulesInForce, rules_of
from app.ledger.tables import AccountRow, MemberRow, ReservationRow, RulesRow


@dataclass(frozen=True)
class Judged:
    """A job that the accounts admit if it is the next one.

    Attributes:
        parts: the job's reservations.
        actor: the key that submits the job.
        excess: by account on which the job needs an approval, the steps above what the key may spend without one.
    """

    parts: Sequence[NewReservation]
    actor: str
    excess: Mapping[str, int]
    decision: Admitted
    budgets: Budgets


class LockedAccounts:
    """Accounts, their populations and their rules in one write transaction, which holds the locks of all of them."""

    def __init__(
        self, session: Session, read: "_Read", population_rows: Mapping[str, AccountRow], in_force: RulesInForce
    ) -> None:
        self._session = session
        self._rows = read.rows
        self._populations = population_rows
        self._members = read.members
        self._doubts: dict[str, BalanceMismatch] = {}
        self._budgets = self._read_budgets()
        self._in_force = in_force
        self._entries: list[tuple[str, Entry]] = []
        self._reservations: list[dict[str, Any]] = []

    @classmethod
    def lock(cls, session: Session, account_ids: Collection[str], keys: Collection[str]) -> Self:
        """Locks accounts in order of their ids, and reads them as :meth:`read` does."""
        lock_rows(session, (AccountRow.id, account_ids))
        return cls.read(session, account_ids, keys)

    @classmethod
    def read(cls, session: Session, account_ids: Collection[str], keys: Collection[str]) -> Self:
        """Reads accounts that the transaction has locked, and what their rules leave to keys; locks their populations,
        in order of their ids.
        """
        read = _Read.of(session, account_ids)
        population_ids = {member.population_id for member in read.members.values()}
        rows = repository.locked_accounts(session, population_ids) if population_ids else {}
        return cls(session, read, rows, RulesInForce.of(session, read.rules, keys))

    @property
    def may_need_approval(self) -> bool:
        """Whether rules of an account make some jobs wait for an approval."""
        return self._in_force.may_need_approval

    def judged(self, parts: Sequence[NewReservation], *, actor: str) -> Judged:
        """Judges a job after all jobs that were reserved. Two parts may be on one account if their scopes are disjoint.

        Raises:
            NotFound: no such account.
            BalanceMismatch: an account or a population differs from its entries.
            DatasetDeleted: the rows of an account are to be erased by now.
            Frozen: the dataset of an account is frozen.
            QuotaExceeded: the rules of an account refuse its part.
            BudgetExceeded: the first account, in order of their ids, that does not admit its part.
        """
        if not all(part.amount > 0 for part in parts):
            raise ValueError("a reservation is positive")
        self._require_confirmed({part.account_id for part in parts})
        allowances = self._in_force.allowances(actor)
        refusals.require_rules(self._rows, allowances, self._budgets, parts)
        budgets, decision = admission.admit(self._budgets, parts)
        if isinstance(decision, Refused):
            part, ruled = parts[decision.position], rules.room_beside(allowances, parts, decision.position)
            population = decision.room.population
            if population is not None:
                population = populations.detailed(self._session, [population])[population.id]
            cap = self._budgets.accounts[part.account_id].cap
            raise refusals.budget_exceeded(
                self._rows[part.account_id], part, decision, cap=cap, population=population, ruled=ruled
            )
        return Judged(parts, actor, self._in_force.above_approval(parts, actor), decision, budgets)

    def needs_approval(self, judged: Judged) -> NeedsApproval:
        """The refusal of a job that needs an approval and cannot wait for one."""
        account_id, excess = next(iter(judged.excess.items()))
        part = next(part for part in judged.parts if part.account_id == account_id)
        return refusals.needs_approval(self._rows[account_id], part, excess)

    def reserve(self, judged: Judged) -> list[str]:
        """Reserves every part of a job, in memory. No other job was reserved since the job was judged.

        Returns:
            The reservations' ids, in the order of the parts.
        """
        reservation_ids = [ids.new(ids.RESERVATION) for _ in judged.parts]
        for placed in judged.decision:
            part, reservation_id = judged.parts[placed.position], reservation_ids[placed.position]
            self._take(part, placed, reservation_id, actor=judged.actor)
        self._budgets = judged.budgets
        self._in_force.add(judged.parts, judged.actor)
        return reservation_ids

    def write(self) -> None:
        """Writes the reservations, the entries and the heads of all jobs that were reserved."""
        if self._reservations:
            self._session.flush()  # the heads
            with sent_together(self._session):
                self._session.execute(_ADD_RESERVATIONS, self._reservations)
                repository.insert_entries(self._session, self._entries)
            chain.complete_subtrees(self._session, self._entries)

    def _require_confirmed(self, account_ids: Collection[str]) -> None:
        for account_id in sorted(account_ids):
            if account_id not in self._rows:
                raise NotFound("account")
            if account_id in self._doubts:
                raise self._doubts[account_id]

    def _read_budgets(self) -> Budgets:
        """The states of the accounts and their populations. One that differs from its entries stays out of them."""
        accounts, of_populations = {}, {}
        for row in self._rows.values():
            member = self._members.get(row.id)
            try:
                now = state.of(self._session, row)
                if member is not None:
                    population = self._populations[member.population_id]
                    of_populations[population.id] = populations.of_row(self._session, population)
                    now.population_id = now.population_id or population.id
                if now.population_id != (None if member is None else member.population_id):
                    raise state.mismatch(row.id, "population")
            except BalanceMismatch as error:
                self._doubts[row.id] = error
            else:
                accounts[row.id] = now.budget
        return Budgets(accounts, list(of_populations.values()))

    def _take(self, part: NewReservation, placed: Placed, reservation_id: str, *, actor: str) -> None:
        scope = {name: list(listed) for name, listed in part.scope.items()}
        self._reservations.append(
            {
                "id": reservation_id,
                "account_id": part.account_id,
                "job_id": part.job_id,
                "part": placed.position,
                "amount": part.amount,
                "scope": scope,
                "event": part.event,
                "state": "reserved",
                "details": part.details or None,
                "reserved_by": actor,
                "is_approved": False,
            }
        )
        job_id, details = part.job_id or reservation_id, part.details or None
        new_entry = NewEntry(
            EntryKind.RESERVE, part.amount, actor=actor, scope=scope, event=part.event, job_id=job_id, details=details
        )
        row, population = self._rows[part.account_id], self._budgets.population_of(part.account_id)
        if population is None:
            self._entries += chain.extend(self._session, row, new_entry)
            return
        assert placed.member is not None, "a member's load follows every reservation"
        population_row = self._populations[population.id]
        self._entries += populations.extend(self._session, population_row, row, new_entry, load=placed.member.load)


_ACCOUNTS = (
    select(AccountRow, MemberRow, RulesRow)
    .outerjoin(MemberRow, MemberRow.account_id == AccountRow.id)
    .outerjoin(RulesRow, RulesRow.account_id == AccountRow.id)
    .where(AccountRow.id.in_(bindparam("account_ids", expanding=True)))
    .order_by(AccountRow.id)
    .execution_options(populate_existing=True)
)
_ADD_RESERVATIONS = insert_rows(ReservationRow)


@dataclass(frozen=True)
class _Read:
    """Locked accounts, their memberships and their rules; each by account, where there is one."""

    rows: Mapping[str, AccountRow]
    members: Mapping[str, MemberRow]
    rules: Mapping[str, Rules]

    @classmethod
    def of(cls, session: Session, account_ids: Collection[str]) -> Self:
        """Reads everything in one query."""
        rows, members, rules = {}, {}, {}
        for row, member, ruled in session.execute(_ACCOUNTS, {"account_ids": account_ids}).all():
            rows[row.id] = row
            if member is not None:
                members[row.id] = member
            if ruled is not None:
                rules[row.id] = rules_of(ruled)
        return cls(rows, members, rules)
