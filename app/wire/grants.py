"""Defines the types of the grants of a dataset."""

from typing import Literal

from app.wire.base import Answer, OfDataset, Request

GrantedRole = Literal["owner", "attester", "analyst", "predictor", "auditor"]


class GrantIn(Request):
    role: GrantedRole


class GrantOut(OfDataset):
    key_id: str
    role: str


class ListedGrant(Answer):
    """A grant on a dataset. ``expires_at``, ``revoked_at`` and ``last_used_at`` are of the
    key.
    """

    key_id: str
    key_name: str
    role: str
    granted_at: str
    granted_by: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None


class GrantList(OfDataset):
    grants: list[ListedGrant]
    next: str | None
