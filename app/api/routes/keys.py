"""Defines the routes of ``/keys``: create, list, rotate and revoke access keys."""

from fastapi import APIRouter

from app.access.grants import Role
from app.api import problems
from app.api.requests import BodyRoute, Caller, CurrentInstallation, Page, limited
from app.core.errors import NotFound, RoleMissing
from app.services import keys
from app.wire.keys import KeyCreated, KeyIn, KeyList, RotationIn

router = APIRouter(prefix="/keys", tags=["keys"], route_class=BodyRoute)


@router.post(
    "",
    operation_id="create_key",
    status_code=201,
    responses=problems.documented(RoleMissing, *problems.JSON_BODY),
)
@limited(needs=Role.ADMIN)
def create_key(installation: CurrentInstallation, caller: Caller, body: KeyIn) -> KeyCreated:
    """Make a key. Only this answer shows its secret."""
    return keys.create_key(installation, caller, body)


@router.post(
    "/{key_id}/secret",
    operation_id="rotate_key",
    status_code=201,
    responses=problems.documented(RoleMissing, NotFound, *problems.JSON_BODY),
)
@limited(needs=Role.ADMIN)
def rotate_key(installation: CurrentInstallation, caller: Caller, key_id: str, body: RotationIn) -> KeyCreated:
    """Replace the secret of a key. The key's id stays; requests with the earlier secret are refused at once."""
    return keys.rotate_key(installation, caller, key_id, body)


@router.get("", operation_id="list_keys", responses=problems.documented(RoleMissing))
def list_keys(installation: CurrentInstallation, caller: Caller, page: Page) -> KeyList:
    """List all keys without secrets, expired and revoked keys included."""
    return keys.list_keys(installation, caller, page)


@router.delete(
    "/{key_id}",
    operation_id="revoke_key",
    status_code=204,
    responses=problems.documented(RoleMissing, NotFound),
)
def revoke_key(installation: CurrentInstallation, caller: Caller, key_id: str) -> None:
    """Revoke a key at once."""
    keys.revoke_key(installation, caller, key_id)
