"""Lists the facts fixed at an account's opening, for its first entry and the header of its exports.

Also converts amounts and δ between steps and exact decimal text.
"""

from fractions import Fraction
from typing import Any

from app.core import amounts
from app.ledger.tables import AccountRow
from app.privacy import accountants
from app.privacy.accountants.accountant import steps_down

DELTA_PLACES = 18
"""δ is counted in steps of 10⁻¹⁸."""


def of_account(row: AccountRow) -> dict[str, Any]:
    """The facts of a dataset's or a population's account.

    A population has no adjacency, privacy unit and partitions; its members have. ``delta_set_aside`` is present only
    where a part of δ is set aside.
    """
    if row.privacy_unit is None:
        return {"population": row.id, "accountant": row.accountant, "delta": row.delta}
    facts = {
        "dataset": row.id,
        "accountant": row.accountant,
        "delta": row.delta,
        "adjacency": row.adjacency,
        "privacy_unit": row.privacy_unit,
        "partitions": row.partitions,
    }
    return facts if row.delta_set_aside is None else {**facts, "delta_set_aside": row.delta_set_aside}


def amount_text(accountant: str, amount: int) -> str:
    """Whole steps of an accountant's unit as exact decimal text."""
    return amounts.from_steps(amount, accountants.by_name(accountant).PLACES)


def delta_text(steps: int) -> str:
    """Steps of 10⁻¹⁸ as exact decimal text."""
    return amounts.from_steps(steps, DELTA_PLACES)


def delta_steps(text: str | None) -> int:
    """Inverse of :func:`delta_text`; ``None`` is 0."""
    return steps_down(Fraction(text or 0), DELTA_PLACES)
