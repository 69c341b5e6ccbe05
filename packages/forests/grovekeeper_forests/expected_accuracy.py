"""Looks up what algorithms reached on public tables of similar rows × ε, classes and
share of numeric columns.

Where a forest without privacy is hardly better than the largest class, there is nothing
to recover: such tables are named, and count in no share.

All numbers come from the committed benchmarks (``measured_accuracy.json``, written by
``python -m research.measured_accuracy``). They say nothing about the rows of a dataset.
"""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from operator import attrgetter, itemgetter
from pathlib import Path

from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.privacy.accountants import gdp, pure

DELTA = Fraction(1, 10**6)
"""The δ of all measurements on accounts with a δ."""

MEASUREMENTS = Path(__file__).with_name("measured_accuracy.json")

CURVE = tuple(
    float(f"{step}e{decade}")
    for decade in (-2, -1, 0, 1)
    for step in (1, 1.5, 2, 3, 5, 7)
)
"""The values of ε of a curve."""

_TRAINED = 0.9  # share of a table's rows on which the benchmarks train

_SMALLEST_GAIN = 0.02
"""Where a forest without privacy gains less than this over the largest class, there is
nothing to gain.
"""

_EVERYWHERE_MEASURED = ("adult", "banknote", "mushroom", "nursery", "pendigits")
"""The public tables on which every algorithm is measured."""

_CLASSES_OF_AUROC = 2
_MOST_UNLIKE = 1.2
_FEWEST_TABLES = 3
_BEYOND = math.sqrt(10)
"""A measurement stands for up to this many times its rows × ε, where no larger ε was
measured: a cautious value.
"""


@dataclass(frozen=True)
class Recovered:
    """The recovered share on one public table: 0 is the largest class, 1 is a forest
    without privacy.
    """

    table: str
    share: float


@dataclass(frozen=True)
class AurocBand:
    """AUROC on similar tables of two classes: median and quartiles, and the median of
    forests without privacy.
    """

    low: float
    middle: float
    high: float
    without_privacy: float
    n_tables: int


@dataclass(frozen=True)
class Band:
    """Recovered shares on similar tables at one ε: median and quartiles.

    Attributes:
        epsilon: the ε.
        low: first quartile, of the tables on which there was something to gain;
            ``middle`` and ``high`` likewise.
        tables: these tables with their shares, the smallest first.
        without_gain: the similar tables on which there was nothing to gain.
        majority: median accuracy of the largest class of ``tables``.
        forest: median accuracy of a forest without privacy on ``tables``.
        auroc: on all similar tables of two classes; ``None`` where fewer than three
            were measured.
    """

    epsilon: float
    low: float
    middle: float
    high: float
    tables: tuple[Recovered, ...]
    without_gain: tuple[str, ...]
    majority: float
    forest: float
    auroc: AurocBand | None

    @property
    def accuracy(self) -> float:
        """The accuracy that the middle share is, between ``majority`` and ``forest``."""
        return self.majority + self.middle * (self.forest - self.majority)


@dataclass(frozen=True)
class Run:
    """The measurements of an algorithm on one kind of account: number of tables,
    smallest and largest ε.
    """

    algorithm: str
    accountant: str
    n_tables: int
    smallest: float
    largest: float


@dataclass(frozen=True)
class Measured:
    """One measurement: a public table with its training rows, an ε, and the share that
    was recovered there.
    """

    table: str
    rows: int
    classes: int
    epsilon: float
    share: float


@dataclass(frozen=True)
class _Table:
    name: str
    rows: int
    classes: int
    numeric_share: float
    majority: float
    forest: float
    forest_auroc: float | None
    accuracy: Mapping[str, Mapping[str, float]]
    """Mean accuracy by algorithm and account (``rpf@pure``) and ε; ``auroc`` likewise."""
    auroc: Mapping[str, Mapping[str, float]]

    @property
    def has_gain(self) -> bool:
        """Whether there is something to gain over the largest class."""
        return self.forest - self.majority >= _SMALLEST_GAIN

    def share(self, accuracy: float) -> float:
        """The recovered share of an accuracy."""
        return (accuracy - self.majority) / (self.forest - self.majority)


@dataclass(frozen=True)
class Comparison:
    """The public facts of a training request that decide which tables are similar.

    Attributes:
        algorithm: slug.
        accountant: of the account that pays.
        rows: the public size of the scope, never a count of rows.
        schema: the public schema.
        divisor: the forest is grown at the price's ε over this number: rows per privacy
            unit, or steps of a label.
    """

    algorithm: str
    accountant: str
    rows: int
    schema: Schema
    divisor: int = 1

    def at(self, epsilon: float) -> Band | None:
        """The band at an ε; ``None`` where fewer than three similar tables were
        measured near it.
        """
        load = self.rows * epsilon / self.divisor
        similar = [table for table in _tables() if self._is_similar(table)]
        with_gain, without_gain, recovered = [], [], []
        for table in similar:
            accuracy = _interpolated(table, table.accuracy.get(self._run), load)
            if accuracy is None:
                continue
            if table.has_gain:
                with_gain.append(table)
                recovered.append(Recovered(table.name, table.share(accuracy)))
            else:
                # A share of a tiny gain would be noise, and of no gain a division by 0.
                without_gain.append(table.name)
        if len(with_gain) < _FEWEST_TABLES:
            return None
        recovered.sort(key=attrgetter("share"))
        low, middle, high = _quartiles([table.share for table in recovered])
        return Band(
            epsilon,
            low,
            middle,
            high,
            tuple(recovered),
            without_gain=tuple(without_gain),
            majority=statistics.median(table.majority for table in with_gain),
            forest=statistics.median(table.forest for table in with_gain),
            auroc=self._auroc(similar, load),
        )

    def _auroc(self, similar: Sequence[_Table], load: float) -> AurocBand | None:
        """The AUROC of all similar tables of two classes, if the schema has two."""
        if len(self.schema.label.classes) != _CLASSES_OF_AUROC:
            return None
        with_privacy, without_privacy = [], []
        for table in similar:
            auroc = _interpolated(table, table.auroc.get(self._run), load)
            if auroc is not None and table.forest_auroc is not None:
                with_privacy.append(auroc)
                without_privacy.append(table.forest_auroc)
        if len(with_privacy) < _FEWEST_TABLES:
            return None
        return AurocBand(
            *_quartiles(with_privacy),
            statistics.median(without_privacy),
            len(with_privacy),
        )

    def curve(self) -> Sequence[Band]:
        """The bands at the ε of :data:`CURVE` at which enough tables were measured."""
        return [band for band in map(self.at, CURVE) if band is not None]

    def nearest(self, epsilon: float) -> Measured | None:
        """The measurement with the nearest rows × ε, on a similar table if there is
        any; ``None`` if none was made, as of a label that is a number.
        """
        if self.schema.label.is_number:
            return None
        load = self.rows * epsilon / self.divisor
        ranked = []
        for table in _tables():
            if not table.has_gain:
                continue
            for measured_at, accuracy in _by_epsilon(table.accuracy.get(self._run)):
                distance = abs(math.log(_TRAINED * table.rows * measured_at / load))
                # False comes first: any similar table before all others.
                rank = (not self._is_similar(table), distance)
                ranked.append((rank, table, measured_at, accuracy))
        if not ranked:
            return None
        _, table, measured_at, accuracy = min(ranked, key=itemgetter(0))
        return Measured(
            table.name,
            round(_TRAINED * table.rows),
            table.classes,
            measured_at,
            table.share(accuracy),
        )

    @property
    def _run(self) -> str:
        return f"{self.algorithm}@{self.accountant}"

    def _is_similar(self, table: _Table) -> bool:
        if self.schema.label.is_number:
            return False
        features = self.schema.features
        n_numeric = sum(not feature.is_categorical for feature in features)
        numeric_share = n_numeric / max(len(features), 1)
        # Four times as many classes weigh as much as numbers in place of categories.
        by_classes = abs(math.log2(len(self.schema.label.classes) / table.classes)) / 2
        by_columns = abs(numeric_share - table.numeric_share)
        return by_classes + by_columns <= _MOST_UNLIKE


def _by_epsilon(cells: Mapping[str, float] | None) -> list[tuple[float, float]]:
    return sorted((float(epsilon), value) for epsilon, value in (cells or {}).items())


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def _interpolated(
    table: _Table, cells: Mapping[str, float] | None, load: float
) -> float | None:
    """What was measured on a table at rows × ε, interpolated between the measured ε in
    the logarithm of ε.
    """
    measured = _by_epsilon(cells)
    if not measured:
        return None
    epsilon = load / (_TRAINED * table.rows)
    smallest, largest = measured[0][0], measured[-1][0]
    if not smallest <= epsilon <= largest * _BEYOND:
        return None
    # Beyond the largest measured ε, its value stands: more ε rarely costs accuracy.
    epsilon = min(epsilon, largest)
    above = next(index for index, (value, _) in enumerate(measured) if value >= epsilon)
    (left, low), (right, high) = measured[max(above - 1, 0)], measured[above]
    weight = 1.0
    if left != right:
        weight = math.log(epsilon / left) / math.log(right / left)
    return low + weight * (high - low)


def at_epsilon_one(algorithm: str) -> list[dict[str, str]]:
    """Mean accuracies of an algorithm at ε = 1 on five tables, in percent, by its
    cheapest accountant; if measured.
    """
    for accountant in (pure.NAME, gdp.NAME):
        measured = []
        tables = {table.name: table for table in _tables()}
        for name in _EVERYWHERE_MEASURED:
            by_epsilon = tables[name].accuracy.get(f"{algorithm}@{accountant}", {})
            if "1" in by_epsilon:
                measured.append(
                    {
                        "dataset": name,
                        "accountant": accountant,
                        "epsilon": "1",
                        "percent": f"{100 * by_epsilon['1']:.1f}",
                    }
                )
        if measured:
            return measured
    return []


def runs() -> list[Run]:
    """What was measured: every algorithm on every kind of account, in alphabetical
    order.
    """
    names = sorted({name for table in _tables() for name in table.accuracy})
    return list(map(_run_of, names))


def _run_of(name: str) -> Run:
    algorithm, _, accountant = name.partition("@")
    n_tables, epsilons = 0, list[float]()
    for table in _tables():
        if by_epsilon := table.accuracy.get(name):
            n_tables += 1
            epsilons += map(float, by_epsilon)
    return Run(algorithm, accountant, n_tables, min(epsilons), max(epsilons))


def without_privacy(table: str) -> float:
    """The accuracy of a forest without privacy on a measured public table."""
    return next(measured.forest for measured in _tables() if measured.name == table)


@cache
def _tables() -> Sequence[_Table]:
    stored = json.loads(MEASUREMENTS.read_text(encoding="utf-8"))
    return [_Table(name=name, **facts) for name, facts in stored.items()]
