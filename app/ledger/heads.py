"""Stores the newest signed head of every account in files outside the database.

A database that was restored from an older backup has fewer entries than a head states, or other entries, so the restore
is noticed. A head is written after the commit of the entries that it covers. So an intact database is never behind a
head, even if a process is killed.
"""

import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from app.core import durable, ids
from app.core.errors import HeadNotSigned, InstallationError
from app.ledger import notes
from app.ledger.notes import Checkpoint

SUFFIX = ".checkpoint"


class HeadFolder:
    """The folder of an installation's heads; several machines may share it.

    Args:
        folder: made by the first use.
        signers: verifier keys whose signatures are believed.
    """

    def __init__(self, folder: Path, signers: Collection[str]) -> None:
        self._folder = folder
        self._signers = signers

    def read_all(self) -> list[Checkpoint]:
        """Every head that was written.

        Raises:
            InstallationError: a file in the folder is not a head (the file is damaged, or the folder belongs to another
                program), or no head can be written there, so that a restore would go unnoticed.
            HeadNotSigned: a head has no valid signature of a signer.
        """
        try:
            with self._locked():
                files = sorted(self._folder.glob(f"*{SUFFIX}"))
        except OSError as error:
            raise InstallationError(f"heads cannot be kept in {self._folder}: {error.strerror}") from None
        return [self._read(file) for file in files]

    def write(self, checkpoint: Checkpoint, note: str) -> None:
        """Writes a head durably, unless the folder has a head of the account with as many entries.

        Raises:
            InstallationError: the file of the account is not a head, or is not signed.
            OSError: the folder cannot be written.
        """
        file = self._folder / f"{checkpoint.account_id}{SUFFIX}"
        with self._locked():
            if file.exists() and self._read(file).size >= checkpoint.size:
                return
            durable.write(file, note.encode("utf-8"))

    def set_aside(self, head: Checkpoint) -> None:
        """Renames the file of a head whose entries were lost for good, as evidence that no comparison reads.

        Raises:
            OSError: the folder cannot be written.
        """
        file = self._folder / f"{head.account_id}{SUFFIX}"
        with self._locked():
            file.rename(file.with_suffix(f".{head.size}.lost"))
            durable.sync_folder(self._folder)

    def _read(self, file: Path) -> Checkpoint:
        account_id = file.name.removesuffix(SUFFIX)
        try:
            note = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            note = ""
        head = notes.read(account_id, note)
        if head is None or not ids.is_reference(account_id):
            raise InstallationError(f"{file} is not a head that this program wrote; see the operator's guide")
        if not notes.is_signed(note, self._signers):
            raise HeadNotSigned(str(file))
        return head

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
