"""Serves the report of an account: a first page in plain words to sign, and an annex
after the questions of NIST SP 800-226.
"""

from datetime import date
from typing import Annotated, Any

from fastapi import Query, Response

from app.api.capacity import Work
from app.api.pages.ledger import account_unit
from app.api.pages.rendering import Visit, Visitor
from app.api.pages.words import act_in_words
from app.api.requests import KeptHeads, Router, limited
from app.core import limits, stamps
from app.ledger.tables import EntryKind
from app.services import keys, populations
from app.services.ledger import audit, balances, history, spend_history
from app.services.ledger.evidence import show_deployment, verify_ledger
from app.services.pagination import PageRequest

report_pages = Router(prefix="/ui/ledger")

_CHANGES = {
    "dataset": (EntryKind.OPEN, EntryKind.LOAD, EntryKind.CAP),
    "population": (EntryKind.OPEN, EntryKind.JOIN, EntryKind.CAP),
}
"""Kinds of entries that change what an account promises, by kind of the account."""

_ERASURES_AND_REFUSALS = frozenset(
    {"unit-erased", "upload-erased", "dataset-deleted", "job-rejected"}
)
_WHOLE_PAGE = PageRequest(limit=limits.MAX_PAGE_SIZE)


@report_pages.get("/{account}/report")
@limited(work=Work.EXPORT)
def show_report(
    visit: Visitor,
    heads: KeptHeads,
    account: str,
    since: Annotated[date | None, Query()] = None,
) -> Response:
    """Show what an account promises, spent and released, and let the verifier check it.

    The first page lists releases, erasures and refusals from a day on, such as that of
    the last report.
    """
    # kept as the service's own, which the balance below states
    verification = verify_ledger(*visit.by, account, signer=heads.signer)
    deployment = show_deployment(*visit.by, account, signer=heads.signer)
    balance = balances.show_balance(*visit.by, account, scope={})
    of_kind: dict[str, Any] = {"spent": None, "population": None}
    if balance.kind == "population":  # its members are charged, and have owners
        of_kind["population"] = populations.show_population(*visit.by, balance.account)
    else:
        of_kind |= _of_dataset(visit, balance.account, since)
    changes = history.Search(kinds=_CHANGES[balance.kind])
    return visit.page(
        "report",
        balance=balance.model_dump(),
        unit=account_unit(visit, balance.account, kind=balance.kind),
        deployment=deployment,
        record=deployment.record["deployment"],
        changes=history.search_entries(*visit.by, account, changes, _WHOLE_PAGE),
        verification=verification,
        since=since,
        now=stamps.to_text(stamps.now()),
        **of_kind,
    )


def _of_dataset(visit: Visit, dataset: str, since: date | None) -> dict[str, Any]:
    """What the first page lists of a dataset from a day on: charges, keys with roles,
    erasures and refusals.
    """
    first_day = "" if since is None else since.isoformat()
    spent = spend_history.list_charges(*visit.by, dataset)
    found = audit.search_acts(*visit.by, audit.ActSearch(dataset=dataset), _WHOLE_PAGE)
    acts = []
    for act in found.acts:
        if act.kind in _ERASURES_AND_REFUSALS and act.at >= first_day:
            acts.append((act, act_in_words(act, found.names, found.caps)))
    grants = keys.list_grants(*visit.by, dataset, _WHOLE_PAGE)
    return {
        "spent": spent,
        "charges": [charge for charge in spent.charges if charge.at >= first_day],
        "access": [grant for grant in grants.grants if grant.revoked_at is None],
        "are_all_keys": grants.next is None,
        "acts": acts,
        "names": found.names,
        "are_all_acts": found.next is None,
    }
