"""Computes Merkle roots and proofs (RFC 6962) over the entries of an account, from stored hashes of large subtrees.

Whenever an entry completes a subtree of 2⁸, 2¹⁶, … leaves, the subtree's hash is stored in the same transaction. A
root or a proof over any number of entries then reads at most 255 rows of each height. Stored hashes are a function of
the entries, and append-only like them.

Every function combines hashes of complete subtrees, which the caller supplies: ``subtree(height, position)`` is the
hash over the ``2**height`` leaves from leaf ``position * 2**height`` on. Leaves are counted from 0.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeAlias

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.ledger.tables import BlockRow, EntryRow

Subtree: TypeAlias = Callable[[int, int], bytes]

EMPTY_ROOT = hashlib.sha256(b"").digest()


def leaf(entry_hash: str) -> bytes:
    """The leaf hash of an entry's hash, with the prefix that separates leaves from nodes."""
    return hashlib.sha256(b"\x00" + bytes.fromhex(entry_hash)).digest()


def node(left: bytes, right: bytes) -> bytes:
    """The hash of the parent of two neighbours."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def fold(hashes: Sequence[bytes]) -> bytes:
    """The root over neighbours of one height; their number is a power of two."""
    level = list(hashes)
    assert level, "a complete subtree has leaves"
    assert len(level).bit_count() == 1, "the number of leaves of a complete subtree is a power of two"
    while len(level) > 1:
        level = [node(level[index], level[index + 1]) for index in range(0, len(level), 2)]
    return level[0]


def root(size: int, subtree: Subtree) -> bytes:
    """The root over the first ``size`` leaves."""
    return _range(0, size, subtree) if size else EMPTY_ROOT


def inclusion(index: int, size: int, subtree: Subtree) -> list[bytes]:
    """The audit path of RFC 6962, 2.1.1: from leaf ``index`` to the root over ``size`` leaves."""
    assert 0 <= index < size, "the leaf is in the tree"
    return _path(index, 0, size, subtree)


def consistency(first: int, second: int, subtree: Subtree) -> list[bytes]:
    """The proof of RFC 6962, 2.1.2, that the tree of ``second`` leaves begins with the tree of ``first`` leaves."""
    assert 0 < first <= second, "the earlier tree is not larger"
    return _subproof(first, 0, second, subtree, is_whole=True)


def _split(low: int, high: int) -> int:
    """Where RFC 6962 splits a range: after the largest power of two that is smaller than its length."""
    return low + (1 << ((high - low - 1).bit_length() - 1))


def _range(low: int, high: int, subtree: Subtree) -> bytes:
    length = high - low
    if length.bit_count() == 1:
        height = length.bit_length() - 1
        return subtree(height, low >> height)
    middle = _split(low, high)
    return node(_range(low, middle, subtree), _range(middle, high, subtree))


def _path(index: int, low: int, high: int, subtree: Subtree) -> list[bytes]:
    if high - low == 1:
        return []
    middle = _split(low, high)
    if index < middle:
        return [*_path(index, low, middle, subtree), _range(middle, high, subtree)]
    return [*_path(index, middle, high, subtree), _range(low, middle, subtree)]


def _subproof(first: int, low: int, high: int, subtree: Subtree, *, is_whole: bool) -> list[bytes]:
    """``is_whole``: the range up to ``high`` is the earlier tree, whose root the reader has."""
    if first == high:
        return [] if is_whole else [_range(low, high, subtree)]
    middle = _split(low, high)
    if first <= middle:
        return [*_subproof(first, low, middle, subtree, is_whole=is_whole), _range(middle, high, subtree)]
    return [*_subproof(first, middle, high, subtree, is_whole=False), _range(low, middle, subtree)]


STEP = 8
"""Subtrees are stored at heights that are multiples of this."""


class Log:
    """The Merkle tree of one account, read within one transaction."""

    def __init__(self, session: Session, account_id: str) -> None:
        self._session = session
        self._account_id = account_id

    def root(self, size: int) -> bytes:
        """The root over the first ``size`` entries."""
        return root(size, self.subtree)

    def inclusion(self, sequence: int, size: int) -> list[bytes]:
        """The inclusion proof of the entry with a sequence in the first ``size`` entries."""
        return inclusion(sequence - 1, size, self.subtree)

    def consistency(self, first: int, second: int) -> list[bytes]:
        """The proof that the log of ``first`` entries is a prefix of the log of ``second`` entries."""
        return consistency(first, second, self.subtree)

    def subtree(self, height: int, position: int) -> bytes:
        """The hash of a complete subtree, folded from the next lower stored height."""
        stored = height - height % STEP
        return self._fold(stored, height, position)

    def _fold(self, stored: int, height: int, position: int) -> bytes:
        """The subtree of ``height`` at ``position``, from the hashes of height ``stored`` below it."""
        width = 1 << (height - stored)
        low, high = position * width, (position + 1) * width
        hashes = self._blocks(stored, low, high) if stored else self._leaves(low, high)
        assert len(hashes) == width, "a complete subtree has all its parts"
        return fold(hashes)

    def _blocks(self, height: int, low: int, high: int) -> list[bytes]:
        query = (
            select(BlockRow.hash)
            .where(BlockRow.account_id == self._account_id, BlockRow.height == height)
            .where(BlockRow.position >= low, BlockRow.position < high)
            .order_by(BlockRow.position)
        )
        return [bytes.fromhex(text) for text in self._session.execute(query).scalars()]

    def _leaves(self, low: int, high: int) -> list[bytes]:
        query = (
            select(EntryRow.hash)
            .where(EntryRow.account_id == self._account_id, EntryRow.sequence > low, EntryRow.sequence <= high)
            .order_by(EntryRow.sequence)
        )
        return [leaf(text) for text in self._session.execute(query).scalars()]

    def complete(self, sequence: int) -> None:
        """Stores the subtrees that the newest entry, which is flushed, completes."""
        height = STEP
        while sequence % (1 << height) == 0:
            position = (sequence >> height) - 1
            digest = self._fold(height - STEP, height, position)
            self._session.add(
                BlockRow(account_id=self._account_id, height=height, position=position, hash=digest.hex())
            )
            self._session.flush()
            height += STEP
