"""Defines the routes of access keys."""

from fastapi import Response

from app.access.grants import Role
from app.api.requests import SHOWS_SECRET, By, Page, Router, limited, raises
from app.core.errors import RoleMissing
from app.services import keys
from app.wire.keys import KeyCreated, KeyIn, KeyList, RotationIn

key_routes = Router(prefix="/keys", tags=["keys"])


@key_routes.post(
    "",
    status_code=201,
    dependencies=SHOWS_SECRET,
)
@limited(needs=Role.ADMIN)
def create_key(by: By, body: KeyIn, response: Response) -> KeyCreated:
    """Make a key. Only this answer shows its secret."""
    made = keys.create_key(*by, body)
    response.headers["Location"] = f"/keys/{made.id}"
    return made


@key_routes.post(
    "/{key_id}/secret",
    status_code=201,
    dependencies=SHOWS_SECRET,
)
@limited(needs=Role.ADMIN)
def rotate_key(by: By, key_id: str, body: RotationIn) -> KeyCreated:
    """Replace the secret of a key. The key's id stays; requests with the earlier secret
    are refused at once.
    """
    return keys.rotate_key(*by, key_id, body)


@key_routes.get("")
@raises(RoleMissing)
def list_keys(by: By, page: Page) -> KeyList:
    """List all keys without secrets, expired and revoked keys included."""
    return keys.list_keys(*by, page)


@key_routes.delete("/{key_id}", status_code=204)
def revoke_key(by: By, key_id: str) -> None:
    """Revoke a key at once."""
    keys.revoke_key(*by, key_id)
