"""Checkpoints: signed statements of an account's size and root, in the form of transparency logs (C2SP signed-note).

A note is a line that names the log, the number of entries, the root in base64, the time, an empty line, and signatures:
``— <name> <base64 of 4 bytes that name the key, and the Ed25519 signature>``. Witnesses add lines of their own; those
of other keys say nothing here.
"""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

ORIGIN = "grovekeeper/ledger/"
"""What the id of an account's dataset is appended to."""

MAX_BYTES = 65_536
_ED25519 = b"\x01"
_NOTE = re.compile(
    r"(?P<signed>(?P<origin>[^\n]+)\n(?P<size>[1-9][0-9]{0,15})\n(?P<root>[A-Za-z0-9+/]{43}=)\n(?P<at>[^\n]+)\n)"
    r"\n(?P<signatures>(?:— [^\n +]+ [A-Za-z0-9+/]+={0,2}\n)+)"
)
_SIGNATURE = re.compile(r"— (?P<name>[^\n +]+) (?P<signature>[A-Za-z0-9+/]+={0,2})\n")
_VERIFIER_KEY = re.compile(r"[^\n +]+\+[0-9a-f]{8}\+(?P<key>[A-Za-z0-9+/]+={0,2})\n?")


class NotAKey(ValueError):
    """What was named as a public key is none. ``str()`` says why."""


class NotSigned(ValueError):
    """A file is not a checkpoint of this key. ``str()`` says why."""


@dataclass(frozen=True)
class Checkpoint:
    """What a log's key signed: the root over its first ``size`` entries, and when."""

    origin: str
    size: int
    root: bytes
    at: str


def read_public_key(file: Path) -> bytes:
    """The 32 bytes of an Ed25519 key: a PEM file, or one line as tools for signed notes write it.

    Raises:
        OSError: the file cannot be read.
        NotAKey: it is neither.
    """
    with file.open("rb") as stream:
        content = stream.read(MAX_BYTES)
    text = content.decode("utf-8", "replace")
    match = _VERIFIER_KEY.fullmatch(text)
    raw = _decoded(match["key"]) if match else _from_pem(content)
    if len(raw) != 33 or raw[:1] != _ED25519:
        raise NotAKey("it holds no Ed25519 public key")
    return raw[1:]


def read_checkpoint(file: Path, public_key: bytes) -> Checkpoint:
    """A checkpoint whose signature is that of the key.

    Raises:
        OSError: the file cannot be read.
        NotSigned: it is no checkpoint, or this key did not sign it.
    """
    with file.open("rb") as stream:
        text = stream.read(MAX_BYTES).decode("utf-8", "replace")
    match = _NOTE.fullmatch(text)
    if match is None:
        raise NotSigned("it is not a checkpoint: origin, size, root, time and signatures")
    own = _signatures(match["signatures"], public_key)
    if not own:
        raise NotSigned("it was signed with another key than the one given")
    if not all(_holds(public_key, signature, match["signed"].encode("utf-8")) for signature in own):
        raise NotSigned("its signature is broken: the text is not what was signed")
    return Checkpoint(match["origin"], int(match["size"]), _decoded(match["root"]), match["at"])


def _signatures(lines: str, public_key: bytes) -> list[bytes]:
    """Those that say that this key made them."""
    found = []
    for line in _SIGNATURE.finditer(lines):
        signature = _decoded(line["signature"])
        named = line["name"].encode("utf-8") + b"\n" + _ED25519 + public_key
        if signature[:4] == hashlib.sha256(named).digest()[:4]:
            found.append(signature[4:])
    return found


def _holds(public_key: bytes, signature: bytes, text: bytes) -> bool:
    # Imported here: exports without checkpoints are checked by the standard library alone.
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


def _from_pem(content: bytes) -> bytes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = serialization.load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise NotAKey("it holds no public key in PEM") from error
    if not isinstance(key, Ed25519PublicKey):
        raise NotAKey("it holds no Ed25519 public key")
    return _ED25519 + key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
