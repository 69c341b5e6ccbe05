"""Validates ``bms-rf`` forests and reads class probabilities out of their layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.algorithms.bms_rf import layers
from grovekeeper_forests.array_types import Float64Array, UInt16Array
from grovekeeper_forests.contract.plan import Forest, Layout, Layouts, Plan
from grovekeeper_forests.data.sanitiser import SanitisedColumns
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.trees import leaf_read_out
from grovekeeper_forests.trees.leaf_read_out import (
    LeafFamily,
    LeafSums,
    PooledSums,
    by_output,
)

PROJECTION = "projection"
_TREES = LeafFamily()


class StackedFamily:
    """The trees of all layers, first layer first, and the public projections between
    the layers.
    """

    def layouts(self, plan: Plan, schema: Schema) -> Layouts:
        """The layouts of all trees, and ``projection``: uint16 ``(n_layers − 1,
        n_classes, n_features)``.
        """
        shape = (
            int(plan.parameters["n_layers"]) - 1,
            schema.n_classes,
            len(schema.features),
        )
        return {**_TREES.layouts(plan, schema), PROJECTION: Layout(np.uint16, shape)}

    def is_valid(self, forest: Forest, schema: Schema) -> bool:
        """Whether the trees of every layer are valid; every projection weight is valid."""
        return all(
            _TREES.is_valid(layer, layer_schema)
            for layer, layer_schema in _layers(forest, schema)
        )

    def reader(self, forest: Forest, schema: Schema, read_out: str) -> StackedSums:
        """Pools the trees of all layers with equal weight."""
        pooled = [
            _TREES.reader(layer, layer_schema, read_out)
            for layer, layer_schema in _layers(forest, schema)
        ]
        return StackedSums(
            schema,
            tuple(_weighed(layer, forest.plan.n_trees) for layer in pooled),
            forest.arrays[PROJECTION],
            layers.largest_shift(forest.plan.parameters),
            pooled[0].read_out,
        )


def _layers(forest: Forest, schema: Schema) -> Iterator[tuple[Forest, Schema]]:
    """The forest of each layer with the schema of its rows, first layer first."""
    first = 0
    for plan, layer_schema in zip(
        layers.plans(forest.plan),
        layers.schemas(schema, forest.plan.parameters),
        strict=True,
    ):
        yield (
            Forest(
                plan, layer_arrays(forest.arrays, slice(first, first + plan.n_trees))
            ),
            layer_schema,
        )
        first += plan.n_trees


@dataclass(frozen=True, eq=False)
class StackedSums:
    """The reader of stacked forests.

    Attributes:
        schema: the declared schema.
        layers: first layer first; for each leaf, ``n_classes`` values of the read-out,
            then ``n_classes`` votes.
        projection: released; weights between the layers.
        shift: in ticks.
        read_out: how sums become probabilities; see
            ``grovekeeper_forests.trees.leaf_read_out``.
    """

    schema: Schema
    layers: tuple[LeafSums, ...]
    projection: UInt16Array
    shift: int
    read_out: str

    def __call__(self, columns: SanitisedColumns) -> Float64Array:
        """Class probabilities of rows, float64 ``(n_rows, n_classes)``."""
        n_classes = self.schema.n_classes
        layer_columns = columns
        sums = np.zeros((columns.n_rows, n_classes))
        for index, layer in enumerate(self.layers):
            layer_sums = layer.packed.sums(layer_columns)
            sums += layer_sums[:, :n_classes]
            if index < len(self.projection):
                votes = layer_sums[:, n_classes:].astype(np.int64)
                weights = self.projection[index]
                # To the declared columns: votes of earlier layers do not add up.
                layer_columns = layers.add_votes(
                    self.schema, columns, votes, weights=weights, shift=self.shift
                )
        return leaf_read_out.to_probabilities(sums, self.read_out)


def _weighed(layer: PooledSums, n_trees: int) -> LeafSums:
    """A layer's leaf values, with weight 1/``n_trees`` per tree, followed by its votes."""
    sums = layer.sums
    values = sums.values * len(sums.values)
    if layer.read_out == leaf_read_out.VOTE:
        # whole votes: sums over layers are exact, so ties stay ties
        values = np.rint(values)
    else:
        values /= n_trees
    votes = layers.of_leaves(sums.arrays, values.shape[2])
    values_and_votes = by_output(np.concatenate([values, votes], axis=2))
    return LeafSums(sums.encoding, sums.arrays, values_and_votes)


def layer_arrays(
    arrays: Mapping[str, NDArray[Any]], trees: slice
) -> dict[str, NDArray[Any]]:
    """The released arrays of consecutive trees."""
    return {name: array[trees] for name, array in arrays.items() if name != PROJECTION}


def joined(layers: Sequence[Forest]) -> dict[str, NDArray[Any]]:
    """The released arrays of all layers, concatenated, first layer first."""
    return {
        name: np.concatenate([layer.arrays[name] for layer in layers])
        for name in layers[0].arrays
    }
