"""Populations: one cap over the accounts of all datasets about the same people.

A reservation is admitted only if it fits its own account *and* the sum over the population's members of the largest
``charged + reserved`` stays within the population's cap (docs/proofs/accounting.md A8,
docs/adr/0012-populations-add-largest-cells.md). The sum is taken from the members' boxes when it is needed and kept
nowhere, so it cannot drift from the entries. Erased datasets stay members: their spend was spent.

Whoever reserves locks the account first and then the population; nobody else raises a load. A reservation that comes
to an end only lowers one, and needs no lock of the population.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from app.core import ids
from app.core.errors import NameTaken, NotFound, PopulationMismatch
from app.db.upsert import insert
from app.ledger import repository, state
from app.ledger.state import CellBalance
from app.ledger.tables import AccountRow, MemberRow, PopulationRow
from app.privacy.accountants import pure


@dataclass(frozen=True)
class NewPopulation:
    """What a population is opened with; ``cap`` in steps of the accountant's unit, ``delta`` as exact decimal text."""

    id: str
    name: str
    accountant: str
    cap: int
    delta: str | None
    declared_by: str


@dataclass(frozen=True)
class Member:
    """One account of a population, at its tightest joint cell; a bound where that is not ``is_exact``."""

    account_id: str
    name: str
    charged: int
    reserved: int
    is_exact: bool

    @property
    def load(self) -> int:
        """What one person may lose in this member, reservations included."""
        return self.charged + self.reserved


@dataclass(frozen=True)
class Population:
    """A population with its members as they stand."""

    row: PopulationRow
    members: tuple[Member, ...]

    @property
    def charged(self) -> int:
        """The charged part of what one person may lose in all members together."""
        return sum(member.charged for member in self.members)

    @property
    def reserved(self) -> int:
        """The reserved part of it."""
        return sum(member.reserved for member in self.members)

    @property
    def is_exact(self) -> bool:
        """Whether both are sums of maxima, and no bounds."""
        return all(member.is_exact for member in self.members)

    @property
    def delta(self) -> Fraction | None:
        """Of all members."""
        return None if self.row.delta is None else Fraction(self.row.delta)

    def room(self, account_id: str, tightest: CellBalance) -> int:
        """The largest amount that still fits in a box of a member; nothing while the sum is over the cap.

        What lies in other boxes of the member counts by its largest cell, so that jobs on disjoint cells of one member
        cost a person their maximum here as there.

        Args:
            account_id: the member.
            tightest: the tightest joint cell of the box.
        """
        own = next(member.load for member in self.members if member.account_id == account_id)
        together = sum(member.load for member in self.members)
        if together > self.row.cap:
            return 0
        return self.row.cap - (together - own) - (tightest.charged + tightest.reserved)


def open_population(session: Session, new: NewPopulation, *, at: datetime) -> PopulationRow:
    """Opens a population that no account belongs to yet.

    Raises:
        NameTaken: there is one of that name.
    """
    taken = session.execute(
        insert(session, PopulationRow)
        .values(
            id=new.id,
            name=new.name,
            accountant=new.accountant,
            cap=new.cap,
            printable=new.cap,
            delta=new.delta,
            declared_by=new.declared_by,
            created_at=at,
        )
        .on_conflict_do_nothing()
        .returning(PopulationRow.id)
    )
    if taken.scalar_one_or_none() is None:
        raise NameTaken("population")
    return locked(session, new.id)


def open_with_budget_of(session: Session, account_id: str, *, name: str, by: str, at: datetime) -> PopulationRow:
    """Opens a population with the budget of the account that will be its first member.

    Raises:
        NameTaken: there is one of that name.
    """
    account = repository.account(session, account_id)
    own = NewPopulation(ids.new(ids.POPULATION), name, account.accountant, account.cap, account.delta, by)
    return open_population(session, own, at=at)


def find(session: Session, reference: str) -> PopulationRow | None:
    """A population by id or name."""
    if not ids.is_reference(reference):
        return None
    query = select(PopulationRow).where(or_(PopulationRow.id == reference, PopulationRow.name == reference))
    rows = session.execute(query.execution_options(populate_existing=True)).scalars().all()
    return min(rows, key=lambda row: row.id != reference, default=None)


def page(session: Session, *, declared_by: str | None, after: str | None, limit: int) -> list[PopulationRow]:
    """Populations in order of id; ``declared_by`` restricts them to one key's (``None`` = all)."""
    query = select(PopulationRow).order_by(PopulationRow.id).limit(limit)
    if declared_by is not None:
        query = query.where(PopulationRow.declared_by == declared_by)
    if after is not None:
        query = query.where(PopulationRow.id > after)
    return list(session.execute(query).scalars())


def locked(session: Session, population_id: str) -> PopulationRow:
    """A population under its row lock; every account that is needed was locked before."""
    query = select(PopulationRow).where(PopulationRow.id == population_id)
    return session.execute(query.with_for_update().execution_options(populate_existing=True)).scalar_one()


def lock_all(session: Session, account_ids: Sequence[str]) -> None:
    """Locks the populations of several accounts in order of their ids; the accounts are locked already."""
    for population_id in sorted({found for each in account_ids if (found := id_of(session, each)) is not None}):
        locked(session, population_id)


def id_of(session: Session, account_id: str) -> str | None:
    """The population that an account belongs to."""
    row = session.get(MemberRow, account_id, populate_existing=True)
    return None if row is None else row.population_id


def of_account(session: Session, account_id: str, *, lock: bool = False) -> Population | None:
    """The population of an account as it stands, or under its lock if something rests on it."""
    population_id = id_of(session, account_id)
    if population_id is None:
        return None
    return standing(session, locked(session, population_id) if lock else session.get_one(PopulationRow, population_id))


def standing(session: Session, row: PopulationRow) -> Population:
    """A population with what its members carry now."""
    query = select(MemberRow.account_id).where(MemberRow.population_id == row.id).order_by(MemberRow.account_id)
    accounts = repository.accounts(session, session.execute(query).scalars().all())
    tightest = state.tightest_of_each(session, accounts)
    return Population(row, tuple(_member(account, tightest[account.id]) for account in accounts))


def of_each(session: Session, account_ids: Sequence[str]) -> dict[str, Population]:
    """The populations of those accounts that belong to one, by account; each is looked at once."""
    members = session.execute(
        select(MemberRow.account_id, PopulationRow)
        .join(PopulationRow, PopulationRow.id == MemberRow.population_id)
        .where(MemberRow.account_id.in_(account_ids))
    ).all()
    standing_now = {row.id: standing(session, row) for row in {row.id: row for _, row in members}.values()}
    return {account_id: standing_now[row.id] for account_id, row in members}


def join(session: Session, population_id: str, account_id: str, *, at: datetime) -> None:
    """Makes an account a member, for good. Joining again is legal and does nothing.

    An account that has spent before makes more printable than the cap. Where losses just add up that is the sum as it
    is; where a δ is stated, a sum that depends on outputs is no bound, so it is what was printable before and the
    account's highest cap together (docs/proofs/accounting.md A8).

    Raises:
        PopulationMismatch: the account counts otherwise than the members do, or belongs to another population.
    """
    account = repository.locked_account(session, account_id)
    current = id_of(session, account_id)
    if current == population_id:
        return
    row = locked(session, population_id)
    differs = _differences(row, account) if current is None else ("population",)
    if differs:
        raise PopulationMismatch(differs)
    row.adjacency = account.adjacency
    row.unit_column = account.privacy_unit["column"]
    session.add(MemberRow(account_id=account_id, population_id=row.id, joined_at=at))
    session.flush()
    load = _member(account, state.tightest(session, account, {})).load
    if load and row.accountant == pure.NAME:
        row.printable = max(row.printable, sum(member.load for member in standing(session, row).members))
    elif load:
        row.printable += account.highest_cap
    session.flush()


def require_visible(row: PopulationRow | None, *, key_id: str, sees_all: bool) -> PopulationRow:
    """The population, if it is one of the key's own or the key sees all.

    Raises:
        NotFound: none of that name, or somebody else's: the two look the same.
    """
    if row is None or not (sees_all or row.declared_by == key_id):
        raise NotFound("population")
    return row


def _differences(row: PopulationRow, account: AccountRow) -> tuple[str, ...]:
    """What keeps an account from being added up with the members. The first member decides what the unit is."""
    found = [name for name in ("accountant", "delta") if getattr(row, name) != getattr(account, name)]
    found += ["delta_set_aside"] if account.delta_set_aside is not None else []  # a population has none to share
    if row.adjacency is not None:
        found += ["adjacency"] if row.adjacency != account.adjacency else []
        found += ["privacy_unit"] if row.unit_column != account.privacy_unit["column"] else []
    return tuple(found)


def _member(account: AccountRow, tightest: CellBalance) -> Member:
    return Member(account.id, account.name, tightest.charged, tightest.reserved, tightest.is_exact)
