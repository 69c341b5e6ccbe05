"""Serves the pages of administrative acts: who did what and when, one act as it was hashed, and their verification."""

import json
from typing import Annotated, Literal, get_args

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import Field

from app.api.capacity import Work, capacities
from app.api.pages.act_words import act_in_words
from app.api.pages.forms import SearchForm
from app.api.pages.rendering import rendered
from app.api.pages.routing import PageRoute
from app.api.requests import Caller, CurrentInstallation, KeptHeads, limited
from app.core import limits
from app.ledger import control
from app.ledger.entries import EntryKind
from app.services.ledger import audit
from app.services.ledger.audit import ActSearch, search_acts
from app.services.ledger.audit import show_act as show_one
from app.services.ledger.evidence import verify_acts
from app.wire.ledger import ActKind

router = APIRouter(prefix="/ui/acts", route_class=PageRoute)


class ActFields(SearchForm):
    """The fields of the form that searches acts."""

    kind: ActKind | Literal[""] = ""
    by: Annotated[str, Field(max_length=limits.MAX_REFERENCE_CHARS)] = ""
    about: Annotated[str, Field(max_length=limits.MAX_REFERENCE_CHARS)] = ""


@router.get("")
def list_acts(
    request: Request,
    installation: CurrentInstallation,
    caller: Caller,
    heads: KeptHeads,
    fields: Annotated[ActFields, Query()],
) -> Response:
    """Show administrative acts, newest first, and whether the head outside the database covers them."""
    search = ActSearch(
        kind=EntryKind(fields.kind) if fields.kind else None,
        by=fields.by.strip() or None,
        about=fields.about.strip() or None,
    )
    found = search_acts(installation, caller, search, fields.page)
    return rendered(
        request,
        "acts",
        acts=[(act, act_in_words(act, found.names)) for act in found.acts],
        names=found.names,
        following=found.next,
        kinds=get_args(ActKind),
        fields=fields,
        is_searched=search != ActSearch(),
        is_published=not heads.n_behind({control.CHAIN: found.size}),
        size=found.size,
    )


@router.get("/verification")
@limited(work=Work.EXPORT)
def show_verification(
    request: Request, installation: CurrentInstallation, caller: Caller, heads: KeptHeads
) -> Response:
    """Let the verifier check all acts, and show its answer."""
    return rendered(request, "acts_verified", verification=verify_acts(installation, caller, signer=heads.signer))


@router.get("/export")
@limited(work=Work.EXPORT)
def export(request: Request, installation: CurrentInstallation, caller: Caller) -> StreamingResponse:
    """Download all acts for the verifier."""
    lines = audit.export_acts(installation, caller)
    return StreamingResponse(
        capacities(request).iterate(Work.EXPORT, lines),
        media_type="application/x-ndjson",
        headers={"Content-Disposition": 'attachment; filename="acts.jsonl"'},
    )


@router.get("/checkpoint")
def checkpoint(installation: CurrentInstallation, caller: Caller, heads: KeptHeads) -> PlainTextResponse:
    """Download the signed head of the acts."""
    return PlainTextResponse(
        audit.show_checkpoint_of_acts(installation, caller, signer=heads.signer),
        headers={"Content-Disposition": 'attachment; filename="acts.checkpoint"'},
    )


@router.get("/{sequence}")
def show_act(request: Request, installation: CurrentInstallation, caller: Caller, sequence: int) -> Response:
    """Show one act in words and as it was hashed."""
    shown = show_one(installation, caller, sequence)
    return rendered(
        request,
        "act",
        act=shown.act,
        words=act_in_words(shown.act, shown.names),
        names=shown.names,
        size=shown.size,
        text=json.dumps(shown.act.model_dump(), indent=2, ensure_ascii=False),
    )
