"""Reads the authority of a key again, in the transaction that acts on it.

A transaction that acts on a key's authority locks the key's id ``shared`` before anything else; a transaction that
changes the authority, which is the key's row and its grants, locks it ``exclusive``. So when a revocation is answered,
every effect of the key has been committed, and none follows.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.access.roles import Principal, Role
from app.access.tables import GrantRow, KeyRow
from app.core import clock
from app.core.errors import Unauthenticated
from app.db import name_locks, snapshots

Now: TypeAlias = Callable[[Session], datetime]
"""The clock that all processes on the database share; read only for keys that expire."""


def lock(session: Session, key_id: str, *, changing: str | None = None) -> None:
    """Keeps the authority of a key unchanged until the write transaction ends.

    Args:
        session: a write transaction that has locked nothing yet.
        key_id: the key whose authority the transaction acts on.
        changing: the key whose row or grants the transaction changes, if any.
    """
    name_locks.lock(session, shared=[key_id], exclusive=[] if changing is None else [changing])


def lock_several(
    session: Session, key_ids: Collection[str], dataset_ids: Collection[str]
) -> tuple[list[KeyRow], dict[tuple[str, str], Role]]:
    """Keeps the authority of several keys unchanged as :func:`lock` does, and reads it in one query.

    While the caller keeps the rows of the keys, :func:`confirm` reads none of them again.

    Returns:
        The keys that exist, and the roles that they were granted on the datasets, by key and dataset.
    """
    name_locks.lock(session, shared=key_ids)
    of_key = (GrantRow.key_id == KeyRow.id) & GrantRow.dataset_id.in_(dataset_ids)
    query = select(KeyRow, GrantRow.dataset_id, GrantRow.role).outerjoin(GrantRow, of_key).where(KeyRow.id.in_(key_ids))
    keys, roles = [], {}
    for key, dataset_id, role in session.execute(query):
        keys.append(key)
        if role:  # not the row of a key without a grant
            roles[key.id, dataset_id] = Role(role)
    return keys, roles


def confirm(session: Session, principal: Principal, *, now: Now) -> Principal:
    """The present authority of a caller that was authenticated some time ago.

    Raises:
        Unauthenticated: the key was revoked, has expired, or has another secret than the caller sent; or the token
            that the caller sent has expired.
    """
    present = read(session, principal.key_id, now=now)
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
    row = snapshots.remembered(session, (KeyRow, key_id), lambda: session.get(KeyRow, key_id))
    if row is None or row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= now(session)):
        raise Unauthenticated
    roles = frozenset(Role(role) for role in row.roles)
    return Principal(row.id, roles, row.rotated_at, expires_at=row.expires_at, name=row.name)
