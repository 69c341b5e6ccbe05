"""Defines the routes of ``/audit``: administrative acts, their export and their signed head."""

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, StreamingResponse

from app.api import problems
from app.api.capacity import Work, capacities
from app.api.requests import BodyRoute, Caller, CurrentInstallation, KeptHeads, Page, limited
from app.core.errors import RoleMissing
from app.services.ledger import audit
from app.wire.ledger import ActList

router = APIRouter(prefix="/audit", tags=["audit"], route_class=BodyRoute)


@router.get("", operation_id="list_acts", responses=problems.documented(RoleMissing))
def list_acts(installation: CurrentInstallation, caller: Caller, page: Page) -> ActList:
    """List administrative acts in order: keys, grants, declarations, erasures, caps, rules, aliases and others."""
    return audit.list_acts(installation, caller, page)


@router.get(
    "/export",
    operation_id="export_acts",
    response_class=StreamingResponse,
    responses={
        200: {"description": "A header line, then every act.", "content": {"application/x-ndjson": {}}},
        **problems.documented(RoleMissing),
    },
)
@limited(work=Work.EXPORT)
def export_acts(request: Request, installation: CurrentInstallation, caller: Caller) -> StreamingResponse:
    """Export every administrative act, for `grovekeeper verify`."""
    lines = audit.export_acts(installation, caller)
    return StreamingResponse(capacities(request).iterate(Work.EXPORT, lines), media_type="application/x-ndjson")


@router.get(
    "/checkpoint",
    operation_id="show_head",
    response_class=PlainTextResponse,
    responses=problems.documented(RoleMissing),
)
def show_checkpoint_of_acts(installation: CurrentInstallation, caller: Caller, heads: KeptHeads) -> str:
    """Show the signed head of the administrative acts, as a signed note."""
    return audit.show_checkpoint_of_acts(installation, caller, signer=heads.signer)
