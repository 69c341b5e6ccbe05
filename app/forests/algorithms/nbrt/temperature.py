"""Fits the temperature of a forest, a factor on scores before the softmax, to a noisy table of margins.

On datasets with noisy labels scores are overconfident; on datasets with well separated classes they are underconfident,
because steps are shrunk. Public numbers do not tell the two cases apart. The last release is therefore a small table
that counts rows by the margin between their two largest scores and by which of the two classes is the row's class. A
row is in one cell at most.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.forests.bins.noisy_counts import SCALE_BITS
from app.forests.kernels.exponential import SCORE_BITS

_MARGINS: Final = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0)
_LAST_CENTRE: Final = 9.0

EDGES: Final = tuple(int(margin * 2**SCORE_BITS) for margin in _MARGINS)
"""Margins at which the bins of the table end, in units of 2^-16; the last bin has no end."""

N_BINS: Final = len(EDGES) + 1

TEMPERATURE_BITS: Final = 16
"""Temperatures are integers in units of 2^-16."""

LARGEST: Final = 5 << TEMPERATURE_BITS
"""Upper bound, exclusive, of valid temperatures."""

_STEPS: Final = 28
_STEP: Final = 0.05
_SPREAD: Final = 0.5
"""Standard deviation of the prior on the logarithm of the temperature: with much noise and few rows, the temperature
stays near 1."""


def tally(scores: NDArray[np.int64], y: NDArray[np.int32]) -> NDArray[np.int64]:
    """Counts rows by margin and by whether the second or the first of their two largest scores is of their class.

    A row's cell is an integer function of the row's scores and class. Rows of a third class are in no cell.

    Args:
        scores: PRIVATE int64 ``(n_rows, n_scores)`` in units of 2^-16.
        y: PRIVATE class codes, int32 ``(n_rows,)``.

    Returns:
        PRIVATE int64 ``(N_BINS, 2)``.
    """
    rows = np.arange(len(y))
    both = np.hstack([np.zeros_like(scores), scores]) if scores.shape[1] == 1 else scores.copy()
    first = both.argmax(axis=1)
    largest = both[rows, first]
    both[rows, first] = np.iinfo(np.int64).min
    second = both.argmax(axis=1)
    margins = largest - both[rows, second]
    bins = np.searchsorted(np.array(EDGES, dtype=np.int64), margins, side="right")
    counts = [np.bincount(bins[y == label], minlength=N_BINS) for label in (second, first)]
    return np.stack(counts, axis=1).astype(np.int64)


def fitted(released: NDArray[np.int64], count: int) -> int:
    """Fits the temperature t to a noisy table by penalised least squares: post-processing (lemma L7).

    In the model, a row with margin m has the class of its largest score with probability logistic(t · m). The fit
    minimises the sum over bins of squared residuals over their variance, noise included, plus (log t / 0.5)².

    Args:
        released: int64 ``(N_BINS, 2)`` in units of 2^-24 deviations of their noise.
        count: the integer that one row adds to its cell; at least 1.

    Returns:
        The temperature in units of 2^-16, from about 1/4 to 4.
    """
    counts, noise = released / count, 2.0**SCALE_BITS / count
    ends = np.array([0.0, *_MARGINS])
    centres = np.append((ends[:-1] + ends[1:]) / 2.0, _LAST_CENTRE)
    logs = _STEP * np.arange(-_STEPS, _STEPS + 1)
    share = 1.0 / (1.0 + np.exp(-np.exp(logs)[:, np.newaxis] * centres))
    total = counts.sum(axis=1)
    residual = counts[:, 1] - total * share
    variance = np.maximum(total, 0.0) * share * (1.0 - share) + noise**2 * (share**2 + (1.0 - share) ** 2) + 1.0
    misfit = (residual**2 / variance).sum(axis=1) + (logs / _SPREAD) ** 2
    return round(float(np.exp(logs[misfit.argmin()])) * 2**TEMPERATURE_BITS)
