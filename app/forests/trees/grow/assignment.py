"""Assigns rows to trees and parts by a keyed hash of their stable ids, so that no row affects another (lemma L5)."""

import hmac
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

import numpy as np
from numpy.typing import NDArray

from app.forests.noise.randomness import Randomness

KEY_BYTES = 32
_DOMAIN = b"grovekeeper/tree-shard/1\0"
_STRUCTURE_DOMAIN = b"grovekeeper/structure-rows/1\0"
_DIGEST_BITS = 256


@dataclass(frozen=True)
class Assignment:
    """How the rows of one job are assigned to trees and parts.

    Attributes:
        key: secret; of this job only, never stored.
        n_shards: number of trees that share the rows out; 0 if every tree sees every row.
        structure_share: probability of the structure part; 0 if every row of a tree serves both purposes.
    """

    key: bytes = field(default=b"", repr=False)
    n_shards: int = 0
    structure_share: Fraction = Fraction(0)

    @classmethod
    def drawn(cls, randomness: Randomness, *, n_shards: int, structure_share: Fraction = Fraction(0)) -> "Assignment":
        """An assignment with a key of its own, if it needs a key."""
        key = fresh_key(randomness) if n_shards or structure_share else b""
        return cls(key, n_shards, structure_share)

    def shards(self, row_ids: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The tree of every row; see :func:`shards`."""
        return shards(self.key, row_ids, n_shards=self.n_shards)

    def structure_rows(self, row_ids: NDArray[np.uint8], *, tree: int) -> NDArray[np.bool_]:
        """Which rows are in the structure part of a tree; see :func:`structure_rows`."""
        return structure_rows(self.key, row_ids, tree=tree, share=self.structure_share)


def fresh_key(randomness: Randomness) -> bytes:
    """A key for one job. It is used while the forest grows and never stored."""
    return bytes(randomness.uniform(256) for _ in range(KEY_BYTES))


def shards(key: bytes, row_ids: NDArray[np.uint8], *, n_shards: int) -> NDArray[np.int64]:
    """The shard of every row: HMAC-SHA256(key, id) modulo the number of shards.

    Record-wise: the result for one id depends on that id alone. An assignment by position, size or shuffle is not
    record-wise: one added row would move others (docs/proofs/lemmas.md, after L5).

    Args:
        key: secret, of this job only.
        row_ids: PRIVATE uint8 ``(n_rows, 16)``.
        n_shards: public.

    Returns:
        PRIVATE int64 ``(n_rows,)`` in ``[0, n_shards)``.
    """
    ids = np.ascontiguousarray(row_ids)
    raw, width = ids.tobytes(), ids.shape[1]
    numbers = (shard_of(key, raw[start : start + width], n_shards=n_shards) for start in range(0, len(raw), width))
    return np.fromiter(numbers, dtype=np.int64, count=len(ids))


def shard_of(key: bytes, row_id: bytes, *, n_shards: int) -> int:
    """The shard of one row id; see :func:`shards`."""
    return int.from_bytes(hmac.digest(key, _DOMAIN + row_id, "sha256")) % n_shards


def structure_rows(key: bytes, row_ids: NDArray[np.uint8], *, tree: int, share: Fraction) -> NDArray[np.bool_]:
    """Which rows are in the structure part of a tree; the others are in its estimation part.

    Record-wise, like :func:`shards`: HMAC-SHA256(key, tree and id), read as a fraction of 2^256, is below the share.

    Args:
        key: secret, of this job only.
        row_ids: PRIVATE uint8 ``(n_rows, 16)``.
        tree: public; every tree has an independent assignment.
        share: public; probability of the structure part.

    Returns:
        PRIVATE bool ``(n_rows,)``.
    """
    ids = np.ascontiguousarray(row_ids)
    raw, width = ids.tobytes(), ids.shape[1]
    flags = (
        is_structure_row(key, raw[start : start + width], tree=tree, share=share) for start in range(0, len(raw), width)
    )
    return np.fromiter(flags, dtype=np.bool_, count=len(ids))


def is_structure_row(key: bytes, row_id: bytes, *, tree: int, share: Fraction) -> bool:
    """Whether one row id is in the structure part of a tree; see :func:`structure_rows`."""
    digest = hmac.digest(key, _STRUCTURE_DOMAIN + tree.to_bytes(4) + row_id, "sha256")
    return int.from_bytes(digest) < floor(share * (1 << _DIGEST_BITS))
