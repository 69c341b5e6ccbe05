"""Reads out forests with noisy counts or one label per leaf: post-processing of
releases (lemma L7).

Released counts become leaf values; the values of the leaves that a row reaches are
added up, and the sums become probabilities. A label is one vote.

==========  =====================================================================================================
read-out    a row's class probabilities, from the leaves it reaches in each tree
==========  =====================================================================================================
``mv``      share of trees whose leaf has its largest noisy count at the class
``ta``      mean over trees of θ_c = max(ñ_c, 0) / Σ, uniform where no count is positive
``pa``      probabilities as for ``ta``; a label is drawn from them instead of being the most probable class
``sum``     share of the class in the sum over trees of max(ñ_c, 0)
``log``     geometric mean over trees of θ shrunk toward the forest's class proportions, normalised
==========  =====================================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.array_types import Float64Array, Int32Array, Int64Array
from grovekeeper_forests.bins import noisy_counts
from grovekeeper_forests.contract.plan import (
    Forest,
    Layout,
    Layouts,
    Plan,
    encoding_of,
    n_leaves_of,
    split_layouts,
    splits_are_valid,
)
from grovekeeper_forests.data.encoding import NO_SPLIT, Encoding
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedTable
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.kept import kept_property
from grovekeeper_forests.kernels import prediction as kernels
from grovekeeper_forests.kernels.prediction import normalised, softmax
from grovekeeper_forests.privacy.events import (
    DiscreteLaplace,
    Event,
    Parallel,
    Part,
    Sequential,
    UnknownPrivacyEvent,
)

VOTE, AVERAGE, DRAW, SUM, LOGARITHMIC = "mv", "ta", "pa", "sum", "log"

SHRINKAGE = 1.0
"""Rows of pseudo-evidence per unit of noise scale under ``log``; results are flat
between 1 and 7.
"""


def leaf_values(
    counts: Int64Array, read_out: str, *, noise_scale: float
) -> Float64Array:
    """The values of leaves, which prediction sums over the leaves that a row reaches.

    Args:
        counts: int64 ``(n_trees, n_leaves, n_classes)``, released.
        read_out: see above.
        noise_scale: 1 / inverse scale of the counts' noise; public.

    Returns:
        float64, of the same shape.
    """
    evidence = counts.astype(np.float64)
    values: Float64Array
    if read_out == VOTE:
        values = np.eye(counts.shape[-1])[evidence.argmax(axis=-1)]
    elif read_out == LOGARITHMIC:
        prior = class_proportions(evidence, noise_scale)
        values = np.log(
            normalised(np.maximum(evidence, 0.0) + SHRINKAGE * noise_scale * prior)
        )
    elif read_out == SUM:
        # whole numbers, so sums are exact in any order
        return np.maximum(evidence, 0.0)
    else:
        values = normalised(np.maximum(evidence, 0.0))
    values /= len(counts)
    return values


def by_output(values: Float64Array) -> Float64Array:
    """The values of leaves as an array whose memory is in the order of packed trees,
    which then need no copy of it.
    """
    return np.ascontiguousarray(values.transpose(0, 2, 1)).transpose(0, 2, 1)


def to_probabilities(sums: Float64Array, read_out: str) -> Float64Array:
    """Class probabilities of rows from the sums of their leaves' values; rows sum to 1."""
    return softmax(sums) if read_out == LOGARITHMIC else normalised(sums)


def class_proportions(evidence: Float64Array, noise_scale: float) -> Float64Array:
    """Class proportions of the whole forest, from its noisy counts; never zero.

    The sum over all cells of a class carries noise of standard deviation √(2 · cells) ·
    scale. One standard deviation is added to every class, so that noise does not
    exclude a rare class.
    """
    n_cells = evidence.shape[0] * evidence.shape[1]
    return normalised(
        np.maximum(evidence.sum(axis=(0, 1)), 0.0)
        + np.sqrt(2.0 * n_cells) * noise_scale
    )


def leaves_of(forest: Event) -> Event:
    """The event of the leaves of one tree, taken from a forest's event.

    Raises:
        UnknownPrivacyEvent: the event is not one of a forest.
    """
    match forest:
        case Sequential((Part(event=tree),)) | Parallel(_, (Part(event=tree),)):
            # Leaves are released last; a tree without selections is its leaves.
            if isinstance(tree, Sequential | Parallel) and tree.parts:
                return tree.parts[-1].event
            return tree
    raise UnknownPrivacyEvent("not the event of a forest")


def noise_scale(leaves: Event) -> float:
    """Scale, in rows, of the noise on leaf counts; public. For normal noise: the
    Laplace scale of equal deviation.
    """
    if isinstance(leaves, DiscreteLaplace) and leaves.inverse_scale > 0:
        return float(1 / leaves.inverse_scale)
    noisy_counts.per_row(leaves)
    return noisy_counts.noise_sd(leaves) / math.sqrt(2.0)


@dataclass(frozen=True, eq=False)
class PackedForest:
    """Trees prepared for prediction, which read only the columns that splits use.

    Attributes:
        encoding: the bins of these columns.
        features: the features of the whole schema that the encoding needs.
        trees: over the encoding's columns.
    """

    encoding: Encoding
    features: tuple[int, ...]
    trees: kernels.PackedTrees

    @classmethod
    def of(
        cls,
        encoding: Encoding,
        feature: Int32Array,
        pack: Callable[[Int32Array, int], kernels.PackedTrees],
    ) -> PackedForest:
        """Prepares trees.

        Args:
            encoding: the bins of the whole schema.
            feature: the column of every split.
            pack: makes trees from the columns of splits in a smaller encoding, and its
                number of columns.
        """
        used, position = np.unique(feature, return_inverse=True)
        smaller, features, number = encoding.of_columns(used)
        column = number[position].reshape(feature.shape).astype(np.int32)
        return cls(
            smaller, tuple(features.tolist()), pack(column, len(smaller.n_codes))
        )

    @kept_property
    def _rows_of_table(self) -> Int64Array | slice:
        if self.features == tuple(range(len(self.features))):
            return slice(len(self.features))  # rows that need no copy
        return np.array(self.features, dtype=np.int64)

    def sums(self, columns: SanitisedColumns) -> Float64Array:
        """Sums of leaf values of rows, float64 ``(n_rows, n_outputs)``, each added up
        in the order of the trees.
        """
        if isinstance(columns, SanitisedTable) and not self.encoding.pairs:
            return kernels.sum_leaf_values_of_table(
                columns.table[self._rows_of_table], self.encoding.tables, self.trees
            )
        used = tuple(columns.columns[feature] for feature in self.features)
        if self.encoding.pairs:
            codes = self.encoding.encode_all(SanitisedColumns(used, columns.n_rows))
            return kernels.sum_leaf_values(codes, self.trees)
        return kernels.sum_leaf_values_of(
            used, columns.n_rows, self.encoding.tables, self.trees
        )


@dataclass(frozen=True, eq=False)
class LeafSums:
    """A forest prepared for prediction.

    Attributes:
        encoding: the bins that thresholds refer to.
        arrays: released; ``feature``, ``threshold`` and ``equals`` of every node.
        values: value of each leaf, float64 ``(n_trees, 2^depth, n_outputs)``.
    """

    encoding: Encoding
    arrays: Mapping[str, NDArray[Any]]
    values: Float64Array

    @kept_property
    def packed(self) -> PackedForest:
        """The trees in the form that prediction reads."""
        feature, threshold, equals = (
            self.arrays[name] for name in ("feature", "threshold", "equals")
        )
        # A node that sends every row left gets the feature of some split, so that
        # prediction reads no further column for it.
        splits = equals | (threshold != NO_SPLIT)
        if splits.any():
            feature = np.where(splits, feature, feature[splits][:1])
        return PackedForest.of(
            self.encoding,
            feature,
            lambda column, n_columns: kernels.PackedTrees.of_thresholds(
                column, threshold, equals, values=self.values, n_features=n_columns
            ),
        )


@dataclass(frozen=True, eq=False)
class PooledSums:
    """A reader that turns the leaf sum of a row into class probabilities.

    Attributes:
        sums: the forest prepared for prediction.
        read_out: rule from sums to probabilities; see
            ``grovekeeper_forests.trees.leaf_read_out``.
    """

    sums: LeafSums
    read_out: str

    def __call__(self, columns: SanitisedColumns) -> Float64Array:
        """Class probabilities of rows, float64 ``(n_rows, n_classes)``."""
        return to_probabilities(self.sums.packed.sums(columns), self.read_out)


class LeafFamily:
    """Noisy counts in leaves, pooled over trees by a read-out above; or one label per
    leaf.

    A label carries one vote and no count, so with labels every read-out is the share of
    votes.
    """

    def __init__(self, leaf: str = "counts") -> None:
        """Keeps what leaves release (``counts`` or ``label``) where plans have no
        parameter ``leaf``.
        """
        self._leaf = leaf

    def _has_labels(self, plan: Plan) -> bool:
        return plan.parameters.get("leaf", self._leaf) != "counts"

    def layouts(self, plan: Plan, schema: Schema) -> Layouts:
        """Splits; ``counts``, int64 ``(n_trees, 2^depth, n_classes)``, or ``labels``,
        int32 ``(n_trees, 2^depth)``.
        """
        leaves = (plan.n_trees, n_leaves_of(plan))
        if self._has_labels(plan):
            return {**split_layouts(plan), "labels": Layout(np.int32, leaves)}
        return {
            **split_layouts(plan),
            "counts": Layout(np.int64, (*leaves, schema.n_classes)),
        }

    def is_valid(self, forest: Forest, schema: Schema) -> bool:
        """Whether splits and labels are those of the schema. Counts need no check: any
        integer can be a noisy count.
        """
        if self._has_labels(forest.plan):
            labels = forest.arrays["labels"]
            return splits_are_valid(forest, schema) and bool(
                np.all((labels >= 0) & (labels < schema.n_classes))
            )
        return noise_scale(leaves_of(forest.plan.event)) > 0 and splits_are_valid(
            forest, schema
        )

    def reader(self, forest: Forest, schema: Schema, read_out: str) -> PooledSums:
        """A reader that normalises sums of leaf values."""
        plan = forest.plan
        arrays = forest.arrays
        if self._has_labels(plan):
            read_out = VOTE
            values = np.eye(schema.n_classes)[arrays["labels"]] / plan.n_trees
        else:
            values = leaf_values(
                arrays["counts"],
                read_out,
                noise_scale=noise_scale(leaves_of(plan.event)),
            )
        encoding = encoding_of(schema, plan.parameters["n_bins"], plan.profile)
        return PooledSums(LeafSums(encoding, arrays, by_output(values)), read_out)
