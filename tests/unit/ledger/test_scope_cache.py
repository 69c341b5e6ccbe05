"""The cache of scopes: a public limit on its size, and eviction of the least recently used scope."""

import pytest

from app.ledger import scope_cache
from app.ledger.scope_digest import digest_of


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope_cache, "_by_names", {})


def _fill(name: str, n_scopes: int) -> None:
    kept = scope_cache._cached((name,))
    for number in range(n_scopes):
        kept.add(f"{name}-{number}", {name: (number,)})


def test_equal_scopes_have_one_digest_whatever_their_order() -> None:
    digest = digest_of({"a": (1, 2), "b": ("EU",)})
    assert digest == digest_of({"b": ("EU",), "a": (1, 2)})
    assert digest != digest_of({"a": (1,), "b": ("EU",)})


def test_the_least_recently_used_scopes_are_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope_cache, "MAX_WAYS", 2)
    for name in "ab":
        _fill(name, 1)
    assert "a-0" in scope_cache._cached(("a",))
    _fill("c", 1)
    assert list(scope_cache._by_names) == [("a",), ("c",)]


def test_many_cells_drive_out_others_and_at_last_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope_cache, "MAX_SIZE", 10)
    _fill("a", 3)
    assert scope_cache._cached(("a",)).size == 6, "a scope and a cell each"
    _fill("b", 6)
    scope_cache._cached(("c",))
    assert list(scope_cache._by_names) == [("c",)]
    _fill("c", 6)
    assert scope_cache._cached(("c",)).size == 0
