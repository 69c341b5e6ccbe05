"""What the members of a population carry: looked at by every admission, said in the population's chain by every change.

A member's load is what lies on its tightest joint cell, reservations included. Every entry of a member that holds or
gives back is followed, in the same transaction, by an entry of the population that says the member's load after it and
names it by sequence and hash. So the chain alone shows what all members together carried at any time, and that no
admission passed the cap (docs/proofs/accounting.md A8, docs/adr/0017-populations-have-entries.md). The charge of a
reservation changes no load, and is followed by nothing. What a refusal tells of a population, and what is shown of it,
is kept beside the loads: whatever the members hold, their boxes are not read for it.

Whoever changes a load locks the member's account first and then the population's: no two say it at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.ledger import chain, repository, state
from app.ledger.chain import NewEntry
from app.ledger.entries import Entry, EntryKind
from app.ledger.tables import AccountRow, MemberRow
from app.privacy.composition import Scope


@dataclass(frozen=True)
class Carried:
    """What one person may lose in a member. Where not ``is_exact`` it is a bound, and what it is over the named cell
    counts as charged."""

    load: int
    reserved: int
    is_exact: bool

    @property
    def charged(self) -> int:
        """What of it is not reserved."""
        return self.load - self.reserved


@dataclass(frozen=True)
class Population:
    """The account of a population, and what its members carry, by account."""

    account: AccountRow
    members: Mapping[str, Carried]

    @property
    def loads(self) -> Mapping[str, int]:
        """What one person may lose in each member, by account."""
        return {account_id: carried.load for account_id, carried in self.members.items()}

    @property
    def together(self) -> int:
        """What one person may lose in all members."""
        return sum(carried.load for carried in self.members.values())

    @property
    def reserved(self) -> int:
        """The part of that which is not charged yet."""
        return sum(carried.reserved for carried in self.members.values())

    @property
    def charged(self) -> int:
        """The rest of it."""
        return self.together - self.reserved

    @property
    def is_exact(self) -> bool:
        """Whether it is a sum of maxima, and no bound."""
        return all(carried.is_exact for carried in self.members.values())

    def room(self, account_id: str, load: int) -> int:
        """The largest amount that still fits in a box of a member; nothing while the sum is over the cap.

        What lies in other boxes of the member counts by its largest cell, so that jobs on disjoint cells of one member
        cost a person their maximum here as there.

        Args:
            account_id: the member.
            load: what the tightest joint cell of the box carries.
        """
        if self.together > self.account.cap:
            return 0
        return self.account.cap - (self.together - self.members[account_id].load) - load

    def holding(self, account_id: str, load: int) -> "Population":
        """The same, with a member that carries so much on some joint cell as well; its own load may be larger."""
        member = self.members[account_id]
        held = replace(member, load=max(member.load, load))
        return replace(self, members={**self.members, account_id: held})


def of_account(session: Session, account_id: str) -> Population | None:
    """The population that an account belongs to, as it stands."""
    population_id = id_of(session, account_id)
    return None if population_id is None else of_population(session, population_id)


def locked_of(session: Session, account_id: str) -> Population | None:
    """The same under the population's lock, which the lock of the account comes before."""
    population_id = id_of(session, account_id)
    return None if population_id is None else standing(session, repository.locked_account(session, population_id))


class Wanted(Protocol):
    """The part of a reservation that :func:`holding` looks at."""

    @property
    def account_id(self) -> str:
        """Whose budget."""

    @property
    def amount(self) -> int:
        """Steps of the account's unit."""

    @property
    def scope(self) -> Scope:
        """In normal form."""


def holding(session: Session, population: Population | None, wanted: Sequence[Wanted]) -> Population | None:
    """A population as it would be with some reservations, of which those on its members count."""
    for new in wanted:
        if population is not None and new.account_id in population.members:
            tightest = state.tightest(session, repository.account(session, new.account_id), new.scope)
            population = population.holding(new.account_id, tightest.load + new.amount)
    return population


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
    members = _members(session, population_ids)
    return {row.id: Population(row, members[row.id]) for row in repository.accounts(session, population_ids)}


def standing(session: Session, account: AccountRow) -> Population:
    """A population with what its members carry now."""
    return Population(account, _members(session, [account.id])[account.id])


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
    found = state.tightest(session, account, {})
    member.load, member.reserved = min(found.load, at_most), found.reserved
    member.tightest_cell, member.is_exact = dict(found.cell), found.is_exact
    said = NewEntry(
        EntryKind.LOAD,
        member.load,
        actor=entry.actor,
        job_id=entry.job_id,
        details={"member": {"dataset": account.id, "sequence": entry.sequence, "hash": entry.hash}},
    )
    # Not before the entry that it names, which may be of a clock that is ahead: the verifier holds the two to it.
    chain.append(session, population.account, said, not_before=entry.at)


def record_charge(session: Session, account_id: str, scope: Scope, amount: int) -> None:
    """Keeps what of a member's load is reserved, when a reservation on one of its boxes is charged.

    A charge changes no load, and so neither the tightest cell nor the chain, and needs no lock of the population.
    """
    member = session.get(MemberRow, account_id, populate_existing=True)
    if member is not None and all(member.tightest_cell[name] in cells for name, cells in scope.items()):
        member.reserved -= amount


def _members(session: Session, population_ids: Sequence[str]) -> dict[str, dict[str, Carried]]:
    """What the members of several populations carry, by population and account: asked for once."""
    found: dict[str, dict[str, Carried]] = {population_id: {} for population_id in population_ids}
    query = select(
        MemberRow.population_id, MemberRow.account_id, MemberRow.load, MemberRow.reserved, MemberRow.is_exact
    ).where(MemberRow.population_id.in_(population_ids))
    for population_id, account_id, load, reserved, is_exact in session.execute(query.order_by(MemberRow.account_id)):
        found[population_id][account_id] = Carried(load, reserved, is_exact)
    return found
