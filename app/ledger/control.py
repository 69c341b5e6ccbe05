"""Records administrative acts in the control chain of the installation.

The control chain is an account without a budget. Its entries are hashed, signed,
published and compared at start like those of every account, so a database from before a
revocation or a deletion does not start. An act is recorded in the transaction that
commits it, as the last lock of the transaction. Entries name keys, datasets, models and
populations, never a privacy unit, a value or a count.
"""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.database import insert
from app.ledger import chain, tables
from app.ledger.tables import CONTROL_CHAIN, AccountRow, Entry, EntryKind, EntryRow
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests.privacy.accountants import pure

CHAIN = CONTROL_CHAIN

OPERATOR = "operator"
"""The actor of acts on the installation itself, which no key authenticates."""


def record(
    session: Session, kind: EntryKind, *, actor: str, **details: object
) -> Entry:
    """Appends one act, and returns it.

    Args:
        session: of the transaction that commits the act.
        kind: of the act.
        actor: the key that acts, or :data:`OPERATOR`.
        details: public facts about the act, as JSON values.
    """
    row = _locked(session)
    act = chain.NewEntry(kind, 0, actor=actor, details=details)
    return chain.append(session, row, act)


def details_of(
    session: Session, kind: EntryKind, *, until: int | None = None
) -> list[JsonObject]:
    """The details of all acts of a kind, in order; of those up to a sequence, if one is
    given.
    """
    query = select(EntryRow.details).where(
        EntryRow.account_id == CHAIN, EntryRow.kind == kind.value
    )
    if until is not None:
        query = query.where(EntryRow.sequence <= until)
    return [
        details or {} for details in session.scalars(query.order_by(EntryRow.sequence))
    ]


def export_header(session: Session) -> tuple[dict[str, object], int]:
    """The header of an export, and the sequence of the last entry in the export."""
    return {"kind": "export", "format": 1, "log": CHAIN}, tables.account(
        session, CHAIN
    ).last_sequence


def _locked(session: Session) -> AccountRow:
    """The locked row of the chain, which the first act opens."""
    first = insert(session, AccountRow).values(
        id=CHAIN, name=CHAIN, accountant=pure.NAME
    )
    session.execute(first.on_conflict_do_nothing())
    row = tables.locked_account(session, CHAIN)
    if row.last_sequence == 0:
        opened = chain.NewEntry(
            EntryKind.OPEN, 0, actor=OPERATOR, details={"log": CHAIN}
        )
        chain.append(session, row, opened)
    return row
