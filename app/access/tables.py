"""Defines the database tables of keys, grants, and answers to idempotent requests."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ColumnElement
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, PrimaryKey


class KeyRow(Base):
    """A principal: an access key, or a subject of the identity provider, which has an
    issuer in place of a secret.

    Attributes:
        name: of a key, for people; of a subject, the ``sub`` claim of its tokens.
        secret_sha256: SHA-256 of the key's secret. A secret of 256 random bits needs no
            slow hash.
        issuer: the ``iss`` claim of the subject's tokens.
        roles: global roles; of a subject, the roles in its newest token.
        roles_at: when the token with these roles was issued; ``None`` for a key.
        expires_at: from when on the key is refused, if ever.
        rotated_at: when the key's present secret replaced another secret, if ever.
        last_used_at: the hour of the newest request, written within some minutes
            (:class:`app.access.keys.LastUses`).
        sign_outs: how often the sessions of the key in the dashboard were ended; null
            before the first time.
    """

    __tablename__ = "keys"

    id: Mapped[PrimaryKey]
    name: Mapped[str]
    secret_sha256: Mapped[bytes | None]
    issuer: Mapped[str | None]
    roles: Mapped[list[Any]]
    roles_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    rotated_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    sign_outs: Mapped[int | None]

    __table_args__ = (
        CheckConstraint(
            "(secret_sha256 IS NULL) = (issuer IS NOT NULL)", name="secret_or_issuer"
        ),
        CheckConstraint("(roles_at IS NULL) = (issuer IS NULL)", name="roles_of_token"),
    )


def is_working(at: datetime) -> ColumnElement[bool]:
    """Whether a key was not revoked and has not expired at a time."""
    never_ends = KeyRow.expires_at.is_(None)
    return KeyRow.revoked_at.is_(None) & (never_ends | (KeyRow.expires_at > at))


class GrantRow(Base):
    """The role of one key on one dataset, and the key that granted it."""

    __tablename__ = "grants"

    key_id: Mapped[PrimaryKey]
    dataset_id: Mapped[str] = mapped_column(primary_key=True, index=True)
    role: Mapped[str]
    granted_at: Mapped[datetime]
    granted_by: Mapped[str]

    __table_args__ = (
        CheckConstraint(
            "role IN ('owner', 'attester', 'analyst', 'predictor', 'auditor')",
            name="role_known",
        ),
    )


class AnswerRow(Base):
    """The stored bytes of the answer to a request with an ``Idempotency-Key``; kept for
    ever.
    """

    __tablename__ = "idempotent_answers"

    principal: Mapped[PrimaryKey]
    route: Mapped[PrimaryKey]
    idempotency_key: Mapped[PrimaryKey]
    request_sha256: Mapped[bytes]
    status: Mapped[int]
    location: Mapped[str | None]
    body: Mapped[bytes]
    answered_at: Mapped[datetime]
