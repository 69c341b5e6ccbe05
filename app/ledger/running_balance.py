"""Reads chosen entries in either order; computes what a joint cell or a population's members had spent at an entry."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, Text, select, type_coerce
from sqlalchemy.orm import Session

from app.core import limits
from app.ledger import repository
from app.ledger.entries import Entry, EntryKind
from app.ledger.tables import EntryRow
from app.privacy.composition import Cell, JointCell, Scope

_EFFECTS: Mapping[str, tuple[int, int]] = {
    EntryKind.RESERVE: (0, 1),
    EntryKind.CHARGE: (1, -1),
    EntryKind.VOID: (0, -1),
    EntryKind.EXPIRE: (0, -1),
    EntryKind.LOAD: (1, 0),
}
"""By kind of an entry of a dataset, how often its amount is added to what is charged and to what is reserved."""


@dataclass(frozen=True)
class Spent:
    """What one joint cell has charged and reserved, in steps of the account's unit."""

    charged: int
    reserved: int

    def before(self, entry: Entry) -> "Spent":
        """What was spent before an entry that covers the cell."""
        charged, reserved = _EFFECTS.get(entry.kind, (0, 0))
        return Spent(self.charged - charged * entry.amount, self.reserved - reserved * entry.amount)


@dataclass(frozen=True)
class EntryFilter:
    """Which entries of an account are listed; a field that is ``None`` excludes none.

    Attributes:
        kinds: of the entries.
        job_id: of the entries.
        actor: of the entries.
    """

    kinds: Collection[EntryKind] | None = None
    job_id: str | None = None
    actor: str | None = None


def newest(
    session: Session, account_id: str, *, before: int | None, limit: int, chosen: EntryFilter = EntryFilter()
) -> list[Entry]:
    """At most ``limit`` entries with a sequence below ``before``, newest first."""
    query = _query(account_id, chosen)
    if before is not None:
        query = query.where(EntryRow.sequence < before)
    return repository.read_entries(session, account_id, query.order_by(EntryRow.sequence.desc()).limit(limit))


def oldest(session: Session, account_id: str, *, after: int, limit: int, chosen: EntryFilter) -> list[Entry]:
    """At most ``limit`` entries with a sequence above ``after``, in order."""
    query = _query(account_id, chosen).where(EntryRow.sequence > after)
    return repository.read_entries(session, account_id, query.order_by(EntryRow.sequence).limit(limit))


def _query(account_id: str, chosen: EntryFilter) -> Select[EntryRow]:
    query = select(EntryRow).where(EntryRow.account_id == account_id)
    if chosen.kinds is not None:
        query = query.where(EntryRow.kind.in_([kind.value for kind in chosen.kinds]))
    if chosen.job_id is not None:
        query = query.where(EntryRow.job_id == chosen.job_id)
    if chosen.actor is not None:
        query = query.where(EntryRow.actor == chosen.actor)
    return query


def spent_after(session: Session, account_id: str, cell: JointCell, sequence: int) -> Spent:
    """What a joint cell has spent after an entry. The database adds the amounts of equal scopes."""
    sums = (
        select(EntryRow.kind, EntryRow.scope, *repository.sum_in_halves(EntryRow.amount))
        .where(EntryRow.account_id == account_id, EntryRow.sequence <= sequence, EntryRow.kind.in_(list(_EFFECTS)))
        .group_by(EntryRow.kind, EntryRow.scope)
    )
    charged = reserved = 0
    for kind, scope, high, low in session.execute(sums):
        if covers(scope, cell):
            amount, (by_charged, by_reserved) = repository.sum_of_halves(high, low), _EFFECTS[kind]
            charged += by_charged * amount
            reserved += by_reserved * amount
    return Spent(charged, reserved)


def loads_before(session: Session, population_id: str, sequence: int) -> dict[str, int] | None:
    """The load of every member of a population before an entry, by the member's dataset.

    One query for each member, because the entry that states its load may lie far behind.

    Returns:
        ``None`` if the population has more members than ``limits.MAX_SUMMED_MEMBERS``.
    """
    limit, chosen = limits.MAX_SUMMED_MEMBERS + 1, EntryFilter(kinds=[EntryKind.JOIN])
    joins = newest(session, population_id, before=sequence, limit=limit, chosen=chosen)
    if len(joins) == limit:
        return None
    loads = {}
    for joined in joins:
        member = member_of(joined)
        query = _query(population_id, EntryFilter(kinds=[EntryKind.LOAD])).where(
            EntryRow.sequence < sequence, type_coerce(EntryRow.details, Text).contains(member, autoescape=True)
        )
        last = repository.read_entries(session, population_id, query.order_by(EntryRow.sequence.desc()).limit(1))
        loads[member] = (last[0] if last else joined).amount
    return {**loads, **{str(erased): 0 for joined in joins if (erased := continued_member(joined)) is not None}}


def member_of(entry: Entry) -> str:
    """The dataset whose load an entry of a population states."""
    return str((entry.details or {})["member"]["dataset"])


def continued_member(entry: Entry) -> str | None:
    """The erased member whose load a joining member carries from the entry on, if there is one."""
    erased: str | None = (entry.details or {}).get("member", {}).get("continues")
    return erased


def overlaps(scope: Scope, other: Scope) -> bool:
    """Whether two scopes have a joint cell in common."""
    return all(name not in other or not set(cells).isdisjoint(other[name]) for name, cells in scope.items())


def covers(scope: Mapping[str, Sequence[Any]], cell: Mapping[str, Cell]) -> bool:
    """Whether a scope has rows in common with a cell, which names a cell of some or of all partitions."""
    return all(name not in cell or cell[name] in cells for name, cells in scope.items())
