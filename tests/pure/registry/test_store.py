"""Tests that the cache loads an artifact once and evicts by least recent use and size
in memory.
"""

from types import SimpleNamespace

import pytest

from app.registry.store import ArtifactCache
from grovekeeper_forests.releases.forest import read as released_forest
from tests.support.set_limits import SetLimit


class Store:
    """A store that lists the reads of its artifacts, each of which has a header and
    arrays of these sizes.
    """

    def __init__(self, **sizes):
        self.sizes, self.reads = sizes, []

    def get(self, digest):
        self.reads.append(digest)
        header, arrays = self.sizes[digest]
        return header.to_bytes(8, "little") + b"x" * (header + arrays)


class _Predictor:
    def __init__(self, n_bytes):
        self.n_bytes = n_bytes

    def memory_bytes(self):
        return self.n_bytes


@pytest.fixture
def loads(monkeypatch, set_limit: SetLimit):
    """Artifacts whose forests have a number of bytes, which grows with predictions."""

    def load(data):
        n_bytes = len(data) - int.from_bytes(data[:8], "little")
        return SimpleNamespace(size=len(data), predictor=_Predictor(n_bytes))

    monkeypatch.setattr(released_forest, "loads", load)
    set_limit("MAX_CACHED_ARTIFACT_BYTES", 80)


EVICTIONS = {
    "least recently used": (
        {"a": (0, 24), "b": (0, 24), "c": (0, 24)},
        "abacab",
        "abcb",
    ),
    "larger than the cache": (
        {"small": (0, 1), "large": (0, 80)},
        ("small", "large", "large", "small"),
        ("small", "large", "small"),
    ),
    "much JSON in small files": ({"a": (3, 0), "b": (3, 0)}, "aba", "aba"),
    "as many bytes of arrays": ({"a": (0, 3), "b": (0, 3)}, "aba", "ab"),
}


@pytest.mark.usefixtures("loads")
@pytest.mark.parametrize(("sizes", "gets", "reads"), EVICTIONS.values(), ids=EVICTIONS)
def test_artifacts_are_evicted_by_recent_use_and_a_large_artifact_is_cached_alone(
    sizes, gets, reads
):
    store = Store(**sizes)
    loaded = ArtifactCache(store)
    for digest in gets:
        assert loaded.get(digest).size == 8 + sum(sizes[digest])
    assert store.reads == list(reads)


@pytest.mark.usefixtures("loads")
def test_a_deleted_artifact_is_read_again():
    store = Store(a=(0, 4))
    loaded = ArtifactCache(store)
    loaded.get("a")
    loaded.forget("a")
    loaded.forget("a")
    loaded.get("a")
    assert store.reads == ["a", "a"]


@pytest.mark.usefixtures("loads")
def test_what_predictions_keep_counts_as_memory_of_the_artifact():
    store = Store(a=(0, 24), b=(0, 24))
    loaded = ArtifactCache(store)
    loaded.get("a")
    loaded.get("b").predictor.n_bytes += 20
    assert loaded.size_bytes == 64
    loaded.recount("b")
    assert loaded.size_bytes == 52, "the other artifact made room"
    assert loaded.loaded("a") is None
    loaded.recount("a")
    assert loaded.size_bytes == 52
    loaded.get("b")
    assert store.reads == ["a", "b"]
