"""Changes what forests are grown from for one test: the catalogue of algorithms, and
the parts and threads that rows are divided among.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import pytest

from grovekeeper_forests import catalogue
from grovekeeper_forests.data import coded_rows

Offer: TypeAlias = Callable[[str, Any], None]


class DivideRows(Protocol):
    """Divides rows among parts and threads until the test ends."""

    def __call__(
        self, *, part_rows: int | None = None, n_threads: int | None = None
    ) -> None:
        """Sets the rows of a part and the number of processors, which are kept by
        default.
        """


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Offer:
    """A function that puts an algorithm under a slug of the catalogue, until the test
    ends.
    """

    def offer(slug: str, algorithm: Any) -> None:
        offered = {**catalogue.BY_SLUG, slug: algorithm}
        monkeypatch.setattr(catalogue, "BY_SLUG", offered)

    return offer


@pytest.fixture
def divide_rows(monkeypatch: pytest.MonkeyPatch) -> DivideRows:
    """A function that divides rows among parts and threads until the test ends."""

    def divide(*, part_rows: int | None = None, n_threads: int | None = None) -> None:
        if part_rows is not None:
            monkeypatch.setattr(coded_rows, "PART_ROWS", part_rows)
        if n_threads is not None:
            monkeypatch.setattr(coded_rows, "_n_processors", lambda: n_threads)

    return divide
