"""Serves the pages of administration: what needs attention, and the access keys."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app.access.grants import Principal, Role
from app.api.pages.forms import Form, checked, submitted, utc
from app.api.pages.refusals import rendered_with
from app.api.pages.rendering import rendered
from app.api.pages.routing import PageRoute
from app.api.requests import Caller, CurrentInstallation, KeptHeads, Page
from app.core import limits, stamps
from app.core.errors import GrovekeeperError
from app.core.settings import GlobalRole
from app.services import approvals, keys, observed
from app.services.dataset_rules import list_frozen
from app.services.installation import Installation
from app.services.ledger import evidence
from app.services.pages import PageRequest
from app.wire.keys import KeyIn, RotationIn

router = APIRouter(prefix="/ui/admin", route_class=PageRoute)

_ROLES: tuple[GlobalRole, ...] = ("owner", "auditor", "admin")
"""Global roles that a form offers. The other roles have an effect only where a dataset's owner grants them."""


@router.get("")
def show_administration(
    request: Request, installation: CurrentInstallation, caller: Caller, heads: KeptHeads
) -> Response:
    """Show the queue, approvals that wait, frozen datasets, caps that are nearly spent, heads and the signer."""
    caller.require(Role.ADMIN)
    return rendered(
        request,
        "admin",
        observed=observed.observe(installation, heads),
        frozen=list_frozen(installation, caller),
        approvals=approvals.list_approvals(installation, caller, PageRequest()),
        signer=evidence.show_signer(heads.signer),
    )


@router.get("/keys")
def list_keys(
    request: Request,
    installation: CurrentInstallation,
    caller: Caller,
    page: Page,
    name: Annotated[str, Query(max_length=limits.MAX_NAME_CHARS)] = "",
) -> Response:
    """Show keys without secrets, all or those with a text in their name or id; with forms that change keys."""
    return _keys(request, installation, caller, page, name=name.strip())


@router.post("/keys")
async def create_key(request: Request, installation: CurrentInstallation, caller: Caller) -> Response:
    """Make a key, and show its secret this once."""

    def act(form: Form) -> Response:
        body = {
            "name": form.get("name", "").strip(),
            "roles": [role for role in _ROLES if form.get(f"role.{role}") == "yes"],
            "expires_at": utc(form.get("expires_at", "")),
        }
        return rendered(request, "key_created", key=keys.create_key(installation, caller, checked(KeyIn, body)))

    return await submitted(request, act, lambda refusal: _keys(request, installation, caller, refusal=refusal))


@router.post("/keys/{key_id}/rotate")
async def rotate_key(request: Request, installation: CurrentInstallation, caller: Caller, key_id: str) -> Response:
    """Replace the secret of a key, and show the next secret this once."""

    def act(form: Form) -> Response:
        body = checked(RotationIn, {"expires_at": utc(form.get("expires_at", ""))})
        return rendered(request, "key_created", key=keys.rotate_key(installation, caller, key_id, body))

    return await submitted(request, act, lambda refusal: _keys(request, installation, caller, refusal=refusal))


def _keys(
    request: Request,
    installation: Installation,
    caller: Principal,
    page: PageRequest | None = None,
    *,
    name: str = "",
    refusal: GrovekeeperError | None = None,
) -> Response:
    listed = keys.list_keys(installation, caller, page or PageRequest(), part=name or None)
    return rendered_with(
        request,
        "keys",
        refusal,
        keys=listed.keys,
        name=name,
        following=listed.next,
        roles=_ROLES,
        now=stamps.to_text(stamps.now()),
    )
