"""Stores the subjects of an identity provider as principals, with an id like a key's.

The id follows from issuer and subject alone, so every process and every auditor computes the same id, and the control
chain does not contain the subject itself.
"""

import base64
import hashlib
import json
from datetime import datetime

from sqlalchemy.orm import Session

from app.access.tables import KeyRow
from app.access.tokens import Token
from app.core import stamps
from app.core.errors import Unauthenticated


def id_of(issuer: str, subject: str) -> str:
    """The id of a subject: a prefix and 160 bits of SHA-256. It is longer than any id of a key."""
    digest = hashlib.sha256(json.dumps([issuer, subject]).encode("ascii")).digest()
    return f"{stamps.SUBJECT}_{base64.b32encode(digest[:20]).decode('ascii').lower()}"


def find(session: Session, token: Token) -> KeyRow | None:
    """The row of a token's subject, if the subject was admitted before.

    Raises:
        Unauthenticated: the row belongs to another subject with an equal digest.
    """
    row = session.get(KeyRow, id_of(token.issuer, token.subject))
    if row is not None and (row.issuer, row.name) != (token.issuer, token.subject):
        raise Unauthenticated
    return row


def is_current(row: KeyRow, token: Token) -> bool:
    """Whether the stored roles are those of the token, or of a token that was issued later."""
    assert row.roles_at is not None, "the row of a subject has the time of its roles"
    return row.roles == _names(token) or token.issued_at <= row.roles_at


def add(session: Session, token: Token, *, at: datetime) -> KeyRow:
    """Stores a subject with the roles of its first token."""
    row = KeyRow(
        id=id_of(token.issuer, token.subject),
        name=token.subject,
        issuer=token.issuer,
        roles=_names(token),
        roles_at=token.issued_at,
        created_at=at,
    )
    session.add(row)
    session.flush()
    return row


def change_roles(row: KeyRow, token: Token) -> None:
    """Gives a subject the roles of a token."""
    row.roles, row.roles_at = _names(token), token.issued_at


def _names(token: Token) -> list[str]:
    return sorted(role.value for role in token.roles)
