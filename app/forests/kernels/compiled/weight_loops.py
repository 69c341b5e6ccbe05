"""Computes integer weights of rows in compiled loops; the weight of a row does not depend on other rows."""

import numpy as np
from numpy.typing import NDArray

from app.forests.compilation.compiler import compiled_for, read, written
from app.forests.kernels import exponential

_FINE_BITS = exponential.FINE_BITS
_FINE_MASK = 2**exponential.FINE_BITS - 1
_UNIT_BITS = exponential.UNIT_BITS


@compiled_for(
    read("int64", 2), read("int32", 1), read("int64", 1), read("int64", 1), read("int64", 1), written("uint16", 1)
)
def weights(
    sums: NDArray[np.int64],
    y: NDArray[np.int32],
    coarse: NDArray[np.int64],
    fine: NDArray[np.int64],
    margin: NDArray[np.int64],
    result: NDArray[np.uint16],
) -> None:
    """Fills ``result`` with min(256, ⌊256 · (1 − p_y) / margin⌋), p the softmax of a row's sums.

    exp(−d / 2¹⁶) is the product of two table entries, both at most 2³¹, shifted back to at most 2³¹. With at most 2¹⁰
    classes the total is at most 2⁴¹, so no number exceeds 2⁵⁷.
    """
    last = coarse.size * fine.size - 1
    n_classes = sums.shape[1]
    for i in range(y.size):
        largest = sums[i, 0]
        for k in range(1, n_classes):
            largest = max(largest, sums[i, k])
        others, of_label = np.int64(0), np.int64(0)
        for k in range(n_classes):
            gap = min(largest - sums[i, k], last)
            share = (coarse[gap >> _FINE_BITS] * fine[gap & _FINE_MASK]) >> _UNIT_BITS
            if k == y[i]:
                of_label = share
            else:
                others += share
        result[i] = min(np.int64(256), 256 * others * margin[1] // (margin[0] * (others + of_label)))
