"""Adds the leaf sums of a forest of any supported family to an ONNX graph."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.core.errors import NotSupported
from app.forests import catalogue
from app.forests.algorithms.bms_rf.read import StackedSums
from app.forests.algorithms.nbrt.read import BoostedScores
from app.forests.contract.forest import Forest
from app.forests.data.encoding import Encoding
from app.forests.data.schema import Schema
from app.forests.kernels.exponential import SCORE_BITS
from app.forests.onnx import columns, splits, stacked, trees
from app.forests.onnx.columns import Columns
from app.forests.onnx.graph import Graph
from app.forests.trees import pooling
from app.forests.trees.leaf_sums import LeafSums, PooledSums


@dataclass(frozen=True)
class Sums:
    """The sums of rows in a graph.

    Attributes:
        value: name of the sums; double ``(n_rows, n_outputs)``.
        n_outputs: one per class, or 1: the logit of the second of two classes.
        read_out: how sums become probabilities.
    """

    value: str
    n_outputs: int
    read_out: str


@dataclass(frozen=True, eq=False)
class _Described:
    """A forest of one layer, in a form that does not depend on the forest's family.

    Attributes:
        encoding: the bins that thresholds refer to.
        columns: the columns of these bins in the matrix that splits read.
        splits: complete trees of one depth.
        values: values that leaves add to a row's sums, float64 ``(n_trees, n_leaves, n_outputs)``.
        start: initial value of every row's sums, float64 ``(n_outputs,)``.
        read_out: how sums become probabilities.
        factor: multiplier of the sums before the read-out.
    """

    encoding: Encoding
    columns: Columns
    splits: splits.Splits
    values: NDArray[np.float64]
    start: NDArray[np.float64]
    read_out: str
    factor: float = 1.0


def add_sums(graph: Graph, forest: Forest, schema: Schema, read_out: str) -> Sums:
    """Adds the leaf sums of a forest for one of its read-outs.

    Raises:
        NotSupported: forests of this family cannot be exported yet.
    """
    match catalogue.family(forest.plan.algorithm).reader(forest, schema, read_out):
        case PooledSums() as reader:
            return _add(graph, _of_sums(reader.sums, reader.read_out))
        case BoostedScores() as reader:
            return _add(graph, _of_boosting(reader))
        case StackedSums() as reader:
            return Sums(stacked.add_sums(graph, reader), schema.n_classes, reader.read_out)
        case _:
            raise NotSupported("artifact format onnx")


def _add(graph: Graph, forest: _Described) -> Sums:
    matrix = columns.add_values(graph, forest.encoding, forest.columns)
    sums = trees.add_sums(graph, matrix, forest.splits, forest.values)
    if forest.start.any():
        sums = graph.add("Add", sums, graph.constant(forest.start[np.newaxis]))
    if forest.factor != 1.0:
        sums = graph.add("Mul", sums, graph.constant(np.array(forest.factor)))
    return Sums(sums, forest.values.shape[2], forest.read_out)


def _of_sums(sums: LeafSums, read_out: str) -> _Described:
    arrays, values = sums.arrays, sums.values
    if read_out == pooling.VOTE:
        # Sums of whole votes are exact in any order, so every runtime sees the same ties.
        values = np.rint(values * len(values))
    columns = Columns.of(sums.encoding, arrays["feature"])
    tree_splits = splits.of_thresholds(
        columns, feature=arrays["feature"], threshold=arrays["threshold"], equals=arrays["equals"]
    )
    return _Described(sums.encoding, columns, tree_splits, values, np.zeros(values.shape[2]), read_out)


def _of_boosting(reader: BoostedScores) -> _Described:
    arrays = reader.arrays
    columns = Columns.of(reader.encoding)
    tree_splits = splits.of_masks(columns, feature=arrays["feature"], right=arrays["right"])
    values, start = arrays["scores"] / 2.0**SCORE_BITS, arrays["start"] / 2.0**SCORE_BITS
    return _Described(reader.encoding, columns, tree_splits, values, start, reader.read_out, reader.temperature)
