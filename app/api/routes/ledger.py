"""Defines the routes of ``/ledger``: balances, entries, exports and caps of datasets and populations."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from app.api import problems
from app.api.capacity import Work, capacities
from app.api.requests import BodyRoute, Caller, CurrentInstallation, OptionalIdempotency, Page, limited, sent
from app.core import json_text, limits
from app.core.errors import (
    BalanceMismatch,
    DatasetDeleted,
    InvalidRequest,
    MalformedRequest,
    NotFound,
    RoleMissing,
    TooLarge,
)
from app.ledger.entries import EntryKind
from app.services.ledger import balances, caps, history
from app.services.ledger.history import Search
from app.wire.ledger import AccountBalance, AccountEntryKind, BalanceList, CapIn, ChangedCap, EntryList

router = APIRouter(prefix="/ledger", tags=["ledger"], route_class=BodyRoute)

_Id: TypeAlias = Annotated[str | None, Query(max_length=limits.MAX_REFERENCE_CHARS)]
_ScopeText: TypeAlias = Annotated[str | None, Query(max_length=65_536)]

_EXPORT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A header line, then every entry.",
        "content": {"application/x-ndjson": {}, "text/csv": {}},
    }
}


def _scope(text: str | None) -> Mapping[str, object]:
    if text is None:
        return {}
    try:
        scope = json_text.loads_exactly(text.encode("utf-8", "surrogatepass"), max_nodes=limits.MAX_JSON_BODY_NODES)
    except MalformedRequest:
        raise InvalidRequest.at("/scope", "not-json") from None
    except TooLarge:
        raise InvalidRequest.at("/scope", "too-many") from None
    if not isinstance(scope, dict):
        raise InvalidRequest.at("/scope", "not-an-object")
    return scope


def _search(
    kind: Annotated[AccountEntryKind | None, Query(description="entries of one kind")] = None,
    job: Annotated[_Id, Query(description="entries of a job, or of a reservation")] = None,
    actor: Annotated[_Id, Query(description="entries that a key, or `worker`, caused")] = None,
    scope: Annotated[_ScopeText, Query(description='entries on some of these cells: `{"shard": [0]}`')] = None,
) -> Search:
    """The entries that a request asks for; all of them without a parameter."""
    kinds = None if kind is None else [EntryKind(kind)]
    return Search(kinds=kinds, job_id=job, actor=actor, scope=_scope(scope))


@router.get("", operation_id="list_balances", responses=problems.documented(RoleMissing))
def list_balances(installation: CurrentInstallation, caller: Caller, page: Page) -> BalanceList:
    """List cap, charged, reserved and remaining of every dataset whose ledger the key may read."""
    return balances.list_balances(installation, caller, page)


@router.get("/{account}", operation_id="show_balance", responses=problems.documented(NotFound, RoleMissing))
def show_balance(
    installation: CurrentInstallation,
    caller: Caller,
    account: str,
    scope: Annotated[_ScopeText, Query(description='Cells of a dataset as JSON: `{"shard": [0, 1]}`')] = None,
) -> AccountBalance:
    """Show the balance of a dataset (id or name) at the tightest joint cell of a scope, or of a population (id)."""
    return balances.show_balance(installation, caller, account, scope=_scope(scope))


@router.get("/{account}/entries", operation_id="list_entries", responses=problems.documented(NotFound, RoleMissing))
def list_entries(
    installation: CurrentInstallation,
    caller: Caller,
    account: str,
    page: Page,
    search: Annotated[Search, Depends(_search)],
) -> EntryList:
    """List the entries of an account in order, with their events, exactly as they were hashed."""
    return history.list_entries(installation, caller, account, page, search)


@router.get(
    "/{account}/export",
    operation_id="export_ledger",
    response_class=StreamingResponse,
    responses={**_EXPORT, **problems.documented(NotFound, RoleMissing)},
)
@limited(work=Work.EXPORT)
def export_ledger(
    request: Request,
    installation: CurrentInstallation,
    caller: Caller,
    account: str,
    form: Annotated[Literal["jsonl", "csv"], Query(alias="format")] = "jsonl",
) -> StreamingResponse:
    """Export the whole history of an account, for `grovekeeper verify` (JSON Lines) or for a spreadsheet (CSV)."""
    if form == "csv":
        lines, media_type = history.export_csv(installation, caller, account), "text/csv"
    else:
        lines, media_type = history.export_json_lines(installation, caller, account), "application/x-ndjson"
    return StreamingResponse(capacities(request).iterate(Work.EXPORT, lines), media_type=media_type)


@router.post(
    "/{account}/cap",
    operation_id="change_cap",
    response_model=ChangedCap,
    responses=problems.documented(
        NotFound, RoleMissing, DatasetDeleted, BalanceMismatch, *problems.JSON_BODY, *problems.REPEATABLE
    ),
)
def change_cap(
    installation: CurrentInstallation, caller: Caller, account: str, body: CapIn, request: OptionalIdempotency
) -> Response:
    """Lower the lifetime cap (the owner, or the key that opened the population) or raise it (an admin).

    The entries record the reason. Charges stay.
    """
    return sent(caps.change_cap(installation, caller, account, body, request=request))
