"""Opens the signing key of an installation, pins its public key in the database, and replaces a lost key."""

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy.exc import IntegrityError

from app.core.errors import InstallationError
from app.core.settings import Settings
from app.db.database import Database
from app.ledger import checkpoints, control
from app.ledger.checkpoints import Signer
from app.ledger.entries import EntryKind


def open_signer(settings: Settings, pinned: Sequence[str], *, make: bool) -> Signer:
    """Opens the signing key that the database names.

    Args:
        settings: of the installation.
        pinned: the verifier keys in the database; empty before the first start.
        make: whether to make a missing key, unless the settings name its file.

    Raises:
        InstallationError: the key is missing or invalid, or is not the last pinned key.
    """
    file = _file(settings)
    make = make and settings.signing_key_file is None
    if not make and not file.exists():
        raise InstallationError(
            f"the signing key {file} is missing. Put it back; if it is lost for good, run: grovekeeper db new-signer"
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
            if checkpoints.pinned(session)[-1] != signer.verifier_key:
                raise InstallationError("another process uses another signing key; share one home or key") from None


def replace_signer(settings: Settings, database: Database) -> Signer:
    """Pins the key in the file of the signing key, and makes it first if the default file is missing.

    Heads of earlier signers stay valid.

    Raises:
        InstallationError: the key is invalid, or is pinned already.
    """
    file = _file(settings)
    with database.read() as session:
        pinned = checkpoints.pinned(session)
    signer = Signer.open(file, make=settings.signing_key_file is None)
    if signer.verifier_key in pinned[-1:]:
        raise InstallationError(f"the key in {file} is the signing key already; move the file away to make another key")
    _pin(database, signer, after=pinned)
    return signer


def _file(settings: Settings) -> Path:
    return settings.signing_key_file or settings.home / "signing.key"


def _pin(database: Database, signer: Signer, *, after: Sequence[str]) -> None:
    with database.write() as session:
        checkpoints.pin(session, signer.verifier_key, after=after, at=database.now(session))
        control.record(session, EntryKind.SIGNER_PINNED, actor=control.OPERATOR, verifier_key=signer.verifier_key)
