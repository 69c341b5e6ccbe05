"""Keeps the public keys that sign an installation's heads in the database, where a forged head cannot reach them."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.ledger.tables import SignerRow


def pinned(session: Session) -> list[str]:
    """The verifier keys of all signers, the present signer last; empty before the first start."""
    return list(session.execute(select(SignerRow.verifier_key).order_by(SignerRow.ordinal)).scalars())


def pin(session: Session, verifier_key: str, *, after: Sequence[str], at: datetime) -> None:
    """Makes a key the present signer's. ``after``: the pinned keys, as the caller read them.

    Raises:
        sqlalchemy.exc.IntegrityError: another process has pinned a key since.
    """
    session.add(SignerRow(ordinal=len(after) + 1, verifier_key=verifier_key, pinned_at=at))
    session.flush()
