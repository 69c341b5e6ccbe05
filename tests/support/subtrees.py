"""Computes the roots of a log's subtrees from its entries."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.ledger import checkpoints


def subtrees(entries: Sequence[Mapping[str, Any]]) -> Callable[[int, int], bytes]:
    """The function that :mod:`app.ledger.checkpoints` takes: the root of the subtree of
    a height at a position.
    """

    def root(height: int, position: int) -> bytes:
        low, high = position << height, (position + 1) << height
        return checkpoints.fold(
            [checkpoints.leaf(entry["hash"]) for entry in entries[low:high]]
        )

    return root
