"""Computes what boosting reads of scores: weights and clipped gradients of private
rows, and the leaves of code masks.

A weight or a gradient is a bit-exact function of its row and of released numbers:
scores are integers in units of 2⁻¹⁶, the exponential is a table of correctly rounded
decimals with the same bits on every machine, the softmax an integer division. It
depends on no floating-point number, no platform library and no order of rows, so adding
a row changes no other row's weight.
"""

from decimal import Decimal, localcontext
from functools import cache, lru_cache
from types import ModuleType
from typing import Protocol

import numpy as np

from grovekeeper_forests.array_types import (
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt16Array,
    UInt64Array,
)
from grovekeeper_forests.kernels.arrays import (
    FINE_BITS,
    MAX_FEATURES,
    UNIT_BITS,
    require,
    require_range,
)

SCORE_BITS = 16
"""Scores are integers in units of 2^-16."""

COARSE_STEPS = 352
"""The coarse table ends at exp(−22) < 2^-31; smaller values are 0."""

_DIGITS = 30


@cache
def _loops() -> ModuleType:
    """The compiled loops, which load the compiler: 0.5 s of CPU."""
    from grovekeeper_forests.kernels.compiled import boosting_loops

    return boosting_loops


@lru_cache(maxsize=1)
def tables() -> tuple[UInt64Array, UInt64Array]:
    """Computes the tables of exp(−j / 16) and exp(−i / 65536), to nearest, in units of
    2^-31.

    exp(−d · 2^-16) is ``coarse[d >> 12] · fine[d & 4095] >> 31``. The decimal module
    rounds correctly.

    Returns:
        Read-only uint64 ``(COARSE_STEPS,)`` and ``(2^FINE_BITS,)``.
    """
    coarse = _table(COARSE_STEPS, 1 << (SCORE_BITS - FINE_BITS))
    fine = _table(1 << FINE_BITS, 1 << SCORE_BITS)
    return coarse, fine


def _table(n_entries: int, steps_per_unit: int) -> UInt64Array:
    with localcontext() as context:
        context.prec = _DIGITS
        values = [
            int((Decimal(-step) / steps_per_unit).exp() * 2**UNIT_BITS + Decimal("0.5"))
            for step in range(n_entries)
        ]
    table = np.array(values, dtype=np.uint64)
    table.flags.writeable = False
    return table


UNIT = 256
"""The largest weight of a row: weights are integers in units of 1/256."""


def weights(sums: Int64Array, y: Int32Array, *, margin: tuple[int, int]) -> UInt16Array:
    """min(1, (1 − p_y) / margin) of every row in units of 1/256, rounded down; p =
    softmax(sums).

    Args:
        sums: PRIVATE int64 ``(n_rows, n_classes)``, in units of 2⁻¹⁶.
        y: PRIVATE class codes, int32 ``(n_rows,)``.
        margin: public numerator and denominator, positive and below 2⁸.

    Returns:
        PRIVATE uint16 ``(n_rows,)``, 0 to :data:`UNIT`.

    Raises:
        ValueError: a type, a shape or a class out of its range.
    """
    if min(margin) <= 0 or max(margin) >= 2**8:
        raise ValueError("a margin out of its range")
    y = require(y, np.int32, shape=(None,), name="y")
    sums = require(sums, np.int64, shape=(y.size, None), name="sums")
    require_range(y, lowest=0, below=sums.shape[1], name="y")
    result = np.empty(y.size, dtype=np.uint16)
    _loops().weights(
        sums, y, *_exponentials(), np.array(margin, dtype=np.int64), result
    )
    return result


@cache
def _exponentials() -> tuple[Int64Array, Int64Array]:
    """The tables as signed integers: in the loop, the sum of a signed and an unsigned
    integer would become a float.
    """
    coarse, fine = tables()
    return coarse.astype(np.int64), fine.astype(np.int64)


MAX_DEPTH = 16
"""Largest depth of a tree: its arrays then have 2^16 entries."""

MASK_WORDS = 4
"""Words of 64 bits in a node's mask: one bit per code, set if the code goes right."""

PROBABILITY_BITS = 24
"""Probabilities of rows are integers in units of 2^-24."""

LARGEST_SQUARED_LENGTH = 2**46
"""Largest C²: μ² = 1/4 per tree, more than a sensible budget pays for; sums over 2^31
rows stay inside 63 bits.
"""


class GradientLimits(Protocol):
    """Public limits on the length of a row's gradient."""

    @property
    def n_scores(self) -> int:
        """Coordinates of a gradient: one per class, or a single one for two classes and
        for a number.
        """

    @property
    def clip(self) -> int:
        """Length, in units of 2^-24, to which longer gradients are shortened."""

    @property
    def length(self) -> int:
        """The length of a clipped gradient."""

    @property
    def squared_length(self) -> int:
        """C², the largest ‖γ‖² that a row may add."""


def gradients(scores: Int64Array, y: Int32Array, limits: GradientLimits) -> Int32Array:
    """Computes the gradients γ of rows, and checks ‖γ‖² ≤ C² row by row.

    A row's gradient is a function of the row's scores and class alone, with the same
    bits on every machine.

    Args:
        scores: PRIVATE int64 ``(n_rows, n_scores)`` in units of 2^-16.
        y: PRIVATE class codes, int32 ``(n_rows,)``.
        limits: public.

    Returns:
        PRIVATE int32 ``(n_rows, n_scores)``.

    Raises:
        ValueError: a type, a shape or a class out of its range.
    """
    y = require(y, np.int32, shape=(None,), name="y")
    scores = require(scores, np.int64, shape=(y.size, limits.n_scores), name="scores")
    require_range(y, lowest=0, below=max(limits.n_scores, 2), name="y")
    if (
        not 0 < limits.squared_length <= LARGEST_SQUARED_LENGTH
        or not 0 < limits.clip <= 2**PROBABILITY_BITS
    ):
        raise ValueError("limits are out of range")
    result = np.empty(scores.shape, dtype=np.int32)
    if limits.n_scores == 1:
        loop = _loops().gradients_of_two
    else:
        loop = _loops().gradients_of_many
    loop(
        scores,
        y,
        *tables(),
        np.array([limits.clip, limits.length, limits.squared_length], dtype=np.uint64),
        result,
    )
    return result


LARGEST_CLIP = 2**28
"""Largest clip of a number's gradient: 16 spreads."""


LARGEST_CODE = 2**30
"""The largest code of a number: of so many equal parts of its range, all of them."""


def gradients_of_numbers(
    scores: Int64Array,
    y: Int32Array,
    start: Int64Array,
    limits: GradientLimits,
) -> Int32Array:
    """Computes the gradients γ of rows whose label is a number, and checks γ² ≤ C² row
    by row.

    The gradient is the residual (y − start) / spread − score, clipped and scaled: a
    function of the row's score and code alone, with the same bits on every machine.

    Args:
        scores: PRIVATE int64 ``(n_rows, 1)`` in units of 2^-16 spreads.
        y: PRIVATE codes, int32 ``(n_rows,)``, 0 to 2^30.
        start: released; int64 ``(2,)``: the start, 0 to 2^30, and the spread, 1 to
            2^30.
        limits: public.

    Returns:
        PRIVATE int32 ``(n_rows, 1)``.

    Raises:
        ValueError: a type, a shape or a code out of its range.
    """
    y = require(y, np.int32, shape=(None,), name="y")
    scores = require(scores, np.int64, shape=(y.size, 1), name="scores")
    start = require(start, np.int64, shape=(2,), name="start")
    require_range(y, lowest=0, below=LARGEST_CODE + 1, name="y")
    require_range(start, lowest=0, below=LARGEST_CODE + 1, name="start")
    if (
        start[1] < 1
        or not 0 < limits.squared_length <= LARGEST_SQUARED_LENGTH
        or not 0 < limits.clip <= LARGEST_CLIP
    ):
        raise ValueError("limits are out of range")
    result = np.empty(scores.shape, dtype=np.int32)
    lengths = [limits.clip, limits.length, limits.squared_length]
    _loops().gradients_of_numbers(
        scores,
        y,
        start,
        np.array(lengths, dtype=np.int64),
        result,
    )
    return result


def leaves(
    X: UInt8Array,
    *,
    feature: Int32Array,
    right: UInt64Array,
    depth: int,
) -> Int32Array:
    """Finds the leaf that every row reaches in every tree.

    Args:
        X: PRIVATE or a caller's codes, uint8 ``(n_rows, n_features)``, one row after
            another.
        feature: public; int32 ``(n_trees, 2**depth − 1)`` in heap order.
        right: public; uint64 ``(n_trees, 2**depth − 1, 4)``: bit c of a node's 256
            sends code c to the right.
        depth: public; 0 to 16.

    Returns:
        int32 ``(n_trees, n_rows)``.

    Raises:
        ValueError: a type, a shape or a feature out of its range.
    """
    X = require(X, np.uint8, shape=(None, None), name="X")
    if X.shape[1] > MAX_FEATURES or not 0 <= depth <= MAX_DEPTH:
        raise ValueError("X has too many features, or the trees are too deep")
    feature = require(feature, np.int32, shape=(None, 2**depth - 1), name="feature")
    require_range(feature, lowest=0, below=X.shape[1], name="feature")
    right = require(right, np.uint64, shape=(*feature.shape, MASK_WORDS), name="right")
    reached = np.empty((feature.shape[0], X.shape[0]), dtype=np.int32)
    _loops().leaves(X, feature, right, depth, reached)
    return reached
