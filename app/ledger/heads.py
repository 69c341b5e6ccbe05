"""The newest signed head of every account, as files outside the database.

A database that was restored from an older backup is shorter than what was written here, or is another history: that is
how a restore is noticed. A head is written after the commit of the entries that it covers, so a sound database is never
behind it, whatever is killed when.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.core import durable, ids
from app.core.errors import InstallationError
from app.ledger import notes
from app.ledger.notes import Checkpoint

SUFFIX = ".checkpoint"


class HeadFolder:
    """One folder of heads, which belongs to one installation and may be shared by its machines."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read_all(self) -> list[Checkpoint]:
        """Every head that was written.

        Raises:
            InstallationError: a file in the folder is no head: it was damaged, or the folder is not ours; or no head
                can be written there, so that a restore would go unnoticed.
        """
        try:
            with self._locked():
                files = sorted(self._folder.glob(f"*{SUFFIX}"))
        except OSError as error:
            raise InstallationError(f"heads cannot be kept in {self._folder}: {error.strerror}") from None
        return [self._read(file) for file in files]

    def write(self, checkpoint: Checkpoint, note: str) -> None:
        """Writes a head durably, unless one that covers as much stands there already. It never goes backwards.

        Raises:
            OSError: the folder cannot be written.
        """
        file = self._folder / f"{checkpoint.account_id}{SUFFIX}"
        with self._locked():
            if file.exists() and self._read(file).size >= checkpoint.size:
                return
            durable.write(file, note.encode("utf-8"))

    def _read(self, file: Path) -> Checkpoint:
        account_id = file.name.removesuffix(SUFFIX)
        try:
            found = notes.read(account_id, file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            found = None
        if found is None or not ids.is_reference(account_id):
            raise InstallationError(f"{file} is not a head that this program wrote; see the operator's guide")
        return found

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # by name: a child between fork and exec may hold a copy
        finally:
            os.close(descriptor)
