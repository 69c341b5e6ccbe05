"""Compares what stands outside the database with it before a process serves requests:
heads, keys, records of erasures.

Signed heads are written outside the database after every commit. The signing key is
opened here, its public key pinned in the database, and a lost key replaced. The storage
keys must be those that wrapped the data keys of the datasets.

The records of erasures stand beside the heads. The control chain names every erasure,
so a record of a dataset or an upload that is missing is written again. Whoever changes
files beside the heads can take records away and cannot make any: what nobody signed is
believed only where the control chain says that it happened, as in records of versions
that signed none.
"""

import json
import logging
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.core import stamps
from app.core.errors import InstallationError, LedgerRewound
from app.core.files import Store, why
from app.core.processes import Periodic
from app.core.sealed_files import StorageKeys
from app.core.settings import Settings
from app.datasets import catalog, erasure_log
from app.datasets.erasure_log import UNIT, ErasureLog
from app.db import revisions
from app.db.database import Database, transaction_time
from app.ledger import control, tables
from app.ledger.checkpoints import (
    Checkpoint,
    HeadFolder,
    Log,
    Signer,
    has_any,
    is_signed,
    pin_key,
    pinned_keys,
)
from app.ledger.tables import EntryKind
from app.services.installation import Installation, read_storage_keys, storage_key_file
from grovekeeper_common import durable_files

PUBLISH_INTERVAL_S = 1.0
"""Seconds between two searches for accounts that grew."""

_IF_LOST = "; if it is lost for good, run: grovekeeper db new-signer"

_log = logging.getLogger(__name__)


def open_signer(settings: Settings, pinned: Sequence[str], *, make: bool) -> Signer:
    """Opens the signing key that the database names.

    Args:
        pinned: the verifier keys in the database; empty before the first start.
        make: whether to make a missing key, unless the settings name its file.

    Raises:
        InstallationError: the key is missing or invalid, or is not the last pinned key.
    """
    file = _file(settings)
    make = make and settings.signing_key_file is None
    if not make and not file.exists():
        # without a database that names keys, as before a restore, no other key helps
        advice = _IF_LOST if pinned else ""
        raise InstallationError(
            f"the signing key {file} is missing. Put it back{advice}"
        )
    signer = Signer.open(file, make=make)
    if pinned and signer.verifier_key != pinned[-1]:
        raise InstallationError(
            f"the key in {file} is not the signing key that the database names; see the operator's guide, The signing "
            "key"
        )
    return signer


def pin_first_signer(database: Database, signer: Signer) -> None:
    """Pins the signing key of an installation at its first start.

    Raises:
        InstallationError: another process has pinned another key.
    """
    try:
        _pin(database, signer, after=[])
    except IntegrityError:
        with database.read() as session:
            if pinned_keys(session)[-1] != signer.verifier_key:
                raise InstallationError(
                    "another process uses another signing key; share one home or key"
                ) from None


def replace_signer(settings: Settings, database: Database) -> Signer:
    """Pins the key in the file of the signing key, and makes it first if the default
    file is missing.

    Heads of earlier signers stay valid.

    Raises:
        InstallationError: the key is invalid, or is pinned already.
    """
    file = _file(settings)
    with database.read() as session:
        pinned = pinned_keys(session)
    signer = Signer.open(file, make=settings.signing_key_file is None)
    if signer.verifier_key in pinned[-1:]:
        raise InstallationError(
            f"the key in {file} is the signing key already; move the file away to make another key"
        )
    _pin(database, signer, after=pinned)
    return signer


def _file(settings: Settings) -> Path:
    return settings.signing_key_file or settings.home / "signing.key"


def _pin(database: Database, signer: Signer, *, after: Sequence[str]) -> None:
    with database.write() as session:
        pin_key(session, signer.verifier_key, after=after)
        control.record(
            session,
            EntryKind.SIGNER_PINNED,
            actor=control.OPERATOR,
            verifier_key=signer.verifier_key,
        )


def open_log(installation: Installation) -> ErasureLog:
    """The records of erasures, to write one."""
    signer = open_signer(installation.settings, [], make=False)
    return log_of(installation.heads, signer, [signer.verifier_key])


def log_of(store: Store, signer: Signer, verifier_keys: Collection[str]) -> ErasureLog:
    """The records of erasures beside the heads in a store, of which those with a
    signature of a key are believed.
    """
    return ErasureLog(
        store,
        sign=signer.sign_text,
        is_signed=lambda note: is_signed(note, verifier_keys),
    )


def confirm_erasures(session: Session, log: ErasureLog) -> None:
    """Compares the records with the control chain at a start; signs those of earlier
    versions, writes missing ones.

    Raises:
        OSError: the records cannot be read or written.
    """
    explained = _explained(session)
    units = control.details_of(session, EntryKind.UNIT_ERASED)
    n_old_units = Counter(act["dataset"] for act in units if "record" not in act)
    n_old_units.subtract(
        name.partition(".")[0]
        for name in log.records.keys() - explained
        if name.endswith(UNIT)
    )
    for name, content in sorted(log.unsigned.items()):
        dataset_id = name.partition(".")[0]
        is_old_unit = name.endswith(UNIT) and n_old_units[dataset_id] > 0
        facts = _facts_of_old_unit(content) if is_old_unit else {}
        if facts is None or not (
            is_old_unit or (name in explained and not name.endswith(UNIT))
        ):
            raise NotARecord(name)
        n_old_units[dataset_id] -= is_old_unit
        log.write(name, facts, existing="replace")
    for name in sorted(explained - log.records.keys() - log.unsigned.keys()):
        if name.endswith(UNIT):
            # The name of the record is that of its act, which lists of acts show.
            _log.error(
                "a record of an erased unit is missing beside the heads; put the folder erasures back from a copy, or "
                "older backups do not restore",
                extra={"dataset_id": name.partition(".")[0]},
            )
        else:
            log.write(name)


def require_erasures(
    session: Session, log: ErasureLog, head: Checkpoint | None
) -> None:
    """Checks before a restore that the records of all acts are there that the restored
    control chain lacks.

    Raises:
        InstallationError: a record is missing, or a file is no record of this
            installation and no act explains it.
    """
    explained = _explained(session)
    for name in sorted(log.unsigned.keys() - explained):
        raise NotARecord(name)
    n_missing = 0
    if head is not None and head.erasures is not None:
        n_missing = head.erasures - len(explained) - len(log.records.keys() - explained)
    if n_missing > 0:
        raise InstallationError(
            f"{n_missing} of the records of erasures after the backup are missing beside the heads, so the restore "
            "would bring erased rows back. Put the folder erasures back from a copy, or restore a newer backup"
        )


class NotARecord(InstallationError):
    """A file among the records of erasures that this installation did not sign, or not
    under this name.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{erasure_log.FOLDER}/{name} beside the heads is not a record that this installation signed, and no act "
            "of the control chain explains it. Put the file back from a copy of the folder, or move it away if nobody "
            "erased what it names. Records of an earlier version are signed when the installation starts"
        )


def _explained(session: Session, *, until: int | None = None) -> set[str]:
    """The names of the records of all erasures in the control chain. Earlier versions
    named no record of a unit.
    """
    deleted, uploads, units = (
        control.details_of(session, kind, until=until)
        for kind in (
            EntryKind.DATASET_DELETED,
            EntryKind.UPLOAD_ERASED,
            EntryKind.UNIT_ERASED,
        )
    )
    names = {erasure_log.dataset_record(act["dataset"]) for act in deleted}
    names |= {
        erasure_log.upload_record(act["dataset"], act["upload"]) for act in uploads
    }
    return names | {
        erasure_log.unit_record(act["dataset"], act["record"])
        for act in units
        if "record" in act
    }


def _facts_of_old_unit(content: bytes) -> dict[str, object] | None:
    """The facts of a record that an earlier version wrote; ``None`` if the file is
    damaged.
    """
    try:
        facts = json.loads(content)
        return {
            "last_upload": int(facts["last_upload"]),
            "row_id": bytes.fromhex(facts["row_id"]).hex(),
        }
    except (ValueError, KeyError, TypeError):
        return None


class Heads:
    """The heads of all accounts as one process knows them, and their signing key.
    Threads may share an instance.

    Call a method only when the database is at this program's revision.

    Args:
        installation: its home holds the signing key and the heads, unless the settings
            name other places.

    Attributes:
        rewound: how a comparison of this process has failed, if one has.
    """

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._settings = installation.settings
        self._database = installation.database
        self._lock = threading.Lock()
        self._confirmed: _Confirmed | None = None
        self.rewound: LedgerRewound | None = None
        self._is_current = False

    @property
    def is_current(self) -> bool:
        """Whether the database answers and is at this program's revision, as last read."""
        return self._is_current or self.read_revision()

    def read_revision(self) -> bool:
        """Reads whether the database is at this program's revision: a newer version may
        have upgraded it meanwhile.
        """
        self._is_current = revisions.is_current(self._database)
        return self._is_current

    @property
    def signer(self) -> Signer:
        """The signing key; raises what :meth:`confirm` raises."""
        return self.confirm().signer

    def confirm(self) -> "_Confirmed":
        """Compares the database with every written head, once in this process; later
        calls read nothing.

        Raises:
            LedgerRewound: an account is missing, shorter than its head, or has another
                history, now or at an earlier call of :meth:`publish`; or a head is not
                signed.
            InstallationError: a head cannot be read, heads cannot be written, a file
                beside them is not a record of an erasure that this installation signed,
                the signing key is missing, invalid, or not the key that the database
                names, or the storage key of a dataset is missing.
        """
        if self.rewound is not None:
            raise self.rewound
        confirmed = self._confirmed
        if confirmed is None:
            with self._lock:
                confirmed = self._confirmed
                if confirmed is None:
                    confirmed = self._confirmed = self._compare()
        return confirmed

    def n_behind(self, sizes: Mapping[str, int]) -> int:
        """The number of accounts with entries that are in no head yet.

        Args:
            sizes: number of entries of every account, by id.
        """
        heads = dict(self.confirm().heads)
        return sum(
            account_id not in heads or heads[account_id].size < size
            for account_id, size in sizes.items()
        )

    def publish(self) -> None:
        """Writes the head of every account that grew since the last call.

        Raises:
            LedgerRewound: an account is shorter than before, or its earlier entries
                differ.
            OSError: heads cannot be written; the next call writes the missing heads.
        """
        confirmed = self.confirm()
        with self._lock:
            with self._database.read() as session:
                sizes = tables.sizes(session)
            for account_id, head in confirmed.heads.items():
                if sizes.get(account_id, 0) < head.size:
                    raise self._refusal(account_id)
            for account_id, size in sizes.items():
                before = confirmed.heads.get(account_id)
                if before is None or size > before.size:
                    confirmed.heads[account_id] = self._write(
                        confirmed, account_id, size
                    )

    def _write(self, confirmed: "_Confirmed", account_id: str, size: int) -> Checkpoint:
        """Compares with the last head again: a restored database may already have grown
        beyond the head.
        """
        before = confirmed.heads.get(account_id)
        with self._database.read() as session:
            if (
                before is not None
                and Log(session, account_id).root(before.size) != before.root
            ):
                raise self._refusal(account_id)
            head = checkpoint_of(session, account_id, size)
            if account_id == control.CHAIN:
                head = replace(head, erasures=len(_explained(session, until=size)))
        confirmed.folder.write(head, confirmed.signer.sign(head))
        return head

    def _compare(self) -> "_Confirmed":
        """Compares with the heads of pinned signers. The first key is made where no
        head is, and pinned at the end.
        """
        store = self._installation.heads
        with self._database.read() as session:
            pinned = pinned_keys(session)
        has_heads = has_any(store)
        signer = open_signer(self._settings, pinned, make=not pinned and not has_heads)
        verifier_keys = pinned or [signer.verifier_key]
        folder = HeadFolder(store, verifier_keys)
        try:
            heads = folder.read_all()
        except LedgerRewound as error:
            self.rewound = error
            raise
        with self._database.read() as session:
            sizes = tables.sizes(session)
            for head in heads:
                same = sizes.get(head.account_id, 0) >= head.size
                if (
                    not same
                    or Log(session, head.account_id).root(head.size) != head.root
                ):
                    raise self._refusal(head.account_id)
            try:
                confirm_erasures(session, log_of(store, signer, verifier_keys))
            except OSError as error:
                raise InstallationError(
                    f"the records of erasures cannot be kept: {why(error)}"
                ) from None
        confirm_storage_keys(self._installation)
        if not pinned:
            pin_first_signer(self._database, signer)
        return _Confirmed(signer, folder, {head.account_id: head for head in heads})

    def _refusal(self, account_id: str) -> LedgerRewound:
        """Makes the refusal permanent for this process."""
        _log.error(
            "the ledger contradicts its written head", extra={"account_id": account_id}
        )
        self.rewound = LedgerRewound(account_id)
        return self.rewound


@dataclass
class _Confirmed:
    """The state after a successful comparison: signing key, folder, and the newest head
    of every account.
    """

    signer: Signer
    folder: HeadFolder
    heads: dict[str, Checkpoint]


class HeadWriter(Periodic):
    """Publishes heads, once more when it is stopped: after an orderly stop they cover
    every entry.
    """

    def __init__(self, heads: Heads) -> None:
        super().__init__("heads", self._publish, interval_s=PUBLISH_INTERVAL_S)
        self._heads = heads

    def _publish(self, _: threading.Event) -> None:
        if self._heads.read_revision():
            self._heads.publish()

    def _run(self) -> None:
        super()._run()
        self._turn()


def checkpoint_of(session: Session, account_id: str, size: int) -> Checkpoint:
    """A checkpoint, with the present time, of an account's first ``size`` entries."""
    at = stamps.to_text(transaction_time(session))
    return Checkpoint(account_id, size, Log(session, account_id).root(size), at)


def confirm_storage_keys(installation: Installation) -> None:
    """Checks that this process can read every data key in the database. Makes a key at
    the first start.

    A key is made in the home if no setting names one and the database has no data key.
    If several processes make one at once, they share the key of the first. Where
    machines share a store, no key is made: each would make another one.
    """
    with installation.database.read() as session:
        wrapped = catalog.wrapped_keys(session)
    settings = installation.settings
    file = storage_key_file(installation.settings)
    if (
        settings.storage_key is None
        and settings.store is None
        and not wrapped
        and not file.exists()
    ):
        durable_files.write(file, StorageKeys.new_text().encode(), existing="keep")
    installation.storage_keys.require(wrapped)


def rewrap_data_keys(settings: Settings, database: Database) -> tuple[str, int]:
    """Wraps every data key with the newest storage key, in one transaction, so that
    older keys can be removed.

    Processes may serve meanwhile, if they were started with the newest key. A repeated
    call changes nothing.

    Returns:
        The id of the newest key, and the number of datasets whose keys were wrapped.
    """
    keys = read_storage_keys(settings)
    with database.write() as session:
        n_wrapped = catalog.wrap_keys_anew(session, keys)
        if n_wrapped:
            actor = control.OPERATOR
            kind = EntryKind.STORAGE_KEY_CHANGED
            control.record(session, kind, actor=actor, storage_key=keys.newest_id)
    database.forget_deleted()
    return keys.newest_id, n_wrapped
