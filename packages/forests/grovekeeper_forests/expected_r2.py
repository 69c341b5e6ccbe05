"""Looks up how much of the spread of a number forests explained on public tables of
similar rows × ε.

All numbers come from the committed runs (``measured_r2.json``, written by ``python -m
research.regression``). They say nothing about the rows of a dataset.
"""

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

MEASUREMENTS = Path(__file__).with_name("measured_r2.json")

_MOST_UNLIKE = math.log(math.sqrt(10))
"""A measurement stands for up to √10 times its rows × ε, either way."""

_FEWEST_TABLES = 3


@dataclass(frozen=True)
class Explained:
    """R² on similar tables: median and quartiles, and the median of forests without
    privacy. 0 is what the mean of the label reaches.
    """

    low: float
    middle: float
    high: float
    forest: float
    n_tables: int


def explained(
    run: str,
    *,
    rows: int,
    epsilon: float,
) -> Explained | None:
    """What an algorithm reached on similar tables.

    Args:
        run: slug and accountant, such as ``nbrt@gdp``.
        rows: public size of the scope.
        epsilon: at δ = 1e-6.

    Returns:
        ``None`` where fewer than three similar tables were measured.
    """
    reached = []
    forests = []
    for table in _measured().values():
        r2 = _nearest(
            table.get(run, {}),
            rows * epsilon / table["rows"],
        )
        if r2 is not None:
            reached.append(r2)
            forests.append(table["forest"])
    if len(reached) < _FEWEST_TABLES:
        return None
    low, middle, high = statistics.quantiles(reached, n=4, method="inclusive")
    return Explained(
        low,
        middle,
        high,
        statistics.median(forests),
        len(reached),
    )


def _nearest(
    measured: Mapping[str, float],
    epsilon: float,
) -> float | None:
    """The measurement at the ε nearest to one; ``None`` if none is near."""
    distances = {text: abs(math.log(float(text) / epsilon)) for text in measured}
    nearest = min(distances, key=distances.__getitem__, default=None)
    if nearest is None or distances[nearest] > _MOST_UNLIKE:
        return None
    return measured[nearest]


@cache
def _measured() -> Mapping[str, Any]:
    measured: Mapping[str, Any] = json.loads(MEASUREMENTS.read_text(encoding="utf-8"))
    return measured
