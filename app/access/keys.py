"""Creates, authenticates and lists access keys. A key is ``<id>.<secret>``; only a hash of the secret is stored."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.access.roles import Principal, Role
from app.access.tables import KeyRow
from app.core import ids
from app.core.errors import NotFound, Unauthenticated

_KEY = re.compile(r"([a-z0-9_]{4,32})\.([A-Za-z0-9_-]{43,512})", re.ASCII)


class NotAKey(ValueError):
    """The text does not have the form of a key."""


@dataclass(frozen=True)
class NewKey:
    """A new key with its secret, which is not stored."""

    id: str
    text: str


def split(key: str) -> tuple[str, str]:
    """Splits a key's text into id and secret.

    Raises:
        NotAKey: the text has another form.
    """
    matched = _KEY.fullmatch(key)
    if matched is None:
        raise NotAKey
    return matched[1], matched[2]


def create(session: Session, *, name: str, roles: Sequence[Role], at: datetime) -> NewKey:
    """Creates a key whose secret has 256 random bits."""
    key_id = ids.new(ids.KEY)
    secret = secrets.token_urlsafe(32)
    add(session, key_id=key_id, secret=secret, name=name, roles=roles, at=at)
    return NewKey(key_id, f"{key_id}.{secret}")


def add(session: Session, *, key_id: str, secret: str, name: str, roles: Sequence[Role], at: datetime) -> None:
    """Stores a key whose secret the caller chose."""
    session.add(
        KeyRow(
            id=key_id,
            name=name,
            secret_sha256=_digest(secret),
            roles=sorted({role.value for role in roles}),
            created_at=at,
            revoked_at=None,
        )
    )
    session.flush()


def authenticate(session: Session, key: str) -> Principal:
    """Authenticates a caller by the text of its key.

    Raises:
        Unauthenticated: the key is malformed, unknown, wrong or revoked; the error does not say which.
    """
    try:
        key_id, secret = split(key)
    except NotAKey:
        raise Unauthenticated from None
    row = session.get(KeyRow, key_id)
    expected = row.secret_sha256 if row is not None else bytes(32)
    matches = hmac.compare_digest(expected, _digest(secret))
    if row is None or not matches or row.revoked_at is not None:
        raise Unauthenticated
    return Principal(row.id, frozenset(Role(role) for role in row.roles))


def find(session: Session, key_id: str) -> KeyRow:
    """Finds a key by its id.

    Raises:
        NotFound: no such key.
    """
    row = session.get(KeyRow, key_id)
    if row is None:
        raise NotFound("key")
    return row


def page(session: Session, *, after: str | None, limit: int) -> list[KeyRow]:
    """Reads a page of keys in order of id, including revoked keys."""
    query = select(KeyRow).order_by(KeyRow.id).limit(limit)
    if after is not None:
        query = query.where(KeyRow.id > after)
    return list(session.execute(query).scalars())


def secret_matches(row: KeyRow, secret: str) -> bool:
    """Compares a secret with a key's secret in constant time."""
    return hmac.compare_digest(row.secret_sha256, _digest(secret))


def living_admin_exists(session: Session) -> bool:
    """Whether any key that was not revoked has the role ``admin``."""
    rows = session.execute(select(KeyRow).where(KeyRow.revoked_at.is_(None))).scalars()
    return any(Role.ADMIN.value in row.roles for row in rows)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("ascii")).digest()
