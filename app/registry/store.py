"""Stores artifacts as files that are named by their SHA-256, and caches loaded
artifacts.

A file is written once and never changed, so a cached artifact is never stale.
"""

import errno
import hashlib
import secrets
import threading
from contextlib import ExitStack, suppress
from datetime import datetime
from typing import BinaryIO

from cachetools import LRUCache

from app.core import limits
from app.core.errors import Unavailable
from app.core.files import Store
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.read import Artifact

FOLDER = "artifacts"
_ENDING = ".safetensors"

_MEMORY_OF_JSON = 12
"""Bytes of memory for a byte of JSON. Schema, guarantee and receipt are most of a small
model: measured, 6 to 12.
"""


class ArtifactLost(Unavailable):
    """The file of a model is absent or has other bytes: its disk is lost, or the model
    was deleted at this moment.
    """

    def __init__(self) -> None:
        super().__init__("the file of a model cannot be read", retry_after_s=60)


class ArtifactStore:
    """The artifacts of an installation. Two writers of equal bytes write the same file."""

    def __init__(self, files: Store) -> None:
        self._files = files

    def put(self, data: bytes) -> str:
        """Stores bytes durably and returns their digest."""
        digest = hashlib.sha256(data).hexdigest()
        with self._files.new(name_of(digest), existing="keep") as file:
            file.write(data)
        return digest

    def require_room(self, n_bytes: int) -> None:
        """Checks that an artifact can be stored now: stores a small one, removes it,
        and looks at the free space.

        Bytes that a killed process leaves are those of an artifact without a model,
        which sweepers remove.

        Raises:
            OSError: the store cannot be written, or the disk has too few free bytes.
        """
        self.remove(self.put(secrets.token_bytes(limits.JOB_PROBE_BYTES)))
        if self._files.free_bytes(FOLDER) < n_bytes:
            raise OSError(errno.ENOSPC, "too little space for an artifact")

    def get(self, digest: str) -> bytes:
        """Reads the bytes of an artifact and checks their digest.

        Raises:
            ArtifactLost: the file is absent, or its bytes have changed.
        """
        try:
            data = self._files.local(name_of(digest)).read_bytes()
        except FileNotFoundError:
            raise ArtifactLost from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise ArtifactLost
        return data

    def open(self, digest: str) -> BinaryIO:
        """Opens the file of an artifact after a check of its digest; the file outlives
        the artifact's removal.

        Raises:
            ArtifactLost: the file is absent, or its bytes have changed.
        """
        with ExitStack() as closes:
            try:
                file = closes.enter_context(
                    self._files.local(name_of(digest)).open("rb")
                )
            except FileNotFoundError:
                raise ArtifactLost from None
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise ArtifactLost
            file.seek(0)
            closes.pop_all()
            return file

    def remove(self, digest: str) -> None:
        """Removes the file of an artifact that no model refers to, and unfinished files
        of killed writers, if any.
        """
        name = name_of(digest)
        self._files.delete(name)
        for listed in list(self._files.files(name.rpartition("/")[0])):
            if listed.basename.startswith(f".{digest}."):
                self._files.delete(listed.name)

    def digests(self, *, before: datetime) -> list[str]:
        """Digests of the artifacts that were stored before a time and have not been
        changed since.
        """
        old = (file for file in self._files.files(FOLDER) if file.changed_at < before)
        stored = {file.name: file.basename.removesuffix(_ENDING) for file in old}
        return [digest for name, digest in stored.items() if name_of(digest) == name]


def name_of(digest: str) -> str:
    """The name of an artifact in the store."""
    return f"{FOLDER}/{digest[:2]}/{digest}{_ENDING}"


class ArtifactCache:
    """The most recently used artifacts of a store. Safe to share among threads."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._loaded: LRUCache[str, tuple[Artifact, int]] = LRUCache(
            limits.MAX_CACHED_ARTIFACT_BYTES, getsizeof=_size
        )

    def get(self, digest: str) -> "Artifact":
        """Returns the artifact of a digest, and loads it unless it is cached."""
        loaded = self.loaded(digest)
        if loaded is not None:
            return loaded

        data = self._store.get(digest)
        artifact = released_forest.loads(data)
        with self._lock:
            self._loaded[digest] = (
                artifact,
                _MEMORY_OF_JSON * int.from_bytes(data[:8], "little"),
            )
        return artifact

    def recount(self, digest: str) -> None:
        """Counts the memory of an artifact again after a prediction, which may have
        prepared its trees for a read-out.

        The least recently used artifacts make room.
        """
        with self._lock, suppress(KeyError):
            self._loaded[digest] = self._loaded.pop(digest)

    @property
    def size_bytes(self) -> int:
        """Bytes of memory of the artifacts that are loaded."""
        with self._lock:
            return int(self._loaded.currsize)

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


def _size(loaded: "tuple[Artifact, int]") -> int:
    """Bytes of memory: arrays and JSON, as the cache counts them. An artifact larger
    than the cache is cached alone.
    """
    artifact, json_bytes = loaded
    return min(
        json_bytes + artifact.predictor.memory_bytes(),
        limits.MAX_CACHED_ARTIFACT_BYTES,
    )
