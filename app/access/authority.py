"""Reads the authority of a key again, in the transaction that acts on it.

A transaction that acts on a key's authority locks the key's id ``shared`` before anything else; a transaction that
changes the authority, which is the key's row and its grants, locks it ``exclusive``. So when a revocation is answered,
every effect of the key has been committed, and none follows.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from sqlalchemy import Select, bindparam, select
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


@dataclass(frozen=True)
class Authorities:
    """The authority of several keys, as a write transaction has read it under :func:`lock_several`.

    Attributes:
        at: when it was read, by the clock that all processes on the database share.
        keys: the keys that exist, by id.
        granted: the roles that they were granted on datasets, by key and dataset.
    """

    at: datetime
    keys: Mapping[str, KeyRow]
    granted: Mapping[tuple[str, str], Role]

    def confirm(self, principal: Principal) -> Principal:
        """The present authority of a caller that was authenticated some time ago; raises as :func:`confirm` does."""
        return _same_caller(principal, _principal(self.keys.get(principal.key_id), now=lambda: self.at))


def lock_several(session: Session, key_ids: Collection[str]) -> None:
    """Keeps the authority of several keys unchanged, as :func:`lock` does that of one."""
    name_locks.lock(session, shared=key_ids)


def select_several() -> Select[KeyRow, str, str]:
    """Selects keys with the datasets on which they have a grant and with the role; without a grant, both are ``None``.

    Parameters of the query: ``key_ids``, and ``dataset_ids``, the datasets whose grants are of interest.
    """
    of_key = (GrantRow.key_id == KeyRow.id) & GrantRow.dataset_id.in_(bindparam("dataset_ids", expanding=True))
    keys = select(KeyRow, GrantRow.dataset_id, GrantRow.role).outerjoin(GrantRow, of_key)
    keys = keys.where(KeyRow.id.in_(bindparam("key_ids", expanding=True)))
    return keys.execution_options(populate_existing=True)


def confirm(session: Session, principal: Principal, *, now: Now) -> Principal:
    """The present authority of a caller that was authenticated some time ago.

    Raises:
        Unauthenticated: the key was revoked, has expired, or has another secret than the caller sent; or the token
            that the caller sent has expired.
    """
    return _same_caller(principal, read(session, principal.key_id, now=now))


def read(session: Session, key_id: str, *, now: Now) -> Principal:
    """The authority of a key at the time of the transaction, whatever its secret is.

    Raises:
        Unauthenticated: the key was revoked or has expired.
    """
    row = snapshots.remembered(session, (KeyRow, key_id), lambda: session.get(KeyRow, key_id))
    return _principal(row, now=lambda: now(session))


def _principal(row: KeyRow | None, *, now: Callable[[], datetime]) -> Principal:
    if row is None or row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= now()):
        raise Unauthenticated
    roles = frozenset(Role(role) for role in row.roles)
    return Principal(
        row.id, roles, row.rotated_at, expires_at=row.expires_at, sign_outs=row.sign_outs or 0, name=row.name
    )


def _same_caller(principal: Principal, present: Principal) -> Principal:
    if present.rotated_at != principal.rotated_at:
        raise Unauthenticated
    if principal.token_expires_at is not None and principal.token_expires_at <= clock.now():
        raise Unauthenticated
    return replace(present, token_expires_at=principal.token_expires_at)
