"""Caches loaded artifacts by digest. Artifacts are immutable, so a cached artifact is never stale."""

import threading

from cachetools import LRUCache

from app.core import limits
from app.forests import artifacts
from app.forests.artifacts import Artifact
from app.registry.store import ArtifactStore


class ArtifactCache:
    """The most recently used artifacts of a store. Safe to share among threads."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._loaded = LRUCache[str, tuple[Artifact, int]](limits.MAX_CACHED_ARTIFACT_BYTES, getsizeof=_size)

    def get(self, digest: str) -> Artifact:
        """Returns the artifact of a digest, and loads it unless it is cached.

        Raises:
            ArtifactLost: the file is absent, or its bytes have changed.
        """
        with self._lock:
            if digest in self._loaded:
                return self._loaded[digest][0]
        data = self._store.get(digest)
        artifact = artifacts.loads(data)
        with self._lock:
            self._loaded[digest] = artifact, len(data)
        return artifact

    def forget(self, digest: str) -> None:
        """Removes a deleted artifact from the cache."""
        with self._lock:
            self._loaded.pop(digest, None)


def _size(loaded: tuple[Artifact, int]) -> int:
    """Bytes that an artifact takes up in the cache. An artifact larger than the cache is cached alone."""
    return min(loaded[1], limits.MAX_CACHED_ARTIFACT_BYTES)
