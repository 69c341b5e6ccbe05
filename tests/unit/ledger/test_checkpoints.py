"""Signed checkpoints: the form of transparency logs, and a signing key that is created once."""

import base64
import hashlib
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, x25519

from app.core.errors import InstallationError
from app.ledger import checkpoints
from app.ledger.checkpoints import Checkpoint, Signer

HEAD = Checkpoint("ds_1", 300, bytes(range(32)), "2026-11-20T09:30:00.000000Z")


def test_a_note_has_the_lines_of_a_checkpoint_and_a_signature_over_them() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    note = Signer(key).sign(HEAD)
    text, _, signature = note.partition("\n\n")
    assert text.split("\n") == [
        "grovekeeper/ledger/ds_1",
        "300",
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "2026-11-20T09:30:00.000000Z",
    ]
    dash, name, encoded = signature.split(" ")
    assert (dash, name, encoded[-1]) == ("—", "grovekeeper", "\n")
    raw = key.public_key().public_bytes_raw()
    signed = base64.b64decode(encoded)
    assert signed[:4] == hashlib.sha256(b"grovekeeper\n\x01" + raw).digest()[:4]
    key.public_key().verify(signed[4:], f"{text}\n".encode())


def test_the_public_key_is_shown_in_both_of_its_forms() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    signer, raw = Signer(key), key.public_key().public_bytes_raw()
    loaded = serialization.load_pem_public_key(signer.public_pem.encode())
    assert isinstance(loaded, ed25519.Ed25519PublicKey)
    assert loaded.public_bytes_raw() == raw
    name, key_hash, encoded = signer.verifier_key.split("+", 2)
    assert name == "grovekeeper"
    assert base64.b64decode(encoded) == b"\x01" + raw
    assert key_hash == hashlib.sha256(b"grovekeeper\n\x01" + raw).hexdigest()[:8]


def test_a_note_reads_as_what_was_signed_and_only_for_its_own_log() -> None:
    note = Signer(ed25519.Ed25519PrivateKey.generate()).sign(HEAD)
    assert checkpoints.read_checkpoint("ds_1", note) == HEAD
    assert checkpoints.read_checkpoint("ds_2", note) is None
    for broken in ("", note[:-1], note.replace("300", "0300"), note.replace("300", "-1"), note + "more\n"):
        assert checkpoints.read_checkpoint("ds_1", broken) is None


def test_a_key_is_made_once_and_only_for_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "signing.key"
    first = Signer.open(file, make=True)
    assert file.stat().st_mode & 0o777 == 0o600
    assert Signer.open(file, make=True).verifier_key == first.verifier_key
    assert [path.name for path in tmp_path.iterdir()] == ["signing.key"]


def test_processes_that_start_at_once_share_one_key(tmp_path: Path) -> None:
    results: list[str] = []
    start = threading.Barrier(8)

    def run() -> None:
        start.wait()
        results.append(Signer.open(tmp_path / "signing.key", make=True).verifier_key)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert len(set(results)) == 1


def _pem(key: ed25519.Ed25519PrivateKey | x25519.X25519PrivateKey, password: bytes | None = None) -> bytes:
    locked = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)


def test_an_invalid_key_is_refused_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "signing.key"
    with pytest.raises(InstallationError, match="cannot be read"):
        Signer.open(file, make=False)
    contents = {
        b"canary": "no private key in PEM",
        _pem(ed25519.Ed25519PrivateKey.generate(), b"secret"): "without a password",
        _pem(x25519.X25519PrivateKey.generate()): "not an Ed25519 key",
    }
    for content, reason in contents.items():
        file.write_bytes(content)
        with pytest.raises(InstallationError, match=reason) as refused:
            Signer.open(file, make=True)
        assert "canary" not in str(refused.value)
