"""The cache of loaded artifacts: each is loaded once while it fits, and its size on disk is what counts."""

import pytest

from app.core import limits
from app.registry import cache


class Store:
    """Counts how often an artifact is read."""

    def __init__(self, **sizes):
        self.sizes, self.reads = sizes, []

    def get(self, digest):
        self.reads.append(digest)
        return b"x" * self.sizes[digest]


@pytest.fixture
def loads(monkeypatch):
    monkeypatch.setattr(cache.artifacts, "loads", len)
    monkeypatch.setattr(limits, "MAX_CACHED_ARTIFACT_BYTES", 10)


@pytest.mark.usefixtures("loads")
def test_the_least_recently_used_artifact_makes_room():
    store = Store(a=4, b=4, c=4)
    loaded = cache.ArtifactCache(store)
    for digest in "abac":  # c takes the place of b, which was used before a
        assert loaded.get(digest) == 4
    assert store.reads == ["a", "b", "c"]
    loaded.get("a")
    loaded.get("b")
    assert store.reads == ["a", "b", "c", "b"]


@pytest.mark.usefixtures("loads")
def test_an_artifact_larger_than_the_cache_is_kept_alone():
    store = Store(small=1, large=11)
    loaded = cache.ArtifactCache(store)
    for digest in ("small", "large", "large", "small"):
        loaded.get(digest)
    assert store.reads == ["small", "large", "small"]


@pytest.mark.usefixtures("loads")
def test_a_deleted_artifact_is_read_again():
    store = Store(a=4)
    loaded = cache.ArtifactCache(store)
    loaded.get("a")
    loaded.forget("a")
    loaded.forget("a")
    loaded.get("a")
    assert store.reads == ["a", "a"]
