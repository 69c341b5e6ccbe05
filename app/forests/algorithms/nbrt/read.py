"""Boosted random trees as an artifact, and what they say of a row: the family of ``nbrt``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
from app.forests.kernels import prediction
from app.forests.kernels.exponential import SCORE_BITS
from app.forests.trees import pooling

CALIBRATED, LOGISTIC = "calibrated", "logistic"

MEASURED, FOR_CLIP, NOT_FOR_CLIP = "measured", "clip", "none"
"""``calibrated`` multiplies scores by a released temperature; or undoes, for two classes, what the clip of gradients
does at rest; or does nothing."""

TIE_BREAK: Final = 2.0**-20
"""Weight of the uncalibrated probability, so that rows between the clips keep their order and their label."""

_REACHED: Final = 2**22
"""Leaves of rows that are held at once: at most 16 MiB, whatever the number of rows and trees."""

_LARGEST_START = 64 * SCORE_UNIT
"""Start scores are differences of logarithms of 63-bit integers."""


class BoostedFamily:
    """Integer scores of leaves; a row's scores are their sum, the same integers as in growth."""

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
        """Known features, scores within their limits, cuts on the public grid. Any set of codes may go right."""
        return (
            family.splits_are_valid(forest, schema)
            and _is_within(forest.arrays["start"], _LARGEST_START)
            and _is_within(forest.arrays["scores"], SCORE_LIMIT * SCORE_UNIT)
            and quantile_bins.is_valid(schema, forest.arrays["cuts"])
            and (not _is_measured(forest.plan) or 0 < int(forest.arrays["temperature"][0]) < LARGEST)
        )

    def reader(self, forest: Forest, schema: Schema, read_out: str) -> family.Reader:
        """The softmax of a row's scores; ``calibrated`` does to them what the plan says.

        A forest without splits is its start, which no clip has moved: the class proportions, as they were released.
        """
        encoding = quantile_bins.encoding(schema, forest.arrays["cuts"])
        if forest.depth == 0:
            return BoostedScores(encoding, forest.arrays, 0, LOGISTIC)
        arrays = {**forest.arrays, "start": start_at_reading(forest.arrays["start"])}
        if _is_measured(forest.plan) and read_out == CALIBRATED:
            own = float(arrays["temperature"][0]) / 2.0**TEMPERATURE_BITS
            return BoostedScores(encoding, arrays, forest.depth, LOGISTIC, own)
        is_for_clip = forest.plan.parameters["calibration"] == FOR_CLIP
        return BoostedScores(encoding, arrays, forest.depth, read_out if is_for_clip else LOGISTIC)


@dataclass(frozen=True, eq=False)
class BoostedScores:
    """The reader of boosted trees.

    Attributes:
        encoding: the bins that the trees' sets count in.
        arrays: ``feature``, ``right`` and ``scores`` as released, and the ``start`` that sums begin with.
        depth: splits on every path.
        read_out: how scores become probabilities; see :func:`probabilities`.
        temperature: what scores are multiplied by before.
    """

    encoding: Encoding
    arrays: Mapping[str, NDArray[Any]]
    depth: int
    read_out: str
    temperature: float = 1.0

    def __call__(self, columns: SanitisedColumns) -> NDArray[np.float64]:
        """Class probabilities of rows, float64 ``(n_rows, n_classes)``."""
        codes = np.ascontiguousarray(self.encoding.encode(columns).T)
        scores = np.tile(self.arrays["start"], (columns.n_rows, 1))
        feature, right, leaf_scores = (self.arrays[name] for name in ("feature", "right", "scores"))
        n_trees = max(_REACHED // max(columns.n_rows, 1), 1)
        for first in range(0, len(feature), n_trees):
            some = slice(first, first + n_trees)
            reached = kernels.leaves(codes, feature=feature[some], right=right[some], depth=self.depth)
            prediction.add_leaf_scores(scores, reached, leaf_scores[some])
        return probabilities(scores, self.read_out, temperature=self.temperature)


def _is_measured(plan: Plan) -> bool:
    """Whether margins are among the releases: where there are no splits there are none."""
    return plan.parameters["calibration"] == MEASURED and int(plan.parameters["max_depth"]) > 0


def _is_within(scores: NDArray[np.signedinteger], limit: int) -> bool:
    return bool(np.all((scores >= -limit) & (scores <= limit)))


def probabilities(scores: NDArray[np.int64], read_out: str, *, temperature: float = 1.0) -> NDArray[np.float64]:
    """Class probabilities from summed scores.

    Args:
        scores: int64 ``(n_rows, n_scores)`` in units of 2^-16.
        read_out: ``logistic``: the softmax. ``calibrated``: for two classes, what the softmax means after clipping
            (see :func:`calibrated`); for more, the softmax.
        temperature: what scores are multiplied by first.

    Returns:
        float64 ``(n_rows, n_classes)``; rows sum to 1.
    """
    real = scores / 2.0**SCORE_BITS * temperature
    if scores.shape[1] > 1:
        return pooling.to_probabilities(real, pooling.LOGARITHMIC)
    both = pooling.to_probabilities(np.hstack([np.zeros_like(real), real]), pooling.LOGARITHMIC)
    return calibrated(both) if read_out == CALIBRATED else both


def calibrated(softmax: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the larger of two softmax probabilities p stands for when gradients were clipped at c.

    A leaf with n₁ > n₀ rows of the two classes is at rest when n₁ · (1 − p) = n₀ · c, so that the share of class 1 is
    c / (c + 1 − p), from 1/2 at p = 1 − c up to 1. In between the clips both gradients have the same length,
    whatever p is: the share is 1/2. A trace of p itself is mixed in, so that order and label are those of p.

    Args:
        softmax: float64 ``(n_rows, 2)``.
    """
    clip = float(clip_of(2))
    larger = softmax.max(axis=1, keepdims=True)
    share = clip / (clip + 1.0 - np.maximum(larger, 1.0 - clip))
    shares = np.where(softmax == larger, share, 1.0 - share)
    result: NDArray[np.float64] = (1.0 - TIE_BREAK) * shares + TIE_BREAK * softmax
    return result
