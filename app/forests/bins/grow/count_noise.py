"""Adds noise to a table of counts of disjoint cells."""

import numpy as np
from numpy.typing import NDArray

from app.forests.bins.noisy_counts import SCALE_BITS, per_row
from app.forests.noise.randomness import Randomness
from app.privacy.events import DiscreteLaplace, Event, RoundedGaussian, UnknownPrivacyEvent


def release(exact: NDArray[np.int64], event: Event, randomness: Randomness) -> NDArray[np.int64]:
    """Releases the table with noise, in units of 1 / :func:`per_row`. One call is one release.

    Args:
        exact: PRIVATE int64 counts of any shape; every row is counted in at most one cell.
        event: priced by :func:`priced` for this number of cells.
        randomness: source of every draw.

    Raises:
        UnknownPrivacyEvent: the event is not one of a table of noisy counts.
    """
    if _coordinates(event) != exact.size:
        raise UnknownPrivacyEvent("the event of a table of another size")
    if isinstance(event, DiscreteLaplace):
        return exact + randomness.discrete_laplace(exact.shape, inverse_scale=event.inverse_scale)
    return per_row(event) * exact + randomness.rounded_gaussian(exact.shape, scale_bits=SCALE_BITS)


def _coordinates(event: Event) -> int:
    if isinstance(event, DiscreteLaplace | RoundedGaussian):
        return event.coordinates
    raise UnknownPrivacyEvent("not the event of a table of noisy counts")
