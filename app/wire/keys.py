"""Defines the types of ``/keys``: access keys."""

from typing import Annotated, Literal, get_args

from pydantic import Field

from app.core import limits
from app.wire.base import NO_CONTROLS, Answer, Request

RoleName = Literal["admin", "owner", "analyst", "predictor", "auditor"]


class KeyIn(Request):
    name: Annotated[str, Field(min_length=1, max_length=limits.MAX_KEY_NAME_CHARS, pattern=NO_CONTROLS)]
    roles: Annotated[list[RoleName], Field(max_length=len(get_args(RoleName)), fail_fast=True)]


class KeyCreated(Answer):
    """A new key. No other answer holds its secret."""

    id: str
    name: str
    key: str
    roles: list[str]


class KeyOut(Answer):
    id: str
    name: str
    roles: list[str]
    created_at: str
    revoked_at: str | None


class KeyList(Answer):
    keys: list[KeyOut]
    next: str | None
