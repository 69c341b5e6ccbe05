"""Opens, finds, joins and charges populations: accounts over several datasets about the
same people.

A population has a cap and a chain of entries, and makes no reservations. A reservation
on a member is admitted only if it fits the member's account *and* the sum of all
members' loads stays within the population's cap (docs/proofs/accounting.md A8,
docs/adr/0012-populations-add-largest-cells.md). Erased datasets stay members with their
spend.

The load of a member is the load of its tightest joint cell, reservations included.
Every entry of a member that reserves or gives back is followed, in the same
transaction, by an entry of the population with the member's load after it and the
sequence and hash of the member's entry. So the chain alone shows what all members
together carried at any time, and that no admission passed the cap
(docs/adr/0017-populations-have-entries.md). The charge of a reservation changes no load
and has no such entry.

A transaction that changes a load locks the member's account first and the population's
account second.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from app.core import limits, stamps
from app.core.errors import InvalidRequest, NameTaken, NotFound, PopulationMismatch
from app.db.database import insert
from app.ledger import chain, kept_states, tables
from app.ledger.admission import MemberTotal, Population
from app.ledger.chain import NewEntry
from app.ledger.state import State, facts_of
from app.ledger.tables import AccountRow, Entry, EntryKind, MemberRow, PopulationRow
from grovekeeper_forests.privacy.accountants import Amount, pure


@dataclass(frozen=True)
class NewPopulation:
    """A population to open; ``cap`` in steps of the accountant's unit, ``delta`` as
    exact decimal text.
    """

    id: str
    name: str
    accountant: str
    cap: int
    delta: str | None
    declared_by: str


def open_population(
    session: Session, new_population: NewPopulation, *, at: datetime
) -> PopulationRow:
    """Opens a population without members, with its account and the account's first
    entry.

    Raises:
        NameTaken: another population has the name.
    """
    taken = session.execute(
        insert(session, PopulationRow)
        .values(
            id=new_population.id,
            name=new_population.name,
            declared_by=new_population.declared_by,
            created_at=at,
        )
        .on_conflict_do_nothing()
        .returning(PopulationRow.id)
    )
    if taken.scalar_one_or_none() is None:
        raise NameTaken("population")
    account = AccountRow(
        id=new_population.id,
        name=new_population.name,
        accountant=new_population.accountant,
        delta=new_population.delta,
    )
    session.add(account)
    session.flush()
    opened = chain.NewEntry(
        EntryKind.OPEN,
        new_population.cap,
        actor=new_population.declared_by,
        details=facts_of(account),
    )
    chain.append(session, account, opened)
    return session.get_one(PopulationRow, new_population.id)


def open_with_budget_of(
    session: Session, account_id: str, *, name: str, by: str, at: datetime
) -> PopulationRow:
    """Opens a population with the budget of the account that becomes its first member,
    which is locked first.
    """
    if stamps.is_id(name):
        raise InvalidRequest.at("/population", "like-an-id")
    account = tables.locked_account(session, account_id)
    cap = kept_states.state_of(session, account).cap
    new_population = NewPopulation(
        stamps.new(stamps.POPULATION), name, account.accountant, cap, account.delta, by
    )
    return open_population(session, new_population, at=at)


def find(session: Session, reference: str) -> PopulationRow | None:
    """A population by id or name."""
    if not stamps.is_reference(reference):
        return None
    query = select(PopulationRow).where(
        or_(PopulationRow.id == reference, PopulationRow.name == reference)
    )
    rows = session.scalars(query.execution_options(populate_existing=True)).all()
    return min(rows, key=lambda row: row.id != reference, default=None)


def with_id(session: Session, reference: str) -> PopulationRow | None:
    """A population by id alone."""
    if stamps.is_reference(reference):
        return session.get(PopulationRow, reference, populate_existing=True)
    return None


def page(
    session: Session, *, declared_by: str | None, after: str | None, limit: int
) -> list[PopulationRow]:
    """Populations in order of id; ``declared_by`` restricts them to one key's (``None``
    = all).

    Raises:
        NotFound: ``after`` is not in the list.
    """
    query = select(PopulationRow).order_by(PopulationRow.id).limit(limit)
    if declared_by is not None:
        query = query.where(PopulationRow.declared_by == declared_by)
    if after is not None:
        if session.execute(query.where(PopulationRow.id == after)).first() is None:
            raise NotFound("population")
        query = query.where(PopulationRow.id > after)
    return list(session.scalars(query))


def join(
    session: Session, population_id: str, account_id: str, *, actor: str, at: datetime
) -> Entry | None:
    """Makes an account a member, for good, and returns the entry. Joining again changes
    nothing and has no entry.

    An account that spent budget before it joins raises the limit that the population's
    guarantee states. On ``pure`` accounts, the limit includes the account's load. Where
    a δ is stated, a sum that depends on outputs is no bound, so the account's highest
    cap is added to the population's highest cap (docs/proofs/accounting.md A8). An
    account that continues the account of an erased member takes over its load: the load
    counts once, and the sum stays as it is.

    Raises:
        PopulationMismatch: the account differs from the members in a fact that a
            population fixes, belongs to another population, or raises the highest cap
            beyond ``limits.MAX_STEPS``.
    """
    account = tables.locked_account(session, account_id)
    current = (
        id_of(session, account_id)
        or kept_states.state_of(session, account).population_id
    )
    if current == population_id:
        return None
    population = tables.locked_account(session, population_id)
    row = session.get_one(PopulationRow, population_id, populate_existing=True)
    spent = kept_states.state_of(session, account)
    together = kept_states.state_of(session, population)
    load = spent.budget.whole.load
    continued = _continued_member(session, together, account_id)
    highest_cap = together.highest_cap
    if continued is None and load and population.accountant != pure.NAME:
        highest_cap += spent.highest_cap
    differs: tuple[str, ...] = ("population",)
    if current is None:
        differs = _differences(session, population, row, account)
    if highest_cap > limits.MAX_STEPS:
        differs += ("highest_cap",)
    if differs:
        raise PopulationMismatch(differs)
    row.adjacency, row.unit_column = account.adjacency, _unit_column(account)
    session.add(
        MemberRow(account_id=account_id, population_id=population_id, joined_at=at)
    )
    facts = _as_it_joins(account, spent.highest_cap)
    if continued is not None:
        assert together.loads[continued] == load, (
            "an opening load is the erased member's load"
        )
        facts["continues"] = continued
    joined = chain.NewEntry(
        EntryKind.JOIN, load, actor=actor, details={"member": facts}
    )
    return chain.append(session, population, joined)


def _continued_member(
    session: Session, population: State, account_id: str
) -> str | None:
    """The erased member of a population whose account another account continues."""
    erased_id = tables.continued_by(session, [account_id]).get(account_id)
    return erased_id if erased_id in population.loads else None


def with_new_member(
    session: Session, row: PopulationRow | None, account: AccountRow
) -> Population | None:
    """The population as an account that is not open yet would join it, without spend;
    reads only.

    Args:
        session: of any transaction.
        row: the population; ``None`` if it would be opened with the account's budget.
        account: the account.

    Returns:
        ``None`` for a population that would be opened: it limits the account as the
        account itself does.

    Raises:
        PopulationMismatch: as :func:`join` does.
    """
    if row is None:
        if account.delta_set_aside is not None:
            raise PopulationMismatch(("delta_set_aside",))
        return None
    population = tables.account(session, row.id)
    differs = _differences(session, population, row, account)
    if differs:
        raise PopulationMismatch(differs)
    return of_row(session, population).with_member(account.id, MemberTotal(0, 0, True))


def require_visible(
    row: PopulationRow | None, *, key_id: str, sees_all: bool
) -> PopulationRow:
    """The population, if the key opened it or sees all populations.

    Raises:
        NotFound: no such population, or another key opened it; the error does not say
            which.
    """
    if row is None or not (sees_all or row.declared_by == key_id):
        raise NotFound("population")
    return row


def _differences(
    session: Session, population: AccountRow, row: PopulationRow, account: AccountRow
) -> tuple[str, ...]:
    """The facts in which an account differs from the members. The first member fixes
    adjacency and privacy unit.
    """
    names = [
        name
        for name in ("accountant", "delta")
        if getattr(population, name) != getattr(account, name)
    ]
    # a population has no such part
    names += ["delta_set_aside"] if account.delta_set_aside is not None else []
    if row.adjacency is not None:
        names += ["adjacency"] if row.adjacency != account.adjacency else []
        is_same_unit = row.unit_column == _unit_column(account) and _form(
            session, row
        ) == _form_of(account)
        names += [] if is_same_unit else ["privacy_unit"]
    return tuple(names)


def _form(session: Session, row: PopulationRow) -> str | None:
    """How the unit columns of the members spell a person: that of any member, because
    all agree.
    """
    member = (
        select(MemberRow.account_id)
        .where(MemberRow.population_id == row.id)
        .limit(1)
        .scalar_subquery()
    )
    return _form_of(
        session.execute(select(AccountRow).where(AccountRow.id == member)).scalar_one()
    )


def _form_of(account: AccountRow) -> str | None:
    """``None`` with rows as units, and for a unit column that an earlier version
    declared without a form.
    """
    return (account.privacy_unit or {}).get("form")


def _as_it_joins(account: AccountRow, highest_cap: int) -> dict[str, object]:
    return {
        "dataset": account.id,
        "sequence": account.last_sequence,
        "hash": account.last_hash,
        "adjacency": account.adjacency,
        "unit_column": _unit_column(account),
        "highest_cap": Amount(account.accountant, highest_cap).text,
    }


def _unit_column(account: AccountRow) -> str | None:
    assert account.privacy_unit is not None, "populations are no members"
    column: str | None = account.privacy_unit["column"]
    return column


def ids_of(session: Session, account_ids: Collection[str]) -> dict[str, str]:
    """The populations of accounts, by account; accounts without a population are left
    out.
    """
    query = select(MemberRow.account_id, MemberRow.population_id).where(
        MemberRow.account_id.in_(account_ids)
    )
    return dict(session.execute(query).all())


def id_of(session: Session, account_id: str) -> str | None:
    """The population that an account belongs to."""
    return ids_of(session, [account_id]).get(account_id)


def locked_rows(
    session: Session, account_ids: Collection[str]
) -> dict[str, AccountRow]:
    """Locks the populations of several accounts in order of their ids; the accounts are
    locked already.

    Returns:
        The populations' accounts, by the populations' ids.
    """
    population_ids = set(ids_of(session, account_ids).values())
    if population_ids:
        return tables.locked_accounts(session, population_ids)
    return {}


def of_ids(session: Session, population_ids: Collection[str]) -> dict[str, Population]:
    """Populations with the loads of their members, by id."""
    rows = tables.accounts(session, population_ids) if population_ids else []
    return {row.id: of_row(session, row) for row in rows}


def of_population(session: Session, population_id: str) -> Population:
    """A population with the loads of its members, and what the members have reserved."""
    population = of_row(session, tables.account(session, population_id))
    return detailed(session, [population])[population_id]


def of_row(session: Session, row: AccountRow) -> Population:
    """The population whose account is given, with the loads of its members, as if
    nothing of them were reserved.
    """
    now = kept_states.state_of(session, row)
    members = {
        member: MemberTotal(load, 0, True) for member, load in sorted(now.loads.items())
    }
    return Population(row.id, row.name, now.cap, members)


def detailed(
    session: Session, populations: Iterable[Population]
) -> dict[str, Population]:
    """Populations, by id, with what their members have reserved, from the states of the
    members.
    """
    listed = list(populations)
    account_ids = {member for population in listed for member in population.members}
    wholes = {
        row.id: kept_states.state_of(session, row).budget.whole
        for row in tables.accounts(session, account_ids)
    }
    in_detail: dict[str, Population] = {}
    for population in listed:
        members: dict[str, MemberTotal] = {}
        for member, total in population.members.items():
            whole = wholes[member]
            reserved = min(whole.reserved, total.load)
            members[member] = MemberTotal(total.load, reserved, whole.is_exact)
        in_detail[population.id] = replace(population, members=members)
    return in_detail


def extend(
    session: Session,
    population: AccountRow,
    account: AccountRow,
    new_entry: NewEntry,
    *,
    load: int | None = None,
) -> list[tuple[str, Entry]]:
    """Extends the chain of a member by an entry that reserves or gives back, then the
    population's by the new load.

    The caller writes the entries (:func:`app.ledger.chain.write`). The member's entry
    is not older than the newest entry of the population: else, if it has no entry in an
    export of the population that ends later, the verifier reports that an entry was
    left out.

    Args:
        session: of the transaction.
        population: of the account, locked.
        account: the member, locked.
        new_entry: of the member.
        load: of the member's tightest joint cell after an entry that reserves;
            ``None``: the entry gives back.

    Returns:
        All entries, each with the id of its account.
    """
    entries = chain.extend(session, account, new_entry, not_before=population.last_at)
    _, entry = entries[0]
    if load is None:
        # What is given back raises no load, so the load before is a bound, too
        # (docs/proofs/lemmas.md, Theorem L).
        tightest = kept_states.state_of(session, account).budget.whole
        before = kept_states.state_of(session, population).loads[account.id]
        load = min(tightest.load, before)
    loaded = NewEntry(
        EntryKind.LOAD,
        load,
        actor=entry.actor,
        job_id=entry.job_id,
        details={
            "member": {
                "dataset": account.id,
                "sequence": entry.sequence,
                "hash": entry.hash,
            }
        },
    )
    # Not before the member's entry, which may be ahead of the clock: the verifier
    # checks the order of the two times.
    return entries + chain.extend(session, population, loaded, not_before=entry.at)
