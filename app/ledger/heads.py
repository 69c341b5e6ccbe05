"""Stores the newest signed head of every account in files outside the database.

A database that was restored from an older backup has fewer entries than a head states, or other entries, so the restore
is noticed. A head is written after the commit of the entries that it covers. So an intact database is never behind a
head, even if a process is killed.

::

    <account id>.<number of entries>.checkpoint    a head; the one with the most entries counts
    <account id>.checkpoint                        a head that another version wrote, or that an operator brought
    <account id>.<number of entries>.lost          a head that was set aside

No file is written twice, so processes and machines write heads without a lock, and none replaces a newer head.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor

from app.core import stamps
from app.core.errors import HeadNotSigned, InstallationError, LedgerRewound
from app.core.stores import Store, StoredFile
from app.ledger import checkpoints
from app.ledger.checkpoints import Checkpoint

_log = logging.getLogger(__name__)
_SUFFIX = ".checkpoint"
_PROBE = "writable"
_READ_AT_ONCE = 8


class HeadFolder:
    """The heads of an installation; several machines may share them.

    Args:
        store: of heads alone.
        signers: verifier keys whose signatures are believed.
    """

    def __init__(self, store: Store, signers: Collection[str]) -> None:
        self._store = store
        self._signers = signers
        self._names: dict[str, dict[str, int]] = defaultdict(dict)
        """Names of known heads by account, with their number of entries."""

    def read_all(self) -> list[Checkpoint]:
        """The newest head of every account.

        Raises:
            InstallationError: a file in the folder is not a head (the file is damaged, or the folder belongs to another
                program), or no head can be written there, so that a restore would go unnoticed; or the store replaces
                files that it was asked to refuse, so that machines could replace each other's heads and keys.
            HeadNotSigned: a head has no valid signature of a signer.
            LedgerRewound: two heads state different histories of an account.
        """
        heads = self._read_listed()
        while None in heads.values():  # a writer has replaced a listed head by a newer one
            heads = self._read_listed()
        newest: dict[str, Checkpoint] = {}
        for name, head in heads.items():
            assert head is not None
            self._names[head.account_id][name] = head.size
            other = newest.setdefault(head.account_id, head)
            if other.size == head.size and other.root != head.root:
                raise LedgerRewound(head.account_id)
            if other.size < head.size:
                newest[head.account_id] = head
        return [newest[account_id] for account_id in sorted(newest)]

    def _probe(self) -> None:
        """Writes an empty file, twice if it is new: the store has to refuse the second one, as it has to for heads."""
        for _ in range(2):
            try:
                with self._store.new(_PROBE, existing="refuse"):
                    pass  # the file stays empty
            except FileExistsError:
                return
        raise InstallationError("the store replaces files; it has to support conditional writes (If-None-Match)")

    def _read_listed(self) -> dict[str, Checkpoint | None]:
        """The heads of all files by name, ``None`` where a file is gone since the listing; see :meth:`read_all`."""
        try:
            self._probe()
            names = sorted(_names_in(self._store))
        except OSError as error:
            raise InstallationError(f"heads cannot be kept: {error.strerror}") from None
        try:
            with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
                return dict(zip(names, pool.map(self._read, names), strict=True))
        except OSError as error:
            raise InstallationError(f"heads cannot be read: {error.strerror}") from None

    def write(self, checkpoint: Checkpoint, note: str) -> None:
        """Writes a head durably, and then removes older heads of the account.

        Raises:
            OSError: the folder cannot be written, or an older head cannot be read; a repetition completes the call.
        """
        name = f"{checkpoint.account_id}.{checkpoint.size}{_SUFFIX}"
        with self._store.new(name, existing="keep") as file:
            file.write(note.encode("utf-8"))
        known = self._names[checkpoint.account_id]
        known[name] = checkpoint.size
        for older in [known_name for known_name, size in known.items() if size < checkpoint.size]:
            try:
                self._read(older)
                self._store.delete(older)
            except InstallationError:  # the head stays as evidence
                _log.error(
                    "a head is damaged or forged; the next start refuses it",
                    extra={"account_id": checkpoint.account_id},
                )
            del known[older]

    def set_aside(self, head: Checkpoint) -> None:
        """Renames the files of an account whose entries were lost for good, as evidence that no comparison reads.

        Raises:
            OSError: the folder cannot be written.
        """
        for name, size in self._names.pop(head.account_id).items():
            content = StoredFile(self._store, name).read_bytes()
            with self._store.new(f"{head.account_id}.{size}.lost", existing="keep") as file:
                file.write(content)
            self._store.delete(name)

    def _read(self, name: str) -> Checkpoint | None:
        """A head; ``None`` if another process has just replaced it by a newer one.

        Raises:
            InstallationError: see :meth:`read_all`.
            HeadNotSigned: see :meth:`read_all`.
            OSError: the store does not answer.
        """
        account_id = name.partition(".")[0]
        try:
            note = StoredFile(self._store, name).read_bytes().decode("utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            note = ""
        head = checkpoints.read(account_id, note)
        not_ours = InstallationError(f"{name} is not a head that this program wrote; see the operator's guide")
        if head is None or not stamps.is_reference(account_id):
            raise not_ours
        if not checkpoints.is_signed(note, self._signers):
            raise HeadNotSigned(name)
        if name not in (f"{account_id}{_SUFFIX}", f"{account_id}.{head.size}{_SUFFIX}"):
            raise not_ours
        return head


def has_any(store: Store) -> bool:
    """Whether a store has a head.

    Raises:
        InstallationError: the store does not answer.
    """
    try:
        return any(_names_in(store))
    except OSError as error:
        raise InstallationError(f"heads cannot be read: {error.strerror}") from None


def _names_in(store: Store) -> Iterator[str]:
    return (file.name for file in store.files("") if file.name.endswith(_SUFFIX) and "/" not in file.name)
