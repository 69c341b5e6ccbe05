"""Changes the cap of an account.

A change affects later admissions alone. A reservation that was admitted under a higher cap stays and may be charged;
nothing else is admitted in its cells until the cap covers them again. Every change is an entry with a reason.
"""

from sqlalchemy.orm import Session

from app.ledger import chain, control, repository, state, statements
from app.ledger.entries import EntryKind


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
    assert state.of(session, row).cap != statements.CLOSED, "a closed account stays closed"
    entry = chain.append(session, row, chain.NewEntry(EntryKind.CAP, cap, actor=actor, details={"reason": reason}))
    control.record(session, EntryKind.CAP_CHANGED, actor=actor, account=account_id, sequence=entry.sequence)


def close(session: Session, account_id: str, *, reason: str, actor: str) -> None:
    """Puts a cap of 0 in force, which no later change raises: the account admits nothing any more.

    The limit that guarantees state does not fall, whatever was charged (:func:`app.ledger.statements.printable_at`).

    Args:
        session: of the caller's transaction.
        account_id: id of the account.
        reason: a public sentence, part of the entry.
        actor: as the control chain names the actor.
    """
    row = repository.locked_account(session, account_id)
    chain.append(
        session, row, chain.NewEntry(EntryKind.CAP, statements.CLOSED, actor=actor, details={"reason": reason})
    )
