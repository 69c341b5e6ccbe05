"""Pagination by cursors."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core import limits
from app.core.errors import FieldProblem, InvalidRequest, NotFound
from app.services.pagination import PageRequest, page_of
from tests.support.set_limits import SetLimit


@pytest.mark.parametrize("limit", [0, -1, limits.MAX_PAGE_SIZE + 1])
def test_a_limit_outside_its_range_is_refused(limit: int) -> None:
    with pytest.raises(InvalidRequest) as refused:
        PageRequest(limit)
    assert refused.value.errors == [FieldProblem("/limit", "out-of-range")]


@pytest.mark.parametrize("limit", [1, limits.MAX_PAGE_SIZE])
def test_a_limit_at_the_edge_of_its_range_is_taken(limit: int) -> None:
    assert PageRequest(limit).limit == limit


@pytest.mark.parametrize(
    ("cursor", "sequence"),
    [(None, 0), ("0", 0), ("7", 7), ("007", 7), ("9" * 18, 10**18 - 1)],
)
def test_a_cursor_of_a_history_is_a_sequence_number(
    cursor: str | None, sequence: int
) -> None:
    assert PageRequest(cursor=cursor).sequence() == sequence


@pytest.mark.parametrize(
    "cursor", ["", "-1", "+1", " 1", "1.0", "1e3", "x", "\u0663", "\u00b2", "9" * 19]
)
def test_any_other_cursor_of_a_history_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        PageRequest(cursor=cursor).sequence()
    assert refused.value.errors == [FieldProblem("/cursor", "unknown")]


@given(st.integers(0, 40), st.integers(1, 12))
def test_pages_show_every_item_once_in_order(n_items: int, limit: int) -> None:
    shown: list[int] = []
    cursor: str | None = None
    n_pages = 0
    while n_pages == 0 or cursor is not None:
        after = -1 if cursor is None else int(cursor)
        items, cursor = page_of(
            PageRequest(limit, cursor),
            lambda asked, after=after: [
                item for item in range(n_items) if item > after
            ][:asked],  # type: ignore[misc]
            str,
        )
        shown += items
        n_pages += 1
        assert len(items) == limit or cursor is None
    assert shown == list(range(n_items))
    assert n_pages == max(-(-n_items // limit), 1), "no empty page follows a full one"


def test_a_page_of_large_items_is_short_and_loads_no_item_beyond_the_next(
    set_limit: SetLimit,
) -> None:
    set_limit("MAX_PAGE_BYTES", 5)
    sizes, loaded = [2, 3, 1, 9, 9, 1], list[int]()

    def fetch(after: int) -> Iterator[int]:
        for item in range(after + 1, len(sizes)):
            loaded.append(item)
            yield item

    pages: list[list[int]] = []
    cursor: str | None = "-1"
    while cursor is not None:
        start = int(cursor)
        loaded.clear()
        items, cursor = page_of(
            PageRequest(4), lambda _, start=start: fetch(start), str, sizes.__getitem__
        )  # type: ignore[misc]
        assert loaded[:-1] == items or loaded == items
        pages.append(list(items))
    assert pages == [[0, 1], [2], [3], [4], [5]]


def test_a_cursor_that_names_nothing_is_refused() -> None:
    def fetch(_: int) -> list[str]:
        raise NotFound("job")

    with pytest.raises(InvalidRequest) as refused:
        page_of(PageRequest(cursor="jb_none"), fetch, str)
    assert refused.value.errors == [FieldProblem("/cursor", "unknown")]
