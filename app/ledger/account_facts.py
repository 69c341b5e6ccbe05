"""What an account is, fixed when it was opened: said in its first entry, and again at the head of an export; and its
amounts as text."""

from typing import Any

from app.core import amounts
from app.ledger import state
from app.ledger.tables import AccountRow
from app.privacy import accountants


def of_account(row: AccountRow) -> dict[str, Any]:
    """The facts of a dataset's account, or of a population's, whose members say the rest.

    Accounts that set no δ aside have no such member.
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
