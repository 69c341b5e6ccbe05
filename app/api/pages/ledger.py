"""Serves the pages of accounts: the list, one account with its entries and evidence, its report, and populations.

An entry has a page, too. The auditor's report is one page to print, organised after the questions of NIST SP 800-226.
"""

import json
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import Field

from app.access.grants import Principal
from app.api.capacity import Work, capacities
from app.api.pages.forms import Form, PageRoute, SearchForm, checked, submitted
from app.api.pages.rendering import rendered, rendered_with
from app.api.pages.words import unit_of
from app.api.requests import Caller, CurrentInstallation, KeptHeads, Page, limited
from app.core import limits, stamps
from app.core.errors import GrovekeeperError, RoleMissing
from app.ledger.tables import EntryKind
from app.services import populations
from app.services.datasets import show
from app.services.installation import Installation
from app.services.ledger import balances, charges, evidence, history
from app.services.ledger.charges import Spend
from app.services.ledger.evidence import show_deployment, verify_ledger
from app.services.ledger.history import EVERY_ENTRY, Search
from app.services.pages import PageRequest
from app.wire.datasets import PopulationIn
from app.wire.ledger import AccountBalance, AccountEntryKind, CapIn

ledger_pages = APIRouter(prefix="/ui/ledger", route_class=PageRoute)

_KINDS = {
    "dataset": ("open", "load", "reserve", "charge", "void", "expire", "cap", "state"),
    "population": ("open", "join", "load", "cap", "state"),
}
"""Kinds of entries, by kind of the account."""


@ledger_pages.get("")
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


@ledger_pages.get("/{account}")
def show_account(
    request: Request,
    installation: CurrentInstallation,
    caller: Caller,
    account: str,
    fields: Annotated[SearchFields, Query()],
) -> Response:
    """Show the entries of an account, newest first, its cap and guarantee, and how to verify them."""
    return _account(request, installation, caller, account, fields)


@ledger_pages.post("/{account}/cap")
async def change_cap(request: Request, installation: CurrentInstallation, caller: Caller, account: str) -> Response:
    """Lower or raise the cap of an account."""

    def act(form: Form) -> str:
        body = checked(CapIn, {name: form.get(name, "").strip() for name in ("cap", "reason")})
        balances.change_cap(installation, caller, account, body, request=None)
        return f"/ui/ledger/{account}"

    def refused(refusal: GrovekeeperError) -> Response:
        return _account(request, installation, caller, account, SearchFields(), refusal=refusal)

    return await submitted(request, act, refused)


@ledger_pages.get("/{account}/entries/{sequence}")
def show_entry(
    request: Request, installation: CurrentInstallation, caller: Caller, account: str, sequence: int
) -> Response:
    """Show one entry in words and as it was hashed."""
    shown = history.show_entry(installation, caller, account, sequence)
    balance = balances.show_balance(installation, caller, account, scope={}).model_dump()
    fields = shown.entry.model_dump()
    text = json.dumps(fields, indent=2, ensure_ascii=False)
    return rendered(request, "entry", balance=balance, shown=shown, entry=fields, text=text)


@ledger_pages.get("/{account}/export")
@limited(work=Work.EXPORT)
def export(request: Request, installation: CurrentInstallation, caller: Caller, account: str) -> StreamingResponse:
    """Download the whole history of an account for the verifier."""
    lines = history.export_json_lines(installation, caller, account)
    return StreamingResponse(
        capacities(request).iterate(Work.EXPORT, lines),
        media_type="application/x-ndjson",
        headers={"Content-Disposition": 'attachment; filename="ledger.jsonl"'},
    )


@ledger_pages.get("/{account}/checkpoint")
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
        may_change_cap=balances.may_change_cap(installation, caller, account),
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


report_pages = APIRouter(prefix="/ui/ledger/{account}/report", route_class=PageRoute)

_CHANGES = {
    "dataset": (EntryKind.OPEN, EntryKind.LOAD, EntryKind.CAP),
    "population": (EntryKind.OPEN, EntryKind.JOIN, EntryKind.CAP),
}
"""Kinds of entries that change what an account promises, by kind of the account."""


@report_pages.get("")
@limited(work=Work.EXPORT)
def show_report(
    request: Request, installation: CurrentInstallation, caller: Caller, heads: KeptHeads, account: str
) -> Response:
    """Show what an account promises, spent and released, and let the verifier check it."""
    deployment = show_deployment(installation, caller, account, signer=heads.signer)
    balance = balances.show_balance(installation, caller, account, scope={})
    page = PageRequest(limit=limits.MAX_PAGE_SIZE)
    changes = history.search_entries(installation, caller, account, Search(kinds=_CHANGES[balance.kind]), page)
    is_population = balance.kind == "population"
    return rendered(
        request,
        "report",
        balance=balance.model_dump(),
        unit=unit_of_account(installation, caller, balance.account, kind=balance.kind),
        deployment=deployment,
        record=deployment.record["deployment"],
        changes=changes,
        spent=_charges(installation, caller, balance),
        population=populations.show_population(installation, caller, balance.account) if is_population else None,
        verification=verify_ledger(installation, caller, account, signer=heads.signer),
        now=stamps.to_text(stamps.now()),
    )


def _charges(installation: Installation, caller: Principal, balance: AccountBalance) -> Spend | None:
    """The charges of a dataset. A population is not charged itself: its members are."""
    return None if balance.kind == "population" else charges.list_charges(installation, caller, balance.account)


population_pages = APIRouter(prefix="/ui/populations", route_class=PageRoute)


@population_pages.get("")
def list_populations(request: Request, installation: CurrentInstallation, caller: Caller, page: Page) -> Response:
    """Show the populations that the key opened, with their members; all populations for admins and auditors."""
    return _population_page(request, installation, caller, page)


@population_pages.post("")
async def open_population(request: Request, installation: CurrentInstallation, caller: Caller) -> Response:
    """Open a population with a budget."""

    def act(form: Form) -> str:
        budget = {name: form.get(name, "").strip() for name in ("accountant", "epsilon", "delta")}
        body = {
            "name": form.get("name", "").strip(),
            "budget": {name: text for name, text in budget.items() if text},
        }
        populations.open_population(installation, caller, checked(PopulationIn, body), request=None)
        return "/ui/populations"

    return await submitted(
        request, act, lambda refusal: _population_page(request, installation, caller, refusal=refusal)
    )


def _population_page(
    request: Request,
    installation: Installation,
    caller: Principal,
    page: PageRequest | None = None,
    *,
    refusal: GrovekeeperError | None = None,
) -> Response:
    listed = populations.list_populations(installation, caller, page or PageRequest())
    return rendered_with(
        request,
        "populations",
        refusal,
        populations=[population.model_dump() for population in listed.populations],
        following=listed.next,
    )
