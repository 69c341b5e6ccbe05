"""Signs and reads checkpoints, which state the size and root of an account's log; pins the signers' public keys.

The form is that of transparency logs (C2SP ``tlog-checkpoint`` in a C2SP ``signed-note``), so that tools for
transparency logs read it: a line that names the log, the number of entries, the root in base64, the time; an empty
line; and a line with the Ed25519 signature over everything before the empty line, its end included. The public keys
stand in the database, where a forged head cannot reach them.
"""

import base64
import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.core import files
from app.core.errors import InstallationError
from app.ledger.tables import SignerRow

KEY_NAME = "grovekeeper"
_ED25519 = b"\x01"
_TEXT = re.compile(
    r"(?P<origin>[^\n]+)\n(?P<size>[1-9][0-9]{0,17})\n(?P<root>[A-Za-z0-9+/]{43}=)\n(?P<at>[^\n]+)\n"
    r"(?:erasures (?P<erasures>[0-9]{1,18})\n)?\n— [^\n]+\n"
)


@dataclass(frozen=True)
class Checkpoint:
    """The head of an account's log at one time.

    Attributes:
        account_id: of the log.
        size: number of entries.
        root: Merkle root over these entries.
        at: RFC 3339 time of signing.
        erasures: only in heads of the control chain that are kept beside the database: how many records of erasures
            stand beside the head.
    """

    account_id: str
    size: int
    root: bytes
    at: str
    erasures: int | None = None

    def text(self) -> str:
        """The lines that are signed."""
        lines = [origin(self.account_id), str(self.size), base64.b64encode(self.root).decode("ascii"), self.at]
        if self.erasures is not None:
            lines.append(f"erasures {self.erasures}")
        return "".join(f"{line}\n" for line in lines)


def origin(account_id: str) -> str:
    """The name of an account's log in notes and proofs."""
    return f"grovekeeper/ledger/{account_id}"


class Signer:
    """An Ed25519 key pair that signs checkpoints."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        public = key.public_key()
        raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self._key_hash = hashlib.sha256(KEY_NAME.encode() + b"\n" + _ED25519 + raw).digest()[:4]
        self.public_pem = public.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ).decode("ascii")
        encoded = base64.b64encode(_ED25519 + raw).decode("ascii")
        self.verifier_key = f"{KEY_NAME}+{self._key_hash.hex()}+{encoded}"

    @classmethod
    def open(cls, file: Path, *, make: bool) -> "Signer":
        """Reads a key, PKCS #8 in PEM.

        Args:
            file: the key file.
            make: whether to make a key, readable by its owner only, if the file does not exist. If several processes
                make a key at once, one process makes it and the others read it.

        Raises:
            InstallationError: the file does not exist or holds no Ed25519 key.
        """
        if make and not file.exists():
            _make(file)
        try:
            key = serialization.load_pem_private_key(file.read_bytes(), password=None)
        except OSError:
            raise InstallationError(f"the signing key {file} cannot be read") from None
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise InstallationError(f"{file} holds no private key in PEM without a password") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise InstallationError(f"the key in {file} is not an Ed25519 key")
        return cls(key)

    def derived(self, purpose: bytes) -> bytes:
        """A secret of 32 bytes for one purpose, the same on every machine that has this key."""
        private = self._key.private_bytes_raw()
        return HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(private)

    def sign(self, checkpoint: Checkpoint) -> str:
        """The signed note of a checkpoint."""
        return self.sign_text(checkpoint.text())

    def sign_text(self, text: str) -> str:
        """The signed note of lines whose first line states their purpose, unlike that of any other note."""
        signature = base64.b64encode(self._key_hash + self._key.sign(text.encode("utf-8"))).decode("ascii")
        return f"{text}\n— {KEY_NAME} {signature}\n"


def read(account_id: str, note: str) -> Checkpoint | None:
    """The checkpoint in a note, whose signature is not checked; ``None`` if the note is not of this account's log."""
    match = _TEXT.fullmatch(note)
    if match is None or match["origin"] != origin(account_id):
        return None
    erasures = None if match["erasures"] is None else int(match["erasures"])
    return Checkpoint(account_id, int(match["size"]), base64.b64decode(match["root"]), match["at"], erasures)


def is_signed(note: str, verifier_keys: Collection[str]) -> bool:
    """Whether a note has a valid signature of one of the keys over everything before the signature."""
    text, _, line = note.rpartition("\n— ")
    try:
        signature = base64.b64decode(line.rpartition(" ")[2].rstrip("\n"), validate=True)
    except ValueError:
        return False
    return any(_verifies(key, signature, text.encode("utf-8")) for key in verifier_keys)


def _verifies(verifier_key: str, signature: bytes, text: bytes) -> bool:
    _, key_hash, encoded = verifier_key.split("+", 2)
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(encoded).removeprefix(_ED25519))
    try:
        key.verify(signature[4:], text)
    except InvalidSignature:
        return False
    return signature[:4].hex() == key_hash


def _make(file: Path) -> None:
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    files.write(file, pem, existing="keep")  # the first of several processes wins


def pinned(session: Session) -> list[str]:
    """The verifier keys of all signers, the present signer last; empty before the first start."""
    return list(session.execute(select(SignerRow.verifier_key).order_by(SignerRow.ordinal)).scalars())


def pin(session: Session, verifier_key: str, *, after: Sequence[str], at: datetime) -> None:
    """Makes a key the present signer's. ``after``: the pinned keys, as the caller read them.

    Raises:
        sqlalchemy.exc.IntegrityError: another process has pinned a key since.
    """
    session.add(SignerRow(ordinal=len(after) + 1, verifier_key=verifier_key, pinned_at=at))
    session.flush()
