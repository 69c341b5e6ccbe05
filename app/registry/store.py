"""Content-addressed bytes: an artifact is the file named by its SHA-256. Written once, never changed."""

import hashlib
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from app.core import durable
from app.core.errors import NotFound


class ArtifactStore:
    """Artifacts as files below one folder. Two writers of the same bytes write the same file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, data: bytes) -> str:
        """Stores bytes durably (file and folders synced before it returns) and returns their digest."""
        digest = hashlib.sha256(data).hexdigest()
        path = self.path(digest)
        if path.exists():
            return digest
        durable.make_folder(path.parent)
        durable.write(path, data)
        return digest

    def get(self, digest: str) -> bytes:
        """The bytes of a digest, checked against it.

        Raises:
            NotFound: no such artifact, or its bytes are no longer what they were.
        """
        try:
            data = self.path(digest).read_bytes()
        except FileNotFoundError:
            raise NotFound("artifact") from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise NotFound("artifact")
        return data

    def remove(self, digest: str) -> None:
        """Removes an artifact that no model refers to, and what a killed writer left of it.

        Nothing happens if they are gone already.
        """
        path = self.path(digest)
        path.unlink(missing_ok=True)
        for unfinished in path.parent.glob(f".{digest}.*"):
            unfinished.unlink(missing_ok=True)

    def digests(self, *, before: datetime) -> list[str]:
        """Digests of the artifacts that were stored before a time, and have stood there unchanged since."""
        found = []
        for file in self._folder.glob("*/*.safetensors"):
            with suppress(FileNotFoundError):  # it was removed just now
                if file.stat().st_mtime < before.timestamp() and self.path(file.stem) == file:
                    found.append(file.stem)
        return found

    def path(self, digest: str) -> Path:
        """Where the artifact of a digest is, or would be."""
        return self._folder / digest[:2] / f"{digest}.safetensors"
