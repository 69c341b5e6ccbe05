"""Changes the cap of an account, and finds the limit that its guarantee states.

A change affects later admissions alone. A reservation that was admitted under a higher cap stays and may be charged;
nothing else is admitted in its cells until the cap covers them again. Every change is an entry with a reason.
"""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from app.ledger import chain, control, repository, state
from app.ledger.admission import Population
from app.ledger.entries import EntryKind
from app.ledger.limit import Limit
from app.privacy.accountants import pure

CLOSED = 0
"""The cap of an account that admits nothing any more. No budget converts to it."""


def in_force(session: Session, account_id: str) -> int:
    """The cap in force, with the account locked until the end of the transaction.

    Raises:
        NotFound: no such account.
    """
    return state.of(session, repository.locked_account(session, account_id)).cap


def change(session: Session, account_id: str, cap: int, *, reason: str, actor: str) -> None:
    """Puts a new cap in force.

    The limit that guarantees state follows. While nothing is reserved or charged (in a population: in any member), and
    the account has no opening load, the limit is the new cap. Afterwards the limit never falls, because only the cap
    that admitted a release or a reservation covers it (docs/proofs/caps.md).

    Args:
        session: of the caller's transaction.
        account_id: id of the account.
        cap: the new cap, in whole steps of the account's unit.
        reason: a public sentence, part of the entry.
        actor: the key that changes the cap.

    Raises:
        NotFound: no such account.
        BalanceMismatch: the account's balance differs from its entries.
    """
    row = repository.locked_account(session, account_id)
    assert state.of(session, row).cap != CLOSED, "a closed account stays closed"
    entry = chain.append(session, row, chain.NewEntry(EntryKind.CAP, cap, actor=actor, details={"reason": reason}))
    control.record(session, EntryKind.CAP_CHANGED, actor=actor, account=account_id, sequence=entry.sequence)


def close(session: Session, account_id: str, *, reason: str, actor: str) -> None:
    """Puts a cap of 0 in force, which no later change raises: the account admits nothing any more.

    The limit that guarantees state does not fall, whatever was charged (:func:`printable_at`).

    Args:
        session: of the caller's transaction.
        account_id: id of the account.
        reason: a public sentence, part of the entry.
        actor: as the control chain names the actor.
    """
    row = repository.locked_account(session, account_id)
    chain.append(session, row, chain.NewEntry(EntryKind.CAP, CLOSED, actor=actor, details={"reason": reason}))


def printable_at(highest: Limit, *, cap: int, load: int) -> Limit:
    """The limit that the guarantee of a whole account states.

    On ``pure`` accounts the charges bound the loss at any time (Theorem L (a), docs/proofs/lemmas.md), so the limit is
    the cap in force, or the reserved and charged amount where that is larger. On other accounts, and on accounts that
    are closed because entries were lost, it is the highest cap.

    Args:
        highest: the :func:`highest_cap` of the account.
        cap: in force now.
        load: of the tightest joint cell of the whole account.
    """
    if highest.accountant != pure.NAME or cap == CLOSED:
        return highest
    return Limit(pure.NAME, max(cap, load), None)


def printable(session: Session, account_id: str) -> Limit:
    """The :func:`printable_at` limit of an account."""
    return printable_of_each(session, [account_id])[account_id]


def printable_of_each(session: Session, account_ids: Sequence[str]) -> dict[str, Limit]:
    """The :func:`printable_at` limits of several accounts, by id. Only ``pure`` accounts need their loads."""
    rows = {row.id: row for row in repository.accounts(session, account_ids)}
    limits = {}
    for row in rows.values():
        now = state.of(session, row)
        load = now.budget.whole.load if row.accountant == pure.NAME else 0
        limits[row.id] = printable_at(Limit.of(row, now.highest_cap), cap=now.cap, load=load)
    return limits


def printable_of(population: Population, highest: Limit) -> Limit:
    """The limit that the guarantee of a population states, over all releases about its members.

    Computed as for one account, with the members' loads in place of reservations and charges (docs/proofs/accounting.md
    A8).

    Args:
        population: with the totals of its members.
        highest: the :func:`highest_cap` of its account.
    """
    return printable_at(highest, cap=population.cap, load=population.together)
