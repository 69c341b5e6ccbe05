"""Serves the pages of ledgers: all accounts, and the entries of one account with its evidence."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from app.api.bodies import limited
from app.api.capacity import Work, capacities
from app.api.deps import Caller, CurrentInstallation, KeptHeads, Page
from app.api.pages import pictures, words
from app.api.pages.rendering import rendered
from app.api.pages.routing import PageRoute
from app.core.errors import RoleMissing
from app.services import populations
from app.services.ledger import balances, evidence, history
from app.services.pages import PageRequest

router = APIRouter(prefix="/ui/ledger", route_class=PageRoute)


@router.get("")
def list_accounts(request: Request, installation: CurrentInstallation, caller: Caller, page: Page) -> Response:
    """Show the balance of every account whose ledger the key may read."""
    listed = balances.list_balances(installation, caller, page)
    try:
        shared = populations.list_populations(installation, caller, PageRequest()).populations
    except RoleMissing:
        shared = []
    return rendered(
        request,
        "accounts",
        accounts=[account.model_dump() for account in listed.datasets],
        populations=[population.model_dump() for population in shared],
        following=listed.next,
    )


@router.get("/{account}")
def show_account(
    request: Request, installation: CurrentInstallation, caller: Caller, account: str, page: Page
) -> Response:
    """Show the entries of an account in order, its guarantee, and how to verify them."""
    listed = history.list_entries(installation, caller, account, page)
    entries = [entry.model_dump() for entry in listed.entries]
    balance = balances.show_balance(installation, caller, account, scope={}).model_dump()
    symbol = words.SYMBOLS[balance["unit"]]
    charged = [
        (entry["amount"], f"{entry['amount']} {symbol}, {entry['job_id']}, {entry['actor']}, {entry['at']}")
        for entry in entries
        if entry["kind"] == "charge"
    ]
    plot = pictures.charges(charged, label=f"{len(charged)} charges on this page, oldest first") if charged else None
    return rendered(request, "ledger", balance=balance, entries=entries, plot=plot, following=listed.next)


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
