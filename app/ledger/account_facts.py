"""Lists the facts fixed at an account's opening, for its first entry and the header of its exports."""

from typing import Any

from app.core import amounts
from app.ledger import state
from app.ledger.tables import AccountRow
from app.privacy import accountants


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
        "partitions": state.partitions_of(row).to_json(),
    }
    return facts if row.delta_set_aside is None else {**facts, "delta_set_aside": row.delta_set_aside}


def amount_text(accountant: str, amount: int) -> str:
    """Whole steps of an accountant's unit as exact decimal text."""
    return amounts.from_steps(amount, accountants.by_name(accountant).PLACES)
