"""The log of an account: its entries as the leaves of a Merkle tree, with the hashes of large subtrees kept.

Whenever an entry completes a subtree of 2⁸, 2¹⁶, … leaves, the subtree's hash is stored in the same transaction. So a
root or a proof, over however many entries, is made of at most 255 rows of each height, and needs no state that two
writers could disagree about. Stored hashes are append-only like the entries: they are a function of them.
"""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.ledger import merkle
from app.ledger.tables import BlockRow, EntryRow

STEP = 8
"""Heights at which subtrees are stored: the multiples of this."""


class Log:
    """Reads the tree of one account within one transaction."""

    def __init__(self, session: Session, account_id: str) -> None:
        self._session = session
        self._account_id = account_id

    def root(self, size: int) -> bytes:
        """Over the first ``size`` entries."""
        return merkle.root(size, self.subtree)

    def inclusion(self, sequence: int, size: int) -> list[bytes]:
        """From the entry with a sequence to the root over the first ``size``."""
        return merkle.inclusion(sequence - 1, size, self.subtree)

    def consistency(self, first: int, second: int) -> list[bytes]:
        """That the first ``first`` of the first ``second`` entries are what they were."""
        return merkle.consistency(first, second, self.subtree)

    def subtree(self, height: int, position: int) -> bytes:
        """A complete subtree, folded from stored ones of the next lower stored height."""
        stored = height - height % STEP
        return self._fold(stored, height, position)

    def _fold(self, stored: int, height: int, position: int) -> bytes:
        """The subtree of ``height`` at ``position``, from the hashes of height ``stored`` below it."""
        width = 1 << (height - stored)
        low, high = position * width, (position + 1) * width
        found = self._blocks(stored, low, high) if stored else self._leaves(low, high)
        assert len(found) == width, "a complete subtree has all its parts"
        return merkle.fold(found)

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
        """Stores the subtrees that the entry with this sequence completes; it is the newest, and flushed."""
        height = STEP
        while sequence % (1 << height) == 0:
            position = (sequence >> height) - 1
            digest = self._fold(height - STEP, height, position)
            self._session.add(
                BlockRow(account_id=self._account_id, height=height, position=position, hash=digest.hex())
            )
            self._session.flush()
            height += STEP
