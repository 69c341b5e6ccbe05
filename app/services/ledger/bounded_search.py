"""Reads entries of a chain until enough of them match a search that the database cannot answer."""

from collections.abc import Callable
from dataclasses import dataclass

from app.core import limits
from app.ledger.entries import Entry
from app.services.pages import PageRequest


@dataclass(frozen=True)
class Matches:
    """The matches of a page, all entries that were read for them, and the cursor of the next page."""

    entries: list[Entry]
    read: list[Entry]
    next: str | None


def matching(
    following: Callable[[int, int], list[Entry]],
    is_match: Callable[[Entry], bool],
    page: PageRequest,
    *,
    batch_size: int,
) -> Matches:
    """Reads entries until a page of them matches, or ``limits.MAX_SEARCHED_ENTRIES`` are read.

    Args:
        following: the entries that follow a sequence in the order of the list, at most so many.
        is_match: whether an entry belongs to the list.
        page: the page.
        batch_size: number of entries that are read at once.
    """
    last = page.sequence()
    entries: list[Entry] = []
    read: list[Entry] = []
    while batch := following(last, batch_size):
        for entry in batch:
            read.append(entry)
            last = entry.sequence
            if is_match(entry):
                entries.append(entry)
            if len(entries) == page.limit or len(read) == limits.MAX_SEARCHED_ENTRIES:
                return Matches(entries, read, str(last) if following(last, 1) else None)
    return Matches(entries, read, None)
