"""Writes signed heads outside the database after every commit, and compares them before a process serves requests."""

import logging
import threading

from sqlalchemy.orm import Session

from app.core import clock
from app.core.errors import InstallationError, LedgerRewound
from app.db import migrate
from app.ledger import repository
from app.ledger.heads import HeadFolder
from app.ledger.log import Log
from app.ledger.notes import Checkpoint, Signer
from app.services.installation import Installation

PUBLISH_INTERVAL_S = 1.0
"""Seconds between two searches for accounts that grew."""

_log = logging.getLogger(__name__)


class Heads:
    """The heads of all accounts as one process knows them, and their signing key. Threads may share an instance.

    Call a method only when the database is at this program's revision.

    Args:
        installation: its home holds the signing key and the heads, unless the settings name other places.

    Raises:
        InstallationError: the signing key cannot be read.
    """

    def __init__(self, installation: Installation) -> None:
        settings = installation.settings
        key_file = settings.signing_key_file or installation.home / "signing.key"
        self.signer = Signer.open(key_file, make=settings.signing_key_file is None)
        self._database = installation.database
        self._folder = HeadFolder(settings.checkpoint_dir or installation.home / "checkpoints")
        self._lock = threading.Lock()
        self._written: dict[str, Checkpoint] | None = None
        self._rewound: LedgerRewound | None = None
        self._is_current = False

    @property
    def is_current(self) -> bool:
        """Whether the database answers and is at this program's revision."""
        self._is_current = self._is_current or migrate.is_current(self._database)
        return self._is_current

    @property
    def is_rewound(self) -> bool:
        """Whether a comparison of this process has failed. Reads no database."""
        return self._rewound is not None

    def confirm(self) -> None:
        """Compares the database with every written head, once in this process; later calls cost nothing.

        Raises:
            LedgerRewound: an account is missing, shorter than its head, or has another history; now or at an earlier
                call of :meth:`publish`.
            InstallationError: a head cannot be read, or heads cannot be written.
        """
        if self._rewound is not None:
            raise self._rewound
        if self._written is not None:
            return
        with self._lock:
            if self._written is None:
                self._written = self._compare()

    def publish(self) -> None:
        """Writes the head of every account that grew since the last call.

        Raises:
            LedgerRewound: an account is shorter than before, or its earlier entries differ.
            InstallationError: the file of a head is not a head; the heads of other accounts were written.
            OSError: the folder cannot be written; the next call writes the missing heads.
        """
        self.confirm()
        damaged: InstallationError | None = None
        with self._lock:
            assert self._written is not None, "confirm() compared or raised"
            with self._database.read() as session:
                sizes = repository.sizes(session)
            for account_id, head in self._written.items():
                if sizes.get(account_id, 0) < head.size:
                    raise self._refusal(account_id)
            for account_id, size in sizes.items():
                before = self._written.get(account_id)
                if before is None or size > before.size:
                    try:
                        self._written[account_id] = self._write(account_id, size, before=before)
                    except InstallationError as error:
                        damaged = damaged or error
        if damaged is not None:
            raise damaged

    def _write(self, account_id: str, size: int, *, before: Checkpoint | None) -> Checkpoint:
        """Compares with the last head again: a restored database may already have grown beyond the head."""
        with self._database.read() as session:
            if before is not None and Log(session, account_id).root(before.size) != before.root:
                raise self._refusal(account_id)
            head = checkpoint_of(session, account_id, size)
        self._folder.write(head, self.signer.sign(head))
        return head

    def _compare(self) -> dict[str, Checkpoint]:
        heads = self._folder.read_all()
        with self._database.read() as session:
            sizes = repository.sizes(session)
            for head in heads:
                same = sizes.get(head.account_id, 0) >= head.size
                if not same or Log(session, head.account_id).root(head.size) != head.root:
                    raise self._refusal(head.account_id)
        return {head.account_id: head for head in heads}

    def _refusal(self, account_id: str) -> LedgerRewound:
        """Makes the refusal permanent for this process."""
        _log.error("the ledger contradicts its written head", extra={"account_id": account_id})
        self._rewound = LedgerRewound(account_id)
        return self._rewound


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
            if self._heads.is_current:
                self._heads.publish()
        except Exception:  # noqa: BLE001 - no database or no disk space now; the next turn tries again
            _log.exception("heads were not written; will try again")


def checkpoint_of(session: Session, account_id: str, size: int) -> Checkpoint:
    """A checkpoint, with the present time, of an account's first ``size`` entries."""
    return Checkpoint(account_id, size, Log(session, account_id).root(size), clock.to_text(clock.now()))
