"""Caches loaded artifacts by digest. Artifacts are immutable, so a cached artifact is never stale."""

import threading

from cachetools import LRUCache

from app.core import limits
from app.forests import artifacts
from app.forests.artifacts import Artifact
from app.registry.store import ArtifactStore

_MEMORY_OF_JSON = 12
"""Bytes of memory for a byte of JSON. Schema, guarantee and receipt are most of a small model: measured, 6 to 12."""


class ArtifactCache:
    """The most recently used artifacts of a store. Safe to share among threads."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._loaded: LRUCache[str, tuple[Artifact, int]] = LRUCache(limits.MAX_CACHED_ARTIFACT_BYTES, getsizeof=_size)

    def get(self, digest: str) -> "Artifact":
        """Returns the artifact of a digest, and loads it unless it is cached.

        Raises:
            ArtifactLost: the file is absent, or its bytes have changed.
        """
        loaded = self.loaded(digest)
        if loaded is not None:
            return loaded

        data = self._store.get(digest)
        artifact = artifacts.loads(data)
        with self._lock:
            self._loaded[digest] = artifact, _memory(data)
        return artifact

    def loaded(self, digest: str) -> "Artifact | None":
        """Returns the artifact of a digest if it is cached."""
        try:
            with self._lock:
                return self._loaded[digest][0]
        except KeyError:
            return None

    def forget(self, digest: str) -> None:
        """Removes a deleted artifact from the cache."""
        with self._lock:
            self._loaded.pop(digest, None)


def _memory(data: bytes) -> int:
    """Approximate bytes of memory for an artifact: its arrays, and its header, which is JSON."""
    return len(data) + (_MEMORY_OF_JSON - 1) * int.from_bytes(data[:8], "little")


def _size(loaded: "tuple[Artifact, int]") -> int:
    """Bytes of memory, as the cache counts them. An artifact larger than the cache is cached alone."""
    return min(loaded[1], limits.MAX_CACHED_ARTIFACT_BYTES)
