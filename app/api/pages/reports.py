"""Serves the auditor's report of an account: one page to print, organised after the questions of NIST SP 800-226."""

from fastapi import APIRouter, Request, Response

from app.access.grants import Principal
from app.api.capacity import Work
from app.api.pages.ledger import unit_of_account
from app.api.pages.rendering import rendered
from app.api.pages.routing import PageRoute
from app.api.requests import Caller, CurrentInstallation, KeptHeads, limited
from app.core import limits, stamps
from app.ledger.entries import EntryKind
from app.services import populations
from app.services.installation import Installation
from app.services.ledger import balances, history, spend
from app.services.ledger.deployment import show_deployment
from app.services.ledger.evidence import verify_ledger
from app.services.ledger.history import Search
from app.services.ledger.spend import Spend
from app.services.pages import PageRequest
from app.wire.ledger import AccountBalance

router = APIRouter(prefix="/ui/ledger/{account}/report", route_class=PageRoute)

_CHANGES = {
    "dataset": (EntryKind.OPEN, EntryKind.LOAD, EntryKind.CAP),
    "population": (EntryKind.OPEN, EntryKind.JOIN, EntryKind.CAP),
}
"""Kinds of entries that change what an account promises, by kind of the account."""


@router.get("")
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
    return None if balance.kind == "population" else spend.list_charges(installation, caller, balance.account)
