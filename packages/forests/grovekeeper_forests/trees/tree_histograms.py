"""Assigns PRIVATE rows to trees by a keyed hash, and computes their exact histograms in
the nodes of a tree.

The hash is of a row's stable id, so that no row affects another (lemma L5). Rows may be
on one machine or several.

No result of a histogram may be released: every number is an exact private count. Growth
passes the counts to a mechanism, which releases selections and noisy counts only.
Integer sums commute, so the result does not depend on the division of rows into blocks
or machines.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import Protocol, Self

import numpy as np

from grovekeeper_forests.array_types import (
    BoolArray,
    Int32Array,
    Int64Array,
    UInt8Array,
)
from grovekeeper_forests.data.coded_rows import CodedPart, Parts
from grovekeeper_forests.kernels import node_rows
from grovekeeper_forests.noise.randomness import Randomness

KEY_BYTES = 32
_DOMAIN = b"grovekeeper/tree-shard/1\0"
_STRUCTURE_DOMAIN = b"grovekeeper/structure-rows/1\0"
_DIGEST_BITS = 256


@dataclass(frozen=True)
class Assignment:
    """How the rows of one job are assigned to trees and parts.

    Attributes:
        key: secret; of this job only, never stored.
        n_shards: number of trees that share the rows out; 0 if every tree sees every
            row.
        structure_share: probability of the structure part; 0 if every row of a tree
            serves both purposes.
    """

    key: bytes = field(default=b"", repr=False)
    n_shards: int = 0
    structure_share: Fraction = Fraction(0)

    @classmethod
    def drawn(
        cls,
        randomness: Randomness,
        *,
        n_shards: int,
        structure_share: Fraction = Fraction(0),
    ) -> Assignment:
        """An assignment with a key of its own, if it needs a key."""
        key = fresh_key(randomness) if n_shards or structure_share else b""
        return cls(key, n_shards, structure_share)


def fresh_key(randomness: Randomness) -> bytes:
    """A key for one job. It is used while the forest grows and never stored."""
    return bytes(randomness.uniform(256) for _ in range(KEY_BYTES))


def shards(key: bytes, row_ids: UInt8Array, *, n_shards: int) -> Int64Array:
    """The shard of every row: HMAC-SHA256(key, id) modulo the number of shards.

    Record-wise: the result for one id depends on that id alone. An assignment by
    position, size or shuffle is not record-wise: one added row would move others
    (docs/proofs/lemmas.md, after L5).

    Args:
        key: secret, of this job only.
        row_ids: PRIVATE uint8 ``(n_rows, 16)``.
        n_shards: public.

    Returns:
        PRIVATE int64 ``(n_rows,)`` in ``[0, n_shards)``.
    """
    digests = (
        hmac.digest(key, _DOMAIN + row_id, "sha256") for row_id in _split(row_ids)
    )
    # Shards need not be equally likely: the guarantee holds for any function of the id
    # that is fixed before the rows are seen (lemma L5).
    return np.fromiter(
        (int.from_bytes(digest) % n_shards for digest in digests),
        np.int64,
        len(row_ids),
    )


def structure_rows(
    key: bytes, row_ids: UInt8Array, *, tree: int, share: Fraction
) -> BoolArray:
    """Which rows are in the structure part of a tree; the others are in its estimation
    part.

    Record-wise, like :func:`shards`: HMAC-SHA256(key, tree and id), read as a fraction
    of 2^256, is below the share.

    Args:
        key: secret, of this job only.
        row_ids: PRIVATE uint8 ``(n_rows, 16)``.
        tree: public; every tree has an independent assignment.
        share: public; probability of the structure part.

    Returns:
        PRIVATE bool ``(n_rows,)``.
    """
    domain = _STRUCTURE_DOMAIN + tree.to_bytes(4)
    below = floor(share * (1 << _DIGEST_BITS))
    digests = (
        hmac.digest(key, domain + row_id, "sha256") for row_id in _split(row_ids)
    )
    return np.fromiter(
        (int.from_bytes(digest) < below for digest in digests), np.bool_, len(row_ids)
    )


def _split(row_ids: UInt8Array) -> Iterator[bytes]:
    ids = np.ascontiguousarray(row_ids)
    raw, width = ids.tobytes(), ids.shape[1]
    return (raw[start : start + width] for start in range(0, len(raw), width))


class TreeHistograms(Protocol):
    """The PRIVATE rows of one tree, in the nodes of its current level."""

    def class_histogram(self, features: slice) -> Int64Array:
        """Exact counts per (node, code of feature, class): int64 ``(n_nodes, Σ codes,
        n_classes)``.
        """

    def descend(
        self,
        *,
        feature: Int32Array,
        threshold: UInt8Array,
        equals: BoolArray,
    ) -> None:
        """Moves every row one level down by the released splits, one per node of the
        current level.
        """

    def leaf_histogram(self) -> Int64Array:
        """Exact counts per (node of the current level, class): int64 ``(n_nodes,
        n_classes)``.
        """


class PartHistograms(TreeHistograms, Protocol):
    """The rows of one tree in one part of all rows."""

    def class_histogram(
        self, features: slice, onto: Int64Array | None = None
    ) -> Int64Array:
        """See ``TreeHistograms``. ``onto``: sums of other parts, which are added to and
        returned.
        """


class LocalHistograms:
    """Histograms of rows in the memory of this process."""

    def __init__(
        self, part: CodedPart, assignment: Assignment, has_labels: bool = True
    ) -> None:
        """Keeps references to the PRIVATE arrays.

        Args:
            part: PRIVATE.
            assignment: of rows to trees.
            has_labels: whether the classes of the rows are counted; otherwise all rows
                are of a single class.
        """
        self._part, self._assignment = part, assignment
        self._y = part.y if has_labels else np.zeros_like(part.y)
        self._n_classes = part.encoding.schema.n_classes if has_labels else 1
        self._shard = None
        if assignment.n_shards:
            self._shard = shards(
                assignment.key, part.row_ids, n_shards=assignment.n_shards
            )

    @classmethod
    def of(
        cls, part: CodedPart, assignment: Assignment, has_labels: bool = True
    ) -> Self:
        """See ``Form``."""
        return cls(part, assignment, has_labels)

    def of_tree(self, tree: int) -> PartHistograms:
        """The rows of ``tree``: all rows, or the rows that the keyed hash assigns to
        the tree; in one part or two.
        """
        in_tree = None
        if self._shard is not None:
            in_tree = np.flatnonzero(self._shard == tree)
        key, share = self._assignment.key, self._assignment.structure_share
        if not share:
            return self._of_rows(in_tree)
        if in_tree is None:
            in_tree = np.arange(len(self._y))
        structure = structure_rows(
            key, self._part.row_ids[in_tree], tree=tree, share=share
        )
        return _LocalTwoParts(
            self._of_rows(in_tree[structure]), self._of_rows(in_tree[~structure])
        )

    def _of_rows(self, rows: Int64Array | None) -> PartHistograms:
        X, y = self._part.codes, self._y
        if rows is not None:
            X, y = np.ascontiguousarray(X[:, rows]), y[rows]
        return _LocalTree(X, y, self._part.encoding.n_codes, self._n_classes)


class PartedTree:
    """Histograms of the rows of one tree, in several parts, in this process or on other
    machines.
    """

    def __init__(self, parts: Parts, tree: int) -> None:
        """Takes the rows of ``tree`` from parts in the form of
        :class:`LocalHistograms`.
        """
        self._parts = parts.map("of_tree", tree)

    def class_histogram(self, features: slice) -> Int64Array:
        """See ``TreeHistograms``."""
        return self._parts.total("class_histogram", features)

    def descend(
        self,
        *,
        feature: Int32Array,
        threshold: UInt8Array,
        equals: BoolArray,
    ) -> None:
        """See ``TreeHistograms``."""
        self._parts.each("descend", feature=feature, threshold=threshold, equals=equals)

    def leaf_histogram(self) -> Int64Array:
        """See ``TreeHistograms``."""
        return self._parts.total("leaf_histogram")


class TwoParts:
    """The PRIVATE rows of one tree in two roles: some for choosing splits, some for the
    leaves.
    """

    def __init__(self, structure: TreeHistograms, estimation: TreeHistograms) -> None:
        """Joins two parts that are at the same level."""
        self._structure, self._estimation = structure, estimation

    def class_histogram(self, features: slice) -> Int64Array:
        """See ``TreeHistograms``; of the structure part alone."""
        return self._structure.class_histogram(features)

    def descend(
        self,
        *,
        feature: Int32Array,
        threshold: UInt8Array,
        equals: BoolArray,
    ) -> None:
        """See ``TreeHistograms``; both parts go down by the same released splits."""
        self._structure.descend(feature=feature, threshold=threshold, equals=equals)
        self._estimation.descend(feature=feature, threshold=threshold, equals=equals)

    def leaf_histogram(self) -> Int64Array:
        """See ``TreeHistograms``; of the estimation part alone."""
        return self._estimation.leaf_histogram()


class _LocalTwoParts(TwoParts):
    def __init__(self, structure: PartHistograms, estimation: PartHistograms) -> None:
        super().__init__(structure, estimation)
        self._counted = structure

    def class_histogram(
        self, features: slice, onto: Int64Array | None = None
    ) -> Int64Array:
        """See ``PartHistograms``; of the structure part alone."""
        return self._counted.class_histogram(features, onto)


class _LocalTree:
    def __init__(
        self,
        X: UInt8Array,
        y: Int32Array,
        n_codes: Int32Array,
        n_classes: int,
    ) -> None:
        self._X, self._y, self._n_codes, self._n_classes = X, y, n_codes, n_classes
        self._node = np.zeros(len(y), dtype=np.int32)
        self._n_nodes = 1

    def class_histogram(
        self, features: slice, onto: Int64Array | None = None
    ) -> Int64Array:
        """See ``PartHistograms``."""
        n_bins = self._n_codes[features]
        if onto is None:
            onto = node_rows.no_sums(self._n_nodes, self._n_classes, n_bins=n_bins)
        return node_rows.class_histogram(
            self._X[features], self._y, self._node, n_bins=n_bins, onto=onto
        )

    def descend(
        self,
        *,
        feature: Int32Array,
        threshold: UInt8Array,
        equals: BoolArray,
    ) -> None:
        """See ``TreeHistograms``."""
        self._node = node_rows.descend(
            self._X, self._node, feature=feature, threshold=threshold, equals=equals
        )
        self._n_nodes *= 2

    def leaf_histogram(self) -> Int64Array:
        """See ``TreeHistograms``."""
        return node_rows.leaf_histogram(
            self._node, self._y, n_leaves=self._n_nodes, n_classes=self._n_classes
        )
