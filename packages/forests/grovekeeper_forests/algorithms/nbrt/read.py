"""Validates ``nbrt`` forests, turns released integers into scores and reads class
probabilities out of the scores.

Scores are post-processing (lemma L7), with equal results on every machine.

On datasets with noisy labels scores are overconfident; on datasets with well separated
classes they are underconfident, because steps are shrunk. Public numbers do not tell
the two cases apart. The last release is therefore a small table that counts rows by the
margin between their two largest scores and by which of the two classes is the row's
class. A row is in one cell at most. The temperature of a forest, a factor on scores
before the softmax, is fitted to this table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.algorithms.nbrt.scales import (
    SCORE_LIMIT,
    SCORE_UNIT,
    Scales,
    loss_of,
)
from grovekeeper_forests.array_types import Float64Array, Int32Array, Int64Array
from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.bins.noisy_counts import SCALE_BITS
from grovekeeper_forests.contract.plan import (
    Forest,
    Layout,
    Layouts,
    Plan,
    Reader,
    n_leaves_of,
    splits_are_valid,
)
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.sanitiser import SanitisedColumns
from grovekeeper_forests.data.schema import Label, Schema
from grovekeeper_forests.kept import kept_property
from grovekeeper_forests.kernels import boosting as kernels
from grovekeeper_forests.kernels.boosting import SCORE_BITS
from grovekeeper_forests.kernels.prediction import PackedTrees
from grovekeeper_forests.trees import leaf_read_out
from grovekeeper_forests.trees.leaf_read_out import PackedForest
from grovekeeper_forests.trees.number_read_out import (
    START_AND_SPREAD,
    Numbers,
    is_legal_start,
)

CALIBRATED, LOGISTIC = "calibrated", "logistic"

MEASURED, FOR_CLIP, NOT_FOR_CLIP = "measured", "clip", "none"
"""The read-out ``calibrated`` multiplies scores by a released temperature
(``measured``); or, for two classes, corrects the bias of clipped gradients (``clip``);
or equals the softmax (``none``).
"""

TIE_BREAK: Final = 2.0**-20
"""Weight of the uncalibrated probability, so that rows between the clips keep their
order and their label.
"""

_LARGEST_START = 64 * SCORE_UNIT
"""Largest absolute start score: start scores are differences of logarithms of 63-bit
integers.
"""


class BoostedFamily:
    """Sums the integer scores of the leaves that a row reaches, exactly as in growth."""

    def layouts(self, plan: Plan, schema: Schema) -> Layouts:
        """Start scores, or the start and the spread of a number; features and sets of
        codes that go right; leaf scores; cuts; the temperature, if measured.
        """
        n_leaves = n_leaves_of(plan)
        n_scores = loss_of(schema.n_classes).n_scores
        n_starts = n_scores
        if schema.label.is_number:
            n_starts = START_AND_SPREAD
        private = len(quantile_bins.private_features(schema))
        temperature: Layouts = {}
        if _is_measured(plan, schema):
            temperature = {"temperature": Layout(np.int64, (1,))}
        return {
            "start": Layout(np.int64, (n_starts,)),
            "feature": Layout(np.int32, (plan.n_trees, n_leaves - 1)),
            "right": Layout(
                np.uint64, (plan.n_trees, n_leaves - 1, kernels.MASK_WORDS)
            ),
            "scores": Layout(np.int32, (plan.n_trees, n_leaves, n_scores)),
            "cuts": Layout(np.uint16, (private, quantile_bins.MAX_CUTS)),
            **temperature,
        }

    def is_valid(self, forest: Forest, schema: Schema) -> bool:
        """Whether features, scores, cuts and temperature are within their limits. Any
        set of codes may go right.
        """
        return (
            splits_are_valid(forest, schema)
            and _is_legal_start(forest.arrays["start"], schema.label)
            and _is_within(forest.arrays["scores"], SCORE_LIMIT * SCORE_UNIT)
            and quantile_bins.is_valid(schema, forest.arrays["cuts"], forest.plan.grid)
            and (
                not _is_measured(forest.plan, schema)
                or 0 < int(forest.arrays["temperature"][0]) < LARGEST_TEMPERATURE
            )
        )

    def reader(self, forest: Forest, schema: Schema, read_out: str) -> Reader:
        """The softmax of a row's scores, corrected as the plan says for the read-out
        ``calibrated``.

        A forest without splits predicts the released class proportions, without
        correction. Where the label is a number, the reader returns numbers, whatever
        the read-out is.
        """
        encoding = quantile_bins.encoding(
            schema, forest.arrays["cuts"], forest.plan.grid
        )
        if schema.label.is_number:
            return BoostedNumbers(encoding, forest.arrays, schema.label)
        if forest.depth == 0:
            return BoostedScores(encoding, forest.arrays, 0, LOGISTIC)
        arrays = {**forest.arrays, "start": start_at_reading(forest.arrays["start"])}
        if _is_measured(forest.plan, schema) and read_out == CALIBRATED:
            temperature = float(arrays["temperature"][0]) / 2.0**TEMPERATURE_BITS
            return BoostedScores(encoding, arrays, forest.depth, LOGISTIC, temperature)
        if forest.plan.parameters["calibration"] != FOR_CLIP:
            read_out = LOGISTIC
        return BoostedScores(encoding, arrays, forest.depth, read_out)


@dataclass(frozen=True, eq=False)
class BoostedScores:
    """The reader of boosted trees, whose label has classes.

    Attributes:
        encoding: the bins whose codes the trees refer to.
        arrays: ``feature``, ``right`` and ``scores`` as released, and ``start``, the
            scores before the first tree.
        depth: number of splits on every path.
        read_out: how scores become probabilities; see :func:`probabilities`.
        temperature: factor on scores before the softmax.
    """

    encoding: Encoding
    arrays: Mapping[str, NDArray[Any]]
    depth: int
    read_out: str
    temperature: float = 1.0

    def __call__(self, columns: SanitisedColumns) -> Float64Array:
        """Class probabilities of rows, float64 ``(n_rows, n_classes)``."""
        scores = self.arrays["start"] + self.packed.sums(columns)
        return probabilities(scores, self.read_out, temperature=self.temperature)

    @kept_property
    def packed(self) -> PackedForest:
        """The trees with scores as floats."""
        return _packed(self.encoding, self.arrays)


@dataclass(frozen=True, eq=False)
class BoostedNumbers(Numbers):
    """The reader of boosted trees, whose label is a number.

    Attributes:
        encoding: the bins whose codes the trees refer to.
        arrays: as released; ``start`` holds the start and the spread.
        label: public.
    """

    encoding: Encoding
    arrays: Mapping[str, NDArray[Any]]
    label: Label

    @kept_property
    def packed(self) -> PackedForest:
        """The trees with scores as floats."""
        return _packed(self.encoding, self.arrays)


def _packed(encoding: Encoding, arrays: Mapping[str, NDArray[Any]]) -> PackedForest:
    """The trees with scores as floats: sums of 1,024 scores of 32 bits are exact."""
    feature = arrays["feature"]
    right = arrays["right"]
    scores = arrays["scores"]
    return PackedForest.of(
        encoding,
        feature,
        lambda column, n_columns: PackedTrees.of_sets(
            column, right, values=scores.astype(np.float64), n_features=n_columns
        ),
    )


def _is_legal_start(start: NDArray[np.signedinteger], label: Label) -> bool:
    if label.is_number:
        return is_legal_start(start)
    return _is_within(start, _LARGEST_START)


def _is_measured(plan: Plan, schema: Schema) -> bool:
    """Whether the releases include the table of margins; a forest without splits, or of
    numbers, has no table.
    """
    return (
        not schema.label.is_number
        and plan.parameters["calibration"] == MEASURED
        and int(plan.parameters["max_depth"]) > 0
    )


def _is_within(scores: NDArray[np.signedinteger], limit: int) -> bool:
    return bool(np.all((scores >= -limit) & (scores <= limit)))


def probabilities(
    scores: Int64Array | Float64Array,
    read_out: str,
    *,
    temperature: float = 1.0,
) -> Float64Array:
    """Class probabilities from summed scores.

    Args:
        scores: whole numbers ``(n_rows, n_scores)`` in units of 2^-16.
        read_out: ``logistic``: the softmax. ``calibrated``: for two classes, the
            softmax corrected for clipping (see :func:`calibrated`); for more classes,
            the softmax.
        temperature: factor on scores before the softmax.

    Returns:
        float64 ``(n_rows, n_classes)``; rows sum to 1.
    """
    real = scores / 2.0**SCORE_BITS * temperature
    if scores.shape[1] > 1:
        return leaf_read_out.to_probabilities(real, leaf_read_out.LOGARITHMIC)
    both = leaf_read_out.to_probabilities(
        np.hstack([np.zeros_like(real), real]), leaf_read_out.LOGARITHMIC
    )
    return calibrated(both) if read_out == CALIBRATED else both


def calibrated(softmax: Float64Array) -> Float64Array:
    """Corrects two softmax probabilities, the larger of which is p, for gradients
    clipped at c.

    The gradients of a leaf with n₁ > n₀ rows of the two classes cancel when n₁ · (1 −
    p) = n₀ · c. The share of class 1 is then c / (c + 1 − p), from 1/2 at p = 1 − c up
    to 1. For p below 1 − c both gradients have length c, so the share is 1/2. A small
    multiple of p is added, so that the result has the same order and label as p.

    Args:
        softmax: float64 ``(n_rows, 2)``.
    """
    clip = float(loss_of(2).clip)
    larger = softmax.max(axis=1, keepdims=True)
    share = clip / (clip + 1.0 - np.maximum(larger, 1.0 - clip))
    shares = np.where(softmax == larger, share, 1.0 - share)
    result: Float64Array = (1.0 - TIE_BREAK) * shares + TIE_BREAK * softmax
    return result


_QUOTIENT_BITS = (5, 4, 4, 4)
"""Bits of the quotient per division step, in half units for rounding to nearest; each
step stays within 63 bits.
"""

_DIGITS = 40

START_AT_READING: Final = (2, 3)


def leaf_scores(released: Int64Array, scales: Scales) -> Int32Array:
    """The scores of each leaf: w · G / (u · max(N, 0) + ridge), clipped to ±3 and
    rounded to nearest.

    Args:
        released: int64 ``(…, n_scores + 1)``: noisy gradient sums, then the noisy
            count.
        scales: public.

    Returns:
        int32 ``(…, n_scores)`` in units of 2^-16.
    """
    # For 2^31 rows |gradient| < 2^60 and the positive divisor < 2^58, so five bits of a
    # quotient fit at a time.
    gradient = scales.score_factor * released[..., :-1]
    divisor = scales.count_factor * np.maximum(released[..., -1:], 0) + scales.ridge
    whole, rest = np.divmod(gradient, divisor)
    quotient = np.clip(whole, -SCORE_LIMIT - 1, SCORE_LIMIT)
    for n_bits in _QUOTIENT_BITS:
        digit, rest = np.divmod(rest << n_bits, divisor)
        quotient = (quotient << n_bits) + digit
    limit = SCORE_LIMIT * SCORE_UNIT
    scores: Int32Array = np.clip((quotient + 1) >> 1, -limit, limit).astype(np.int32)
    return scores


def start_at_reading(start: Int64Array) -> Int64Array:
    """The start scores of the read-out: two thirds of the start, because the steps of
    trees are shrunk, too.
    """
    numerator, denominator = START_AT_READING
    return numerator * start // denominator


def start_scores(released: Int64Array, *, deviation: int = 2**SCALE_BITS) -> Int64Array:
    """Scores before the first tree: log π, centred, with π ∝ max(noisy count, 0) + one
    standard deviation of its noise.

    Args:
        released: int64 ``(n_classes,)``: class counts times their scale, with noise.
        deviation: standard deviation of the noise.

    Returns:
        int64 ``(n_scores,)`` in units of 2^-16: log(π₁ / π₀) for two classes, else log π − mean(log π).
    """
    with localcontext() as context:
        context.prec = _DIGITS
        scores = centred_logs(
            [Decimal(max(count, 0) + deviation) for count in released.tolist()]
        )
        units = [
            int((score * SCORE_UNIT).to_integral_value(ROUND_HALF_EVEN))
            for score in scores
        ]
    return np.array(units, dtype=np.int64)


def centred_logs(weights: Sequence[Decimal]) -> list[Decimal]:
    """log(w₁ / w₀) for two classes, else log w − mean(log w), in the precision of the
    current decimal context.
    """
    logs = [weight.ln() for weight in weights]
    if len(logs) == 2:
        return [logs[1] - logs[0]]
    mean = sum(logs, start=Decimal(0)) / len(logs)
    return [log - mean for log in logs]


_MARGINS: Final = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0)
_LAST_CENTRE: Final = 9.0

MARGIN_EDGES: Final = tuple(int(margin * 2**SCORE_BITS) for margin in _MARGINS)
"""Margins at which the bins of the table end, in units of 2^-16; the last bin has no
end.
"""

N_MARGIN_BINS: Final = len(MARGIN_EDGES) + 1

TEMPERATURE_BITS: Final = 16
"""Temperatures are integers in units of 2^-16."""

LARGEST_TEMPERATURE: Final = 5 << TEMPERATURE_BITS
"""Upper bound, exclusive, of valid temperatures."""

_STEPS: Final = 28
_STEP: Final = 0.05
_SPREAD: Final = 0.5
"""Standard deviation of the prior on the logarithm of the temperature: with much noise
and few rows, the temperature stays near 1.
"""


def tally_margins(scores: Int64Array, y: Int32Array) -> Int64Array:
    """Counts rows by margin and by whether the second or the first of their two largest
    scores is of their class.

    A row's cell is an integer function of the row's scores and class. Rows of a third
    class are in no cell.

    Args:
        scores: PRIVATE int64 ``(n_rows, n_scores)`` in units of 2^-16.
        y: PRIVATE class codes, int32 ``(n_rows,)``.

    Returns:
        PRIVATE int64 ``(N_BINS, 2)``.
    """
    rows = np.arange(len(y))
    if scores.shape[1] == 1:
        both = np.hstack([np.zeros_like(scores), scores])
    else:
        both = scores.copy()
    first = both.argmax(axis=1)
    largest = both[rows, first]
    both[rows, first] = np.iinfo(np.int64).min
    second = both.argmax(axis=1)
    margins = largest - both[rows, second]
    bins = np.searchsorted(
        np.array(MARGIN_EDGES, dtype=np.int64), margins, side="right"
    )
    counts = [
        np.bincount(bins[y == label], minlength=N_MARGIN_BINS)
        for label in (second, first)
    ]
    return np.stack(counts, axis=1).astype(np.int64)


def fitted_temperature(released: Int64Array, count: int) -> int:
    """Fits the temperature t to a noisy table by penalised least squares:
    post-processing (lemma L7).

    In the model, a row with margin m has the class of its largest score with
    probability logistic(t · m). The fit minimises the sum over bins of squared
    residuals over their variance, noise included, plus (log t / 0.5)².

    Args:
        released: int64 ``(N_BINS, 2)`` in units of 2^-24 deviations of their noise.
        count: the integer that one row adds to its cell; at least 1.

    Returns:
        The temperature in units of 2^-16, from about 1/4 to 4.
    """
    counts = released / count
    noise = 2.0**SCALE_BITS / count
    ends = np.array([0.0, *_MARGINS])
    centres = np.append((ends[:-1] + ends[1:]) / 2.0, _LAST_CENTRE)
    logs = _STEP * np.arange(-_STEPS, _STEPS + 1)
    share = 1.0 / (1.0 + np.exp(-np.exp(logs)[:, np.newaxis] * centres))
    total = counts.sum(axis=1)
    residual = counts[:, 1] - total * share
    variance = (
        np.maximum(total, 0.0) * share * (1.0 - share)
        + noise**2 * (share**2 + (1.0 - share) ** 2)
        + 1.0
    )
    misfit = (residual**2 / variance).sum(axis=1) + (logs / _SPREAD) ** 2
    return round(float(np.exp(logs[misfit.argmin()])) * 2**TEMPERATURE_BITS)
