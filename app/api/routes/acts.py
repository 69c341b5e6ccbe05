"""Defines the routes of acts."""

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import PlainTextResponse, StreamingResponse

from app.api.capacity import Work
from app.api.requests import By, KeptHeads, Page, Router, limited, raises
from app.api.streams import exported
from app.core.errors import NotFound, RoleMissing
from app.services.ledger import audit
from app.wire.acts import ActList
from app.wire.base import Reference

audit_routes = Router(prefix="/audit", tags=["audit"])


@audit_routes.get("")
@raises(RoleMissing, NotFound)
def list_acts(
    by: By, page: Page, dataset: Annotated[Reference | None, Query()] = None
) -> ActList:
    """List administrative acts in order: keys, grants, declarations, erasures, caps,
    rules, aliases and others. For auditors; owners list those about their dataset.
    """
    return audit.list_acts(*by, page, dataset=dataset)


@audit_routes.get(
    "/export",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "A header line, then every act.",
            "content": {"application/x-ndjson": {}},
        },
    },
)
@limited(work=Work.EXPORT)
@raises(RoleMissing)
def export_acts(request: Request, by: By) -> StreamingResponse:
    """Export every administrative act, for `grovekeeper verify`."""
    return exported(request, audit.export_acts(*by), "acts.jsonl")


@audit_routes.get(
    "/checkpoint",
    summary="Show Checkpoint Of Acts",
    response_class=PlainTextResponse,
)
@raises(RoleMissing)
def show_head(by: By, heads: KeptHeads) -> str:
    """Show the signed head of the administrative acts, as a signed note."""
    return audit.show_checkpoint_of_acts(*by, signer=heads.signer)
