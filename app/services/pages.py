"""Cursor pages: a list asks for one item more than it shows, and the last shown item is the next cursor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from app.core import ids, limits
from app.core.errors import InvalidRequest, NotFound

Item = TypeVar("Item")


@dataclass(frozen=True)
class PageRequest:
    """``limit`` items after ``cursor``, an opaque text from an earlier page."""

    limit: int = limits.DEFAULT_PAGE_SIZE
    cursor: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= limits.MAX_PAGE_SIZE:
            raise InvalidRequest.at("/limit", "out-of-range")
        if self.cursor is not None and not ids.is_reference(self.cursor):
            raise InvalidRequest.at("/cursor", "unknown")

    def sequence(self) -> int:
        """The cursor as the sequence number it stands for; 0 before the first page.

        Raises:
            InvalidRequest: it is no cursor of ours.
        """
        if self.cursor is None:
            return 0
        if not (self.cursor.isascii() and self.cursor.isdigit() and len(self.cursor) <= 18):
            raise InvalidRequest.at("/cursor", "unknown")
        return int(self.cursor)


def page_of(
    request: PageRequest, fetch: Callable[[int], Sequence[Item]], cursor_of: Callable[[Item], str]
) -> tuple[Sequence[Item], str | None]:
    """Items of one page, and the cursor of the next one if there is more.

    Args:
        fetch: given how many items to fetch, fetches at most that many.

    Raises:
        InvalidRequest: the cursor names nothing.
    """
    try:
        found = fetch(request.limit + 1)
    except NotFound:
        raise InvalidRequest.at("/cursor", "unknown") from None
    shown = found[: request.limit]
    return shown, (cursor_of(shown[-1]) if len(found) > request.limit else None)
