"""Change the cap of an account, and find the limit that its guarantee states.

A change affects later admissions alone. A reservation that was admitted under a higher cap stays and may be charged;
nothing else is admitted in its cells until the cap covers them again. Every change is an entry with a reason.
"""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from app.ledger import chain, population_totals, repository
from app.ledger.admission import Population
from app.ledger.entries import EntryKind
from app.ledger.limit import Limit
from app.ledger.service import balances, highest_cap, highest_caps
from app.privacy.accountants import pure


def in_force(session: Session, account_id: str) -> int:
    """The cap in force, with the account locked until the end of the transaction.

    Raises:
        NotFound: no such account.
    """
    return repository.locked_account(session, account_id).cap


def change(session: Session, account_id: str, cap: int, *, reason: str, actor: str) -> None:
    """Puts a new cap in force.

    The limit that guarantees are made of follows: as long as nothing is held or charged (of a population: in no
    member), it is the new cap alone; from then on it never falls, because outputs that were released under a cap are
    covered by that cap only, and because what is held was admitted under it (docs/proofs/caps.md).

    Args:
        session: of the caller's transaction.
        account_id: of the account.
        cap: the new cap, in whole steps of the account's unit.
        reason: a public sentence, part of the entry.
        actor: the key that changes the cap.

    Raises:
        NotFound: no such account.
    """
    row = repository.locked_account(session, account_id)
    is_used = (
        repository.has_living_reservation(session, account_id)
        or population_totals.of_population(session, account_id).together > 0
    )
    row.cap, row.highest_cap = cap, max(row.highest_cap, cap) if is_used else cap
    chain.append(session, row, chain.NewEntry(EntryKind.CAP, cap, actor=actor, details={"reason": reason}))


def printable(session: Session, account_id: str) -> Limit:
    """The limit that the guarantee of the whole account is made of.

    On ``pure`` accounts what was charged bounds the loss at any time (Theorem L (a), docs/proofs/lemmas.md), so it is
    the cap now, or what is held and charged where that is more. On the others it is :func:`highest_cap`.
    """
    return printable_of_each(session, [account_id])[account_id]


def printable_of_each(session: Session, account_ids: Sequence[str]) -> dict[str, Limit]:
    """The same of several accounts, by id: asked for once."""
    limits = highest_caps(session, account_ids)
    now = balances(session, [account_id for account_id, limit in limits.items() if limit.accountant == pure.NAME])
    sums = {
        account_id: Limit(pure.NAME, max(balance.cap, balance.charged + balance.reserved), None)
        for account_id, balance in now.items()
    }
    return {**limits, **sums}


def printable_of(session: Session, population: Population) -> Limit:
    """The limit that the guarantee of a population is made of: that of all outputs about its members together.

    The same as of one account, with what the members carry in the place of what it holds and charged
    (docs/proofs/accounting.md A8).
    """
    limit = highest_cap(session, population.id)
    if limit.accountant != pure.NAME:
        return limit
    return Limit(pure.NAME, max(population.cap, population.together), None)
