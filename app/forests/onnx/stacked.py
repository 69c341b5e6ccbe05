"""Exports stacked forests to ONNX: the layers in sequence, with feature values shifted between layers in the graph.

Votes, weights, ticks and shifts are whole numbers, and every product and sum of them stays below 2⁵³: in doubles they
are exact in any order, so a row lies in the same bins here as in ``app.forests.algorithms.bms_rf.stacked_features``.
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
    """Adds every layer, each on the matrix that the previous layer's votes shift.

    Returns:
        Sums of rows over all trees, double ``(n_rows, n_classes)``.
    """
    n_classes = forest.schema.n_classes
    declared = Columns.of(forest.layers[0].encoding)
    matrix = columns.add_values(graph, forest.layers[0].encoding)
    moved = _Moved(graph, forest.schema, matrix, declared)
    sums = list[str]()
    for index, layer in enumerate(forest.layers):
        own = splits.of_thresholds(
            Columns.of(layer.encoding),
            feature=layer.arrays["feature"],
            threshold=layer.arrays["threshold"],
            equals=layer.arrays["equals"],
        )
        both = trees.add_sums(graph, matrix, own, layer.values)
        worth, votes = graph.split(both, [n_classes, n_classes])
        sums.append(worth)
        if index < len(forest.projection):
            matrix = moved.by(votes, weights=forest.projection[index], shift=forest.shift)
    return graph.add("Sum", *sums)


class _Moved:
    """The matrix of the layers after the first: what votes are added to, then unordered categories, as declared."""

    def __init__(self, graph: Graph, schema: Schema, matrix: str, declared: Columns) -> None:
        """Adds the ticks of the columns as declared.

        Args:
            graph: gets the nodes.
            schema: as declared.
            matrix: of the first layer.
            declared: columns of that matrix.
        """
        self._graph = graph
        told = list(enumerate(schema.features))
        numbers = [(index, own) for index, own in told if not own.is_categorical]
        ordered = [(index, own) for index, own in told if own.is_categorical and own.ordered]
        rest = [index for index, own in told if not stacked_features.is_moved(own)]
        self._order = [index for index, _ in (*numbers, *ordered)]
        parts = [_ticks(graph, matrix, declared.place, numbers)] if numbers else []
        if ordered:
            encoded = [columns.add_encoder(graph, own, _ticks_of_codes(own)) for _, own in ordered]
            parts.append(columns.joined(graph, encoded))
        self._ticks = graph.add("Concat", *parts, axis=1) if parts else None
        self._rest = graph.add("Gather", matrix, graph.constant(declared.place[rest]), axis=1) if rest else None

    def by(self, votes: str, *, weights: NDArray[np.uint16], shift: int) -> str:
        """The matrix after a layer's votes, double ``(n_rows, n_classes)``."""
        graph, parts = self._graph, list[str]()
        if self._ticks is not None:
            drift = graph.add("MatMul", votes, graph.constant(weights[:, self._order].astype(np.float64)))
            share = graph.constant(np.array(shift / stacked_features.TICKS**2))  # of a product that has at most 48 bits
            moved = graph.add("Add", self._ticks, graph.add("Floor", graph.add("Mul", drift, share)))
            by_feature = graph.constant(np.argsort(np.array(self._order)))
            parts.append(graph.add("Gather", moved, by_feature, axis=1))
        if self._rest is not None:
            parts.append(self._rest)
        return graph.add("Concat", *parts, axis=1)


def _ticks(graph: Graph, matrix: str, place: NDArray[np.int64], numbers: list[tuple[int, Feature]]) -> str:
    """``stacked_features.ticks`` of numbers, from their origin on: the same operations on doubles."""
    raw = graph.add("Gather", matrix, graph.constant(place[[index for index, _ in numbers]]), axis=1)
    lower, width = np.array([stacked_features.halves(own) for _, own in numbers]).T[:, np.newaxis]
    above = graph.add("Sub", graph.add("Div", raw, graph.constant(np.array(2.0))), graph.constant(lower))
    share = graph.add("Div", above, graph.constant(width))
    steps = graph.add("Floor", graph.add("Mul", share, graph.constant(np.array(float(stacked_features.TICKS)))))
    origins = np.array([[float(stacked_features.origin(own)) for _, own in numbers]])
    return graph.add("Add", steps, graph.constant(origins))


def _ticks_of_codes(feature: Feature) -> NDArray[np.float64]:
    """Where each code of an ordered category stands, MISSING being above all."""
    codes = np.arange(len(feature.categories) + 2, dtype=np.int32)
    assert stacked_features.origin(feature) == 0
    steps = stacked_features.ticks(feature, codes)
    steps[np.isnan(ordinals.numbers(feature, codes))] = math.inf
    return steps
