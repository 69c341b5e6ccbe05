"""Writes signed heads outside the database after every commit, and compares them before a process serves requests."""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from app.core import stamps
from app.core.errors import InstallationError, LedgerRewound
from app.db import revisions
from app.db.database import transaction_time
from app.ledger import checkpoints, control, repository
from app.ledger.checkpoints import Checkpoint, Signer
from app.ledger.heads import HeadFolder, has_any
from app.ledger.log import Log
from app.services.installation import Installation
from app.services.ledger import erasure_records
from app.services.ledger.signer import open_signer, pin_first_signer
from app.services.storage_keys import confirm_storage_keys

PUBLISH_INTERVAL_S = 1.0
"""Seconds between two searches for accounts that grew."""

_log = logging.getLogger(__name__)


class Heads:
    """The heads of all accounts as one process knows them, and their signing key. Threads may share an instance.

    Call a method only when the database is at this program's revision.

    Args:
        installation: its home holds the signing key and the heads, unless the settings name other places.
    """

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._settings = installation.settings
        self._database = installation.database
        self._lock = threading.Lock()
        self._confirmed: _Confirmed | None = None
        self._rewound: LedgerRewound | None = None
        self._is_current = False

    @property
    def is_current(self) -> bool:
        """Whether the database answers and is at this program's revision, as last read."""
        return self._is_current or self.read_revision()

    def read_revision(self) -> bool:
        """Reads whether the database is at this program's revision: a newer version may have upgraded it meanwhile."""
        self._is_current = revisions.is_current(self._database)
        return self._is_current

    @property
    def signer(self) -> Signer:
        """The signing key; raises what :meth:`confirm` raises."""
        return self._confirmation().signer

    @property
    def is_rewound(self) -> bool:
        """Whether a comparison of this process has failed. Reads no database."""
        return self._rewound is not None

    def confirm(self) -> None:
        """Compares the database with every written head, once in this process; later calls read nothing.

        Raises:
            LedgerRewound: an account is missing, shorter than its head, or has another history, now or at an earlier
                call of :meth:`publish`; or a head is not signed.
            InstallationError: a head cannot be read, heads cannot be written, a file beside them is not a record of an
                erasure that this installation signed, the signing key is missing, invalid, or
                not the key that the database names, or the storage key of a dataset is missing.
        """
        self._confirmation()

    def n_behind(self, sizes: Mapping[str, int]) -> int:
        """The number of accounts with entries that are in no head yet.

        Args:
            sizes: number of entries of every account, by id.
        """
        heads = dict(self._confirmation().heads)
        return sum(account_id not in heads or heads[account_id].size < size for account_id, size in sizes.items())

    def publish(self) -> None:
        """Writes the head of every account that grew since the last call.

        Raises:
            LedgerRewound: an account is shorter than before, or its earlier entries differ.
            OSError: heads cannot be written; the next call writes the missing heads.
        """
        confirmed = self._confirmation()
        with self._lock:
            with self._database.read() as session:
                sizes = repository.sizes(session)
            for account_id, head in confirmed.heads.items():
                if sizes.get(account_id, 0) < head.size:
                    raise self._refusal(account_id)
            for account_id, size in sizes.items():
                before = confirmed.heads.get(account_id)
                if before is None or size > before.size:
                    confirmed.heads[account_id] = self._write(confirmed, account_id, size)

    def _write(self, confirmed: "_Confirmed", account_id: str, size: int) -> Checkpoint:
        """Compares with the last head again: a restored database may already have grown beyond the head."""
        before = confirmed.heads.get(account_id)
        with self._database.read() as session:
            if before is not None and Log(session, account_id).root(before.size) != before.root:
                raise self._refusal(account_id)
            head = checkpoint_of(session, account_id, size)
            if account_id == control.CHAIN:
                head = replace(head, erasures=erasure_records.n_erasures(session, until=size))
        confirmed.folder.write(head, confirmed.signer.sign(head))
        return head

    def _confirmation(self) -> "_Confirmed":
        if self._rewound is not None:
            raise self._rewound
        confirmed = self._confirmed
        if confirmed is None:
            with self._lock:
                confirmed = self._confirmed
                if confirmed is None:
                    confirmed = self._confirmed = self._compare()
        return confirmed

    def _compare(self) -> "_Confirmed":
        """Compares with the heads of pinned signers. The first key is made where no head is, and pinned at the end."""
        store = self._installation.heads
        with self._database.read() as session:
            pinned = checkpoints.pinned(session)
        has_heads = has_any(store)
        signer = open_signer(self._settings, pinned, make=not pinned and not has_heads)
        folder = HeadFolder(store, pinned or [signer.verifier_key])
        try:
            heads = folder.read_all()
        except LedgerRewound as error:
            self._rewound = error
            raise
        with self._database.read() as session:
            sizes = repository.sizes(session)
            for head in heads:
                same = sizes.get(head.account_id, 0) >= head.size
                if not same or Log(session, head.account_id).root(head.size) != head.root:
                    raise self._refusal(head.account_id)
            try:
                erasure_records.confirm(session, erasure_records.log_of(store, signer, pinned or [signer.verifier_key]))
            except OSError as error:
                raise InstallationError(f"the records of erasures cannot be kept: {error.strerror}") from None
        confirm_storage_keys(self._installation)
        if not pinned:
            pin_first_signer(self._database, signer)
        return _Confirmed(signer, folder, {head.account_id: head for head in heads})

    def _refusal(self, account_id: str) -> LedgerRewound:
        """Makes the refusal permanent for this process."""
        _log.error("the ledger contradicts its written head", extra={"account_id": account_id})
        self._rewound = LedgerRewound(account_id)
        return self._rewound


@dataclass
class _Confirmed:
    """The state after a successful comparison: signing key, folder, and the newest head of every account."""

    signer: Signer
    folder: HeadFolder
    heads: dict[str, Checkpoint]


class HeadWriter:
    """A thread of a serving process that publishes heads until it is stopped."""

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heads", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Publishes once more and ends, so that after an orderly stop the heads cover every entry."""
        self._stopping.set()
        self._thread.join(timeout=PUBLISH_INTERVAL_S)

    def _run(self) -> None:
        while not self._stopping.wait(PUBLISH_INTERVAL_S):
            self._turn()
        self._turn()

    def _turn(self) -> None:
        try:
            if self._heads.read_revision():
                self._heads.publish()
        except Exception:  # noqa: BLE001 - no database or no disk space now; the next turn tries again
            _log.exception("heads were not written; will try again")


def checkpoint_of(session: Session, account_id: str, size: int) -> Checkpoint:
    """A checkpoint, with the present time, of an account's first ``size`` entries."""
    at = stamps.to_text(transaction_time(session))
    return Checkpoint(account_id, size, Log(session, account_id).root(size), at)
