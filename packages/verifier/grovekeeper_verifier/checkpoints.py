"""Reads checkpoints and checks their signatures.

A checkpoint is a signed statement of an account's size and Merkle root (C2SP
signed-note). It has lines for the log, the number of entries, the root in base64 and
the time, then an empty line and signatures: ``— <name> <base64 of a 4-byte key id and
the Ed25519 signature>``. Signatures of other keys, such as those of witnesses, are
ignored.
"""

import base64
import binascii
import codecs
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

ORIGIN = "grovekeeper/ledger/"
"""Prefix of a log's name; the id of the dataset or population follows."""

MAX_BYTES = 65_536
_ED25519 = b"\x01"
_NOTE = re.compile(
    r"(?P<signed>(?P<origin>[^\n]+)\n(?P<size>[1-9][0-9]{0,15})\n(?P<root>[A-Za-z0-9+/]{43}=)\n(?P<at>[^\n]+)\n"
    # lines of extensions, as the one about erasures in heads beside a database
    r"(?:[^\n]+\n)*)"
    r"\n(?P<signatures>(?:— [^\n +]+ [A-Za-z0-9+/]+={0,2}\n)+)"
)
_SIGNATURE = re.compile(r"— (?P<name>[^\n +]+) (?P<signature>[A-Za-z0-9+/]+={0,2})\n")
_VERIFIER_KEY = re.compile(
    r"[^\n +]+\+[0-9a-f]{8}\+(?P<key>[A-Za-z0-9+/]+={0,2})[\r\n]*"
)


class NotAKey(ValueError):
    """A file holds no public key; ``str()`` gives the reason."""


class NotACheckpoint(ValueError):
    """A file holds no checkpoint; ``str()`` gives the reason."""


class NotSigned(ValueError):
    """A checkpoint is not signed by this key; ``str()`` gives the reason."""


@dataclass(frozen=True)
class Checkpoint:
    """A signed statement: the root over the first ``size`` entries of a log, and the
    time of signing.
    """

    origin: str
    size: int
    root: bytes
    at: str


def read_public_key(file: Path) -> bytes:
    """Reads the 32 bytes of an Ed25519 public key from PEM, or from the one-line form
    of signed notes.

    Raises:
        OSError: the file cannot be read.
        NotAKey: the file has neither form.
    """
    with file.open("rb") as stream:
        content = stream.read(MAX_BYTES).removeprefix(codecs.BOM_UTF8)
    text = content.decode("utf-8", "replace")
    match = _VERIFIER_KEY.fullmatch(text)
    raw = _decoded(match["key"]) if match else _from_pem(content)
    if len(raw) != 33 or raw[:1] != _ED25519:
        raise NotAKey("it holds no Ed25519 public key")
    return raw[1:]


def read_checkpoint(file: Path, public_key: bytes) -> Checkpoint:
    """Reads a checkpoint and checks its signature.

    Raises:
        OSError: the file cannot be read.
        NotACheckpoint: the file is not a checkpoint.
        NotSigned: it has no valid signature of the key.
    """
    with file.open("rb") as stream:
        text = stream.read(MAX_BYTES).decode("utf-8-sig", "replace")
    # Mail, editors and git change line ends; the signature is checked over the text
    # that was signed.
    match = _NOTE.fullmatch(text.replace("\r\n", "\n").rstrip("\n") + "\n")
    if match is None:
        raise NotACheckpoint("origin, size, root, time and signatures are expected")
    signatures = _signatures(match["signatures"], public_key)
    if not signatures:
        raise NotSigned("it was signed with another key than the one given")
    if not all(
        _holds(public_key, signature, match["signed"].encode("utf-8"))
        for signature in signatures
    ):
        raise NotSigned("its signature is invalid: the text is not the signed one")
    return Checkpoint(
        match["origin"], int(match["size"]), _decoded(match["root"]), match["at"]
    )


def _signatures(lines: str, public_key: bytes) -> list[bytes]:
    """The signatures with the id of this key."""
    signatures = []
    for line in _SIGNATURE.finditer(lines):
        signature = _decoded(line["signature"])
        named = line["name"].encode("utf-8") + b"\n" + _ED25519 + public_key
        if signature[:4] == hashlib.sha256(named).digest()[:4]:
            signatures.append(signature[4:])
    return signatures


def _holds(public_key: bytes, signature: bytes, text: bytes) -> bool:
    # exports without checkpoints need only the standard library
    from grovekeeper_verifier import ed25519

    return ed25519.holds(public_key, signature, text)


def _from_pem(content: bytes) -> bytes:
    from grovekeeper_verifier import ed25519

    try:
        key = ed25519.raw_key(content)
    except ValueError as error:
        raise NotAKey("it holds no public key in PEM") from error
    if key is None:
        raise NotAKey("it holds no Ed25519 public key")
    return _ED25519 + key


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
