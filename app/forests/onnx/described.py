"""What an export needs of a forest, whatever its family: splits, leaf values, and how their sums become shares."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.core.errors import NotSupported
from app.forests import catalogue, pooling
from app.forests.boosting.exponential import SCORE_BITS
from app.forests.boosting.family import BoostedScores
from app.forests.encoding import Encoding
from app.forests.families.leaf_sums import LeafSums, PooledSums
from app.forests.forest import Forest
from app.forests.onnx import splits
from app.forests.onnx.columns import Columns
from app.forests.schema import Schema


@dataclass(frozen=True, eq=False)
class Described:
    """A forest without its family.

    Attributes:
        encoding: the bins that splits count in.
        splits: complete trees of one depth.
        values: what leaves add to a row's sums, float64 ``(n_trees, n_leaves, n_outputs)``.
        start: what every row's sums begin with, float64 ``(n_outputs,)``.
        read_out: how sums become probabilities.
    """

    encoding: Encoding
    splits: splits.Splits
    values: NDArray[np.float64]
    start: NDArray[np.float64]
    read_out: str


def describe(forest: Forest, schema: Schema, read_out: str) -> Described:
    """A forest by one of its read-outs.

    Raises:
        NotSupported: a family that has no form in ONNX yet.
    """
    match catalogue.family(forest.plan.algorithm).reader(forest, schema, read_out):
        case PooledSums() as reader:
            return _of_sums(reader.sums, reader.read_out)
        case BoostedScores() as reader:
            return _of_boosting(reader)
        case _:
            raise NotSupported("artifact format onnx")


def _of_sums(sums: LeafSums, read_out: str) -> Described:
    arrays, values = sums.arrays, sums.values
    if read_out == pooling.VOTE:
        # Whole votes: their sums are exact in any order, so a tie is a tie everywhere.
        values = np.rint(values * len(values))
    own = splits.of_thresholds(
        Columns.of(sums.encoding), feature=arrays["feature"], threshold=arrays["threshold"], equals=arrays["equals"]
    )
    return Described(sums.encoding, own, values, np.zeros(values.shape[2]), read_out)


def _of_boosting(reader: BoostedScores) -> Described:
    arrays = reader.arrays
    own = splits.of_masks(Columns.of(reader.encoding), feature=arrays["feature"], right=arrays["right"])
    values, start = arrays["scores"] / 2.0**SCORE_BITS, arrays["start"] / 2.0**SCORE_BITS
    return Described(reader.encoding, own, values, start, reader.read_out)
