"""Reads the authority of a key again, in the transaction that acts on it.

A transaction that acts on a key's authority locks the key's id ``shared`` before anything else; a transaction that
changes the authority, which is the key's row and its grants, locks it ``exclusive``. So when a revocation is answered,
every effect of the key has been committed, and none follows.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from sqlalchemy.orm import Session

from app.access.roles import Principal, Role
from app.access.tables import KeyRow
from app.core import clock
from app.core.errors import Unauthenticated
from app.db.locks import lock_names

Now: TypeAlias = Callable[[Session], datetime]
"""The clock that all processes on the database share; read only for keys that expire."""


def lock(session: Session, key_id: str, *, changing: str | None = None) -> None:
    """Keeps the authority of a key unchanged until the write transaction ends.

    Args:
        session: a write transaction that has locked nothing yet.
        key_id: the key whose authority the transaction acts on.
        changing: the key whose row or grants the transaction changes, if any.
    """
    lock_names(session, shared=[key_id], exclusive=[] if changing is None else [changing])


def confirm(session: Session, principal: Principal, *, now: Now) -> Principal:
    """The present authority of a caller that was authenticated some time ago.

    Raises:
        Unauthenticated: the key was revoked, has expired, or has another secret than the caller sent; or the token
            that the caller sent has expired.
    """
    return confirm_row(session, principal, session.get(KeyRow, principal.key_id), now=now)


def confirm_row(session: Session, principal: Principal, row: KeyRow | None, *, now: Now) -> Principal:
    """The present authority of a caller whose key's row the transaction has read; raises as :func:`confirm` does."""
    present = _principal(session, row, now=now)
    if present.rotated_at != principal.rotated_at:
        raise Unauthenticated
    if principal.token_expires_at is not None and principal.token_expires_at <= clock.now():
        raise Unauthenticated
    return replace(present, token_expires_at=principal.token_expires_at)


def read(session: Session, key_id: str, *, now: Now) -> Principal:
    """The authority of a key at the time of the transaction, whatever its secret is.

    Raises:
        Unauthenticated: the key was revoked or has expired.
    """
    return _principal(session, session.get(KeyRow, key_id), now=now)


def _principal(session: Session, row: KeyRow | None, *, now: Now) -> Principal:
    if row is None or row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= now(session)):
        raise Unauthenticated
    roles = frozenset(Role(role) for role in row.roles)
    return Principal(
        row.id, roles, row.rotated_at, expires_at=row.expires_at, sign_outs=row.sign_outs or 0, name=row.name
    )
