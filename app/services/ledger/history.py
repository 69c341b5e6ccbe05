"""Serves ``GET /ledger/{account}/export``: exports entries of accounts as they were hashed."""

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import rfc8785

from app.access.roles import SEE_LEDGER, Principal
from app.ledger import statements
from app.ledger.entries import Entry
from app.services.installation import Installation
from app.services.ledger.accounts import find_account
from app.wire.ledger import DetailedEntryOut, EntryOut

EXPORT_BATCH = 100
CSV_COLUMNS = (
    "sequence", "kind", "amount", "scope", "event", "job_id", "actor", "at", "previous_hash", "hash", "details",
)  # fmt: skip


def export_json_lines(installation: Installation, principal: Principal, reference: str) -> Iterator[bytes]:
    """Exports the whole history as JSON Lines, for the verifier: a header, then every entry as it was hashed.

    Raises:
        NotFound: no such account, or it is not visible to this key.
        RoleMissing: the key may not read the ledger.
    """
    header, entries = _export(installation, principal, reference)
    return json_lines(header, entries)


def json_lines(header: Mapping[str, Any], entries: Iterable[Entry]) -> Iterator[bytes]:
    """The lines of an export: a header, then every entry as it was hashed."""
    lines = (entry.to_json() for entry in entries)
    return (rfc8785.dumps(line) + b"\n" for line in itertools.chain([dict(header)], lines))


def export_csv(installation: Installation, principal: Principal, reference: str) -> Iterator[bytes]:
    """Exports the whole history as a table for spreadsheets; objects are canonical JSON text.

    Raises:
        NotFound: no such account, or it is not visible to this key.
        RoleMissing: the key may not read the ledger.
    """
    _, entries = _export(installation, principal, reference)
    return itertools.chain([_csv_line(CSV_COLUMNS)], (_csv_line(_csv_cells(entry)) for entry in entries))


def _export(installation: Installation, principal: Principal, reference: str) -> tuple[dict[str, Any], Iterator[Entry]]:
    """The header of an export, and all entries that exist now."""
    with installation.database.read() as session:
        account_id = find_account(session, principal, reference, SEE_LEDGER).id
        header, last = statements.export_header(session, account_id)
    return header, entries_up_to(installation, account_id, last)


def entries_up_to(installation: Installation, account_id: str, last: int) -> Iterator[Entry]:
    """Reads entries up to ``last``, each batch in a separate transaction, because entries never change."""
    after = 0
    while after < last:
        with installation.database.read() as session:
            batch = statements.entries(session, account_id, after=after, limit=min(EXPORT_BATCH, last - after))
        yield from batch
        after = batch[-1].sequence


def entry_out(entry: Entry) -> EntryOut:
    """Formats an entry as it was hashed."""
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


def _csv_line(cells: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8")
