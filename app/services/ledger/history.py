"""Lists and searches entries of an account, with a running balance; exports them as
they were hashed.
"""

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import rfc8785
from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import SEE_BALANCE, SEE_LEDGER, Principal
from app.core import csv_text, json_text, limits
from app.core.errors import InvalidRequest, NotFound, RoleMissing
from app.datasets import catalog
from app.ledger import statements, tables
from app.ledger.tables import Entry, EntryKind
from app.services.installation import Installation
from app.services.jobs.show_jobs import charged_jobs
from app.services.ledger.balances import Account, balance_of, find_account
from app.services.pagination import PageRequest
from app.wire.ledger import ChargedJob, DetailedEntryOut, EntryList, EntryOut
from grovekeeper_common.json_types import JsonMapping
from grovekeeper_forests.privacy import events, receipts
from grovekeeper_forests.privacy.scope import WHOLE, JointCell, Scope

Result = TypeVar("Result")
EXPORT_BATCH = 100


def matching_entries(
    following: Callable[[int, int], list[Entry]],
    is_match: Callable[[Entry], bool],
    page: PageRequest,
    *,
    batch_size: int,
) -> tuple[list[Entry], str | None]:
    """The matches of a page, and the cursor of the next page.

    A page ends early after ``limits.MAX_SEARCHED_ENTRIES`` entries, or with a match
    that reaches ``MAX_PAGE_BYTES``.

    Args:
        following: the entries that follow a sequence in the order of the list, at most
            so many.
    """
    last, n_read, size = page.sequence(), 0, 0
    entries: list[Entry] = []
    while batch := following(last, batch_size):
        for entry in batch:
            last, n_read = entry.sequence, n_read + 1
            if is_match(entry):
                entries.append(entry)
                size += json_text.n_bytes((entry.scope, entry.event, entry.details))
            is_full = len(entries) == page.limit or size >= limits.MAX_PAGE_BYTES
            if is_full or n_read == limits.MAX_SEARCHED_ENTRIES:
                # No cursor at the end: a client would ask for an empty page.
                return entries, str(last) if following(last, 1) else None
    return entries, None


CSV_COLUMNS = (
    "sequence",
    "kind",
    "amount",
    "scope",
    "event",
    "job_id",
    "actor",
    "at",
    "previous_hash",
    "hash",
    "details",
    "purpose",
    "label",
    "job_kind",
    "algorithm",
    "job_name",
    "models",
    "submitted_by",
    "submitted_by_name",
    "what",
)
"""The fields of an entry as it was hashed, the purpose and the label of its job out of
``details``, and the public facts of its job.
"""


def export_json_lines(
    installation: Installation, principal: Principal, reference: str
) -> Iterator[bytes]:
    """Exports the whole history as JSON Lines, for the verifier: a header, then every
    entry as it was hashed.
    """
    with installation.database.read() as session:
        account_id = find_account(session, principal, reference, SEE_LEDGER).id
        header, last = statements.export_header(session, account_id)
    return json_lines(header, entries_up_to(installation, account_id, last))


def json_lines(header: JsonMapping, entries: Iterable[Entry]) -> Iterator[bytes]:
    """The lines of an export: a header, then every entry as it was hashed."""
    yield rfc8785.dumps(dict(header)) + b"\n"
    for entry in entries:
        yield rfc8785.dumps(entry.to_json()) + b"\n"


def export_csv(
    installation: Installation, principal: Principal, reference: str
) -> Iterator[bytes]:
    """Exports the whole history as a table for spreadsheets; objects are canonical JSON
    text.

    Beside every entry stand the facts of its job. A cell that a spreadsheet would
    compute begins with an apostrophe.
    """
    with installation.database.read() as session:
        account = find_account(session, principal, reference, SEE_LEDGER)
        last = statements.size(session, account.id)
    lines = _in_batches(
        installation,
        account.id,
        last,
        lambda session, batch: _csv_lines(session, principal, account, batch),
    )
    return itertools.chain([_csv_line(CSV_COLUMNS)], lines)


def _csv_lines(
    session: Session, principal: Principal, account: Account, batch: Sequence[Entry]
) -> list[bytes]:
    jobs, names = _jobs_and_names(session, principal, account, batch)
    lines = []
    for entry in batch:
        facts_of_job = _job_cells(entry, jobs.get(entry.job_id or ""), names)
        lines.append(_csv_line(_csv_cells({**facts_of_job, **entry.to_json()})))
    return lines


def _job_cells(
    entry: Entry, job: ChargedJob | None, names: Mapping[str, str]
) -> dict[str, str | None]:
    if job is None:
        return {}
    details = entry.details or {}
    return {
        **dict(job),
        "purpose": details.get("purpose"),
        "label": details.get("label"),
        "job_kind": job.kind,
        "job_name": job.name,
        "models": " ".join(job.models),
        "submitted_by_name": names.get(job.submitted_by),
    }


def entries_up_to(
    installation: Installation, account_id: str, last: int
) -> Iterator[Entry]:
    """Reads entries up to ``last``, each batch in a separate transaction, because
    entries never change.
    """
    return _in_batches(installation, account_id, last, lambda _session, batch: batch)


def _in_batches(
    installation: Installation,
    account_id: str,
    last: int,
    read: Callable[[Session, list[Entry]], list[Result]],
) -> Iterator[Result]:
    """What ``read`` makes of the entries up to ``last``; no transaction stays open
    while the client takes it.
    """
    after = 0
    while after < last:
        with installation.database.read() as session:
            batch = tables.entries(
                session, account_id, after=after, limit=min(EXPORT_BATCH, last - after)
            )
            results = read(session, batch)
        # outside the transaction: a slow client would keep a connection
        yield from results
        after = batch[-1].sequence


def entry_out(entry: Entry) -> EntryOut:
    """Formats an entry as it was hashed."""
    form = DetailedEntryOut if entry.details else EntryOut
    return form.model_validate(entry.to_json())


def _csv_cells(value: JsonMapping) -> list[str]:
    cells = []
    for name in CSV_COLUMNS:
        cell = value.get(name)
        if isinstance(cell, dict):
            cell = json.dumps(cell, sort_keys=True, separators=(",", ":"))
        cells.append("" if cell is None else str(cell))
    return cells


def _csv_line(cells: Sequence[str]) -> bytes:
    return csv_text.line(cells).encode("utf-8")


@dataclass(frozen=True)
class Search:
    """Which entries are searched for. ``None`` excludes no entry.

    Attributes:
        job_id: entries of a job, or of the reservation of an external mechanism.
        actor: id or name of the key that caused entries, or submitted the jobs that
            they belong to; or ``worker`` or ``sweeper``.
        scope: cells of a dataset: entries that cover a part of them.
        purpose: entries of the jobs that were submitted for it.
    """

    kinds: Collection[EntryKind] | None = None
    job_id: str | None = None
    actor: str | None = None
    scope: Mapping[str, object] | None = None
    purpose: str | None = None

    def by_fields(
        self, session: Session, principal: Principal, account: Account
    ) -> statements.EntryFilter:
        """The part of the search that the database answers. Who may not read the whole
        ledger finds what the own key submitted.

        Raises:
            InvalidRequest: the actor caused no entry of the account, or its name stands
                for several keys that did.
            RoleMissing: the actor is another key, whose entries the caller may not
                read.
        """
        kinds, actor = self.kinds, None
        if not _reads_all(session, principal, account):
            if self.actor not in (None, principal.key_id, principal.name):
                raise RoleMissing(sorted(role.value for role in SEE_LEDGER))
            kinds = _OF_SUBMISSIONS.intersection(kinds or _OF_SUBMISSIONS)
            actor = principal.key_id
        elif self.actor is not None:
            actor = _actor(session, principal, account, self.actor)
        return statements.EntryFilter(kinds, self.job_id, actor, self.purpose)


_OF_SUBMISSIONS = frozenset(
    {EntryKind.RESERVE, EntryKind.CHARGE, EntryKind.VOID, EntryKind.EXPIRE}
)
"""The kinds of entries that belong to what a key submitted. Others state facts of the
whole account.
"""


def _reads_all(session: Session, principal: Principal, account: Account) -> bool:
    """Whether a caller who sees an account may read the entries of every key."""
    if account.dataset is None:
        return True
    role = grants.granted(session, principal, account.id)
    return not principal.acts_as(role).isdisjoint(SEE_LEDGER)


def _actor(session: Session, principal: Principal, account: Account, named: str) -> str:
    """The actor that a search names by its id, or by the name of a key."""
    if statements.has_entry_of(session, account.id, named):
        return named
    dataset_id = account.id if account.dataset else None
    actors = statements.actors_of(account.id)
    keys = grants.keys_of_name(session, principal, dataset_id, named, among=actors)
    if len(keys) > 1:
        raise InvalidRequest.at("/actor", "ambiguous", accepted=keys)
    if not keys:
        raise InvalidRequest.at("/actor", "without-entries")
    return keys[0]


EVERY_ENTRY = Search()


@dataclass(frozen=True)
class ListedEntry:
    """An entry, and what was spent after it.

    Attributes:
        charged: of a dataset's tightest cell, with ``reserved``; ``None`` where the
            list leaves out entries.
        load: of all members of a population together; ``None`` where the list leaves
            out entries.
    """

    entry: EntryOut
    job: ChargedJob | None
    charged: str | None = None
    reserved: str | None = None
    load: str | None = None


@dataclass(frozen=True)
class EntryPage:
    """A page of entries, newest first.

    Attributes:
        names: of the acting and submitting keys whose names the reader may know, by id.
        tightest_cell: the cell of the running balance.
    """

    entries: Sequence[ListedEntry]
    names: Mapping[str, str]
    tightest_cell: JointCell
    next: str | None


@dataclass(frozen=True)
class ShownEntry:
    """One entry of ``size``, the facts of its job, the names of keys that the reader
    may know, the event in words.
    """

    entry: EntryOut
    job: ChargedJob | None
    names: Mapping[str, str]
    receipt: str | None
    size: int


def list_entries(
    installation: Installation,
    principal: Principal,
    reference: str,
    page: PageRequest,
    search: Search = EVERY_ENTRY,
) -> EntryList:
    """Lists a page of entries in order, as they were hashed; for an analyst, those of
    what her key submitted.

    A search for cells reads at most ``limits.MAX_SEARCHED_ENTRIES`` entries for a page,
    which may then be short.

    Raises:
        InvalidRequest: the scope names a partition or a cell that does not exist, the
            actor has no entry, or the cursor is of another list.
    """
    with installation.database.read() as session:
        account = find_account(session, principal, reference, SEE_BALANCE)
        scope = _scope(session, account, search)
        chosen = search.by_fields(session, principal, account)

        def after(last: int, limit: int) -> list[Entry]:
            return statements.oldest_entries(
                session, account.id, after=last, limit=limit, chosen=chosen
            )

        uploads = statements.named_uploads(session, account.id) if scope else ()

        def is_match(entry: Entry) -> bool:
            return tables.listed(entry.scope, uploads).overlaps(scope)

        entries, following = matching_entries(
            after, is_match, page, batch_size=_batch_size(scope, page)
        )
        jobs, names = _jobs_and_names(session, principal, account, entries)
        beside = {**account.facts, "actors": names, "jobs": jobs, "next": following}
        return EntryList.model_validate(
            {**beside, "entries": list(map(entry_out, entries))}
        )


def search_entries(
    installation: Installation,
    principal: Principal,
    reference: str,
    search: Search,
    page: PageRequest,
) -> EntryPage:
    """Finds a page of entries, newest first, with what was spent after each; for an
    analyst, those of what her key submitted.

    Raises:
        InvalidRequest: the scope names a partition or a cell that does not exist, or
            the cursor is of another list.
    """
    with installation.database.read() as session:
        account = find_account(session, principal, reference, SEE_BALANCE)
        scope = _scope(session, account, search)
        if scope:
            balance = statements.balance(session, account.id, scope)
        else:
            balance = balance_of(session, account)
        cell, read = balance.tightest_cell, list[Entry]()
        chosen = search.by_fields(session, principal, account)
        uploads = statements.named_uploads(session, account.id)

        def before(last: int, limit: int) -> list[Entry]:
            return statements.newest_entries(
                session, account.id, before=last or None, limit=limit, chosen=chosen
            )

        def is_match(entry: Entry) -> bool:
            # What is read is kept as its effect on the cell, without the scope, which
            # may be large.
            entry_scope = tables.listed(entry.scope, uploads)
            amount = entry.amount if entry_scope.covers(cell) else 0
            read.append(replace(entry, amount=amount, scope={}, event=None))
            return entry_scope.overlaps(scope)

        entries, following = matching_entries(
            before, is_match, page, batch_size=_batch_size(scope, page)
        )
        jobs, names = _jobs_and_names(session, principal, account, entries)
        is_complete = chosen == statements.EntryFilter()
        spent = {}
        if is_complete:
            spent = _spent_after(session, account, read, balance)
        listed_entries = []
        for entry in entries:
            job = jobs.get(entry.job_id or "")
            amounts = spent.get(entry.sequence, {})
            listed_entries.append(ListedEntry(entry_out(entry), job, **amounts))
        return EntryPage(listed_entries, names, cell, following)


def show_entry(
    installation: Installation, principal: Principal, reference: str, sequence: int
) -> ShownEntry:
    """Shows one entry of an account.

    Raises:
        NotFound: no such account or entry, or the account is not visible to this key.
    """
    with installation.database.read() as session:
        account = find_account(session, principal, reference, SEE_LEDGER)
        size = statements.size(session, account.id)
        if not 1 <= sequence <= size:
            raise NotFound("entry")
        (entry,) = tables.entries(session, account.id, after=sequence - 1, limit=1)
        jobs, names = _jobs_and_names(session, principal, account, [entry])
        receipt = _receipt(session, account.dataset, entry)
        return ShownEntry(
            entry_out(entry), jobs.get(entry.job_id or ""), names, receipt, size
        )


def _receipt(
    session: Session, dataset: catalog.Dataset | None, entry: Entry
) -> str | None:
    if dataset is None or entry.event is None:
        return None
    return receipts.in_words(
        events.from_json(entry.event),
        accountant=statements.highest_cap(session, dataset.id).amount.accountant,
        adjacency=dataset.adjacency,
        max_rows=dataset.max_rows,
    )


def _batch_size(scope: Scope, page: PageRequest) -> int:
    """The number of entries that are read at a time; those that cover no part of a
    scope are no matches.
    """
    if scope:
        return limits.DEFAULT_PAGE_SIZE
    return min(limits.DEFAULT_PAGE_SIZE, page.limit)


def _scope(session: Session, account: Account, search: Search) -> Scope:
    """The cells of a search; empty for all cells."""
    if not search.scope:
        return WHOLE
    if account.dataset is None:
        raise InvalidRequest.at("/scope", "unknown-partition")
    return account.dataset.read_scope(
        search.scope, catalog.upload_ids(session, account.dataset.id)
    )


def _spent_after(
    session: Session,
    account: Account,
    read: Sequence[Entry],
    balance: statements.Balance,
) -> dict[int, dict[str, str]]:
    """What was spent after each entry of a page that leaves out no entry of the
    tightest cell, by sequence.
    """
    if not read:
        return {}
    if account.dataset is None:
        return {
            sequence: {"load": balance.text(load)}
            for sequence, load in _loads(session, account, read).items()
        }
    amounts = {}
    spent = statements.spent_after(
        session, account.id, balance.tightest_cell, read[0].sequence
    )
    for entry in read:
        amounts[entry.sequence] = {
            "charged": balance.text(spent.charged),
            "reserved": balance.text(spent.reserved),
        }
        spent = spent.before(entry)
    return amounts


def _loads(session: Session, account: Account, read: Sequence[Entry]) -> dict[int, int]:
    loads = statements.loads_before(session, account.id, read[-1].sequence)
    together: dict[int, int] = {}
    if loads is None:
        return together
    for entry in reversed(read):
        if entry.kind in (EntryKind.JOIN, EntryKind.LOAD):
            loads[statements.member_of(entry)] = entry.amount
            if (erased := statements.continued_member(entry)) is not None:
                loads[erased] = 0
        together[entry.sequence] = sum(loads.values())
    return together


def _jobs_and_names(
    session: Session, principal: Principal, account: Account, entries: Sequence[Entry]
) -> tuple[dict[str, ChargedJob], dict[str, str]]:
    """The jobs of entries, and the names of the keys that acted or submitted them."""
    jobs = charged_jobs(session, [entry.job_id for entry in entries])
    dataset_id = account.id if account.dataset else None
    # In the order of their first entry: a set of texts has another order in every
    # process.
    actors = [entry.actor for entry in entries]
    submitters = [job.submitted_by for job in jobs.values()]
    keys = list(dict.fromkeys([*actors, *submitters]))
    return jobs, grants.names_of_keys(session, principal, dataset_id, keys)
