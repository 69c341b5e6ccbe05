"""Divides lists into pages; the last item of a page is the cursor of the next page."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from app.core import limits, stamps
from app.core.errors import InvalidRequest, NotFound

Item = TypeVar("Item")


@dataclass(frozen=True)
class PageRequest:
    """A request for at most ``limit`` items after ``cursor``, an opaque text from an
    earlier page.
    """

    limit: int = limits.DEFAULT_PAGE_SIZE
    cursor: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= limits.MAX_PAGE_SIZE:
            raise InvalidRequest.at(
                "/limit", "out-of-range", accepted=[f"1 to {limits.MAX_PAGE_SIZE}"]
            )
        if self.cursor is not None and not stamps.is_reference(self.cursor):
            raise InvalidRequest.at("/cursor", "unknown")

    def sequence(self) -> int:
        """The cursor as a sequence number; 0 for the first page.

        Raises:
            InvalidRequest: the cursor is not a sequence number.
        """
        if self.cursor is None:
            return 0
        if not (
            self.cursor.isascii() and self.cursor.isdigit() and len(self.cursor) <= 18
        ):
            raise InvalidRequest.at("/cursor", "unknown")
        return int(self.cursor)


def page_of(
    request: PageRequest,
    fetch: Callable[[int], Iterable[Item]],
    cursor_of: Callable[[Item], str],
    bytes_of: Callable[[Item], int] = lambda _: 0,
) -> tuple[Sequence[Item], str | None]:
    """The items of a page, and the cursor of the next page if one exists.

    Args:
        fetch: returns at most the given number of items.
        bytes_of: the size of an item. A page ends before ``limits.MAX_PAGE_BYTES``, but
            not before its first item.

    Raises:
        InvalidRequest: the cursor names no item.
    """
    shown: list[Item] = []
    size = 0
    try:
        for item in fetch(request.limit + 1):
            size += bytes_of(item)
            if len(shown) == request.limit or (shown and size > limits.MAX_PAGE_BYTES):
                return shown, cursor_of(shown[-1])
            shown.append(item)
    except NotFound:
        raise InvalidRequest.at("/cursor", "unknown") from None
    return shown, None
