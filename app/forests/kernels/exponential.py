"""Tabulates the exponential function in integers, with the same bits on every machine."""

from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

SCORE_BITS: Final = 16
"""Scores are integers in units of 2^-16."""

UNIT_BITS: Final = 31
"""Values of the exponential function are integers in units of 2^-31."""

FINE_BITS: Final = 12
"""Low bits of a score that the fine table resolves; the coarse table has steps of 2^-4."""

COARSE_STEPS: Final = 352
"""The coarse table ends at exp(−22) < 2^-31; smaller values are 0."""

_DIGITS = 30


@lru_cache(maxsize=1)
def tables() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Computes the tables of exp(−j / 16) and exp(−i / 65536), to nearest, in units of 2^-31.

    exp(−d · 2^-16) is ``coarse[d >> 12] · fine[d & 4095] >> 31``. The decimal module rounds correctly.

    Returns:
        Read-only uint64 ``(COARSE_STEPS,)`` and ``(2^FINE_BITS,)``.
    """
    coarse = _table(COARSE_STEPS, 1 << (SCORE_BITS - FINE_BITS))
    fine = _table(1 << FINE_BITS, 1 << SCORE_BITS)
    return coarse, fine


def _table(n_entries: int, steps_per_unit: int) -> NDArray[np.uint64]:
    with localcontext() as context:
        context.prec = _DIGITS
        values = [
            int((Decimal(-step) / steps_per_unit).exp() * 2**UNIT_BITS + Decimal("0.5")) for step in range(n_entries)
        ]
    table = np.array(values, dtype=np.uint64)
    table.flags.writeable = False
    return table
