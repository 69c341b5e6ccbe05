"""Which tree a row belongs to: a keyed hash of its stable id, so no other row can move it (lemma L5)."""

import hmac

import numpy as np
from numpy.typing import NDArray

from app.forests.randomness import Randomness

KEY_BYTES = 32
_DOMAIN = b"grovekeeper/tree-shard/1\0"


def fresh_key(randomness: Randomness) -> bytes:
    """A key for one job. It is used while the forest grows and never stored."""
    return bytes(randomness.uniform(256) for _ in range(KEY_BYTES))


def shards(key: bytes, row_ids: NDArray[np.uint8], *, n_shards: int) -> NDArray[np.int64]:
    """The shard of every row: HMAC-SHA256(key, id) modulo the number of shards.

    Record-wise: the result for one id depends on that id alone. Positions, sizes and shuffles would not do: one
    added row would move others (docs/proofs/lemmas.md, after L5).

    Args:
        key: secret, of this job only.
        row_ids: PRIVATE uint8 ``(n_rows, 16)``.
        n_shards: public.

    Returns:
        PRIVATE int64 ``(n_rows,)`` in ``[0, n_shards)``.
    """
    ids = np.ascontiguousarray(row_ids)
    raw, width = ids.tobytes(), ids.shape[1]
    found = (shard_of(key, raw[start : start + width], n_shards=n_shards) for start in range(0, len(raw), width))
    return np.fromiter(found, dtype=np.int64, count=len(ids))


def shard_of(key: bytes, row_id: bytes, *, n_shards: int) -> int:
    """The shard of one row id; see :func:`shards`."""
    return int.from_bytes(hmac.digest(key, _DOMAIN + row_id, "sha256")) % n_shards
