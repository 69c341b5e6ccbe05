"""Looks up what algorithms reached on public tables of similar rows × ε, classes and share of numeric columns.

All numbers come from the committed benchmarks (``measured_accuracy.json``, written by
``python -m benchmarks.measured_accuracy``). They say nothing about the rows of a dataset.
"""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path

from app.forests.data.schema import Schema

MEASUREMENTS = Path(__file__).with_name("measured_accuracy.json")

CURVE = tuple(float(f"{step}e{decade}") for decade in (-2, -1, 0, 1) for step in (1, 1.5, 2, 3, 5, 7))
"""The values of ε of a curve."""

_TRAINED = 0.9
"""Share of a table's rows on which the benchmarks train."""

_SMALLEST_GAIN = 0.02
"""Tables on which a forest without privacy gains less than this over the largest class have no recovered share."""

_MOST_UNLIKE = 1.2
_FEWEST_TABLES = 3
_BEYOND = math.sqrt(10)
"""A measurement stands for up to this many times its rows × ε, where no larger ε was measured: a cautious value."""


@dataclass(frozen=True)
class Recovered:
    """The recovered share on one public table: 0 is the largest class, 1 is a forest without privacy."""

    table: str
    share: float


@dataclass(frozen=True)
class Band:
    """Recovered shares on similar tables at one ε: median and quartiles."""

    epsilon: float
    low: float
    middle: float
    high: float
    tables: tuple[Recovered, ...]


@dataclass(frozen=True)
class _Table:
    name: str
    rows: int
    classes: int
    numeric_share: float
    majority: float
    forest: float
    accuracy: Mapping[str, Mapping[str, float]]
    """Mean accuracy by algorithm and account (``rpf@pure``) and ε."""


@dataclass(frozen=True)
class Comparison:
    """The public facts of a training request that decide which tables are similar.

    Attributes:
        algorithm: slug.
        accountant: of the account that pays.
        rows: the public size of the scope, never a count of rows.
        schema: the public schema.
        divisor: the forest is grown at the price's ε over this number: rows per privacy unit, or steps of a label.
    """

    algorithm: str
    accountant: str
    rows: int
    schema: Schema
    divisor: int = 1

    def at(self, epsilon: float) -> Band | None:
        """The band at an ε; ``None`` where fewer than three similar tables were measured near it."""
        load = self.rows * epsilon / self.divisor
        shares = [(table.name, _share(table, self._run, load)) for table in _tables() if self._is_similar(table)]
        measured = (Recovered(name, share) for name, share in shares if share is not None)
        tables = tuple(sorted(measured, key=attrgetter("share")))
        if len(tables) < _FEWEST_TABLES:
            return None
        low, middle, high = statistics.quantiles([table.share for table in tables], n=4, method="inclusive")
        return Band(epsilon, low, middle, high, tables)

    def curve(self) -> Sequence[Band]:
        """The bands at the ε of :data:`CURVE` at which enough tables were measured."""
        return [band for band in map(self.at, CURVE) if band is not None]

    @property
    def _run(self) -> str:
        return f"{self.algorithm}@{self.accountant}"

    def _is_similar(self, table: _Table) -> bool:
        features = self.schema.features
        numeric_share = sum(not feature.is_categorical for feature in features) / max(len(features), 1)
        classes = abs(math.log2(len(self.schema.label.classes) / table.classes)) / 2
        return classes + abs(numeric_share - table.numeric_share) <= _MOST_UNLIKE


def _share(table: _Table, run: str, load: float) -> float | None:
    """The recovered share of a table at rows × ε, interpolated between the measured ε in the logarithm of ε."""
    measured = sorted((float(epsilon), value) for epsilon, value in table.accuracy.get(run, {}).items())
    if not measured or table.forest - table.majority < _SMALLEST_GAIN:
        return None
    epsilon = load / (_TRAINED * table.rows)
    smallest, largest = measured[0][0], measured[-1][0]
    if not smallest <= epsilon <= largest * _BEYOND:
        return None
    epsilon = min(epsilon, largest)
    above = next(index for index, (at, _) in enumerate(measured) if at >= epsilon)
    (left, low), (right, high) = measured[max(above - 1, 0)], measured[above]
    weight = 1.0 if left == right else math.log(epsilon / left) / math.log(right / left)
    accuracy = low + weight * (high - low)
    return (accuracy - table.majority) / (table.forest - table.majority)


def without_privacy(table: str) -> float:
    """The accuracy of a forest without privacy on a measured public table."""
    return next(measured.forest for measured in _tables() if measured.name == table)


@cache
def _tables() -> Sequence[_Table]:
    stored = json.loads(MEASUREMENTS.read_text(encoding="utf-8"))
    return [_Table(name=name, **facts) for name, facts in stored.items()]
