"""``/ledger``: balances, entries, exports, caps."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from app.access.roles import Principal
from app.api import exact_json, problems
from app.api.deps import Caller, Here, OptionalIdempotency, Page, sent
from app.api.exact_json import ExactRoute
from app.core.errors import (
    DatasetDeleted,
    InvalidRequest,
    MalformedRequest,
    NotFound,
    RoleMissing,
)
from app.services.installation import Installation
from app.services.ledger import history
from app.services.ledger.change_cap import change_cap as change
from app.services.ledger.readable_accounts import Readable, of_dataset
from app.wire.ledger import BalanceList, BalanceOut, CapIn, DatasetBalance, EntryList

router = APIRouter(prefix="/ledger", tags=["ledger"], route_class=ExactRoute)

Form = Annotated[Literal["jsonl", "csv"], Query(alias="format")]
EXPORTED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A header line, then every entry.",
        "content": {"application/x-ndjson": {}, "text/csv": {}},
    }
}
"""What an export answers."""


@router.get("", operation_id="list_balances", responses=problems.documented(RoleMissing))
def list_balances(here: Here, caller: Caller, page: Page) -> BalanceList:
    """Cap, charged, reserved and remaining of every dataset whose ledger the key may read."""
    return history.list_balances(here, caller, page)


@router.get("/{dataset}", operation_id="show_balance", responses=problems.documented(NotFound, RoleMissing))
def show_balance(
    here: Here,
    caller: Caller,
    dataset: str,
    scope: Annotated[str | None, Query(max_length=65_536, description='A box as JSON: `{"shard": [0, 1]}`')] = None,
) -> DatasetBalance:
    """The balance of the tightest joint cell, of the whole dataset or of a box."""
    return history.show_balance(here, caller, dataset, scope=_scope(scope))


@router.get("/{dataset}/entries", operation_id="list_entries", responses=problems.documented(NotFound, RoleMissing))
def list_entries(here: Here, caller: Caller, dataset: str, page: Page) -> EntryList:
    """The history: every entry with its event, in order, as it was hashed."""
    return history.list_entries(here, caller, dataset, page)


@router.get(
    "/{dataset}/export",
    operation_id="export_ledger",
    response_class=StreamingResponse,
    responses={**EXPORTED, **problems.documented(NotFound, RoleMissing)},
)
def export_ledger(here: Here, caller: Caller, dataset: str, form: Form = "jsonl") -> StreamingResponse:
    """The whole history, for `grovekeeper verify` (JSON Lines) or for a spreadsheet (CSV)."""
    return exported(here, caller, dataset, form=form, readable=of_dataset)


@router.post(
    "/{dataset}/cap",
    operation_id="change_cap",
    response_model=BalanceOut,
    responses=problems.documented(NotFound, RoleMissing, DatasetDeleted, *problems.JSON_BODY, *problems.REPEATABLE),
)
def change_cap(here: Here, caller: Caller, dataset: str, body: CapIn, request: OptionalIdempotency) -> Response:
    """Lowers the lifetime cap (the owner) or raises it (an admin), with a reason. What was spent stays spent."""
    return sent(change(here, caller, dataset, body, request=request))


def exported(
    here: Installation, caller: Principal, reference: str, *, form: Literal["jsonl", "csv"], readable: Readable
) -> StreamingResponse:
    """An account's history in one of the two forms."""
    if form == "csv":
        return StreamingResponse(history.export_csv(here, caller, reference, readable=readable), media_type="text/csv")
    lines = history.export_json_lines(here, caller, reference, readable=readable)
    return StreamingResponse(lines, media_type="application/x-ndjson")


def _scope(text: str | None) -> Mapping[str, object]:
    if text is None:
        return {}
    try:
        scope = exact_json.loads(text.encode("utf-8", "surrogatepass"))
    except MalformedRequest:
        raise InvalidRequest.at("/scope", "not-json") from None
    if not isinstance(scope, dict):
        raise InvalidRequest.at("/scope", "not-an-object")
    return scope
