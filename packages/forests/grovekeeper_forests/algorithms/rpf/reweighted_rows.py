"""Weighs PRIVATE rows by released trees and tabulates the weights, part by part."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.algorithms.rpf.price import LEAF_CLIP, MEAN_CLIP
from grovekeeper_forests.array_types import (
    BoolArray,
    Int32Array,
    Int64Array,
    UInt8Array,
)
from grovekeeper_forests.bins import number_targets
from grovekeeper_forests.data.coded_rows import CodedPart, Parts
from grovekeeper_forests.data.encoding import Pair, pair_columns
from grovekeeper_forests.kernels import boosting, node_rows
from grovekeeper_forests.kernels.boosting import PROBABILITY_BITS, UNIT

MARGIN = (7, 20)
"""A row has full weight while 1 − p_y, the released trees' doubt in the row's class, is
at least 0.35.
"""


_SLAB = 64  # most columns, including sums and differences, that are in memory at once


class LocalReweightedRows:
    """Reweighted rows in this process's memory."""

    def __init__(
        self,
        X: UInt8Array,
        y: Int32Array,
        *,
        n_codes: Int32Array,
        n_classes: int,
        pairs: tuple[Pair, ...] = (),
    ) -> None:
        """Keeps references to the PRIVATE arrays; every row starts with full weight.

        Args:
            X: uint8 ``(n_features, n_rows)`` codes.
            y: int32 ``(n_rows,)`` classes.
            n_codes: int32 ``(n_columns,)``: codes of each feature, then of each column
                of a pair.
            pairs: pairs of features whose sums and differences are columns, too. These
                columns are computed once if all columns fit in memory, otherwise on
                every use.
        """
        self._y, self._n_codes, self._n_classes = y, n_codes, n_classes
        self._n_own, self._pairs = len(X), pair_columns(n_codes[: len(X)], pairs)
        fit = pairs and len(n_codes) <= _SLAB
        self._X = np.concatenate((X, self._pairs.of(X))) if fit else X
        self._sums = np.zeros((len(y), n_classes), dtype=np.int64)
        self._weight = np.full(len(y), boosting.UNIT, dtype=np.uint16)
        self._node, self._n_nodes = np.zeros(len(y), dtype=np.int32), 1

    @classmethod
    def of(cls, part: CodedPart) -> Self:
        """A part of the rows with full weight."""
        encoding = part.encoding
        return cls(
            part.codes,
            part.y,
            n_codes=encoding.n_codes,
            n_classes=encoding.schema.n_classes,
            pairs=encoding.pairs,
        )

    def class_histogram(
        self,
        features: slice,
        open_nodes: Int32Array,
        onto: Int64Array | None = None,
    ) -> Int64Array:
        """See :class:`ReweightedRows`. Rows in closed nodes are not counted.

        Args:
            features: the columns.
            open_nodes: nodes of the current level.
            onto: sums of other rows, which are added to and returned.
        """
        place = np.full(self._n_nodes, -1, dtype=np.int32)
        place[open_nodes] = np.arange(len(open_nodes), dtype=np.int32)
        node = place[self._node]
        if onto is None:
            onto = self._no_sums(features, len(open_nodes))
        slabs = _slabs(features)
        if len(slabs) == 1:
            return self._of_columns(features, node, onto)
        counts = [
            self._of_columns(slab, node, self._no_sums(slab, len(open_nodes)))
            for slab in slabs
        ]
        return np.add(onto, np.concatenate(counts, axis=1), out=onto)

    def _no_sums(self, features: slice, *slots: int) -> Int64Array:
        return node_rows.no_sums(
            *slots, self._n_classes, n_bins=self._n_codes[features]
        )

    def _of_columns(
        self, features: slice, node: Int32Array, onto: Int64Array
    ) -> Int64Array:
        return node_rows.class_histogram(
            self._columns(features),
            self._y,
            node,
            n_bins=self._n_codes[features],
            weight=self._weight,
            onto=onto,
        )

    def joint_histogram(
        self, feature: int, others: slice, onto: Int64Array | None = None
    ) -> Int64Array:
        """See :class:`ReweightedRows`. Every code of the feature in every node is
        treated as a node.

        Args:
            feature: the column whose codes are told apart.
            others: the other columns.
            onto: sums of other rows, which are added to and returned.
        """
        if onto is None:
            onto = self._no_sums(others, self._n_nodes, int(self._n_codes[feature]))
        return node_rows.joint_histogram(
            self._columns(others),
            self._y,
            (self._node, self._columns(slice(feature, feature + 1))[0]),
            n_bins=self._n_codes[others],
            weight=self._weight,
            onto=onto,
        )

    def descend(
        self,
        *,
        feature: Int32Array,
        threshold: UInt8Array,
        equals: BoolArray,
    ) -> None:
        """See :class:`ReweightedRows`."""
        columns, places = self._X, feature
        if int(feature.max(initial=0)) >= len(self._X):
            features, inverse = np.unique(feature, return_inverse=True)
            columns, places = (
                self._computed(features),
                inverse.reshape(feature.shape).astype(np.int32),
            )
        self._node = node_rows.descend(
            columns, self._node, feature=places, threshold=threshold, equals=equals
        )
        self._n_nodes *= 2

    def _columns(self, features: slice) -> UInt8Array:
        """PRIVATE codes of consecutive columns."""
        if features.stop <= len(self._X):
            return self._X[features]
        return self._computed(np.arange(features.start, features.stop))

    def _computed(self, indices: NDArray[np.integer]) -> UInt8Array:
        """PRIVATE codes of some columns, of which those of pairs are computed."""
        codes = np.empty((len(indices), self._X.shape[1]), dtype=np.uint8)
        paired = indices >= self._n_own
        codes[~paired] = self._X[indices[~paired]]
        codes[paired] = self._pairs.of(self._X, indices[paired] - self._n_own)
        return codes

    def leaf_histogram(self) -> Int64Array:
        """See :class:`ReweightedRows`."""
        return node_rows.leaf_histogram(
            self._node,
            self._y,
            n_leaves=self._n_nodes,
            n_classes=self._n_classes,
            weight=self._weight,
        )

    def finish_tree(self, scores: Int32Array) -> None:
        """See :class:`ReweightedRows`."""
        node_rows.add_leaf_scores(
            self._sums, self._node[np.newaxis], scores[np.newaxis]
        )
        self._reweigh()
        self._node, self._n_nodes = np.zeros(len(self._y), dtype=np.int32), 1

    def leaf_weights(self) -> Int64Array:
        """See :class:`ReweightedRows`."""
        return self.leaf_histogram()

    def _reweigh(self) -> None:
        self._weight = boosting.weights(self._sums, self._y, margin=MARGIN)


@dataclass(frozen=True)
class Clipped:
    """Limits of a residual, as ``gradients_of_numbers`` reads them.

    Attributes:
        clip: in units of 2^-24 spreads; longer residuals are shortened to it.
        length: integer length of a shortened residual.
    """

    clip: int
    length: int
    n_scores: int = 1

    @classmethod
    def at(cls, spreads: Fraction, length: int) -> Self:
        """Limits at a number of spreads."""
        units = spreads * 2**PROBABILITY_BITS
        return cls(int(units), length)

    @property
    def squared_length(self) -> int:
        """The largest square of a shortened residual."""
        return self.length**2


HALF: Final = UNIT // 2
"""What a row without a residual adds to either side."""

_MARGIN: Final = Clipped.at(Fraction(*MARGIN), UNIT)
_OF_LEAVES: Final = Clipped.at(LEAF_CLIP, HALF)
_OF_MEAN: Final = Clipped.at(MEAN_CLIP, HALF)


class LocalResidualRows(LocalReweightedRows):
    """Reweighted rows whose label is a number, in this process's memory.

    The class of a row is the side of its residual, below or above, and its weight the
    clipped length of the residual. To a leaf it adds 256 units, shared between the
    sides by its residual.
    """

    def start(self, start: Int64Array) -> None:
        """See :class:`ReweightedRows`."""
        self._start = start
        self._target = self._y
        self._sums = np.zeros((len(self._y), 1), dtype=np.int64)
        self._reweigh()

    def target_counts(self, edges: Int32Array, middle: int | None = None) -> Int64Array:
        """See :class:`ReweightedRows`."""
        return number_targets.target_counts(edges, self._y, middle)

    def leaf_weights(self) -> Int64Array:
        """See :class:`ReweightedRows`."""
        return self._sides(_OF_LEAVES)

    def mean_weights(self) -> Int64Array:
        """See :class:`ReweightedRows`."""
        return self._sides(_OF_MEAN)

    def _sides(self, limits: Clipped) -> Int64Array:
        """What rows add to the sides of their node: int64 ``(n_nodes, 2)``."""
        residuals = self._residuals(limits)
        above = (HALF + residuals).astype(np.uint16)
        # Both together are a whole row, so that its count costs nothing beside its sum.
        below = UNIT - above
        one_class = np.zeros_like(self._y)
        sides = [
            node_rows.leaf_histogram(
                self._node,
                one_class,
                n_leaves=self._n_nodes,
                n_classes=1,
                weight=weight,
            )
            for weight in (below, above)
        ]
        return np.concatenate(sides, axis=1)

    def _reweigh(self) -> None:
        residuals = self._residuals(_MARGIN)
        is_above = residuals > 0
        self._y = is_above.astype(np.int32)
        lengths = np.abs(residuals)
        self._weight = lengths.astype(np.uint16)

    def _residuals(self, limits: Clipped) -> Int32Array:
        """Clipped residuals of rows, from −length to length, int32 ``(n_rows,)``."""
        residuals = boosting.gradients_of_numbers(
            self._sums, self._target, self._start, limits
        )
        return residuals[:, 0]


class ReweightedRows:
    """All PRIVATE rows of a job in the nodes of the current tree, with integer weights
    in units of 1/256.

    The rows are in parts, in this process or on other machines. Every method returns
    exact PRIVATE sums; a mechanism releases selections and noisy sums only.
    """

    def __init__(self, parts: Parts) -> None:
        """Keeps parts in the form of :class:`LocalReweightedRows`."""
        self._parts = parts

    def class_histogram(self, features: slice, open_nodes: Int32Array) -> Int64Array:
        """Weights by open node, code of feature and class: int64 ``(n_open, Σ codes,
        n_classes)``.
        """
        return self._parts.total("class_histogram", features, open_nodes)

    def joint_histogram(self, feature: int, others: slice) -> Int64Array:
        """Weights by node of the current level, code of one feature, code of other
        features, and class.

        Returns:
            PRIVATE int64 ``(n_nodes, codes of the feature, Σ codes of the others, n_classes)``.
        """
        return self._parts.total("joint_histogram", feature, others)

    def descend(
        self,
        *,
        feature: Int32Array,
        threshold: UInt8Array,
        equals: BoolArray,
    ) -> None:
        """Moves every row one level down by the released splits, one split per node of
        the current level.
        """
        self._parts.each("descend", feature=feature, threshold=threshold, equals=equals)

    def leaf_histogram(self) -> Int64Array:
        """Weights by node of the current level and class: int64 ``(n_nodes,
        n_classes)``.
        """
        return self._parts.total("leaf_histogram")

    def leaf_weights(self) -> Int64Array:
        """What leaves release with noise, int64 ``(n_nodes, n_classes)``: weights by
        class; or, where the label is a number, 256 units of every row, shared between
        the sides below and above. A row adds 256 to one node at most.
        """
        return self._parts.total("leaf_weights")

    def mean_weights(self) -> Int64Array:
        """As :meth:`leaf_weights` of a number, with residuals clipped at 3 spreads."""
        return self._parts.total("mean_weights")

    def target_counts(self, edges: Int32Array, middle: int | None = None) -> Int64Array:
        """Rows by the code of a label that is a number, or by its distance from
        ``middle``, a released code, between edges: int64 ``(n_edges + 1,)``. Asked for
        before :meth:`start`.
        """
        return self._parts.total("target_counts", edges, middle)

    def start(self, start: Int64Array) -> None:
        """Weighs rows, whose label is a number, by their residuals from a released
        start, int64 ``(2,)``: the start and the spread.
        """
        self._parts.each("start", start)

    def finish_tree(self, scores: Int32Array) -> None:
        """Adds a released tree's scores, recomputes the weights of all rows and moves
        all rows back to the root.
        """
        self._parts.each("finish_tree", scores)


def _slabs(features: slice) -> list[slice]:
    starts = range(features.start, features.stop, _SLAB)
    return [slice(start, min(start + _SLAB, features.stop)) for start in starts]
