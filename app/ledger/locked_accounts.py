"""Locks and reads accounts once, judges jobs in memory in order, and writes all admitted reservations at once.

Rules and budgets of a job are those after the jobs before it, so the entries are those of one transaction for each job.
A job that is refused changes nothing.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from app.core import ids
from app.core.errors import NeedsApproval, NotFound, Unavailable
from app.db.locks import lock_rows, sent_together
from app.db.upsert import insert_rows
from app.ledger import (
    admission,
    chain,
    population_totals,
    reconciliation,
    refusals,
    repository,
    rules,
    state,
    stored_totals,
)
from app.ledger.admission import AccountState, Admitted, Budgets, Placed, Refused
from app.ledger.chain import NewEntry
from app.ledger.entries import Entry, EntryKind
from app.ledger.refusals import NewReservation
from app.ledger.rules import Rules
from app.ledger.scope_digest import digest_of
from app.ledger.stored_rules import RulesInForce, rules_of
from app.ledger.stored_totals import Sums
from app.ledger.tables import AccountRow, MemberRow, ReservationRow, RulesRow
from app.privacy.composition import Scope


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

    def __init__(self, session: Session, read: "_Read", populations: Mapping[str, AccountRow], in_force: RulesInForce):
        self._session = session
        self._rows = read.rows
        self._populations = populations
        self._members = read.members
        of_populations = list(population_totals.populations_of(session, list(populations.values())).values())
        self._doubts = reconciliation.doubts(session, {**read.rows, **populations}, read.sums, of_populations)
        states = {row.id: _state(session, row) for row in read.rows.values()}
        self._budgets = Budgets(states, of_populations)
        self._in_force = in_force
        self._entries: list[tuple[str, Entry]] = []
        self._reservations: list[dict[str, Any]] = []
        self._reserved: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._scopes: dict[str, Scope] = {}

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
        populations = repository.locked_accounts(session, population_ids) if population_ids else {}
        return cls(session, read, populations, RulesInForce.of(session, read.rules, keys))

    @property
    def may_need_approval(self) -> bool:
        """Whether rules of an account make some jobs wait for an approval."""
        return self._in_force.may_need_approval

    def judged(self, parts: Sequence[NewReservation], *, actor: str) -> Judged:
        """Judges a job after all jobs that were reserved. Two parts may be on one account if their scopes are disjoint.

        Raises:
            NotFound: no such account.
            BalanceMismatch: the balance of an account or a population differs from its entries.
            Unverified: an account is still being compared with its entries.
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
            raise refusals.budget_exceeded(self._rows[part.account_id], part, decision, ruled=ruled)
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
        """Writes the reservations, the entries, the heads and the totals of all jobs that were reserved."""
        if self._reservations:
            self._session.flush()  # the heads
            with sent_together(self._session):
                self._session.execute(_ADD_RESERVATIONS, self._reservations)
                state.add_reserved(self._session, self._scopes, self._reserved)
                repository.insert_entries(self._session, self._entries)
            chain.complete_subtrees(self._session, self._entries)

    def committed(self) -> None:
        """Takes note that the transaction was committed."""
        reconciliation.remember(self._session, self._entries, self._budgets)

    def _require_confirmed(self, account_ids: Collection[str]) -> None:
        for account_id in sorted(account_ids):
            if account_id not in self._rows:
                raise NotFound("account")
        populations = (self._budgets.population_of(account_id) for account_id in account_ids)
        population_ids = {population.id for population in populations if population is not None}
        for doubted in (*sorted(account_ids), *sorted(population_ids)):
            doubt: Unavailable | None = self._doubts.get(doubted)
            if doubt is not None:
                raise doubt

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
        digest = digest_of(part.scope)
        self._scopes[digest] = part.scope
        self._reserved[part.account_id, digest] += part.amount
        job_id, details = part.job_id or reservation_id, part.details or None
        new_entry = NewEntry(
            EntryKind.RESERVE, part.amount, actor=actor, scope=scope, event=part.event, job_id=job_id, details=details
        )
        row, population = self._rows[part.account_id], self._budgets.population_of(part.account_id)
        if population is None:
            self._entries.append((row.id, chain.extend(self._session, row, new_entry)))
            return
        assert placed.member is not None, "a member's total follows every reservation"
        member, population_row = self._members[row.id], self._populations[population.id]
        self._entries += population_totals.extend(self._session, population_row, row, new_entry, member, placed.member)


_ACCOUNTS = (
    select(AccountRow, MemberRow, RulesRow, *stored_totals.COLUMNS)
    .outerjoin(MemberRow, MemberRow.account_id == AccountRow.id)
    .outerjoin(RulesRow, RulesRow.account_id == AccountRow.id)
    .outerjoin(stored_totals.SUBQUERY, stored_totals.SUBQUERY.c.account_id == AccountRow.id)
    .where(AccountRow.id.in_(bindparam("account_ids", expanding=True)))
    .order_by(AccountRow.id)
    .execution_options(populate_existing=True)
)
_ADD_RESERVATIONS = insert_rows(ReservationRow)


@dataclass(frozen=True)
class _Read:
    """Locked accounts, the sums of their totals, their memberships and their rules; each by account, where there is
    one."""

    rows: Mapping[str, AccountRow]
    sums: Mapping[str, Sums]
    members: Mapping[str, MemberRow]
    rules: Mapping[str, Rules]

    @classmethod
    def of(cls, session: Session, account_ids: Collection[str]) -> Self:
        """Reads everything in one query."""
        rows, sums, members, rules = {}, {}, {}, {}
        for row, member, ruled, *columns in session.execute(_ACCOUNTS, {"account_ids": account_ids}).all():
            rows[row.id], sums[row.id] = row, stored_totals.sums_of(columns)
            if member is not None:
                members[row.id] = member
            if ruled is not None:
                rules[row.id] = rules_of(ruled)
        return cls(rows, sums, members, rules)


def _state(session: Session, row: AccountRow) -> AccountState:
    """The state of a locked account: that of its entries; of an account that is refused unread, the stored one."""
    replay = reconciliation.verified(session, row)
    if replay is None:
        return state.read(session, [row])[row.id]
    return replace(state.of_totals(session, row, replay.totals), bound=replay.bound)
