"""Serves ``GET /ledger/{account}/export``: exports entries of accounts as they were hashed."""

import csv
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import rfc8785
from sqlalchemy.orm import Session

from app.access import grants
from app.access.roles import SEE_LEDGER, Principal
from app.ledger import statements
from app.ledger.entries import Entry
from app.services.installation import Installation
from app.services.jobs.show_jobs import charged_jobs
from app.services.ledger.accounts import Account, find_account
from app.wire.ledger import ChargedJob, DetailedEntryOut, EntryOut

T = TypeVar("T")
EXPORT_BATCH = 100
CSV_COLUMNS = (
    "sequence", "kind", "amount", "scope", "event", "job_id", "actor", "at", "previous_hash", "hash", "details",
    "purpose", "job_kind", "algorithm", "job_name", "models", "submitted_by", "submitted_by_name",
)  # fmt: skip
"""The fields of an entry as it was hashed, its job's purpose out of ``details``, and the public facts of its job."""
_READ_AS_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of a cell that spreadsheets compute; people choose purposes and names."""


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

    Beside every entry stand the facts of its job. A cell that a spreadsheet would compute begins with an apostrophe.

    Raises:
        NotFound: no such account, or it is not visible to this key.
        RoleMissing: the key may not read the ledger.
    """
    with installation.database.read() as session:
        account = find_account(session, principal, reference, SEE_LEDGER)
        last = statements.size(session, account.id)
    lines = _in_batches(
        installation, account.id, last, lambda session, batch: _csv_lines(session, principal, account, batch)
    )
    return itertools.chain([_csv_line(CSV_COLUMNS)], lines)


def _csv_lines(session: Session, principal: Principal, account: Account, batch: Sequence[Entry]) -> list[bytes]:
    jobs = charged_jobs(session, [entry.job_id for entry in batch])
    dataset_id = None if account.dataset is None else account.dataset.id
    names = grants.names_of_keys(session, principal, dataset_id, {job.submitted_by for job in jobs.values()})
    return [
        _csv_line(_csv_cells({**entry.to_json(), **_job_cells(entry, jobs.get(entry.job_id or ""), names)}))
        for entry in batch
    ]


def _job_cells(entry: Entry, job: ChargedJob | None, names: Mapping[str, str]) -> dict[str, str | None]:
    if job is None:
        return {}
    return {
        "purpose": (entry.details or {}).get("purpose"),
        "job_kind": job.kind,
        "algorithm": job.algorithm,
        "job_name": job.name,
        "models": " ".join(job.models),
        "submitted_by": job.submitted_by,
        "submitted_by_name": names.get(job.submitted_by),
    }


def _export(installation: Installation, principal: Principal, reference: str) -> tuple[dict[str, Any], Iterator[Entry]]:
    """The header of an export, and all entries that exist now."""
    with installation.database.read() as session:
        account_id = find_account(session, principal, reference, SEE_LEDGER).id
        header, last = statements.export_header(session, account_id)
    return header, entries_up_to(installation, account_id, last)


def entries_up_to(installation: Installation, account_id: str, last: int) -> Iterator[Entry]:
    """Reads entries up to ``last``, each batch in a separate transaction, because entries never change."""
    return _in_batches(installation, account_id, last, lambda _session, batch: batch)


def _in_batches(
    installation: Installation, account_id: str, last: int, read: Callable[[Session, list[Entry]], list[T]]
) -> Iterator[T]:
    """What ``read`` makes of the entries up to ``last``; no transaction stays open while the client takes it."""
    after = 0
    while after < last:
        with installation.database.read() as session:
            batch = statements.entries(session, account_id, after=after, limit=min(EXPORT_BATCH, last - after))
            made = read(session, batch)
        yield from made
        after = batch[-1].sequence


def entry_out(entry: Entry) -> EntryOut:
    """Formats an entry as it was hashed."""
    form = DetailedEntryOut if entry.details else EntryOut
    return form.model_validate(entry.to_json())


def _csv_cells(value: Mapping[str, Any]) -> list[str]:
    cells = []
    for name in CSV_COLUMNS:
        cell = value.get(name)
        if isinstance(cell, dict):
            cell = json.dumps(cell, sort_keys=True, separators=(",", ":"))
        text = "" if cell is None else str(cell)
        cells.append(f"'{text}" if text.startswith(_READ_AS_FORMULAS) else text)
    return cells


def _csv_line(cells: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8")
