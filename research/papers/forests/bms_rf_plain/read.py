"""Reads class probabilities out of ``bms-rf-plain`` forests: every layer sees columns
that earlier layers shifted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.contract.algorithm import Parameters
from grovekeeper_forests.data.sanitiser import SanitisedColumns
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.trees import leaf_read_out
from research.papers.forests.contract import PlainForest
from research.papers.forests.trees.design import Design
from research.papers.forests.trees.node_read_out import voting
from research.papers.forests.trees.node_routing import NodeTrees

PROJECTION, LABELS = "projection", "labels"


def reader(forest: PlainForest, schema: Schema, read_out: str) -> PlainStackedReader:
    """A reader of shares of votes (``mv``) or of mean shares (``ta``, ``pa``) over all
    layers. Where leaves have drawn labels, every read-out counts them.
    """
    trees = NodeTrees.of(forest.arrays)
    votes = voting(trees).values if read_out == leaf_read_out.VOTE else trees.values
    answers = forest.arrays.get(LABELS, votes)
    values = np.concatenate([answers, trees.values], axis=1)
    sizes = layer_sizes(forest.plan.parameters)
    layers = tuple(
        replace(trees, root=trees.root[end - size : end + 1], values=values)
        for size, end in zip(sizes, accumulate(sizes), strict=True)
    )
    shift = float(forest.plan.parameters["shift"])
    return PlainStackedReader(
        Design.of(schema), layers, forest.arrays[PROJECTION], shift
    )


@dataclass(frozen=True, eq=False)
class PlainStackedReader:
    """A stacked forest prepared for prediction.

    Attributes:
        design: the columns of the schema.
        layers: first layer first; a leaf has the values of the read-out, then its class
            shares.
        projection: weights between the layers.
        shift: α.
    """

    design: Design
    layers: tuple[NodeTrees, ...]
    projection: NDArray[np.float32]
    shift: float

    def __call__(self, columns: SanitisedColumns) -> NDArray[np.float64]:
        """Class probabilities of rows, float64 ``(n_rows, n_classes)``."""
        n_classes = self.design.schema.n_classes
        X = scaled(self.design, columns)
        sums, seen = np.zeros((columns.n_rows, n_classes)), X
        for index, layer in enumerate(self.layers):
            of_layer = layer.sums(seen)
            sums += of_layer[:, :n_classes]
            if index < len(self.projection):
                shares = of_layer[:, n_classes:] / (len(layer.root) - 1)
                seen = shifted(X, shares, self.projection[index], self.shift)
        return leaf_read_out.to_probabilities(sums, leaf_read_out.AVERAGE)


def layer_sizes(parameters: Parameters) -> tuple[int, ...]:
    """The number of trees of each layer, as even as possible; the first layers have one
    tree more, as in ``bms-rf``.
    """
    whole, rest = divmod(int(parameters["n_estimators"]), int(parameters["n_layers"]))
    return tuple(whole + (layer < rest) for layer in range(int(parameters["n_layers"])))


def scaled(design: Design, columns: SanitisedColumns) -> NDArray[np.float32]:
    """The columns, from 0 at the lower to 1 at the upper declared bound; float32
    ``(n_rows, n_columns)``.
    """
    width = np.where(design.upper > design.lower, design.upper - design.lower, 1.0)
    return ((design.matrix(columns) - design.lower) / width).astype(np.float32)


def shifted(
    X: NDArray[np.float32],
    shares: NDArray[np.float64],
    weights: NDArray[np.float32],
    shift: float,
) -> NDArray[np.float32]:
    """X + α Z W, class by class, so that a row's result does not depend on the other
    rows.

    Args:
        X: scaled columns.
        shares: Z, the mean class shares of a layer, ``(n_rows, n_classes)``.
        weights: W, ``(n_classes, n_columns)``.
        shift: α.
    """
    drift = np.zeros(X.shape)
    for of_class, weight in zip(shares.T, weights, strict=True):
        drift += of_class[:, np.newaxis] * weight.astype(np.float64)
    return (X + shift * drift).astype(np.float32)
