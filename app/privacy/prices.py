"""Prices the (ε, δ) of a request in the unit of an account."""

from dataclasses import dataclass
from fractions import Fraction

from app.core import limits
from app.core.errors import InvalidRequest
from app.privacy import accountants
from app.privacy.adjacency import Adjacency
from app.privacy.calibration import Budget


@dataclass(frozen=True)
class AccountRequest:
    """The part of a request that one account pays for; attributes as in :class:`app.forests.planning.PlanRequest`."""

    epsilon: Fraction
    public_size: int | None
    accountant: str
    delta: Fraction | None
    adjacency: Adjacency
    max_rows: int


def price_of(epsilon: Fraction, *, accountant: str, delta: Fraction | None) -> int:
    """The price of (ε, δ): whole steps of the account's unit, for all rows of one privacy unit together.

    Raises:
        InvalidRequest: δ is missing, out of range or illegal on this account, or the amount is less than one step or
            more than any account with a δ can hold.
    """
    unit = accountants.by_name(accountant)
    if unit.TAKES_DELTA is (delta is None):
        raise InvalidRequest.at("/delta", "required" if delta is None else f"not-for-{accountant}")
    if delta is not None and not 0 < delta < 1:
        raise InvalidRequest.at("/delta", "not-positive" if delta <= 0 else "not-below-one")
    if delta is not None and epsilon > limits.MAX_CAP_EPSILON_WITH_DELTA:
        raise InvalidRequest.at("/epsilon", "too-large")
    amount = unit.price(epsilon, delta)
    if amount == 0:
        raise InvalidRequest.at("/epsilon", "too-small")
    return amount


def budget_of(
    epsilon: Fraction, *, accountant: str, delta: Fraction | None, adjacency: Adjacency, max_rows: int = 1
) -> Budget:
    """The budget that (ε, δ) gives to each row of a privacy unit, in the account's unit.

    k rows cost k times the ε of one row, and k² times its ρ or μ² (docs/proofs/accounting.md A7). So the budget of one
    row is the price divided by k or k², rounded down to whole steps. With one row per unit, the budget is the price.

    Raises:
        InvalidRequest: see :func:`price_of`; or a row gets less than one step.
    """
    amount = price_of(epsilon, accountant=accountant, delta=delta)
    for_each = amount // accountants.by_name(accountant).group(max_rows)
    if for_each == 0:
        raise InvalidRequest.at("/epsilon", "too-small")
    return Budget(accountant, for_each, adjacency)
