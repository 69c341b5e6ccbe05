"""Assigns PRIVATE rows to trees by a keyed hash, and computes their exact histograms in the nodes of a tree.

The hash is of a row's stable id, so that no row affects another (lemma L5). Rows may be on one machine or several.

No result of a histogram may be released: every number is an exact private count. Growth passes the counts to a
mechanism, which releases selections and noisy counts only. Integer sums commute, so the result does not depend on the
division of rows into blocks or machines.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from app.forests.data.coded_rows import CodedPart, Parts
from app.forests.kernels import node_rows
from app.forests.kernels import node_rows as kernels
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


class TreeHistograms(Protocol):
    """The PRIVATE rows of one tree, in the nodes of its current level."""

    def class_histogram(self, features: slice) -> NDArray[np.int64]:
        """Exact counts per (node, code of feature, class): int64 ``(n_nodes, Σ codes, n_classes)``."""

    def descend(self, *, feature: NDArray[np.int32], threshold: NDArray[np.uint8], equals: NDArray[np.bool_]) -> None:
        """Moves every row one level down by the released splits, one per node of the current level."""

    def leaf_histogram(self) -> NDArray[np.int64]:
        """Exact counts per (node of the current level, class): int64 ``(n_nodes, n_classes)``."""


class Histograms(Protocol):
    """All PRIVATE rows of a job."""

    def of_tree(self, tree: int) -> TreeHistograms:
        """The rows that belong to ``tree`` (all of them, or its shard), at the root."""


class PartHistograms(TreeHistograms, Protocol):
    """The rows of one tree in one part of all rows."""

    def class_histogram(self, features: slice, onto: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """See ``TreeHistograms``. ``onto``: sums of other parts, which are added to and returned."""


class LocalHistograms:
    """Histograms of rows in the memory of this process."""

    def __init__(
        self,
        X: NDArray[np.uint8],
        y: NDArray[np.int32],
        *,
        n_codes: NDArray[np.int32],
        n_classes: int,
        shard: NDArray[np.int64] | None,
        structure_rows: Callable[[int, NDArray[np.int64]], NDArray[np.bool_]] | None = None,
    ) -> None:
        """Keeps references to the PRIVATE arrays.

        Args:
            X: uint8 ``(n_features, n_rows)`` codes.
            y: int32 ``(n_rows,)`` classes.
            n_codes: int32 ``(n_features,)``.
            n_classes: public number of classes.
            shard: int64 ``(n_rows,)`` tree of each row, or ``None`` when every tree sees every row.
            structure_rows: maps a tree and the positions of its rows to bool, one per position: true for the rows that
                choose splits, false for the rows of the leaves. ``None``: every row of a tree serves both purposes.
        """
        self._X, self._y, self._n_codes, self._n_classes, self._shard = X, y, n_codes, n_classes, shard
        self._structure_rows = structure_rows

    @classmethod
    def of(cls, part: CodedPart, assignment: Assignment, has_labels: bool = True) -> Self:
        """The histograms of a part of the rows, by tree.

        Args:
            part: PRIVATE.
            assignment: of rows to trees.
            has_labels: whether the classes of the rows are counted; otherwise all rows are of a single class.
        """

        def structure_rows(tree: int, mine: NDArray[np.int64]) -> NDArray[np.bool_]:
            return assignment.structure_rows(part.row_ids[mine], tree=tree)

        return cls(
            part.codes,
            part.y if has_labels else np.zeros_like(part.y),
            n_codes=part.encoding.n_codes,
            n_classes=part.encoding.schema.n_classes if has_labels else 1,
            shard=assignment.shards(part.row_ids) if assignment.n_shards else None,
            structure_rows=structure_rows if assignment.structure_share else None,
        )

    def of_tree(self, tree: int) -> "PartHistograms":
        """The rows of ``tree``: all rows, or the rows that the keyed hash assigns to the tree; in one part or two."""
        in_tree = None if self._shard is None else np.flatnonzero(self._shard == tree)
        if self._structure_rows is None:
            return self._part(in_tree)
        in_tree = np.arange(len(self._y)) if in_tree is None else in_tree
        structure = self._structure_rows(tree, in_tree)
        return _LocalTwoParts(self._part(in_tree[structure]), self._part(in_tree[~structure]))

    def _part(self, mine: NDArray[np.int64] | None) -> "PartHistograms":
        X, y = self._X, self._y
        if mine is not None:
            X, y = np.ascontiguousarray(X[:, mine]), y[mine]
        return _LocalTree(X, y, self._n_codes, self._n_classes)


class PartedHistograms:
    """Histograms of rows in several parts, in this process or on other machines."""

    def __init__(self, parts: Parts) -> None:
        """Keeps parts in the form of :class:`LocalHistograms`."""
        self._parts = parts

    def of_tree(self, tree: int) -> TreeHistograms:
        """The rows of ``tree`` in every part."""
        return _PartedTree(self._parts.map("of_tree", tree))


class _PartedTree:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def class_histogram(self, features: slice) -> NDArray[np.int64]:
        """See ``TreeHistograms``."""
        return self._parts.total("class_histogram", features)

    def descend(self, *, feature: NDArray[np.int32], threshold: NDArray[np.uint8], equals: NDArray[np.bool_]) -> None:
        """See ``TreeHistograms``."""
        self._parts.each("descend", feature=feature, threshold=threshold, equals=equals)

    def leaf_histogram(self) -> NDArray[np.int64]:
        """See ``TreeHistograms``."""
        return self._parts.total("leaf_histogram")


class LabelsApart:
    """Histograms for splits that are chosen on rows without labels, and for leaves on rows with labels."""

    def __init__(self, structure: Histograms, leaves: Histograms) -> None:
        """Keeps references.

        Args:
            structure: the rows that choose splits, see :func:`without_labels`.
            leaves: PRIVATE; the rows of the leaves, with labels.
        """
        self._structure, self._leaves = structure, leaves

    def of_tree(self, tree: int) -> TreeHistograms:
        """The rows of ``tree`` that choose its splits, and the rows of its leaves."""
        return TwoParts(self._structure.of_tree(tree), self._leaves.of_tree(tree))


def without_labels(X: NDArray[np.uint8], *, n_codes: NDArray[np.int32]) -> LocalHistograms:
    """Histograms with a single class of rows that have no labels; arguments as in :class:`LocalHistograms`."""
    return LocalHistograms(X, np.zeros(X.shape[1], dtype=np.int32), n_codes=n_codes, n_classes=1, shard=None)


class TwoParts:
    """The PRIVATE rows of one tree in two roles: some for choosing splits, some for the leaves."""

    def __init__(self, structure: TreeHistograms, estimation: TreeHistograms) -> None:
        """Joins two parts that are at the same level."""
        self._structure, self._estimation = structure, estimation

    def class_histogram(self, features: slice) -> NDArray[np.int64]:
        """See ``TreeHistograms``; of the structure part alone."""
        return self._structure.class_histogram(features)

    def descend(self, *, feature: NDArray[np.int32], threshold: NDArray[np.uint8], equals: NDArray[np.bool_]) -> None:
        """See ``TreeHistograms``; both parts go down by the same released splits."""
        self._structure.descend(feature=feature, threshold=threshold, equals=equals)
        self._estimation.descend(feature=feature, threshold=threshold, equals=equals)

    def leaf_histogram(self) -> NDArray[np.int64]:
        """See ``TreeHistograms``; of the estimation part alone."""
        return self._estimation.leaf_histogram()


class _LocalTwoParts(TwoParts):
    def __init__(self, structure: PartHistograms, estimation: PartHistograms) -> None:
        super().__init__(structure, estimation)
        self._counted = structure

    def class_histogram(self, features: slice, onto: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """See ``PartHistograms``; of the structure part alone."""
        return self._counted.class_histogram(features, onto)


class _LocalTree:
    def __init__(self, X: NDArray[np.uint8], y: NDArray[np.int32], n_codes: NDArray[np.int32], n_classes: int) -> None:
        self._X, self._y, self._n_codes, self._n_classes = X, y, n_codes, n_classes
        self._node = np.zeros(len(y), dtype=np.int32)
        self._n_nodes = 1

    def class_histogram(self, features: slice, onto: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """See ``PartHistograms``."""
        n_bins = self._n_codes[features]
        if onto is None:
            onto = kernels.no_sums(self._n_nodes, self._n_classes, n_bins=n_bins)
        return kernels.class_histogram(self._X[features], self._y, self._node, n_bins=n_bins, onto=onto)

    def descend(self, *, feature: NDArray[np.int32], threshold: NDArray[np.uint8], equals: NDArray[np.bool_]) -> None:
        """See ``TreeHistograms``."""
        self._node = node_rows.descend(self._X, self._node, feature=feature, threshold=threshold, equals=equals)
        self._n_nodes *= 2

    def leaf_histogram(self) -> NDArray[np.int64]:
        """See ``TreeHistograms``."""
        return kernels.leaf_histogram(self._node, self._y, n_leaves=self._n_nodes, n_classes=self._n_classes)
