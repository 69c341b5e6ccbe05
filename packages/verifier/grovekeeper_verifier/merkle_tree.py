"""Computes Merkle roots (RFC 6962) over an account's entries, and checks inclusion and
consistency proofs.

The leaf of an entry is the SHA-256 of a zero byte and the 32 bytes of the entry's
``hash``; a node is the SHA-256 of a one byte and its two children. An entry's hash
covers its canonical content, so the root covers every byte of it.
"""

import hashlib
from collections.abc import Sequence


class NotProven(ValueError):
    """A proof does not lead to the root; ``str()`` gives the reason."""


def leaf(entry_hash: str) -> bytes:
    """The leaf of an entry, from its hash in hexadecimal."""
    # The first byte differs from that of nodes, so no node can pass for an entry.
    return hashlib.sha256(b"\x00" + bytes.fromhex(entry_hash)).digest()


class GrowingTree:
    """A tree to which leaves are appended, stored as the roots of its complete
    subtrees, the largest first.
    """

    def __init__(self) -> None:
        self._peaks: list[bytes] = []
        self._size = 0

    def add(self, node: bytes) -> None:
        """Appends a leaf."""
        # As a carry in binary addition: two complete subtrees of one size become one.
        size = self._size
        while size % 2:
            node = _node(self._peaks.pop(), node)
            size //= 2
        self._peaks.append(node)
        self._size += 1

    def root(self) -> bytes:
        """The root over all leaves, of which there is at least one."""
        # From the smallest: a range is split after its largest power of two.
        root = self._peaks[-1]
        for peak in reversed(self._peaks[:-1]):
            root = _node(peak, root)
        return root


def check_inclusion(
    node: bytes, index: int, size: int, path: Sequence[bytes], root: bytes
) -> None:
    """Checks that the tree of a root has a leaf at an index, counted from 0 (RFC 9162,
    2.1.3.2).

    Raises:
        NotProven: the path does not lead from the leaf to the root.
    """
    number, last = index, size - 1
    for beside in path:
        if last == 0:
            raise NotProven("the path is longer than the tree is high")
        # A right child, or the last node of a level that has no sibling there and rises
        # until it is a right child.
        if number % 2 or number == last:
            node = _node(beside, node)
            while number % 2 == 0 and number:
                number, last = number >> 1, last >> 1
        else:
            node = _node(node, beside)
        number, last = number >> 1, last >> 1
    if last or node != root:
        raise NotProven(
            "the path does not lead from the entry to the root of the checkpoint"
        )


def check_consistency(
    first: int, second: int, path: Sequence[bytes], roots: tuple[bytes, bytes]
) -> None:
    """Checks that the tree of ``second`` leaves begins with that of ``first`` leaves
    (RFC 9162, 2.1.4.2).

    Raises:
        NotProven: the path does not lead to both roots.
    """
    if first == second:
        if path or roots[0] != roots[1]:
            raise NotProven(
                "two checkpoints of one size have different roots, or a path between them"
            )
        return
    # An earlier tree of 2ᵏ leaves is a subtree of the later one. Its root, which the
    # reader has, is then left out of the path.
    rest = list(path) if first.bit_count() > 1 else [roots[0], *path]
    if not rest:
        raise NotProven("the path is empty")
    number, last = first - 1, second - 1
    while number % 2:
        number, last = number >> 1, last >> 1
    earlier = later = rest[0]
    for beside in rest[1:]:
        if last == 0:
            raise NotProven("the path is longer than the tree is high")
        if number % 2 or number == last:
            earlier, later = _node(beside, earlier), _node(beside, later)
            while number % 2 == 0 and number:
                number, last = number >> 1, last >> 1
        else:
            later = _node(later, beside)
        number, last = number >> 1, last >> 1
    if last or (earlier, later) != roots:
        raise NotProven("the path does not lead to the roots of the two checkpoints")


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()
