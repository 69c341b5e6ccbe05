"""A budget as an owner writes it, and the cap that it opens."""

from fractions import Fraction

from app.core import limits
from app.core.errors import InvalidRequest
from app.ledger.limit import Limit
from app.privacy import accountants
from app.wire.datasets import BudgetIn


def largest_epsilon(accountant: str) -> int:
    """The largest ε that a cap may be opened with: amounts are stored in 64 bits."""
    takes_delta = accountants.by_name(accountant).TAKES_DELTA
    return limits.MAX_CAP_EPSILON_WITH_DELTA if takes_delta else limits.MAX_CAP_EPSILON


def cap_of(budget: BudgetIn) -> int:
    """The cap in whole steps of the accountant's unit.

    Raises:
        InvalidRequest: it is too large to be counted, or less than one step.
    """
    if budget.epsilon > largest_epsilon(budget.accountant):
        raise InvalidRequest.at("/budget/epsilon", "too-large")
    cap = accountants.by_name(budget.accountant).cap(budget.epsilon, budget.conversion_delta)
    if cap == 0:
        raise InvalidRequest.at("/budget/epsilon", "too-small")
    return cap


def changed_cap(limit: Limit, epsilon: Fraction) -> int:
    """Another cap of an account, in whole steps of its unit; it takes a while in ρ and μ².

    Args:
        limit: one of the account, with its accountant and δ.
        epsilon: what the new cap is to be.

    Raises:
        InvalidRequest: it is too large to be counted, or less than one step.
    """
    if epsilon > largest_epsilon(limit.accountant):
        raise InvalidRequest.at("/cap", "too-large")
    cap = accountants.by_name(limit.accountant).cap(epsilon, limit.split.converted_at)
    if cap == 0:
        raise InvalidRequest.at("/cap", "too-small")
    return cap
