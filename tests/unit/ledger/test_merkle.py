"""The Merkle tree against its definition in RFC 6962, and its proofs against the verifier's code."""

import hashlib
from functools import cache

import pytest

from app.ledger import checkpoints
from app.verifier import merkle_tree

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
    return hashlib.sha256(b"\x01" + _defined(leaves[:split]) + _defined(leaves[split:])).digest()


@cache
def _subtree(height: int, position: int) -> bytes:
    return checkpoints.fold(LEAVES[position << height : (position + 1) << height])


def test_leaf_hashes_and_node_hashes_differ() -> None:
    text = _entry_hash(0)
    assert checkpoints.leaf(text) == hashlib.sha256(b"\x00" + bytes.fromhex(text)).digest()
    assert checkpoints.node(b"l" * 32, b"r" * 32) == hashlib.sha256(b"\x01" + b"l" * 32 + b"r" * 32).digest()
    assert checkpoints.root_of(0, _subtree) == hashlib.sha256(b"").digest()


def test_the_known_roots_of_the_transparency_logs_own_tests() -> None:
    """Certificate Transparency's reference vectors, over leaves of short byte strings."""
    data = [b"", b"\x00", b"\x10", b" !", b"01", b"@ABC", b"PQRSTUVW", b"`abcdefghijklmno"]
    leaves = [hashlib.sha256(b"\x00" + text).digest() for text in data]
    result = checkpoints.root_of(
        8, lambda height, position: checkpoints.fold(leaves[position << height : (position + 1) << height])
    )
    assert result.hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


@pytest.mark.parametrize("size", range(1, N_LEAVES + 1))
def test_roots_equal_the_definition_of_rfc_6962(size: int) -> None:
    growing = merkle_tree.GrowingTree()
    for found in LEAVES[:size]:
        growing.add(found)
    assert checkpoints.root_of(size, _subtree) == _defined(LEAVES[:size]) == growing.root()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 31, 33, 64, 70])
def test_every_entry_has_a_proof_that_leads_to_the_root_and_nowhere_else(size: int) -> None:
    root, other = checkpoints.root_of(size, _subtree), checkpoints.root_of(size, lambda *_: b"\x00" * 32)
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
                (LEAVES[index], index, [hashlib.sha256(path[0]).digest(), *path[1:]], root),
                (LEAVES[index], (index + 1) % size, path, root),
            ]
        for leaf, at, steps, target in wrong:
            with pytest.raises(merkle_tree.NotProven):
                merkle_tree.check_inclusion(leaf, at, size, steps, target)


@pytest.mark.parametrize("second", [1, 2, 5, 8, 21, 32, 33])
def test_every_beginning_has_a_proof_that_leads_to_both_roots_and_nowhere_else(second: int) -> None:
    later = checkpoints.root_of(second, _subtree)
    for first in range(1, second + 1):
        path, earlier = checkpoints.consistency(first, second, _subtree), checkpoints.root_of(first, _subtree)
        merkle_tree.check_consistency(first, second, path, (earlier, later))
        forged = hashlib.sha256(earlier).digest()
        wrong = [(path, (forged, later)), (path, (earlier, forged)), ([*path, earlier], (earlier, later))]
        if path:
            wrong += [(path[:-1], (earlier, later)), ([forged, *path[1:]], (earlier, later))]
        for steps, roots in wrong:
            with pytest.raises(merkle_tree.NotProven):
                merkle_tree.check_consistency(first, second, steps, roots)
