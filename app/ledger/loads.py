"""What the members of a population carry: looked at by every admission, said in the population's chain by every change.

A member's load is what lies on its tightest joint cell, reservations included. Every entry of a member that holds or
gives back is followed, in the same transaction, by an entry of the population that says the member's load after it and
names it by sequence and hash. So the chain alone shows what all members together carried at any time, and that no
admission passed the cap (docs/proofs/accounting.md A8, docs/adr/0017-populations-have-entries.md). The charge of a
reservation changes no load, and is followed by nothing.

Whoever changes a load locks the member's account first and then the population's: no two say it at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.ledger import chain, repository, state
from app.ledger.chain import NewEntry
from app.ledger.entries import Entry, EntryKind
from app.ledger.state import CellBalance
from app.ledger.tables import AccountRow, MemberRow


@dataclass(frozen=True)
class Population:
    """The account of a population, and the loads of its members by account."""

    account: AccountRow
    loads: Mapping[str, int]

    @property
    def together(self) -> int:
        """What one person may lose in all members."""
        return sum(self.loads.values())

    def room(self, account_id: str, tightest: CellBalance) -> int:
        """The largest amount that still fits in a box of a member; nothing while the sum is over the cap.

        What lies in other boxes of the member counts by its largest cell, so that jobs on disjoint cells of one member
        cost a person their maximum here as there.

        Args:
            account_id: the member.
            tightest: the tightest joint cell of the box.
        """
        if self.together > self.account.cap:
            return 0
        return self.account.cap - (self.together - self.loads[account_id]) - tightest.load


def of_account(session: Session, account_id: str) -> Population | None:
    """The population that an account belongs to, as it stands."""
    population_id = id_of(session, account_id)
    return None if population_id is None else of_population(session, population_id)


def locked_of(session: Session, account_id: str) -> Population | None:
    """The same under the population's lock, which the lock of the account comes before."""
    population_id = id_of(session, account_id)
    return None if population_id is None else standing(session, repository.locked_account(session, population_id))


def of_population(session: Session, population_id: str) -> Population:
    """A population as it stands.

    Raises:
        NotFound: no such account.
    """
    return standing(session, repository.account(session, population_id))


def lock_all(session: Session, account_ids: Sequence[str]) -> None:
    """Locks the populations of several accounts in order of their ids; the accounts are locked already."""
    for population_id in sorted({found for each in account_ids if (found := id_of(session, each)) is not None}):
        repository.locked_account(session, population_id)


def of_each(session: Session, account_ids: Sequence[str]) -> dict[str, Population]:
    """The populations of those accounts that belong to one, by account: asked for once."""
    named = select(MemberRow.account_id, MemberRow.population_id).where(MemberRow.account_id.in_(account_ids))
    population_of = dict(session.execute(named).all())
    found = of_populations(session, sorted(set(population_of.values())))
    return {account_id: found[population_id] for account_id, population_id in population_of.items()}


def of_populations(session: Session, population_ids: Sequence[str]) -> dict[str, Population]:
    """Several populations as they stand, by id: asked for once."""
    carried: dict[str, dict[str, int]] = {population_id: {} for population_id in population_ids}
    members = select(MemberRow.population_id, MemberRow.account_id, MemberRow.load)
    for population_id, account_id, load in session.execute(members.where(MemberRow.population_id.in_(population_ids))):
        carried[population_id][account_id] = load
    return {row.id: Population(row, carried[row.id]) for row in repository.accounts(session, population_ids)}


def standing(session: Session, account: AccountRow) -> Population:
    """A population with what its members carry now."""
    query = select(MemberRow.account_id, MemberRow.load).where(MemberRow.population_id == account.id)
    return Population(account, dict(session.execute(query).all()))


def id_of(session: Session, account_id: str) -> str | None:
    """The population that an account belongs to."""
    return session.execute(
        select(MemberRow.population_id).where(MemberRow.account_id == account_id)
    ).scalar_one_or_none()


def append(session: Session, population: Population | None, account: AccountRow, new: NewEntry) -> Entry:
    """Writes an entry of an account, not before the newest one of its population, which is locked.

    So whatever a population's export leaves out is no older than its last line, whichever machine's clock it is of: the
    verifier takes a member's older entry without a load for one that was kept quiet.
    """
    not_before = "" if population is None else population.account.last_at
    return chain.append(session, account, new, not_before=not_before)


def record(session: Session, population: Population, account: AccountRow, entry: Entry, *, at_most: int) -> None:
    """Says in the population's chain what a member carries after its newest entry, if that held or gave back.

    Args:
        session: of the transaction that wrote the entry.
        population: of the account, locked before the entry was written.
        account: the member.
        entry: its newest one.
        at_most: a load that follows from the one before. Where the maximum over joint cells is too much work both are
            bounds, and the smaller of two bounds is one.
    """
    member = session.get_one(MemberRow, account.id, populate_existing=True)
    member.load = min(state.tightest(session, account, {}).load, at_most)
    said = NewEntry(
        EntryKind.LOAD,
        member.load,
        actor=entry.actor,
        job_id=entry.job_id,
        details={"member": {"dataset": account.id, "sequence": entry.sequence, "hash": entry.hash}},
    )
    chain.append(session, population.account, said)
