"""Compares the records of erasures beside the heads with the control chain, and opens them for writing.

The control chain names every erasure, so a record of a dataset or an upload that is missing is written again. Whoever
changes files beside the heads can take records away and cannot make any: what nobody signed is believed only where the
control chain says that it happened, as in records of versions that signed none.
"""

import json
import logging
from collections import Counter
from collections.abc import Collection

from sqlalchemy.orm import Session

from app.core.errors import InstallationError
from app.core.stores import Store
from app.datasets import erasure_log
from app.datasets.erasure_log import UNIT, ErasureLog
from app.ledger import checkpoints, control
from app.ledger.checkpoints import Checkpoint, Signer
from app.ledger.entries import EntryKind
from app.services.installation import Installation
from app.services.ledger.signer import open_signer

_log = logging.getLogger(__name__)


def open_log(installation: Installation) -> ErasureLog:
    """The records of erasures, to write one.

    Raises:
        InstallationError: the signing key is missing or invalid.
    """
    signer = open_signer(installation.settings, [], make=False)
    return log_of(installation.heads, signer, [signer.verifier_key])


def log_of(store: Store, signer: Signer, verifier_keys: Collection[str]) -> ErasureLog:
    """The records of erasures beside the heads in a store, of which those with a signature of a key are believed."""
    return ErasureLog(store, sign=signer.sign_text, is_signed=lambda note: checkpoints.is_signed(note, verifier_keys))


def n_erasures(session: Session, *, until: int) -> int:
    """The number of records of the erasures among the first acts of the control chain; the chain's head states it."""
    return len(_explained(session, until=until))


def confirm(session: Session, log: ErasureLog) -> None:
    """Compares the records with the control chain at a start; signs those of earlier versions, writes missing ones.

    Raises:
        InstallationError: a file is no record of this installation, and no act explains it.
        OSError: the records cannot be read or written.
    """
    explained = _explained(session)
    units = control.details_of(session, EntryKind.UNIT_ERASED)
    n_old_units = Counter(act["dataset"] for act in units if "record" not in act)
    n_old_units.subtract(name.partition(".")[0] for name in log.records.keys() - explained if name.endswith(UNIT))
    for name, content in sorted(log.unsigned.items()):
        dataset_id = name.partition(".")[0]
        is_old_unit = name.endswith(UNIT) and n_old_units[dataset_id] > 0
        facts = _facts_of_old_unit(content) if is_old_unit else {}
        if facts is None or not (is_old_unit or (name in explained and not name.endswith(UNIT))):
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


def require(session: Session, log: ErasureLog, head: Checkpoint | None) -> None:
    """Checks before a restore that the records of all acts are there that the restored control chain lacks.

    Raises:
        InstallationError: a record is missing, or a file is no record of this installation and no act explains it.
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
    """A file among the records of erasures that this installation did not sign, or not under this name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{erasure_log.FOLDER}/{name} beside the heads is not a record that this installation signed, and no act "
            "of the control chain explains it. Put the file back from a copy of the folder, or move it away if nobody "
            "erased what it names. Records of an earlier version are signed when the installation starts"
        )


def _explained(session: Session, *, until: int | None = None) -> set[str]:
    """The names of the records of all erasures in the control chain. Earlier versions named no record of a unit."""
    deleted, uploads, units = (
        control.details_of(session, kind, until=until)
        for kind in (EntryKind.DATASET_DELETED, EntryKind.UPLOAD_ERASED, EntryKind.UNIT_ERASED)
    )
    names = {erasure_log.dataset_record(act["dataset"]) for act in deleted}
    names |= {erasure_log.upload_record(act["dataset"], act["upload"]) for act in uploads}
    return names | {erasure_log.unit_record(act["dataset"], act["record"]) for act in units if "record" in act}


def _facts_of_old_unit(content: bytes) -> dict[str, object] | None:
    """The facts of a record that an earlier version wrote; ``None`` if the file is damaged."""
    try:
        facts = json.loads(content)
        return {"last_upload": int(facts["last_upload"]), "row_id": bytes.fromhex(facts["row_id"]).hex()}
    except (ValueError, KeyError, TypeError):
        return None
