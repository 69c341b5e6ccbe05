"""Merkle trees against RFC 6962 and the verifier's code, the form of signed
checkpoints, and the signing key.
"""

import base64
import hashlib
import threading
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, x25519

from app.core.errors import InstallationError
from app.ledger import checkpoints
from app.ledger.checkpoints import Checkpoint, Signer
from grovekeeper_verifier import merkle_tree

N_LEAVES = 70


def _entry_hash(index: int) -> str:
    return hashlib.sha256(b"entry %d" % index).hexdigest()


LEAVES = [checkpoints.leaf(_entry_hash(index)) for index in range(N_LEAVES)]


def _defined(leaves: list[bytes]) -> bytes:
    """The definition of RFC 6962, section 2.1."""
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return hashlib.sha256(
        b"\x01" + _defined(leaves[:split]) + _defined(leaves[split:])
    ).digest()


@cache
def _subtree(height: int, position: int) -> bytes:
    return checkpoints.fold(LEAVES[position << height : (position + 1) << height])


def test_leaf_hashes_and_node_hashes_differ() -> None:
    text = _entry_hash(0)
    assert (
        checkpoints.leaf(text) == hashlib.sha256(b"\x00" + bytes.fromhex(text)).digest()
    )
    assert (
        checkpoints.node(b"l" * 32, b"r" * 32)
        == hashlib.sha256(b"\x01" + b"l" * 32 + b"r" * 32).digest()
    )
    assert checkpoints.root_of(0, _subtree) == hashlib.sha256(b"").digest()


def test_the_known_roots_of_the_transparency_logs_own_tests() -> None:
    """Certificate Transparency's reference vectors, over leaves of short byte strings."""
    data = [
        b"",
        b"\x00",
        b"\x10",
        b" !",
        b"01",
        b"@ABC",
        b"PQRSTUVW",
        b"`abcdefghijklmno",
    ]
    leaves = [hashlib.sha256(b"\x00" + text).digest() for text in data]
    result = checkpoints.root_of(
        8,
        lambda height, position: checkpoints.fold(
            leaves[position << height : (position + 1) << height]
        ),
    )
    assert (
        result.hex()
        == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"
    )


@pytest.mark.parametrize("size", range(1, N_LEAVES + 1))
def test_roots_equal_the_definition_of_rfc_6962(size: int) -> None:
    growing = merkle_tree.GrowingTree()
    for found in LEAVES[:size]:
        growing.add(found)
    assert (
        checkpoints.root_of(size, _subtree) == _defined(LEAVES[:size]) == growing.root()
    )


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 31, 33, 64, 70])
def test_every_entry_has_a_proof_that_leads_to_the_root_and_nowhere_else(
    size: int,
) -> None:
    root, other = (
        checkpoints.root_of(size, _subtree),
        checkpoints.root_of(size, lambda *_: b"\x00" * 32),
    )
    for index in range(size):
        path = checkpoints.inclusion(index, size, _subtree)
        merkle_tree.check_inclusion(LEAVES[index], index, size, path, root)
        wrong = [
            (LEAVES[index], index, path, other),
            (LEAVES[(index + 1) % N_LEAVES], index, path, root),
            (LEAVES[index], index, [*path, path[-1] if path else root], root),
        ]
        if path:
            wrong += [
                (LEAVES[index], index, path[:-1], root),
                (
                    LEAVES[index],
                    index,
                    [hashlib.sha256(path[0]).digest(), *path[1:]],
                    root,
                ),
                (LEAVES[index], (index + 1) % size, path, root),
            ]
        for leaf, at, steps, target in wrong:
            with pytest.raises(merkle_tree.NotProven):
                merkle_tree.check_inclusion(leaf, at, size, steps, target)


@pytest.mark.parametrize("second", [1, 2, 5, 8, 21, 32, 33])
def test_every_beginning_has_a_proof_that_leads_to_both_roots_and_nowhere_else(
    second: int,
) -> None:
    later = checkpoints.root_of(second, _subtree)
    for first in range(1, second + 1):
        path, earlier = (
            checkpoints.consistency(first, second, _subtree),
            checkpoints.root_of(first, _subtree),
        )
        merkle_tree.check_consistency(first, second, path, (earlier, later))
        forged = hashlib.sha256(earlier).digest()
        wrong = [
            (path, (forged, later)),
            (path, (earlier, forged)),
            ([*path, earlier], (earlier, later)),
        ]
        if path:
            wrong += [
                (path[:-1], (earlier, later)),
                ([forged, *path[1:]], (earlier, later)),
            ]
        for steps, roots in wrong:
            with pytest.raises(merkle_tree.NotProven):
                merkle_tree.check_consistency(first, second, steps, roots)


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
    for broken in (
        "",
        note[:-1],
        note.replace("300", "0300"),
        note.replace("300", "-1"),
        note + "more\n",
    ):
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


def _pem(
    key: ed25519.Ed25519PrivateKey | x25519.X25519PrivateKey,
    password: bytes | None = None,
) -> bytes:
    locked = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked
    )


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
