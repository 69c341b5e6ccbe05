"""``/ledger``: balances, history and exports, for those who check."""

import csv
import io
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import rfc8785

from app.access import grants
from app.access.roles import SEE_BALANCE, SEE_LEDGER, Principal, Role
from app.core.errors import RoleMissing
from app.datasets import catalog
from app.ledger import external
from app.ledger import service as ledger
from app.ledger.admission import CellBalance
from app.ledger.entries import Entry
from app.privacy.composition import Cell
from app.services.authorization import permitted
from app.services.guarantees import account_guarantee
from app.services.installation import Installation
from app.services.ledger.readable_accounts import Readable, of_dataset
from app.services.pages import PageRequest, page_of
from app.services.spending import scopes
from app.wire.ledger import (
    BalanceList,
    BalanceOut,
    CellOut,
    DatasetBalance,
    DeltaOut,
    DetailedEntryOut,
    EntryList,
    EntryOut,
    PartitionBalance,
)

EXPORT_BATCH = 1_000
CSV_COLUMNS = (
    "sequence", "kind", "amount", "scope", "event", "job_id", "actor", "at", "previous_hash", "hash", "details",
)  # fmt: skip


def list_balances(installation: Installation, principal: Principal, page: PageRequest) -> BalanceList:
    """The balance of every dataset whose ledger the key may read.

    Raises:
        RoleMissing: the key reads no ledger at all.
    """
    with installation.database.read() as session:
        visible = grants.datasets_with(session, principal, SEE_LEDGER)
        if visible == [] and Role.OWNER not in principal.roles:
            raise RoleMissing(sorted(role.value for role in SEE_LEDGER))
        shown, following = page_of(
            page,
            lambda limit: catalog.page(session, ids=visible, after=page.cursor, limit=limit),
            lambda dataset: dataset.id,
        )
        balances = ledger.balances(session, [item.id for item in shown])
        found = [BalanceOut.model_validate(balance_members(balances[item.id])) for item in shown]
        return BalanceList(datasets=found, next=following)


def show_balance(
    installation: Installation, principal: Principal, reference: str, *, scope: Mapping[str, object]
) -> DatasetBalance:
    """One dataset at the tightest joint cell of a box, what still fits there, and every cell in it.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: the key may only predict.
        InvalidRequest: the scope names no cell.
    """
    with installation.database.read() as session:
        dataset = permitted(session, principal, reference, SEE_BALANCE)
        asked = scopes.read_scope(session, dataset, scope)
        box = scopes.resolved(session, dataset, asked)
        balance = ledger.balance(session, dataset.id, box)
        cells = ledger.cells(session, dataset.id, box)
        guarantee = account_guarantee(session, dataset.id)
        delta = external.delta_balance(session, dataset.id, box)
    partitions = [
        PartitionBalance(
            name=partition.name,
            kind=partition.kind,
            cells=[_cell(cell.cell[partition.name], cell, balance) for cell in cells[partition.name]],
        )
        for partition in dataset.partitions.declared
    ]
    return DatasetBalance.model_validate(
        {
            **balance_members(balance),
            "tightest_cell": balance.tightest_cell,
            "exact": balance.is_exact,
            "scope": {name: list(listed) for name, listed in box.items()},
            "largest_that_fits": balance.largest_that_fits,
            "partitions": partitions,
            "guarantee": guarantee,
            "delta_set_aside": None if delta is None else _delta_out(delta),
        }
    )


def list_entries(
    installation: Installation,
    principal: Principal,
    reference: str,
    page: PageRequest,
    *,
    readable: Readable = of_dataset,
) -> EntryList:
    """A page of an account's history, in order.

    Raises:
        NotFound: no such dataset or population, or none that this key may know of.
        RoleMissing: the key may not read the ledger.
    """
    with installation.database.read() as session:
        account_id = readable(session, principal, reference)
        shown, following = page_of(
            page,
            lambda limit: ledger.entries(session, account_id, after=page.sequence(), limit=limit),
            lambda entry: str(entry.sequence),
        )
        return EntryList(entries=[_entry(entry) for entry in shown], next=following)


def export_json_lines(
    installation: Installation, principal: Principal, reference: str, *, readable: Readable = of_dataset
) -> Iterator[bytes]:
    """The whole history as JSON Lines: a header, then every entry as it was hashed. What the verifier reads.

    Raises:
        NotFound: no such dataset or population, or none that this key may know of.
        RoleMissing: the key may not read the ledger.
    """
    account_id = _account(installation, principal, reference, readable)
    header, last = _header(installation, account_id)
    lines = (entry.to_json() for entry in _entries(installation, account_id, last))
    return (rfc8785.dumps(line) + b"\n" for line in itertools.chain([header], lines))


def export_csv(
    installation: Installation, principal: Principal, reference: str, *, readable: Readable = of_dataset
) -> Iterator[bytes]:
    """The same entries as a table for people; objects as canonical JSON text.

    Raises:
        NotFound: no such dataset or population, or none that this key may know of.
        RoleMissing: the key may not read the ledger.
    """
    account_id = _account(installation, principal, reference, readable)
    _, last = _header(installation, account_id)
    lines = (_csv_line(_csv_cells(entry)) for entry in _entries(installation, account_id, last))
    return itertools.chain([_csv_line(CSV_COLUMNS)], lines)


def _account(installation: Installation, principal: Principal, reference: str, readable: Readable) -> str:
    with installation.database.read() as session:
        return readable(session, principal, reference)


def _header(installation: Installation, account_id: str) -> tuple[dict[str, Any], int]:
    with installation.database.read() as session:
        return ledger.export_header(session, account_id)


def _entries(installation: Installation, account_id: str, last: int) -> Iterator[Entry]:
    """Entries up to ``last``, each batch in a transaction of its own: what is written once reads the same for ever."""
    after = 0
    while after < last:
        with installation.database.read() as session:
            batch = ledger.entries(session, account_id, after=after, limit=min(EXPORT_BATCH, last - after))
        yield from batch
        after = batch[-1].sequence


def balance_members(balance: ledger.Balance) -> dict[str, object]:
    """A balance as answers show it."""
    return {
        "dataset": balance.account_id,
        "dataset_name": balance.name,
        "accountant": balance.accountant,
        "unit": balance.unit,
        "cap": balance.text(balance.cap),
        "charged": balance.text(balance.charged),
        "reserved": balance.text(balance.reserved),
        "remaining": balance.text(balance.remaining),
    }


def _delta_out(delta: external.DeltaBalance) -> DeltaOut:
    return DeltaOut(
        set_aside=external.delta_text(delta.set_aside),
        charged=external.delta_text(delta.charged),
        remaining=external.delta_text(delta.remaining),
    )


def _cell(name: Cell, cell: CellBalance, balance: ledger.Balance) -> CellOut:
    return CellOut(
        cell=name,
        charged=balance.text(cell.charged),
        reserved=balance.text(cell.reserved),
        remaining=balance.text(max(balance.cap - cell.charged - cell.reserved, 0)),
    )


def _entry(entry: Entry) -> EntryOut:
    form = DetailedEntryOut if entry.details else EntryOut
    return form.model_validate(entry.to_json())


def _csv_cells(entry: Entry) -> list[str]:
    value = entry.to_json()
    cells = []
    for name in CSV_COLUMNS:
        cell = value.get(name)
        if isinstance(cell, dict):
            cell = json.dumps(cell, sort_keys=True, separators=(",", ":"))
        cells.append("" if cell is None else str(cell))
    return cells


def _csv_line(cells: "list[str] | tuple[str, ...]") -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8")
