"""Stores artifacts as files that are named by their SHA-256. A file is written once and never changed."""

import hashlib
from contextlib import ExitStack
from datetime import datetime
from typing import BinaryIO

from app.core.errors import Unavailable
from app.core.stores import Store

FOLDER = "artifacts"
_ENDING = ".safetensors"


class ArtifactLost(Unavailable):
    """The file of a model is absent or has other bytes: its disk is lost, or the model was deleted at this moment."""

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
        """Opens the file of an artifact after a check of its digest; the file outlives the artifact's removal.

        Raises:
            ArtifactLost: the file is absent, or its bytes have changed.
        """
        with ExitStack() as closes:
            try:
                file = closes.enter_context(self._files.local(name_of(digest)).open("rb"))
            except FileNotFoundError:
                raise ArtifactLost from None
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise ArtifactLost
            file.seek(0)
            closes.pop_all()
            return file

    def remove(self, digest: str) -> None:
        """Removes the file of an artifact that no model refers to, and unfinished files of killed writers, if any."""
        name = name_of(digest)
        self._files.delete(name)
        for listed in list(self._files.files(name.rpartition("/")[0])):
            if listed.basename.startswith(f".{digest}."):
                self._files.delete(listed.name)

    def digests(self, *, before: datetime) -> list[str]:
        """Digests of the artifacts that were stored before a time and have not been changed since."""
        old = (file for file in self._files.files(FOLDER) if file.changed_at < before)
        stored = {file.name: file.basename.removesuffix(_ENDING) for file in old}
        return [digest for name, digest in stored.items() if name_of(digest) == name]


def name_of(digest: str) -> str:
    """The name of an artifact in the store."""
    return f"{FOLDER}/{digest[:2]}/{digest}{_ENDING}"
