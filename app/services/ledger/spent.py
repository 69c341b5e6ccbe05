"""Adds up the charges of a dataset's account by key, purpose, both, kind, month or
cell.

Voided and expired reservations were never charged, so they are in no sum. Charges on
disjoint cells compose in parallel: the sums of keys, purposes, kinds and months may
exceed what any record has spent, and the number of a cell is the most that one record
in it was charged.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest, nsmallest
from typing import Any

from sqlalchemy import func
from sqlalchemy.orm import Session

from app.access import grants
from app.core import limits
from app.datasets import catalog
from app.jobs.tables import JobRow
from app.ledger import statements, tables
from app.ledger.tables import EntryKind, EntryRow
from app.services.authorization import authorized_dataset
from app.services.installation import Installation
from app.services.ledger.balances import Account
from app.services.ledger.history import Search
from app.wire.ledger import SpentBy, SpentGroup, SpentOut
from grovekeeper_forests.privacy.scope import WHOLE

# the worker charges for the key that submitted the job
_KEY = func.coalesce(JobRow.submitted_by, EntryRow.actor)
_GROUPED: Mapping[SpentBy, Sequence[Any]] = {
    "key": [_KEY],
    "purpose": [EntryRow.details],
    "key,purpose": [_KEY, EntryRow.details],
    "kind": [JobRow.kind],
    "month": [func.substr(EntryRow.at, 1, len("2026-11"))],
    "cell": [EntryRow.scope],
}


@dataclass
class _Sums:
    """Sums of one account, in steps of its unit, by group.

    Attributes:
        carried: what the erased dataset had spent whose account goes on.
    """

    charged: Counter[Any] = field(default_factory=Counter)
    n_charges: Counter[Any] = field(default_factory=Counter)
    carried: int = 0


def show_spent(
    installation: Installation,
    principal: grants.Principal,
    reference: str,
    *,
    by: SpentBy,
    actor: str | None,
) -> SpentOut:
    """Adds up what the keys of a dataset charged; for an analyst, what her key charged.

    One statement reads the charges, and the database adds them up. It takes no lock.

    Args:
        actor: id or name of the only key whose charges count; ``None``: every key.

    Raises:
        InvalidRequest: the actor caused no entry, or its name stands for several keys.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, grants.SEE_BALANCE)
        account = Account(dataset)
        # An opening load is no act of a key.
        kinds = [EntryKind.CHARGE] if actor else [EntryKind.CHARGE, EntryKind.LOAD]
        search = Search(kinds=kinds, actor=actor)
        chosen = search.by_fields(session, principal, account)
        sums = _sums(session, dataset.id, chosen, by)
        balance = statements.balance(session, dataset.id)
        total = sums.charged.total() + sums.carried
        charged: Mapping[Any, int] = sums.charged
        if by == "cell":
            charged = _cells(session, dataset, sums)
        listed = _listed(charged, by)
        parts = {group: (group, None) for group in listed}
        if by == "key,purpose":
            parts = {group: group for group in listed}
        names = {}
        if by.startswith("key"):
            ids = {key for key, _ in parts.values()}
            names = grants.names_of_keys(session, principal, dataset.id, ids)
        groups = []
        for group, (shown, purpose) in parts.items():
            spent = SpentGroup(
                group=shown,
                name=names.get(shown),
                purpose=purpose,
                charges=sums.n_charges.get(group),
                charged=balance.text(charged[group]),
                share=charged[group] / total if total else 0.0,
            )
            groups.append(spent)
        return SpentOut.model_validate(
            {
                **account.facts,
                "unit": balance.unit,
                "by": by,
                "charged": balance.text(sums.charged.total()),
                "carried": balance.text(sums.carried),
                "spent": balance.text(balance.charged),
                "groups": groups,
                "n_groups": len(charged),
            }
        )


def _sums(
    session: Session, account_id: str, chosen: statements.EntryFilter, by: SpentBy
) -> _Sums:
    """Adds up entries by group; of cells, by the digest of the scope."""
    columns = _GROUPED[by]
    query = (
        statements.chosen_entries(account_id, chosen)
        .outerjoin(JobRow, JobRow.id == EntryRow.job_id)
        .with_only_columns(
            EntryRow.kind,
            *columns,
            func.count(),
            *tables.sum_in_halves(EntryRow.amount),
            maintain_column_froms=True,
        )
        .group_by(EntryRow.kind, *columns)
    )
    uploads = statements.named_uploads(session, account_id)
    sums = _Sums()
    # as a stream: as many purposes as charges may have been stated
    rows = session.execute(query.execution_options(yield_per=limits.MAX_SPENT_GROUPS))
    for kind, *values, n_charges, high, low in rows:
        amount = tables.sum_of_halves(high, low)
        if kind == EntryKind.LOAD:
            sums.carried += amount
            continue
        name = _name(by, values, uploads)
        sums.charged[name] += amount
        if by != "cell":
            sums.n_charges[name] += n_charges
    return sums


def _name(by: SpentBy, values: Sequence[Any], uploads: Sequence[str]) -> Any:
    value = values[-1]
    match by:
        case "purpose":
            return (value or {}).get("purpose")
        case "key,purpose":
            return str(values[0]), (value or {}).get("purpose")
        case "kind":
            return value or "external"
        case "cell":
            return tables.listed(value, uploads).digest
        case _:
            return str(value)


def _cells(session: Session, dataset: catalog.Dataset, sums: _Sums) -> dict[str, int]:
    """The most that one record in each cell was charged."""
    by_scope = sums.charged + Counter({WHOLE.digest: sums.carried})
    uploads = catalog.upload_ids(session, dataset.id)
    loads = statements.charged_by_cell(
        session, dataset.id, by_scope, dataset.narrowed(WHOLE, uploads)
    )
    return {
        f"{name}={cell.cell[name]}": cell.charged
        for name, cells in loads.items()
        for cell in cells
    }


def _listed(charged: Mapping[Any, int], by: SpentBy) -> list[Any]:
    """The groups that an answer lists: the largest first, months the newest first."""
    if by == "month":
        return nlargest(limits.MAX_SPENT_GROUPS, charged)
    # not sorted: a sort of many purposes would keep other threads waiting
    return nsmallest(
        limits.MAX_SPENT_GROUPS,
        charged,
        key=lambda group: (-charged[group], str(group or "")),
    )
