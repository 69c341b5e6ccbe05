"""Loaded artifacts by digest: immutable, so a cached one is never stale."""

import threading
from collections import OrderedDict

from app.forests import artifacts
from app.registry.store import ArtifactStore


class ArtifactCache:
    """The most recently used artifacts, bounded by the bytes they had on disk. Safe to share among threads."""

    def __init__(self, store: ArtifactStore, *, max_bytes: int = 512 * 1024 * 1024) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self._lock = threading.Lock()
        self._loaded: OrderedDict[str, tuple[artifacts.Artifact, int]] = OrderedDict()

    def get(self, digest: str) -> artifacts.Artifact:
        """The artifact of a digest, loaded if need be.

        Raises:
            NotFound: no such artifact.
        """
        with self._lock:
            if digest in self._loaded:
                self._loaded.move_to_end(digest)
                return self._loaded[digest][0]
        data = self._store.get(digest)
        artifact = artifacts.loads(data)
        with self._lock:
            if digest not in self._loaded:
                self._loaded[digest] = (artifact, len(data))
                self._held_bytes += len(data)
            while self._held_bytes > self._max_bytes and len(self._loaded) > 1:
                _, (_, size) = self._loaded.popitem(last=False)
                self._held_bytes -= size
        return artifact

    def forget(self, digest: str) -> None:
        """Drops an artifact that was deleted."""
        with self._lock:
            if digest in self._loaded:
                self._held_bytes -= self._loaded.pop(digest)[1]
