"""Computes the integer weights of private rows from their scores.

The weight of a row is a bit-exact function of that row and of released numbers: scores are integers in units of 2⁻¹⁶,
the exponential is a table of correctly rounded decimals, the softmax an integer division. The weight depends on no
floating-point number, no platform library and no order of rows, so adding a row changes no other row's weight.
"""

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.forests.kernels import exponential
from app.forests.kernels.arrays import require, require_range

UNIT: Final = 256
"""The largest weight of a row: weights are integers in units of 1/256."""


def weights(sums: NDArray[np.int64], y: NDArray[np.int32], *, margin: tuple[int, int]) -> NDArray[np.uint16]:
    """min(1, (1 − p_y) / margin) of every row in units of 1/256, rounded down; p = softmax(sums).

    Args:
        sums: PRIVATE int64 ``(n_rows, n_classes)``, in units of 2⁻¹⁶.
        y: PRIVATE class codes, int32 ``(n_rows,)``.
        margin: public numerator and denominator, positive and below 2⁸.

    Returns:
        PRIVATE uint16 ``(n_rows,)``, 0 to :data:`UNIT`.

    Raises:
        ValueError: a type, a shape or a class out of its range.
    """
    from app.forests.kernels.compiled import weight_loops as loops

    if min(margin) <= 0 or max(margin) >= 2**8:
        raise ValueError("a margin out of its range")
    y = require(y, np.int32, shape=(None,), name="y")
    sums = require(sums, np.int64, shape=(y.size, None), name="sums")
    require_range(y, lowest=0, below=sums.shape[1], name="y")
    result = np.empty(y.size, dtype=np.uint16)
    loops.weights(sums, y, *_exponentials(), np.array(margin, dtype=np.int64), result)
    return result


@cache
def _exponentials() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The tables as signed integers: in the loop, the sum of a signed and an unsigned integer would become a float."""
    coarse, fine = exponential.tables()
    return coarse.astype(np.int64), fine.astype(np.int64)
