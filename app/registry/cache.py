"""Loaded artifacts by digest: immutable, so a cached artifact is never stale."""

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
        """The artifact of a digest, loaded if need be.

        Raises:
            NotFound: no such artifact.
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
        """Drops an artifact that was deleted."""
        with self._lock:
            self._loaded.pop(digest, None)


def _size(loaded: tuple[Artifact, int]) -> int:
    """Bytes that an artifact counts for. One that is larger than the whole cache is kept alone."""
    return min(loaded[1], limits.MAX_CACHED_ARTIFACT_BYTES)
