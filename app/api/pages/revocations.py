"""Serves the pages that ask before the role of a key on a dataset, or a key, is revoked."""

from fastapi import APIRouter, Request, Response

from app.access.grants import Principal
from app.api.pages.forms import Form, submitted
from app.api.pages.refusals import rendered_with
from app.api.pages.routing import PageRoute
from app.api.requests import Caller, CurrentInstallation
from app.core.errors import GrovekeeperError
from app.services import keys
from app.services.datasets import show
from app.services.installation import Installation

router = APIRouter(prefix="/ui", route_class=PageRoute)


@router.get("/datasets/{dataset}/grants/{key_id}/revoke")
def confirm_revocation_of_role(
    request: Request, installation: CurrentInstallation, caller: Caller, dataset: str, key_id: str
) -> Response:
    """Ask the owner whether a key shall lose its role, and say what it can do no more."""
    return _of_role(request, installation, caller, dataset, key_id)


@router.post("/datasets/{dataset}/grants/{key_id}/revoke")
async def revoke_role(
    request: Request, installation: CurrentInstallation, caller: Caller, dataset: str, key_id: str
) -> Response:
    """Revoke the role of a key on a dataset. An owner who revokes her own role sees the dataset no more."""

    def act(form: Form) -> str:
        keys.remove_grant(installation, caller, dataset, key_id)
        is_own = key_id == caller.key_id and not caller.is_admin
        return "/" if is_own else f"/ui/datasets/{dataset}#access"

    return await submitted(
        request, act, lambda refusal: _of_role(request, installation, caller, dataset, key_id, refusal=refusal)
    )


@router.get("/admin/keys/{key_id}/revoke")
def confirm_revocation_of_key(
    request: Request, installation: CurrentInstallation, caller: Caller, key_id: str
) -> Response:
    """Ask an administrator whether a key shall end, and name the datasets that then have no owner."""
    return _of_key(request, installation, caller, key_id)


@router.post("/admin/keys/{key_id}/revoke")
async def revoke_key(request: Request, installation: CurrentInstallation, caller: Caller, key_id: str) -> Response:
    """Revoke a key at once."""

    def act(form: Form) -> str:
        keys.revoke_key(installation, caller, key_id)
        return "/ui/admin/keys"

    return await submitted(
        request, act, lambda refusal: _of_key(request, installation, caller, key_id, refusal=refusal)
    )


def _of_role(
    request: Request,
    installation: Installation,
    caller: Principal,
    dataset: str,
    key_id: str,
    *,
    refusal: GrovekeeperError | None = None,
) -> Response:
    grant, is_last_owner = keys.show_grant(installation, caller, dataset, key_id)
    shown = show.show_dataset(installation, caller, dataset)
    return rendered_with(
        request, "revoke_role", refusal, dataset=shown.model_dump(), grant=grant, is_last_owner=is_last_owner
    )


def _of_key(
    request: Request,
    installation: Installation,
    caller: Principal,
    key_id: str,
    *,
    refusal: GrovekeeperError | None = None,
) -> Response:
    key, owned = keys.show_revocation(installation, caller, key_id)
    return rendered_with(request, "revoke_key", refusal, key=key, owned=owned)
