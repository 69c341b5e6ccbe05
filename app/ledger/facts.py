"""What an account is, fixed when it was opened: said in its first entry, and again at the head of an export."""

from typing import Any

from sqlalchemy.orm import Session

from app.core import amounts
from app.ledger import repository, state
from app.ledger.tables import AccountRow
from app.privacy import accountants


def of_account(row: AccountRow) -> dict[str, Any]:
    """The facts of a dataset's account, or of a population's, whose members say the rest.

    Accounts that set no δ aside have no such member, like those that were opened before there was one.
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


def export_header(session: Session, account_id: str) -> tuple[dict[str, Any], int]:
    """The header of an export, and the sequence of its last entry: later ones are left out.

    Entries never change, so they may then be read in as many transactions as is convenient.
    """
    row = repository.account(session, account_id)
    header = {"kind": "export", "format": 1, "cap": amount_text(row.accountant, row.cap), **of_account(row)}
    return header, row.last_sequence


def amount_text(accountant: str, amount: int) -> str:
    """Whole steps of an accountant's unit as exact decimal text."""
    return amounts.from_steps(amount, accountants.by_name(accountant).PLACES)
