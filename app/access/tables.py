"""Defines the database tables of keys, grants and stored answers to idempotent requests."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base
from app.db.types import CanonicalJson


class KeyRow(Base):
    """An access key, with the SHA-256 of its secret. A secret of 256 random bits needs no slow hash."""

    __tablename__ = "keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    secret_sha256: Mapped[bytes] = mapped_column(LargeBinary)
    roles: Mapped[list[Any]] = mapped_column(CanonicalJson)
    created_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]


class GrantRow(Base):
    """The role of one key on one dataset, and the key that granted it."""

    __tablename__ = "grants"

    key_id: Mapped[str] = mapped_column(primary_key=True)
    dataset_id: Mapped[str] = mapped_column(primary_key=True, index=True)
    role: Mapped[str]
    granted_at: Mapped[datetime]
    granted_by: Mapped[str]

    __table_args__ = (
        CheckConstraint("role IN ('owner', 'attester', 'analyst', 'predictor', 'auditor')", name="role_known"),
    )


class AnswerRow(Base):
    """The stored bytes of the answer to a request with an ``Idempotency-Key``; kept for ever."""

    __tablename__ = "idempotent_answers"

    principal: Mapped[str] = mapped_column(primary_key=True)
    route: Mapped[str] = mapped_column(primary_key=True)
    idempotency_key: Mapped[str] = mapped_column(primary_key=True)
    request_sha256: Mapped[bytes] = mapped_column(LargeBinary)
    status: Mapped[int]
    location: Mapped[str | None]
    body: Mapped[bytes] = mapped_column(LargeBinary)
    answered_at: Mapped[datetime]
