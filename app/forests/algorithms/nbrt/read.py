"""Validates ``nbrt`` forests and reads class probabilities out of their scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.forests.algorithms.nbrt.scales import SCORE_LIMIT, SCORE_UNIT, clip_of
from app.forests.algorithms.nbrt.start_scores import start_at_reading
from app.forests.algorithms.nbrt.temperature import LARGEST, TEMPERATURE_BITS
from app.forests.bins import quantile_bins
from app.forests.contract import family
from app.forests.contract.forest import Forest
from app.forests.contract.plan import Plan
from app.forests.data.encoding import Encoding
from app.forests.data.rows import SanitisedColumns
from app.forests.data.schema import Schema
from app.forests.kernels import boosting as kernels
from app.forests.kernels.exponential import SCORE_BITS
from app.forests.kernels.prediction import PackedTrees
from app.forests.trees import pooling
from app.forests.trees.leaf_sums import PackedForest

CALIBRATED, LOGISTIC = "calibrated", "logistic"

MEASURED, FOR_CLIP, NOT_FOR_CLIP = "measured", "clip", "none"
"""The read-out ``calibrated`` multiplies scores by a released temperature (``measured``); or, for two classes, corrects
the bias of clipped gradients (``clip``); or equals the softmax (``none``)."""

TIE_BREAK: Final = 2.0**-20
"""Weight of the uncalibrated probability, so that rows between the clips keep their order and their label."""

_LARGEST_START = 64 * SCORE_UNIT
"""Largest absolute start score: start scores are differences of logarithms of 63-bit integers."""


class BoostedFamily:
    """Sums the integer scores of the leaves that a row reaches, exactly as in growth."""

    def layouts(self, plan: Plan, schema: Schema) -> family.Layouts:
        """Start scores; features and sets of codes that go right; leaf scores; cuts; the temperature, if measured."""
        n_leaves = family.n_leaves(plan)
        n_scores = 1 if schema.n_classes == 2 else schema.n_classes
        private = len(quantile_bins.private_features(schema))
        return {
            "start": family.Layout(np.int64, (n_scores,)),
            "feature": family.Layout(np.int32, (plan.n_trees, n_leaves - 1)),
            "right": family.Layout(np.uint64, (plan.n_trees, n_leaves - 1, kernels.MASK_WORDS)),
            "scores": family.Layout(np.int32, (plan.n_trees, n_leaves, n_scores)),
            "cuts": family.Layout(np.uint16, (private, quantile_bins.MAX_CUTS)),
            **({"temperature": family.Layout(np.int64, (1,))} if _is_measured(plan) else {}),
        }

    def is_valid(self, forest: Forest, schema: Schema) -> bool:
        """Whether features, scores, cuts and temperature are within their limits. Any set of codes may go right."""
        return (
            family.splits_are_valid(forest, schema)
            and _is_within(forest.arrays["start"], _LARGEST_START)
            and _is_within(forest.arrays["scores"], SCORE_LIMIT * SCORE_UNIT)
            and quantile_bins.is_valid(schema, forest.arrays["cuts"])
            and (not _is_measured(forest.plan) or 0 < int(forest.arrays["temperature"][0]) < LARGEST)
        )

    def reader(self, forest: Forest, schema: Schema, read_out: str) -> family.Reader:
        """The softmax of a row's scores, corrected as the plan says for the read-out ``calibrated``.

        A forest without splits predicts the released class proportions, without correction.
        """
        encoding = quantile_bins.encoding(schema, forest.arrays["cuts"])
        if forest.depth == 0:
            return BoostedScores(encoding, forest.arrays, 0, LOGISTIC)
        arrays = {**forest.arrays, "start": start_at_reading(forest.arrays["start"])}
        if _is_measured(forest.plan) and read_out == CALIBRATED:
            temperature = float(arrays["temperature"][0]) / 2.0**TEMPERATURE_BITS
            return BoostedScores(encoding, arrays, forest.depth, LOGISTIC, temperature)
        is_for_clip = forest.plan.parameters["calibration"] == FOR_CLIP
        return BoostedScores(encoding, arrays, forest.depth, read_out if is_for_clip else LOGISTIC)


@dataclass(frozen=True, eq=False)
class BoostedScores:
    """The reader of boosted trees.

    Attributes:
        encoding: the bins whose codes the trees refer to.
        arrays: ``feature``, ``right`` and ``scores`` as released, and ``start``, the scores before the first tree.
        depth: number of splits on every path.
        read_out: how scores become probabilities; see :func:`probabilities`.
        temperature: factor on scores before the softmax.
    """

    encoding: Encoding
    arrays: Mapping[str, NDArray[Any]]
    depth: int
    read_out: str
    temperature: float = 1.0

    def __call__(self, columns: SanitisedColumns) -> NDArray[np.float64]:
        """Class probabilities of rows, float64 ``(n_rows, n_classes)``."""
        scores = self.arrays["start"] + self.packed.sums(columns)
        return probabilities(scores, self.read_out, temperature=self.temperature)

    @cached_property
    def packed(self) -> PackedForest:
        """The trees with scores as floats: sums of 1,024 scores of 32 bits are exact."""
        feature, right, scores = (self.arrays[name] for name in ("feature", "right", "scores"))
        return PackedForest.of(
            self.encoding,
            feature,
            lambda column, n_columns: PackedTrees.of_sets(
                column, right, values=scores.astype(np.float64), n_features=n_columns
            ),
        )


def _is_measured(plan: Plan) -> bool:
    """Whether the releases include the table of margins; a forest without splits has no table."""
    return plan.parameters["calibration"] == MEASURED and int(plan.parameters["max_depth"]) > 0


def _is_within(scores: NDArray[np.signedinteger], limit: int) -> bool:
    return bool(np.all((scores >= -limit) & (scores <= limit)))


def probabilities(
    scores: NDArray[np.int64] | NDArray[np.float64], read_out: str, *, temperature: float = 1.0
) -> NDArray[np.float64]:
    """Class probabilities from summed scores.

    Args:
        scores: whole numbers ``(n_rows, n_scores)`` in units of 2^-16.
        read_out: ``logistic``: the softmax. ``calibrated``: for two classes, the softmax corrected for clipping (see
            :func:`calibrated`); for more classes, the softmax.
        temperature: factor on scores before the softmax.

    Returns:
        float64 ``(n_rows, n_classes)``; rows sum to 1.
    """
    real = scores / 2.0**SCORE_BITS * temperature
    if scores.shape[1] > 1:
        return pooling.to_probabilities(real, pooling.LOGARITHMIC)
    both = pooling.to_probabilities(np.hstack([np.zeros_like(real), real]), pooling.LOGARITHMIC)
    return calibrated(both) if read_out == CALIBRATED else both


def calibrated(softmax: NDArray[np.float64]) -> NDArray[np.float64]:
    """Corrects two softmax probabilities, the larger of which is p, for gradients clipped at c.

    The gradients of a leaf with n₁ > n₀ rows of the two classes cancel when n₁ · (1 − p) = n₀ · c. The share of class 1
    is then c / (c + 1 − p), from 1/2 at p = 1 − c up to 1. For p below 1 − c both gradients have length c, so the share
    is 1/2. A small multiple of p is added, so that the result has the same order and label as p.

    Args:
        softmax: float64 ``(n_rows, 2)``.
    """
    clip = float(clip_of(2))
    larger = softmax.max(axis=1, keepdims=True)
    share = clip / (clip + 1.0 - np.maximum(larger, 1.0 - clip))
    shares = np.where(softmax == larger, share, 1.0 - share)
    result: NDArray[np.float64] = (1.0 - TIE_BREAK) * shares + TIE_BREAK * softmax
    return result
