"""Stores artifacts as files that are named by their SHA-256. A file is written once and never changed."""

import hashlib
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from app.core import durable
from app.core.errors import Unavailable


class ArtifactLost(Unavailable):
    """The file of a model is absent or has other bytes: its disk is lost, or the model was deleted at this moment."""

    def __init__(self) -> None:
        super().__init__("the file of a model cannot be read", retry_after_s=60)


class ArtifactStore:
    """The artifacts below one folder. Two writers of equal bytes write the same file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, data: bytes) -> str:
        """Stores bytes and returns their digest; the file and its folders are synced before it returns."""
        digest = hashlib.sha256(data).hexdigest()
        path = self.path(digest)
        if path.exists():
            return digest
        durable.make_folder(path.parent)
        durable.write(path, data)
        return digest

    def get(self, digest: str) -> bytes:
        """Reads the bytes of an artifact and checks their digest.

        Raises:
            ArtifactLost: the file is absent, or its bytes have changed.
        """
        try:
            data = self.path(digest).read_bytes()
        except FileNotFoundError:
            raise ArtifactLost from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise ArtifactLost
        return data

    def open(self, digest: str) -> BinaryIO:
        """Opens the file of an artifact after a check of its digest; the file outlives the artifact's removal.

        Raises:
            ArtifactLost: the file is absent, or its bytes have changed.
        """
        with ExitStack() as closes:
            try:
                file = closes.enter_context(self.path(digest).open("rb"))
            except FileNotFoundError:
                raise ArtifactLost from None
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise ArtifactLost
            file.seek(0)
            closes.pop_all()
            return file

    def remove(self, digest: str) -> None:
        """Removes the file of an artifact that no model refers to, and unfinished files of killed writers, if any."""
        path = self.path(digest)
        path.unlink(missing_ok=True)
        for unfinished in path.parent.glob(f".{digest}.*"):
            unfinished.unlink(missing_ok=True)

    def digests(self, *, before: datetime) -> list[str]:
        """Digests of the artifacts that were stored before a time and have not been changed since."""
        digests = []
        for file in self._folder.glob("*/*.safetensors"):
            with suppress(FileNotFoundError):  # removed since the listing
                if file.stat().st_mtime < before.timestamp() and self.path(file.stem) == file:
                    digests.append(file.stem)
        return digests

    def path(self, digest: str) -> Path:
        """The path of an artifact, which need not exist."""
        return self._folder / digest[:2] / f"{digest}.safetensors"
