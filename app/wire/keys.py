"""Defines the types of ``/keys``: access keys and subjects of the identity provider."""

from typing import Annotated

from pydantic import AfterValidator, Field

from app.core import limits
from app.core.settings import GLOBAL_ROLES, GlobalRole
from app.wire.base import (
    NO_CONTROLS,
    Answer,
    Instant,
    Request,
    no_id,
    no_secret,
    problem,
)


def _no_actor(name: str) -> str:
    """Searches of entries and acts take a name of a key in the place of an actor; these
    actors are no keys.
    """
    if name in ("worker", "operator", "sweeper"):
        raise problem("reserved", form="a name other than worker, operator and sweeper")
    return name


class KeyIn(Request):
    """Other roles are granted on a dataset. Keys of earlier versions may name some
    here, where they allow nothing.
    """

    name: Annotated[
        str,
        Field(min_length=1, max_length=limits.MAX_KEY_NAME_CHARS, pattern=NO_CONTROLS),
        AfterValidator(no_id),
        AfterValidator(no_secret),
        AfterValidator(_no_actor),
    ]
    roles: Annotated[
        list[GlobalRole], Field(max_length=len(GLOBAL_ROLES), fail_fast=True)
    ]
    expires_at: Instant | None = None


class RotationIn(Request):
    """``expires_at`` replaces the key's time of expiry; ``null`` keeps it."""

    expires_at: Instant | None = None


class KeyCreated(Answer):
    """A key with a secret that no other answer shows."""

    id: str
    name: str
    key: str
    roles: list[str]
    expires_at: str | None


class KeyOut(Answer):
    """A key; or a subject of the identity provider, with its issuer and the roles in
    its newest token.

    ``last_used_at`` is the beginning of the hour of its newest request, some minutes
    late.
    """

    id: str
    name: str
    issuer: str | None
    roles: list[str]
    created_at: str
    expires_at: str | None
    rotated_at: str | None
    revoked_at: str | None
    last_used_at: str | None


class KeyList(Answer):
    keys: list[KeyOut]
    next: str | None
