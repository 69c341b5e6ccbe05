"""Serves the pages of accounts: the list, one account with its entries and evidence,
and an entry.
"""

import json
from decimal import Decimal
from typing import Annotated, Literal, get_args

from fastapi import Query, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from app.access.grants import SEE_LEDGER
from app.api.capacity import Work
from app.api.pages import ledger_view
from app.api.pages.dataset_view import tabs_of, unit_of_dataset
from app.api.pages.forms import Form, acts, cap_field, checked, identity, typed
from app.api.pages.rendering import Visit, Visitor, as_file, if_permitted
from app.api.pages.views import neighbours
from app.api.requests import KeptHeads, Page, Router, limited
from app.api.streams import exported
from app.core import limits
from app.core.errors import InvalidRequest, RoleMissing
from app.ledger.tables import EntryKind
from app.services import populations
from app.services.authorization import has_role
from app.services.jobs import show_jobs
from app.services.ledger import balances, evidence, history, spent
from app.services.pagination import PageRequest
from app.wire.base import Reference
from app.wire.ledger import AccountEntryKind, CapIn, SpentBy

ledger_pages = Router(prefix="/ui/ledger")

_KINDS = {
    "dataset": ("open", "load", "reserve", "charge", "void", "expire", "cap", "state"),
    "population": ("open", "join", "load", "cap", "state"),
}
"""Kinds of entries, by kind of the account."""


@ledger_pages.get("")
def list_accounts(visit: Visitor, page: Page) -> Response:
    """Show the balance of every account whose ledger the key may read."""
    try:
        listed = balances.list_balances(*visit.by, page)
    except RoleMissing as refusal:
        return visit.refused(refusal).page(
            "accounts", accounts=[], populations=[], following=None
        )
    shared = if_permitted(
        lambda: populations.list_populations(*visit.by, PageRequest()).populations
    )
    return visit.page(
        "accounts",
        accounts=[account.model_dump() for account in listed.datasets],
        populations=[population.model_dump() for population in shared or ()],
        following=listed.next,
    )


class SearchFields(BaseModel):
    """The fields of the form that searches entries; ``cell`` is a text like
    ``region=EU``.
    """

    kind: AccountEntryKind | Literal[""] = ""
    job: Reference = ""
    key: Reference = ""
    cell: Annotated[str, Field(max_length=limits.MAX_CELL_CHARS)] = ""
    purpose: Annotated[str, Field(max_length=limits.MAX_SENTENCE_CHARS)] = ""


@ledger_pages.get("/{account}")
def show_account(
    visit: Visitor, account: str, page: Page, fields: Annotated[SearchFields, Query()]
) -> Response:
    """Show the entries of an account, newest first, its cap and guarantee, and how to
    verify them; to an analyst the entries of what her key submitted.
    """
    balance = balances.show_balance(*visit.by, account, scope={}).model_dump()
    scopes = {}
    for part in balance["partitions"]:
        name = part["name"]
        for cell in part["cells"]:
            scopes[f"{name}={cell['cell']}"] = {name: [cell["cell"]]}
    if fields.cell and fields.cell not in scopes:
        raise InvalidRequest.at("/cell", "unknown-cell")
    search = history.Search(
        kinds=[EntryKind(fields.kind)] if fields.kind else None,
        job_id=fields.job.strip() or None,
        actor=fields.key.strip() or None,
        scope=scopes.get(fields.cell),
        purpose=fields.purpose.strip() or None,
    )
    entries = history.search_entries(*visit.by, account, search, page)
    kind = balance["kind"]
    members = _members(visit, account) if kind == "population" else {}
    return visit.page(
        "ledger",
        balance=balance,
        dataset_parts=tabs_of(visit, balance["account"], "Ledger")
        if kind == "dataset"
        else [],
        unit=account_unit(visit, balance["account"], kind=kind),
        table_of_entries=ledger_view.entry_table(entries, kind, members),
        numbers=ledger_view.NUMBERS,
        names=entries.names,
        following=entries.next,
        cells=list(scopes),
        kinds=_KINDS[kind],
        fields=fields,
        searched=fields.model_dump(),
        is_searched=search != history.EVERY_ENTRY,
        may_change_cap=balances.may_change_cap(*visit.by, account),
        reads_all=kind == "population" or has_role(*visit.by, account, SEE_LEDGER),
    )


@acts(
    ledger_pages,
    "/{account}/cap",
    lambda refused, account: show_account(
        refused, account, PageRequest(), SearchFields()
    ),
)
def change_cap(visit: Visit, form: Form, account: str) -> str:
    """Lower or raise the cap of an account."""
    unit = cap_field(form, typed(form, "accountant"), "cap")
    body = checked(CapIn, {unit: typed(form, "cap"), "reason": typed(form, "reason")})
    balances.change_cap(*visit.by, account, body, request=identity(visit, form))
    return f"/ui/ledger/{account}"


@ledger_pages.get("/{account}/entries/{sequence}")
def show_entry(visit: Visitor, account: str, sequence: int) -> Response:
    """Show one entry in words and as it was hashed."""
    shown = history.show_entry(*visit.by, account, sequence)
    balance = balances.show_balance(*visit.by, account, scope={}).model_dump()
    fields = shown.entry.model_dump()
    text = json.dumps(fields, indent=2, ensure_ascii=False)
    ended = None
    if fields["kind"] == EntryKind.EXPIRE:
        ended = _reason_of(visit, fields["job_id"])
    return visit.page(
        "entry",
        balance=balance,
        shown=shown,
        entry=fields,
        purpose=ledger_view.details_of(shown.entry).get("purpose"),
        neighbours=neighbours(sequence, shown.size),
        text=text,
        ended=ended,
    )


@ledger_pages.get("/{account}/spent")
def show_spent(
    visit: Visitor,
    account: str,
    by: SpentBy = "key",
    key: Reference = "",
) -> Response:
    """Show what was charged by key, purpose, both, kind, month or cell."""
    key = key.strip()
    shown = spent.show_spent(*visit.by, account, by=by, actor=key or None)
    counted = [] if by == "cell" else ["Charges"]
    columns = [*counted, "Charged", "Share"]
    charged = Decimal(shown.charged) + Decimal(shown.carried)
    return visit.page(
        "spent",
        shown=shown,
        groupings=get_args(SpentBy),
        columns=columns,
        key=key,
        is_more=charged > Decimal(shown.spent),
    )


def _reason_of(visit: Visit, job_id: str) -> str | None:
    """The reason with which a job ended, as the job's row has it."""
    job = if_permitted(lambda: show_jobs.show_job(*visit.by, job_id))
    return None if job is None else job.reason


@ledger_pages.get("/{account}/export")
@limited(work=Work.EXPORT)
def export(visit: Visitor, account: str) -> Response:
    """Download the whole history of an account for the verifier."""
    return exported(
        visit.request, history.export_json_lines(*visit.by, account), "ledger.jsonl"
    )


@ledger_pages.get("/{account}/checkpoint")
def checkpoint(visit: Visitor, heads: KeptHeads, account: str) -> Response:
    """Download the signed head of an account."""
    note = evidence.show_checkpoint(*visit.by, account, signer=heads.signer)
    return as_file(PlainTextResponse(note), "checkpoint.txt")


def account_unit(visit: Visit, account: str, *, kind: str) -> str:
    """What the guarantee of an account protects. Members of a population may protect
    different units.
    """
    if kind == "population":
        return "privacy unit"
    return unit_of_dataset(visit, account)


def _members(visit: Visit, population: str) -> dict[str, str]:
    """The names of a population's members, by id."""
    listed = populations.show_population(*visit.by, population).members
    return {member.dataset: member.dataset_name for member in listed}
