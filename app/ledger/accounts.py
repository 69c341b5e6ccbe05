"""Opens accounts, continues the account of an erased dataset, and changes caps.

An account continues that of an erased dataset whose name its dataset takes up. The load
of the erased dataset's tightest joint cell becomes the *opening load* of the new
account: an entry of its own, which counts as charged in every joint cell. So the
outputs about the rows that were erased and about the rows that are uploaded again share
one cap, whoever is in both (docs/proofs/accounting.md A8).

A change of a cap affects later admissions alone. A reservation that was admitted under
a higher cap stays and may be charged; nothing else is admitted in its cells until the
cap covers them again. Every change is an entry with a reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.core.errors import AccountDiffers, InvalidRequest, Unavailable
from app.ledger import chain, kept_states, populations, statements, tables
from app.ledger.state import facts_of
from app.ledger.tables import AccountRow, Entry, EntryKind, EntryRow
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants import Amount
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import WHOLE


@dataclass(frozen=True)
class NewAccount:
    """The facts that an account is opened with.

    Attributes:
        cap: steps of the accountant's unit, converted at δ without the part that is set
            aside.
        delta: exact decimal text, only where the accountant takes a δ.
        privacy_unit: JSON form, as exports show it.
        delta_set_aside: exact decimal text; the part of ``delta`` for (ε, δ)
            mechanisms.
    """

    id: str
    name: str
    accountant: str
    adjacency: str
    cap: int
    delta: str | None
    privacy_unit: JsonObject
    partitions: Partitions
    delta_set_aside: str | None = None


def open_account(session: Session, new_account: NewAccount, *, actor: str) -> None:
    """Opens an account with its first entry, which holds the account's facts."""
    row = account_row(new_account)
    session.add(row)
    session.flush()
    opened = chain.NewEntry(
        EntryKind.OPEN, new_account.cap, actor=actor, details=facts_of(row)
    )
    chain.append(session, row, opened)


def account_row(new_account: NewAccount) -> AccountRow:
    """The row of an account that is not open yet."""
    return AccountRow(
        id=new_account.id,
        name=new_account.name,
        accountant=new_account.accountant,
        adjacency=new_account.adjacency,
        delta=new_account.delta,
        delta_set_aside=new_account.delta_set_aside,
        privacy_unit=new_account.privacy_unit,
        partitions=new_account.partitions.to_json(),
    )


def newest_with_load(session: Session, account_ids: Sequence[str]) -> str | None:
    """The first of several accounts of erased datasets that has a load."""
    # most accounts without a load have neither
    kinds = (EntryKind.RESERVE.value, EntryKind.LOAD.value)
    query = select(EntryRow.account_id).where(
        EntryRow.account_id.in_(account_ids), EntryRow.kind.in_(kinds)
    )
    used = set(session.scalars(query.distinct()))
    # locked, so that nothing is given back before the load is taken over; a job on
    # several of them locks them, too, before it is refused
    rows = tables.locked_accounts(session, used)
    for account_id in account_ids:
        if account_id in used and _load(session, rows[account_id]):
            return account_id
    return None


def _load(session: Session, account: AccountRow) -> int:
    """The load of an account, or what its population carries for it."""
    joined = populations.id_of(session, account.id)
    if joined is None:
        return kept_states.state_of(session, account).budget.whole.load
    return kept_states.state_of(session, tables.account(session, joined)).loads[
        account.id
    ]


def continue_account(
    session: Session,
    account_id: str,
    erased_id: str,
    *,
    population_id: str | None,
    actor: str,
) -> bool:
    """Gives a new account the load of an erased dataset's account. Nothing happens if
    that load is zero.

    The highest caps of both accounts count: an output of the erased dataset was
    released under the cap of that time. If the erased dataset is a member of a
    population, the new dataset becomes a member, too, in the same transaction
    (:func:`app.ledger.populations.join`), and its load there takes the place of the
    erased dataset's.

    Args:
        session: of the transaction that opened the new account, which has no other
            entry.
        account_id: the new account.
        erased_id: the account of the erased dataset.
        population_id: the population that the new dataset is declared to be a member
            of, if it exists.
        actor: the key that declares.

    Returns:
        Whether the new account has an opening load.

    Raises:
        AccountDiffers: the loads of the two accounts cannot be added; says in which
            facts they differ.
        Unavailable: reservations of the erased dataset are still being given back.
    """
    erased = tables.locked_account(session, erased_id)
    account = tables.locked_account(session, account_id)
    before = kept_states.state_of(session, erased)
    if before.reservations:
        raise Unavailable(
            "the reservations of the erased dataset of this name are still being given back"
        )
    joined, load = populations.id_of(session, erased_id), _load(session, erased)
    if not load:
        return False
    differs = _differences(account, erased)
    if not differs and kept_states.state_of(session, account).cap > before.cap:
        # caps of different units, or converted at different δ, do not compare
        differs = ("cap",)
    if joined not in (None, population_id):
        differs = (*differs, "population")
    if differs:
        raise AccountDiffers(
            dataset=erased.id, dataset_name=erased.name, differs=differs
        )
    continued = {
        "dataset": erased.id,
        "sequence": erased.last_sequence,
        "hash": erased.last_hash,
        "highest_cap": Amount(erased.accountant, before.highest_cap).text,
    }
    if set_aside := accountants.delta_steps(erased.delta_set_aside):
        continued["delta"] = accountants.delta_text(
            min(before.tightest_delta(WHOLE).charged, set_aside)
        )
    # Not before the erased dataset's last entry, whose clock may have been ahead: the
    # verifier checks the two times.
    opening = chain.NewEntry(
        EntryKind.LOAD, load, actor=actor, details={"continues": continued}
    )
    chain.append(session, account, opening, not_before=erased.last_at)
    return True


def _differences(account: AccountRow, erased: AccountRow) -> tuple[str, ...]:
    """The facts that keep two loads from being added, besides the cap: a cap above the
    erased account's would be a raise without a reason.
    """
    names = ("accountant", "delta", "delta_set_aside", "adjacency")
    differs = [
        name for name in names if getattr(account, name) != getattr(erased, name)
    ]
    new, old = (row.privacy_unit or {} for row in (account, erased))
    # An account of an earlier version has a unit column without a form, and no new
    # account can have such a column.
    is_same_unit = new["column"] == old["column"] and old.get("form") in (
        None,
        new.get("form"),
    )
    differs += [] if is_same_unit else ["privacy_unit"]
    return tuple(differs)


def locked_cap(session: Session, account_id: str) -> int:
    """The cap in force, with the account locked until the end of the transaction.

    Raises:
        InvalidRequest: the account is closed, for good.
    """
    account = tables.locked_account(session, account_id)
    cap = kept_states.state_of(session, account).cap
    if cap == statements.CLOSED:
        raise InvalidRequest.at("/cap", "account-closed")
    return cap


def change_cap(
    session: Session, account_id: str, cap: int, *, reason: str, actor: str
) -> Entry:
    """Puts a new cap in force, and returns the entry, for the act that the caller
    records.

    The limit that guarantees state follows. While nothing is reserved or charged (in a
    population: in any member), and the account has no opening load, the limit is the
    new cap. Afterwards the limit never falls, because only the cap that admitted a
    release or a reservation covers it (docs/proofs/caps.md).

    Args:
        session: of the caller's transaction.
        account_id: id of the account.
        cap: the new cap, in whole steps of the account's unit.
        reason: a public sentence, part of the entry.
        actor: the key that changes the cap.

    Raises:
        InvalidRequest: the account is closed, for good.
    """
    locked_cap(session, account_id)
    return chain.append(
        session,
        tables.locked_account(session, account_id),
        chain.NewEntry(EntryKind.CAP, cap, actor=actor, details={"reason": reason}),
    )


def close_account(
    session: Session, account_id: str, *, reason: str, actor: str
) -> None:
    """Puts a cap of 0 in force, which no later change raises: the account admits
    nothing any more. Nothing happens if the account is closed.

    The limit that guarantees state does not fall, whatever was charged
    (:func:`app.ledger.statements.printable_at`).

    Args:
        session: of the caller's transaction.
        account_id: id of the account.
        reason: a public sentence, part of the entry.
        actor: as the control chain names the actor.
    """
    row = tables.locked_account(session, account_id)
    if kept_states.state_of(session, row).cap == statements.CLOSED:
        return
    chain.append(
        session,
        row,
        chain.NewEntry(
            EntryKind.CAP, statements.CLOSED, actor=actor, details={"reason": reason}
        ),
    )
