"""Exports stacked forests to ONNX: the layers in sequence, with feature values shifted between layers in the graph.

Votes, weights, ticks and shifts are whole numbers, and their products and sums stay below 2⁵³. Doubles hold such
numbers exactly, so the graph and ``app.forests.algorithms.bms_rf.stacked_features`` assign a row to the same bins.
"""

import math

import numpy as np
from numpy.typing import NDArray

from app.forests.algorithms.bms_rf import stacked_features
from app.forests.algorithms.bms_rf.read import StackedSums
from app.forests.data import ordinals
from app.forests.data.schema import Feature, Schema
from app.forests.onnx import columns, splits, trees
from app.forests.onnx.columns import Columns
from app.forests.onnx.graph import Graph


def add_sums(graph: Graph, forest: StackedSums) -> str:
    """Adds every layer; each later layer reads the matrix that the votes of earlier layers have shifted.

    Returns:
        The sums of each row over all trees, double ``(n_rows, n_classes)``.
    """
    n_classes = forest.schema.n_classes
    declared = Columns.of(forest.layers[0].encoding)
    matrix = columns.add_values(graph, forest.layers[0].encoding)
    shifted_matrix = _ShiftedMatrix(graph, forest.schema, matrix, declared)
    sums = list[str]()
    for index, layer in enumerate(forest.layers):
        layer_splits = splits.of_thresholds(
            Columns.of(layer.encoding),
            feature=layer.arrays["feature"],
            threshold=layer.arrays["threshold"],
            equals=layer.arrays["equals"],
        )
        worth_and_votes = trees.add_sums(graph, matrix, layer_splits, layer.values)
        worth, votes = graph.split(worth_and_votes, [n_classes, n_classes])
        sums.append(worth)
        if index < len(forest.projection):
            matrix = shifted_matrix.by(votes, weights=forest.projection[index], shift=forest.shift)
    return graph.add("Sum", *sums)


class _ShiftedMatrix:
    """Builds the matrix of each layer after the first: the shifted features, and unordered categories as declared."""

    def __init__(self, graph: Graph, schema: Schema, matrix: str, declared: Columns) -> None:
        """Adds the ticks of the declared columns.

        Args:
            graph: receives the nodes.
            schema: the declared schema.
            matrix: the matrix of the first layer.
            declared: the columns of that matrix.
        """
        self._graph = graph
        numbered = list(enumerate(schema.features))
        numbers = [(index, feature) for index, feature in numbered if not feature.is_categorical]
        ordered = [(index, feature) for index, feature in numbered if feature.is_categorical and feature.ordered]
        rest = [index for index, feature in numbered if not stacked_features.is_moved(feature)]
        self._order = [index for index, _ in (*numbers, *ordered)]
        parts = [_ticks(graph, matrix, declared.place, numbers)] if numbers else []
        if ordered:
            encoded = [columns.add_encoder(graph, feature, _ticks_of_codes(feature)) for _, feature in ordered]
            parts.append(columns.joined(graph, encoded))
        self._ticks = graph.add("Concat", *parts, axis=1) if parts else None
        self._rest = graph.add("Gather", matrix, graph.constant(declared.place[rest]), axis=1) if rest else None

    def by(self, votes: str, *, weights: NDArray[np.uint16], shift: int) -> str:
        """Adds the matrix after a layer's votes, double ``(n_rows, n_features)``."""
        graph, parts = self._graph, list[str]()
        if self._ticks is not None:
            drift = graph.add("MatMul", votes, graph.constant(weights[:, self._order].astype(np.float64)))
            share = graph.constant(np.array(shift / stacked_features.TICKS**2))  # the product has at most 48 bits
            shifted = graph.add("Add", self._ticks, graph.add("Floor", graph.add("Mul", drift, share)))
            by_feature = graph.constant(np.argsort(np.array(self._order)))
            parts.append(graph.add("Gather", shifted, by_feature, axis=1))
        if self._rest is not None:
            parts.append(self._rest)
        return graph.add("Concat", *parts, axis=1)


def _ticks(graph: Graph, matrix: str, place: NDArray[np.int64], numbers: list[tuple[int, Feature]]) -> str:
    """Adds the ticks of numbers, counted from their origin: ``stacked_features.ticks`` as operations on doubles."""
    raw = graph.add("Gather", matrix, graph.constant(place[[index for index, _ in numbers]]), axis=1)
    lower, width = np.array([stacked_features.halves(feature) for _, feature in numbers]).T[:, np.newaxis]
    above = graph.add("Sub", graph.add("Div", raw, graph.constant(np.array(2.0))), graph.constant(lower))
    share = graph.add("Div", above, graph.constant(width))
    steps = graph.add("Floor", graph.add("Mul", share, graph.constant(np.array(float(stacked_features.TICKS)))))
    origins = np.array([[float(stacked_features.origin(feature)) for _, feature in numbers]])
    return graph.add("Add", steps, graph.constant(origins))


def _ticks_of_codes(feature: Feature) -> NDArray[np.float64]:
    """The tick of each code of an ordered category; MISSING is above all other codes."""
    codes = np.arange(len(feature.categories) + 2, dtype=np.int32)
    assert stacked_features.origin(feature) == 0
    steps = stacked_features.ticks(feature, codes)
    steps[np.isnan(ordinals.numbers(feature, codes))] = math.inf
    return steps
