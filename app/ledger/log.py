"""Computes Merkle roots and proofs over the entries of an account, from stored hashes of large subtrees.

Whenever an entry completes a subtree of 2⁸, 2¹⁶, … leaves, the subtree's hash is stored in the same transaction. A
root or a proof over any number of entries then reads at most 255 rows of each height. Stored hashes are a function of
the entries, and append-only like them.
"""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.ledger import merkle
from app.ledger.tables import BlockRow, EntryRow

STEP = 8
"""Subtrees are stored at heights that are multiples of this."""


class Log:
    """The Merkle tree of one account, read within one transaction."""

    def __init__(self, session: Session, account_id: str) -> None:
        self._session = session
        self._account_id = account_id

    def root(self, size: int) -> bytes:
        """The root over the first ``size`` entries."""
        return merkle.root(size, self.subtree)

    def inclusion(self, sequence: int, size: int) -> list[bytes]:
        """The inclusion proof of the entry with a sequence in the first ``size`` entries."""
        return merkle.inclusion(sequence - 1, size, self.subtree)

    def consistency(self, first: int, second: int) -> list[bytes]:
        """The proof that the log of ``first`` entries is a prefix of the log of ``second`` entries."""
        return merkle.consistency(first, second, self.subtree)

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
        return merkle.fold(hashes)

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
        return [merkle.leaf(text) for text in self._session.execute(query).scalars()]

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
