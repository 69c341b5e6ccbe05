"""Balances of what one job asks for on several accounts, each beside the others: what admission will find."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy.orm import Session

from app.ledger import population_totals
from app.ledger.service import Balance


class Part(NamedTuple):
    """What a job asks for on one account: the balance of its box there, and whole steps of the account's unit."""

    balance: Balance
    amount: int

    @property
    def load(self) -> int:
        """What lies on the tightest cell of the box."""
        return self.balance.charged + self.balance.reserved


def beside_one_another(session: Session, parts: Sequence[Part]) -> list[Balance]:
    """The balances of a job's parts, each with the room that is left for it where the other parts get their amounts.

    Parts on members of one population add up there, so it takes all of them if and only if each fits its own room.
    Their boxes have no joint cell in common: on the account itself no part takes another's place.

    Args:
        session: the transaction that the balances were read in.
        parts: of one job, on different accounts or on disjoint boxes of one.
    """
    populations = population_totals.of_each(session, [part.balance.account_id for part in parts])
    found = []
    for number, (balance, _) in enumerate(parts):
        population = populations.get(balance.account_id)
        if population is not None:
            for other in (*parts[:number], *parts[number + 1 :]):
                if other.balance.account_id in population.members:
                    population = population.holding(other.balance.account_id, other.load + other.amount)
            together = population.room(balance.account_id, parts[number].load)
            balance = replace(balance, room=max(min(balance.room, together), 0))
        found.append(balance)
    return found
