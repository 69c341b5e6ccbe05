"""Reads and updates the totals of a population's members, which its chain records at every change.

The load of a member is the load of its tightest joint cell, reservations included. Every entry of a member that
reserves or gives back is followed, in the same transaction, by an entry of the population with the member's load after
it and the sequence and hash of the member's entry. So the chain alone shows what all members together carried at any
time, and that no admission passed the cap (docs/proofs/accounting.md A8, docs/adr/0017-populations-have-entries.md).
The charge of a reservation changes no load and has no such entry. Totals are stored beside the loads, so that neither a
refusal nor an answer about a population reads the members' scopes.

A transaction that changes a load locks the member's account first and the population's account second.
"""

from collections.abc import Collection, Sequence

from sqlalchemy import Text, select, type_coerce
from sqlalchemy.orm import Session

from app.ledger import chain, repository
from app.ledger.admission import CellBalance, MemberTotal, Population
from app.ledger.chain import NewEntry
from app.ledger.entries import Entry, EntryKind
from app.ledger.tables import AccountRow, EntryRow, MemberRow, PopulationRow
from app.privacy.composition import Scope


def ids_of(session: Session, account_ids: Collection[str]) -> dict[str, str]:
    """The populations of accounts, by account; accounts without a population are left out."""
    query = select(MemberRow.account_id, MemberRow.population_id).where(MemberRow.account_id.in_(account_ids))
    return dict(session.execute(query).all())


def id_of(session: Session, account_id: str) -> str | None:
    """The population that an account belongs to."""
    return ids_of(session, [account_id]).get(account_id)


def joined_by_entries(session: Session, account_id: str) -> str | None:
    """The population whose entries state that an account joined it. Reads the entries of all populations."""
    joins = select(EntryRow.account_id, EntryRow.details).where(
        EntryRow.account_id.in_(select(PopulationRow.id)),
        EntryRow.kind == EntryKind.JOIN.value,
        type_coerce(EntryRow.details, Text).contains(account_id, autoescape=True),
    )
    for population_id, details in session.execute(joins):
        if details["member"]["dataset"] == account_id:
            return str(population_id)
    return None


def locked_rows(session: Session, account_ids: Collection[str]) -> dict[str, AccountRow]:
    """Locks the populations of several accounts in order of their ids; the accounts are locked already.

    Returns:
        The populations' accounts, by the populations' ids.
    """
    population_ids = set(ids_of(session, account_ids).values())
    return repository.locked_accounts(session, population_ids) if population_ids else {}


def of_population(session: Session, population_id: str) -> Population:
    """A population with the totals of its members.

    Raises:
        NotFound: no such account.
    """
    return populations_of(session, [repository.account(session, population_id)])[population_id]


def of_populations(session: Session, population_ids: Collection[str]) -> dict[str, Population]:
    """Several populations with the totals of their members, by id, in two queries."""
    return populations_of(session, repository.accounts(session, population_ids)) if population_ids else {}


def populations_of(session: Session, rows: Sequence[AccountRow]) -> dict[str, Population]:
    """The populations whose own accounts are given, with the totals of their members, by id, in one query."""
    if not rows:
        return {}
    members: dict[str, dict[str, MemberTotal]] = {row.id: {} for row in rows}
    query = select(
        MemberRow.population_id, MemberRow.account_id, MemberRow.load, MemberRow.reserved, MemberRow.is_exact
    ).where(MemberRow.population_id.in_(members))
    for population_id, account_id, load, reserved, is_exact in session.execute(query.order_by(MemberRow.account_id)):
        members[population_id][account_id] = MemberTotal(load, reserved, is_exact)
    return {row.id: Population(row.id, row.name, row.cap, members[row.id]) for row in rows}


def extend(
    session: Session,
    population: AccountRow,
    account: AccountRow,
    new_entry: NewEntry,
    member: MemberRow,
    total: CellBalance,
) -> list[tuple[str, Entry]]:
    """Extends the chain of a member by an entry that reserves or gives back, then the population's by the new total.

    The caller writes both entries (:func:`app.ledger.chain.write`). The member's entry is not older than the newest
    entry of the population: else, if it has no entry in an export of the population that ends later, the verifier
    reports that an entry was left out.

    Args:
        session: of the transaction.
        population: of the account, locked.
        account: the member, locked.
        new_entry: of the member.
        member: the row with the member's total.
        total: the member's tightest joint cell after the entry.

    Returns:
        Both entries, each with the id of its account.
    """
    entry = chain.extend(session, account, new_entry, not_before=population.last_at)
    member.load, member.reserved = total.load, total.reserved
    member.tightest_cell, member.is_exact = dict(total.cell), total.is_exact
    loaded = NewEntry(
        EntryKind.LOAD,
        member.load,
        actor=entry.actor,
        job_id=entry.job_id,
        details={"member": {"dataset": account.id, "sequence": entry.sequence, "hash": entry.hash}},
    )
    # Not before the member's entry, which may be ahead of the clock: the verifier checks the order of the two times.
    return [(account.id, entry), (population.id, chain.extend(session, population, loaded, not_before=entry.at))]


def members(session: Session, account_ids: Collection[str]) -> dict[str, MemberRow]:
    """The rows of those accounts that belong to a population, by account; the caller has locked the accounts."""
    query = select(MemberRow).where(MemberRow.account_id.in_(account_ids)).execution_options(populate_existing=True)
    return {row.account_id: row for row in session.execute(query).scalars()}


def record_charge(session: Session, account_id: str, scope: Scope, amount: int) -> None:
    """Lowers the reserved part of a member's total, when a reservation that covers its tightest cell is charged.

    A charge changes no load, so it changes neither the tightest cell nor the chain and needs no lock of the population.
    """
    member = session.get(MemberRow, account_id, populate_existing=True)
    if member is not None and all(member.tightest_cell[name] in cells for name, cells in scope.items()):
        member.reserved -= amount
