"""Serves the pages of ledgers: all accounts, the entries of one account with its evidence, and one entry."""

import json
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import Field

from app.access.grants import Principal
from app.api.capacity import Work, capacities
from app.api.pages.forms import Form, SearchForm, checked, submitted
from app.api.pages.refusals import rendered_with
from app.api.pages.rendering import rendered
from app.api.pages.routing import PageRoute
from app.api.pages.words import unit_of
from app.api.requests import Caller, CurrentInstallation, KeptHeads, Page, limited
from app.core import limits
from app.core.errors import GrovekeeperError, RoleMissing
from app.ledger.entries import EntryKind
from app.services import populations
from app.services.datasets import show
from app.services.installation import Installation
from app.services.ledger import balances, caps, evidence, history
from app.services.ledger.history import EVERY_ENTRY, Search
from app.services.pages import PageRequest
from app.wire.ledger import AccountEntryKind, CapIn

router = APIRouter(prefix="/ui/ledger", route_class=PageRoute)

_KINDS = {
    "dataset": ("open", "load", "reserve", "charge", "void", "expire", "cap", "state"),
    "population": ("open", "join", "load", "cap", "state"),
}
"""Kinds of entries, by kind of the account."""


@router.get("")
def list_accounts(request: Request, installation: CurrentInstallation, caller: Caller, page: Page) -> Response:
    """Show the balance of every account whose ledger the key may read."""
    try:
        listed = balances.list_balances(installation, caller, page)
    except RoleMissing as refusal:
        return rendered_with(request, "accounts", refusal, accounts=[], populations=[], following=None)
    try:
        shared = populations.list_populations(installation, caller, PageRequest()).populations
    except RoleMissing:
        shared = []
    return rendered_with(
        request,
        "accounts",
        None,
        accounts=[account.model_dump() for account in listed.datasets],
        populations=[population.model_dump() for population in shared],
        following=listed.next,
    )


class SearchFields(SearchForm):
    """The fields of the form that searches entries; ``cell`` is a text like ``region=EU``."""

    kind: AccountEntryKind | Literal[""] = ""
    job: Annotated[str, Field(max_length=limits.MAX_REFERENCE_CHARS)] = ""
    key: Annotated[str, Field(max_length=limits.MAX_REFERENCE_CHARS)] = ""
    cell: Annotated[str, Field(max_length=4_096)] = ""


@router.get("/{account}")
def show_account(
    request: Request,
    installation: CurrentInstallation,
    caller: Caller,
    account: str,
    fields: Annotated[SearchFields, Query()],
) -> Response:
    """Show the entries of an account, newest first, its cap and guarantee, and how to verify them."""
    return _account(request, installation, caller, account, fields)


@router.post("/{account}/cap")
async def change_cap(request: Request, installation: CurrentInstallation, caller: Caller, account: str) -> Response:
    """Lower or raise the cap of an account."""

    def act(form: Form) -> str:
        body = checked(CapIn, {name: form.get(name, "").strip() for name in ("cap", "reason")})
        caps.change_cap(installation, caller, account, body, request=None)
        return f"/ui/ledger/{account}"

    def refused(refusal: GrovekeeperError) -> Response:
        return _account(request, installation, caller, account, SearchFields(), refusal=refusal)

    return await submitted(request, act, refused)


@router.get("/{account}/entries/{sequence}")
def show_entry(
    request: Request, installation: CurrentInstallation, caller: Caller, account: str, sequence: int
) -> Response:
    """Show one entry in words and as it was hashed."""
    shown = history.show_entry(installation, caller, account, sequence)
    balance = balances.show_balance(installation, caller, account, scope={}).model_dump()
    fields = shown.entry.model_dump()
    text = json.dumps(fields, indent=2, ensure_ascii=False)
    return rendered(request, "entry", balance=balance, shown=shown, entry=fields, text=text)


@router.get("/{account}/export")
@limited(work=Work.EXPORT)
def export(request: Request, installation: CurrentInstallation, caller: Caller, account: str) -> StreamingResponse:
    """Download the whole history of an account for the verifier."""
    lines = history.export_json_lines(installation, caller, account)
    return StreamingResponse(
        capacities(request).iterate(Work.EXPORT, lines),
        media_type="application/x-ndjson",
        headers={"Content-Disposition": 'attachment; filename="ledger.jsonl"'},
    )


@router.get("/{account}/checkpoint")
def checkpoint(installation: CurrentInstallation, caller: Caller, heads: KeptHeads, account: str) -> PlainTextResponse:
    """Download the signed head of an account."""
    return PlainTextResponse(
        evidence.show_checkpoint(installation, caller, account, signer=heads.signer),
        headers={"Content-Disposition": 'attachment; filename="checkpoint.txt"'},
    )


def _account(
    request: Request,
    installation: Installation,
    caller: Principal,
    account: str,
    fields: SearchFields,
    *,
    refusal: GrovekeeperError | None = None,
) -> Response:
    balance = balances.show_balance(installation, caller, account, scope={}).model_dump()
    cells = {f"{part['name']}={cell['cell']}": (part, cell) for part in balance["partitions"] for cell in part["cells"]}
    chosen = cells.get(fields.cell)
    search = Search(
        kinds=[EntryKind(fields.kind)] if fields.kind else None,
        job_id=fields.job.strip() or None,
        actor=fields.key.strip() or None,
        scope=None if chosen is None else {chosen[0]["name"]: [chosen[1]["cell"]]},
    )
    return rendered_with(
        request,
        "ledger",
        refusal,
        balance=balance,
        unit=unit_of_account(installation, caller, balance["account"], kind=balance["kind"]),
        entries=history.search_entries(installation, caller, account, search, fields.page),
        cells=list(cells),
        kinds=_KINDS[balance["kind"]],
        members=_members(installation, caller, account) if balance["kind"] == "population" else {},
        fields=fields,
        is_searched=search != EVERY_ENTRY,
        may_change_cap=caps.may_change_cap(installation, caller, account),
    )


def unit_of_account(installation: Installation, caller: Principal, account: str, *, kind: str) -> str:
    """What the guarantee of an account protects. Members of a population may protect different units."""
    if kind == "population":
        return "privacy unit"
    return unit_of(show.show_dataset(installation, caller, account))


def _members(installation: Installation, caller: Principal, population: str) -> dict[str, str]:
    """The names of a population's members, by id."""
    listed = populations.show_population(installation, caller, population).members
    return {member.dataset: member.dataset_name for member in listed}
