"""States the balances, limits and entries of accounts, now and at an entry. Changes
nothing and locks nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import rfc8785
from sqlalchemy import Select, Text, func, or_, select, type_coerce
from sqlalchemy.orm import Session

from app.core import limits
from app.ledger import admission, kept_states, populations, rules, tables
from app.ledger.admission import AskedAmount, Budgets, CellBalance, Population, Room
from app.ledger.state import CellDelta, State, facts_of
from app.ledger.tables import AccountRow, Entry, EntryKind, EntryRow
from grovekeeper_common.json_types import JsonObject
from grovekeeper_common.limit_words import LimitedBy
from grovekeeper_forests import amounts
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants import (
    WITHOUT_DELTA,
    Amount,
    SplitDelta,
    pure,
)
from grovekeeper_forests.privacy.scope import WHOLE, JointCell, Scope

CLOSED = 0
"""The cap of an account that admits nothing any more. No budget converts to it."""
_EFFECTS: Mapping[str, tuple[int, int]] = {
    EntryKind.RESERVE: (0, 1),
    EntryKind.CHARGE: (1, -1),
    EntryKind.VOID: (0, -1),
    EntryKind.EXPIRE: (0, -1),
    EntryKind.LOAD: (1, 0),
}
"""By kind of an entry of a dataset, how often its amount is added to what is charged
and to what is reserved.
"""


@dataclass(frozen=True)
class DeltaBalance:
    """The part of δ that is set aside, at the joint cell of a scope with the largest
    spent δ; in steps of 10⁻¹⁸.
    """

    set_aside: int
    charged: int

    @property
    def remaining(self) -> int:
        """The δ that may still be charged in this cell."""
        return self.set_aside - self.charged


@dataclass(frozen=True)
class Limit:
    """A cap that a guarantee states.

    Attributes:
        amount: the cap.
        delta: of the account, with the part for external (ε, δ)-mechanisms.
    """

    amount: Amount
    delta: SplitDelta


@dataclass(frozen=True)
class Balance:
    """An account at the tightest joint cell of a scope.

    ``cap == charged + reserved + remaining``, unless the cap was lowered below what is
    spent. Amounts are whole steps of the account's unit; :meth:`text` formats them.

    Attributes:
        is_exact: whether ``charged + reserved`` is the cell's load rather than an upper
            bound for every cell.
        delta: the δ that the cap was converted at.
        room: the largest reservation that would be admitted: ``remaining``, or less
            where the population is nearly used up, or where the rules leave less to a
            key.
        limited_by: the limit that decides ``room``.
        least_price: the smallest price of a job.
    """

    account_id: str
    name: str
    accountant: str
    cap: int
    charged: int
    reserved: int
    tightest_cell: JsonObject
    is_exact: bool
    delta: Fraction | None
    room: int
    limited_by: LimitedBy
    least_price: int

    def within(self, room: int | None, limited_by: LimitedBy | None) -> "Balance":
        """The balance where a further limit leaves ``room``; ``None``: no limit."""
        if room is None or limited_by is None or room >= self.room:
            return self
        return replace(self, room=room, limited_by=limited_by)

    def unless_erased(self, *, is_erased: bool) -> "Balance":
        """The balance of a dataset, which leaves nothing to any job once the dataset is
        erased.
        """
        return self.within(0, "erased") if is_erased else self

    @property
    def load(self) -> int:
        """Charges and reservations together."""
        return self.charged + self.reserved

    @property
    def remaining(self) -> int:
        """The room of the tightest cell on the account itself; zero where the cap was
        lowered below its load.
        """
        return max(self.cap - self.load, 0)

    @property
    def unit(self) -> str:
        """The unit of the amounts: ``epsilon``, ``rho`` or ``mu_squared``."""
        return accountants.by_name(self.accountant).UNIT

    @property
    def largest_that_fits(self) -> str:
        """The largest ε, at the account's own δ, that a request of this scope could
        carry now.
        """
        fitting = accountants.largest_that_fits(
            self.accountant, self.room, self.delta, least=self.least_price
        )
        return amounts.to_text(fitting)

    def text(self, amount: int) -> str:
        """An amount of this account as exact decimal text."""
        return Amount(self.accountant, amount).text

    @property
    def shown(self) -> dict[str, str]:
        """The accountant, its unit and the amounts, as answers show them."""
        return {
            "accountant": self.accountant,
            "unit": self.unit,
            "cap": self.text(self.cap),
            "charged": self.text(self.charged),
            "reserved": self.text(self.reserved),
            "remaining": self.text(self.remaining),
            "available": self.text(self.room),
            "limited_by": self.limited_by,
        }


@dataclass(frozen=True)
class Detail:
    """An account in detail.

    Attributes:
        balance: at the tightest joint cell of a scope.
        cells: for every partition and every cell of it inside the scope, the tightest
            joint cell that lies in the cell.
        load: of the tightest joint cell of the whole account.
    """

    balance: Balance
    cells: Mapping[str, list[CellBalance]]
    load: int


def balance(session: Session, account_id: str, scope: Scope | None = None) -> Balance:
    """The tightest joint cell of an account, or of a scope of it, whatever the rules
    leave to a key.
    """
    row = tables.account(session, account_id)
    budgets = _standing(session, [row])
    return _balance(
        row, budgets, budgets.room(AskedAmount(account_id, 0, scope or WHOLE))
    )


def balances(session: Session, account_ids: Sequence[str]) -> dict[str, Balance]:
    """The tightest joint cell of each of several accounts, in a fixed number of
    queries, whatever the rules leave.
    """
    rows = tables.accounts(session, account_ids)
    budgets = _standing(session, rows)
    return {
        row.id: _balance(row, budgets, budgets.room(AskedAmount(row.id, 0, WHOLE)))
        for row in rows
    }


def balances_for(
    session: Session, account_ids: Sequence[str], key: str
) -> dict[str, Balance]:
    """The tightest joint cell of each of several accounts, with the room that the rules
    leave to a key.
    """
    allowances = rules.allowances(session, account_ids, key)
    left = {}
    for account_id, balance in balances(session, account_ids).items():
        allowance = allowances.get(account_id, rules.UNLIMITED)
        left[account_id] = balance.within(allowance.room, allowance.limited_by)
    return left


def balance_of_new(row: AccountRow, cap: int, population: Population | None) -> Balance:
    """The balance that an account which is not open yet would have, as a member of a
    population or of none.
    """
    account = State(row.id, cap=cap, highest_cap=cap, facts=facts_of(row)).budget
    budgets = Budgets({row.id: account}, [] if population is None else [population])
    return _balance(row, budgets, budgets.room(AskedAmount(row.id, 0, WHOLE)))


def balances_of_job(
    session: Session, parts: Sequence[AskedAmount], key_id: str
) -> list[Balance]:
    """The balance of every part of a job, with the room that is left for it where the
    other parts get their amounts.

    Parts on members of one population add up in the population. A job of a key is
    admitted if and only if each part fits its room, and the rules admit it.
    """
    rows = {
        row.id: row
        for row in tables.accounts(session, [part.account_id for part in parts])
    }
    budgets = _standing(session, list(rows.values()))
    balances = []
    for part, room in zip(parts, admission.rooms(budgets, parts), strict=True):
        row = rows[part.account_id]
        balance = _balance(row, budgets, room)
        scopes = [other.scope for other in parts if other.account_id == row.id]
        is_listed = kept_states.state_of(session, row).admits_cells(key_id, scopes)
        balances.append(balance if is_listed else balance.within(0, "listed_cells"))
    return balances


def highest_cap(session: Session, account_id: str) -> Limit:
    """The highest cap in force since the first reservation that was not given back.

    Outputs that were released under a cap are covered by that cap, even if it was
    lowered afterwards (docs/proofs/caps.md).
    """
    return _highest_cap(session, tables.account(session, account_id))


def highest_caps(session: Session, account_ids: Sequence[str]) -> dict[str, Limit]:
    """The highest caps of several accounts, by id; see :func:`highest_cap`."""
    rows = tables.accounts(session, account_ids)
    return {row.id: _highest_cap(session, row) for row in rows}


def _highest_cap(session: Session, row: AccountRow) -> Limit:
    highest_cap = kept_states.state_of(session, row).highest_cap
    return Limit(Amount(row.accountant, highest_cap), row.split_delta)


def detail(
    session: Session,
    account_id: str,
    scope: Scope | None = None,
    *,
    only: str | None = None,
) -> Detail:
    """An account in detail within a scope, from one read of its state; with ``only``,
    the cells of one partition.
    """
    scope = scope or WHOLE
    row = tables.account(session, account_id)
    budgets = _standing(session, [row])
    account = budgets.accounts[account_id]
    tightest, cells = account.by_cell(scope, only=only)
    whole = account.tightest(WHOLE) if scope else tightest
    return Detail(
        _balance(row, budgets, budgets.room_at(account_id, tightest)), cells, whole.load
    )


def charged_by_cell(
    session: Session, account_id: str, charged: Mapping[str, int], scope: Scope
) -> Mapping[str, list[CellBalance]]:
    """What some charges alone add up to in every cell of every partition inside a
    scope, at the joint cell of it with the most.

    Args:
        charged: the amounts of charges of the account, by the digest of their scope.
    """
    state = kept_states.state_of(session, tables.account(session, account_id))
    totals = {digest: (amount, 0) for digest, amount in charged.items()}
    return replace(state.budget, totals=totals).by_cell(scope)[1]


def printable_at(highest: Limit, *, cap: int, load: int) -> Limit:
    """The limit that the guarantee of a whole account states.

    On ``pure`` accounts the charges bound the loss at any time (Theorem L (a),
    docs/proofs/lemmas.md), so the limit is the cap in force, or the reserved and
    charged amount where that is larger. An account is closed where entries were lost,
    which may have reached the highest cap, so this takes the place of the cap in force.
    On other accounts the limit is the highest cap.

    Args:
        highest: the :func:`highest_cap` of the account.
        cap: in force now.
        load: of the tightest joint cell of the whole account.
    """
    if highest.amount.accountant != pure.NAME:
        return highest
    limit = highest.amount.steps if cap == CLOSED else cap
    return Limit(Amount(pure.NAME, max(limit, load)), WITHOUT_DELTA)


def printable(session: Session, account_id: str) -> Limit:
    """The :func:`printable_at` limit of an account."""
    return printable_of_each(session, [account_id])[account_id]


def printable_of_each(session: Session, account_ids: Sequence[str]) -> dict[str, Limit]:
    """The :func:`printable_at` limits of several accounts, by id. Only ``pure``
    accounts need their loads.
    """
    limits = {}
    for row in tables.accounts(session, account_ids):
        now = kept_states.state_of(session, row)
        load = now.budget.whole.load if row.accountant == pure.NAME else 0
        highest = _highest_cap(session, row)
        limits[row.id] = printable_at(highest, cap=now.cap, load=load)
    return limits


def printable_of(population: Population, highest: Limit) -> Limit:
    """The limit that the guarantee of a population states, over all releases about its
    members.

    Computed as for one account, with the members' loads in place of reservations and
    charges (docs/proofs/accounting.md A8).

    Args:
        population: with the totals of its members.
        highest: the :func:`highest_cap` of its account.
    """
    return printable_at(highest, cap=population.cap, load=population.together)


def delta_balance(
    session: Session, account_id: str, scope: Scope
) -> DeltaBalance | None:
    """The part of δ that is set aside, and its spent amount in a scope; ``None`` where
    no part is set aside.
    """
    row = tables.account(session, account_id)
    if row.delta_set_aside is None:
        return None
    return DeltaBalance(delta_set_aside(row), spent_delta(session, row, scope).charged)


def delta_set_aside(row: AccountRow) -> int:
    """The part of δ for (ε, δ)-mechanisms, in steps of 10⁻¹⁸."""
    return accountants.delta_steps(row.delta_set_aside)


def spent_delta(session: Session, row: AccountRow, scope: Scope) -> CellDelta:
    """The spent δ; an inexact sum is bounded by the part that is set aside, as every
    charge was within it.
    """
    tightest = kept_states.state_of(session, row).tightest_delta(scope)
    return CellDelta(
        tightest.cell, min(tightest.charged, delta_set_aside(row)), tightest.is_exact
    )


def size(session: Session, account_id: str) -> int:
    """Number of entries of an account."""
    return tables.account(session, account_id).last_sequence


def export_header(session: Session, account_id: str) -> tuple[JsonObject, int]:
    """The header of an export, and the sequence of the last entry in the export.

    Entries never change, so several transactions may then read them.
    """
    row = tables.account(session, account_id)
    header = {
        "kind": "export",
        "format": 1,
        "cap": Amount(row.accountant, kept_states.state_of(session, row).cap).text,
        **facts_of(row),
    }
    return header, row.last_sequence


def _standing(session: Session, rows: Sequence[AccountRow]) -> Budgets:
    """The budgets of accounts and of their populations, without a lock."""
    population_ids = set(populations.ids_of(session, [row.id for row in rows]).values())
    accounts = {row.id: kept_states.state_of(session, row).budget for row in rows}
    return Budgets(accounts, list(populations.of_ids(session, population_ids).values()))


def _balance(row: AccountRow, budgets: Budgets, room: Room) -> Balance:
    return Balance(
        account_id=row.id,
        name=row.name,
        accountant=row.accountant,
        cap=budgets.accounts[row.id].cap,
        charged=room.tightest.charged,
        reserved=room.tightest.reserved,
        tightest_cell=dict(room.tightest.cell),
        is_exact=room.tightest.is_exact,
        delta=row.split_delta.converted_at,
        room=room.amount,
        limited_by=room.limited_by,
        least_price=row.least_price,
    )


@dataclass(frozen=True)
class Spent:
    """What one joint cell has charged and reserved, in steps of the account's unit."""

    charged: int
    reserved: int

    def before(self, entry: Entry) -> "Spent":
        """What was spent before an entry that covers the cell."""
        charged, reserved = _EFFECTS.get(entry.kind, (0, 0))
        return Spent(
            self.charged - charged * entry.amount,
            self.reserved - reserved * entry.amount,
        )


_SUBMISSIONS = [EntryKind.RESERVE.value, EntryKind.LOAD.value]
"""The kinds of the entry that a submission causes, of a dataset and of a population."""


@dataclass(frozen=True)
class EntryFilter:
    """Which entries of an account are listed; a field that is ``None`` excludes none.

    Attributes:
        kinds: of the entries.
        job_id: of the entries.
        actor: who caused the entries, or submitted what they belong to: a worker
            charges for a key.
        purpose: that the submitter of a job stated: all entries of the job.
    """

    kinds: Collection[EntryKind] | None = None
    job_id: str | None = None
    actor: str | None = None
    purpose: str | None = None


def newest_entries(
    session: Session,
    account_id: str,
    *,
    before: int | None,
    limit: int,
    chosen: EntryFilter = EntryFilter(),
) -> list[Entry]:
    """At most ``limit`` entries with a sequence below ``before``, newest first."""
    query = chosen_entries(account_id, chosen)
    if before is not None:
        query = query.where(EntryRow.sequence < before)
    return tables.read_entries(
        session, account_id, query.order_by(EntryRow.sequence.desc()).limit(limit)
    )


def oldest_entries(
    session: Session, account_id: str, *, after: int, limit: int, chosen: EntryFilter
) -> list[Entry]:
    """At most ``limit`` entries with a sequence above ``after``, in order."""
    query = chosen_entries(account_id, chosen).where(EntryRow.sequence > after)
    return tables.read_entries(
        session, account_id, query.order_by(EntryRow.sequence).limit(limit)
    )


def chosen_entries(account_id: str, chosen: EntryFilter) -> Select[EntryRow]:
    """Selects the entries of an account that a filter chooses."""
    query = select(EntryRow).where(EntryRow.account_id == account_id)
    if chosen.kinds is not None:
        query = query.where(EntryRow.kind.in_([kind.value for kind in chosen.kinds]))
    if chosen.job_id is not None:
        query = query.where(EntryRow.job_id == chosen.job_id)
    if chosen.actor is not None:
        is_of_actor = (
            EntryRow.account_id == account_id,
            EntryRow.actor == chosen.actor,
        )
        submitted = select(EntryRow.job_id).where(
            *is_of_actor, EntryRow.kind.in_(_SUBMISSIONS)
        )
        query = query.where(
            or_(EntryRow.actor == chosen.actor, EntryRow.job_id.in_(submitted))
        )
    if chosen.purpose is not None:
        stated = f'"purpose":{rfc8785.dumps(chosen.purpose).decode("utf-8")}'
        details = type_coerce(EntryRow.details, Text)
        # not LIKE, which ignores case on SQLite
        of_purpose = select(EntryRow.job_id).where(
            EntryRow.account_id == account_id,
            func.replace(details, stated, "") != details,
        )
        query = query.where(EntryRow.job_id.in_(of_purpose))
    return query


def actors_of(account_id: str) -> Select[str]:
    """Selects the actors that caused entries of an account, each as often as it did."""
    return select(EntryRow.actor).where(EntryRow.account_id == account_id)


def has_entry_of(session: Session, account_id: str, actor: str) -> bool:
    """Whether an actor caused an entry of an account. Whoever submits a job causes its
    reservation.
    """
    query = actors_of(account_id).where(EntryRow.actor == actor).limit(1)
    return session.execute(query).first() is not None


def spent_after(
    session: Session, account_id: str, cell: JointCell, sequence: int
) -> Spent:
    """What a joint cell has spent after an entry. The database adds the amounts of
    equal scopes.
    """
    sums = (
        select(EntryRow.kind, EntryRow.scope, *tables.sum_in_halves(EntryRow.amount))
        .where(
            EntryRow.account_id == account_id,
            EntryRow.sequence <= sequence,
            EntryRow.kind.in_(list(_EFFECTS)),
        )
        .group_by(EntryRow.kind, EntryRow.scope)
    )
    charged = reserved = 0
    uploads = named_uploads(session, account_id)
    for kind, scope, high, low in session.execute(sums):
        if tables.listed(scope, uploads).covers(cell):
            amount = tables.sum_of_halves(high, low)
            by_charged, by_reserved = _EFFECTS[kind]
            charged += by_charged * amount
            reserved += by_reserved * amount
    return Spent(charged, reserved)


def loads_before(
    session: Session, population_id: str, sequence: int
) -> dict[str, int] | None:
    """The load of every member of a population before an entry, by the member's
    dataset.

    One query for each member, because the entry that states its load may lie far
    behind.

    Returns:
        ``None`` if the population has more members than ``limits.MAX_SUMMED_MEMBERS``.
    """
    limit, chosen = limits.MAX_SUMMED_MEMBERS + 1, EntryFilter(kinds=[EntryKind.JOIN])
    joins = newest_entries(
        session, population_id, before=sequence, limit=limit, chosen=chosen
    )
    if len(joins) == limit:
        return None
    loads = {}
    for joined in joins:
        member = member_of(joined)
        query = chosen_entries(
            population_id, EntryFilter(kinds=[EntryKind.LOAD])
        ).where(
            EntryRow.sequence < sequence,
            type_coerce(EntryRow.details, Text).contains(member, autoescape=True),
        )
        last = tables.read_entries(
            session, population_id, query.order_by(EntryRow.sequence.desc()).limit(1)
        )
        loads[member] = (last[0] if last else joined).amount
    for joined in joins:
        erased = continued_member(joined)
        if erased is not None:
            # Its load is part of that of the member which continues it.
            loads[erased] = 0
    return loads


def member_of(entry: Entry) -> str:
    """The dataset whose load an entry of a population states."""
    return str((entry.details or {})["member"]["dataset"])


def continued_member(entry: Entry) -> str | None:
    """The erased member whose load a joining member carries from the entry on, if there
    is one.
    """
    erased: str | None = (entry.details or {}).get("member", {}).get("continues")
    return erased


def named_uploads(session: Session, account_id: str) -> Sequence[str]:
    """The uploads that entries of an account named, with which
    :func:`app.ledger.tables.listed` reads their scopes.
    """
    return kept_states.state_of(session, tables.account(session, account_id)).uploads
