"""Reads the authority of a key again, in the transaction that acts on it.

A transaction that acts on a key's authority locks the key's id ``shared`` before anything else; a transaction that
changes the authority, which is the key's row and its grants, locks it ``exclusive``. So when a revocation is answered,
every effect of the key has been committed, and none follows.
"""

from sqlalchemy.orm import Session

from app.access.roles import Principal, Role
from app.access.tables import KeyRow
from app.core.errors import Unauthenticated
from app.db import name_locks


def hold(session: Session, key_id: str, *, changing: str | None = None) -> Principal:
    """The present authority of a key, which stays unchanged until the write transaction ends.

    Args:
        session: a write transaction that has locked nothing yet.
        key_id: the key whose authority the transaction acts on.
        changing: the key whose row or grants the transaction changes, if any.

    Raises:
        Unauthenticated: the key was revoked.
    """
    name_locks.lock(session, shared=key_id, exclusive=changing)
    return read(session, key_id)


def read(session: Session, key_id: str) -> Principal:
    """The authority of a key at the time of the transaction.

    Raises:
        Unauthenticated: the key was revoked.
    """
    row = session.get(KeyRow, key_id)
    if row is None or row.revoked_at is not None:
        raise Unauthenticated
    return Principal(row.id, frozenset(Role(role) for role in row.roles))
