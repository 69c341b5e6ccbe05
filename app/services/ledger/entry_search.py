"""Finds entries of an account, newest first, each with a running balance; shows one entry with its event in words."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from sqlalchemy.orm import Session

from app.access import grants
from app.access.roles import SEE_LEDGER, Principal
from app.core import limits
from app.core.errors import NotFound
from app.datasets.catalog import Dataset
from app.ledger import running_balance, statements
from app.ledger.entries import Entry, EntryKind
from app.ledger.running_balance import EntryFilter, Spent
from app.privacy import events, receipts
from app.privacy.composition import Cell, JointCell
from app.services.installation import Installation
from app.services.ledger.accounts import Account, find_account
from app.services.ledger.balances import balance_of
from app.services.ledger.history import entry_out
from app.services.pages import PageRequest
from app.wire.ledger import EntryOut


@dataclass(frozen=True)
class Search:
    """Which entries are searched for. ``None`` excludes no entry.

    Attributes:
        kinds: kinds of entries.
        job_id: entries of a job, or of the reservation of an external mechanism.
        actor: entries that a key caused.
        cell: a cell of one partition, by the partition's name: entries that cover a part of it.
    """

    kinds: Collection[EntryKind] | None = None
    job_id: str | None = None
    actor: str | None = None
    cell: Mapping[str, Cell] | None = None


@dataclass(frozen=True)
class ListedEntry:
    """An entry, and what the tightest cell has spent after it.

    Attributes:
        charged: ``None`` where the list leaves out entries of the cell, and for populations.
    """

    entry: EntryOut
    actor_name: str | None
    charged: str | None
    reserved: str | None


@dataclass(frozen=True)
class EntryPage:
    """A page of entries, newest first.

    Attributes:
        tightest_cell: the cell of the running balance.
        next: the cursor of the next page.
    """

    entries: Sequence[ListedEntry]
    tightest_cell: JointCell
    next: str | None


@dataclass(frozen=True)
class ShownEntry:
    """One entry of ``size``, with the name of its actor for a reader who may know it, and its event in words."""

    entry: EntryOut
    actor_name: str | None
    receipt: str | None
    size: int


def search_entries(
    installation: Installation, principal: Principal, reference: str, search: Search, page: PageRequest
) -> EntryPage:
    """Finds a page of entries, newest first.

    A search for a cell reads at most ``limits.MAX_SEARCHED_ENTRIES`` entries for a page, which may then be short.

    Raises:
        NotFound: no such account, or it is not visible to this key.
        RoleMissing: the key may not read the ledger.
        InvalidRequest: the cursor is of another list.
    """
    with installation.database.read() as session:
        account = find_account(session, principal, reference, SEE_LEDGER)
        balance = _tightest(session, account, search)
        matches: list[tuple[Entry, Spent | None]] = []
        last = page.sequence() or None
        for entry, spent in _newest(session, account, search, balance.tightest_cell, before=last):
            last = entry.sequence
            if search.cell is None or running_balance.covers(entry.scope, search.cell):
                matches.append((entry, spent))
            if len(matches) == page.limit:
                break
        names = _names(session, principal, account, [entry for entry, _ in matches])
        listed = [
            ListedEntry(
                entry=entry_out(entry),
                actor_name=names.get(entry.actor),
                charged=None if spent is None else balance.text(spent.charged),
                reserved=None if spent is None else balance.text(spent.reserved),
            )
            for entry, spent in matches
        ]
        has_more = last is not None and running_balance.newest(
            session, account.id, before=last, limit=1, chosen=_filter(search)
        )
        return EntryPage(listed, balance.tightest_cell, next=str(last) if has_more else None)


def show_entry(installation: Installation, principal: Principal, reference: str, sequence: int) -> ShownEntry:
    """Shows one entry of an account.

    Raises:
        NotFound: no such account or entry, or the account is not visible to this key.
        RoleMissing: the key may not read the ledger.
    """
    with installation.database.read() as session:
        account = find_account(session, principal, reference, SEE_LEDGER)
        size = statements.size(session, account.id)
        if not 1 <= sequence <= size:
            raise NotFound("entry")
        (entry,) = statements.entries(session, account.id, after=sequence - 1, limit=1)
        name = _names(session, principal, account, [entry]).get(entry.actor)
        return ShownEntry(entry_out(entry), name, _receipt(session, account.dataset, entry), size)


def _receipt(session: Session, dataset: Dataset | None, entry: Entry) -> str | None:
    if dataset is None or entry.event is None:
        return None
    return receipts.in_words(
        events.from_json(entry.event),
        accountant=statements.highest_cap(session, dataset.id).accountant,
        adjacency=dataset.adjacency,
        max_rows=dataset.max_rows,
    )


def _tightest(session: Session, account: Account, search: Search) -> statements.Balance:
    if search.cell is None or account.dataset is None:
        return balance_of(session, account)
    return statements.balance(session, account.id, {name: (cell,) for name, cell in search.cell.items()})


def _newest(
    session: Session, account: Account, search: Search, cell: JointCell, *, before: int | None
) -> Iterator[tuple[Entry, Spent | None]]:
    """Entries, newest first, each with what a joint cell has spent after it where no entry is left out."""
    entries = islice(_batches(session, account.id, search, before=before), limits.MAX_SEARCHED_ENTRIES)
    is_complete = account.dataset is not None and _filter(search) == EntryFilter()
    spent: Spent | None = None
    for entry in entries:
        if is_complete and spent is None:
            spent = running_balance.spent_after(session, account.id, cell, entry.sequence)
        yield entry, spent
        if spent is not None and running_balance.covers(entry.scope, cell):
            spent = spent.before(entry)


def _batches(session: Session, account_id: str, search: Search, *, before: int | None) -> Iterator[Entry]:
    while batch := running_balance.newest(
        session, account_id, before=before, limit=limits.DEFAULT_PAGE_SIZE, chosen=_filter(search)
    ):
        yield from batch
        before = batch[-1].sequence


def _filter(search: Search) -> EntryFilter:
    return EntryFilter(kinds=search.kinds, job_id=search.job_id, actor=search.actor)


def _names(session: Session, principal: Principal, account: Account, entries: Sequence[Entry]) -> dict[str, str]:
    dataset_id = None if account.dataset is None else account.dataset.id
    return grants.names_of_keys(session, principal, dataset_id, {entry.actor for entry in entries})
