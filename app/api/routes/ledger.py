"""Defines the routes of balances, entries and caps."""

from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from app.api.capacity import Work
from app.api.requests import (
    By,
    OptionalIdempotency,
    Page,
    Router,
    limited,
    raises,
    sent,
)
from app.api.streams import exported
from app.core import json_text, limits
from app.core.errors import (
    BalanceMismatch,
    DatasetDeleted,
    InvalidRequest,
    MalformedRequest,
    RoleMissing,
    TooLarge,
)
from app.ledger.tables import EntryKind
from app.services.ledger import balances, history, spent
from app.wire.ledger import (
    AccountBalance,
    AccountEntryKind,
    BalanceList,
    CapIn,
    ChangedCap,
    EntryList,
    SpentBy,
    SpentOut,
)
from grovekeeper_common.json_types import JsonObject

ledger_routes = Router(prefix="/ledger", tags=["ledger"])


_Id = Annotated[str | None, Query(max_length=limits.MAX_REFERENCE_CHARS)]


_Purpose = Annotated[str | None, Query(max_length=limits.MAX_SENTENCE_CHARS)]


_ScopeText = Annotated[str | None, Query(max_length=limits.MAX_SCOPE_CHARS)]


_EXPORT: dict[int | str, JsonObject] = {
    200: {
        "description": "A header line, then every entry.",
        "content": {"application/x-ndjson": {}, "text/csv": {}},
    }
}


def _scope(text: str | None) -> Mapping[str, object]:
    if text is None:
        return {}
    try:
        scope = json_text.loads_exactly(
            text.encode("utf-8", "surrogatepass"), max_nodes=limits.MAX_JSON_BODY_NODES
        )
    except MalformedRequest:
        raise InvalidRequest.at("/scope", "not-json") from None
    except TooLarge:
        raise InvalidRequest.at("/scope", "too-many") from None
    if not isinstance(scope, dict):
        raise InvalidRequest.at("/scope", "not-an-object")
    return scope


def _search(
    kind: AccountEntryKind | None = None,
    job: _Id = None,
    actor: _Id = None,
    scope: _ScopeText = None,
    purpose: _Purpose = None,
) -> history.Search:
    """The entries that a request asks for; all of them without a parameter."""
    kinds = None if kind is None else [EntryKind(kind)]
    return history.Search(kinds, job, actor, _scope(scope), purpose)


@ledger_routes.get("")
@raises(RoleMissing)
def list_balances(by: By, page: Page) -> BalanceList:
    """List cap, charged, reserved and remaining of every dataset whose ledger the key
    may read.
    """
    return balances.list_balances(*by, page)


@ledger_routes.get("/{account}")
def show_balance(
    by: By,
    account: str,
    scope: _ScopeText = None,
) -> AccountBalance:
    """Show the balance of a dataset (id or name) at the tightest joint cell of a scope,
    or of a population (id).
    """
    return balances.show_balance(*by, account, scope=_scope(scope))


@ledger_routes.get("/{account}/entries")
def list_entries(
    by: By,
    account: str,
    page: Page,
    search: Annotated[history.Search, Depends(_search)],
) -> EntryList:
    """List the entries of an account in order, with their events, exactly as they were
    hashed. An analyst reads those of what the own key submitted.
    """
    return history.list_entries(*by, account, page, search)


@ledger_routes.get("/{dataset}/spent")
def show_spent(
    by: By,
    dataset: str,
    grouped: Annotated[SpentBy, Query(alias="by")] = "key",
    actor: _Id = None,
) -> SpentOut:
    """Add up the charges of a dataset by key, purpose, kind, month or cell. An analyst
    reads the charges of the own key.

    Charges on disjoint cells compose in parallel, so their sum may exceed what was
    spent.
    """
    return spent.show_spent(*by, dataset, by=grouped, actor=actor)


@ledger_routes.get(
    "/{account}/export", response_class=StreamingResponse, responses={**_EXPORT}
)
@limited(work=Work.EXPORT)
def export_ledger(
    request: Request,
    by: By,
    account: str,
    form: Annotated[Literal["jsonl", "csv"], Query(alias="format")] = "jsonl",
) -> StreamingResponse:
    """Export the whole history of an account, for `grovekeeper verify` (JSON Lines) or
    for a spreadsheet (CSV).
    """
    if form == "csv":
        return exported(
            request,
            history.export_csv(*by, account),
            "ledger.csv",
            media_type="text/csv",
        )
    return exported(request, history.export_json_lines(*by, account), "ledger.jsonl")


@ledger_routes.post(
    "/{account}/cap",
    response_model=ChangedCap,
)
@raises(DatasetDeleted, BalanceMismatch)
def change_cap(
    by: By, account: str, body: CapIn, request: OptionalIdempotency
) -> Response:
    """Lower the lifetime cap (the owner, or the key that opened the population) or
    raise it (an admin).

    The entries record the reason. Charges stay.
    """
    return sent(balances.change_cap(*by, account, body, request=request))


Count = Annotated[int | None, Query(ge=1, le=2**53 - 1)]
