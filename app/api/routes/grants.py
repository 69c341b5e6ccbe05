"""Defines the routes of the grants of a dataset."""

from app.api.requests import By, Page, Router, raises
from app.core.errors import LastOwner
from app.services import keys
from app.wire.grants import GrantIn, GrantList, GrantOut

grant_routes = Router(prefix="/datasets", tags=["datasets"])


@grant_routes.get("/{dataset}/grants")
def list_grants(by: By, dataset: str, page: Page) -> GrantList:
    """List who has which role on the dataset, since when and by whom. For owners and
    auditors.
    """
    return keys.list_grants(*by, dataset, page)


@grant_routes.put(
    "/{dataset}/grants/{key_id}",
)
@raises(LastOwner)
def put_grant(by: By, dataset: str, key_id: str, body: GrantIn) -> GrantOut:
    """Grant a key a role on the dataset, in place of its earlier role."""
    return keys.put_grant(*by, dataset, key_id, role=body.role)


@grant_routes.delete(
    "/{dataset}/grants/{key_id}",
    status_code=204,
)
@raises(LastOwner)
def delete_grant(by: By, dataset: str, key_id: str) -> None:
    """Revoke a key's role on the dataset. The last owner keeps the role until another
    key is an owner.
    """
    keys.remove_grant(*by, dataset, key_id)
