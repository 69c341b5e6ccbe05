"""Tests that the cache loads an artifact once and evicts by least recent use and size on disk."""

import pytest

from app.core import limits
from app.registry import cache


class Store:
    """A store that lists the reads of its artifacts."""

    def __init__(self, **sizes):
        self.sizes, self.reads = sizes, []

    def get(self, digest):
        self.reads.append(digest)
        return b"x" * self.sizes[digest]


@pytest.fixture
def loads(monkeypatch):
    monkeypatch.setattr(cache.artifacts, "loads", len)
    monkeypatch.setattr(limits, "MAX_CACHED_ARTIFACT_BYTES", 10)


EVICTIONS = {
    "least recently used": ({"a": 4, "b": 4, "c": 4}, "abacab", "abcb"),
    "larger than the cache": (
        {"small": 1, "large": 11},
        ("small", "large", "large", "small"),
        ("small", "large", "small"),
    ),
}


@pytest.mark.usefixtures("loads")
@pytest.mark.parametrize(("sizes", "gets", "reads"), EVICTIONS.values(), ids=EVICTIONS)
def test_artifacts_are_evicted_by_recent_use_and_a_large_artifact_is_cached_alone(sizes, gets, reads):
    store = Store(**sizes)
    loaded = cache.ArtifactCache(store)
    for digest in gets:
        assert loaded.get(digest) == sizes[digest]
    assert store.reads == list(reads)


@pytest.mark.usefixtures("loads")
def test_a_deleted_artifact_is_read_again():
    store = Store(a=4)
    loaded = cache.ArtifactCache(store)
    loaded.get("a")
    loaded.forget("a")
    loaded.forget("a")
    loaded.get("a")
    assert store.reads == ["a", "a"]
