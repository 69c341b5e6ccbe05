"""Reads released statistics: estimates with their intervals, and the error that a plan
will have. What is stated here is post-processing, or follows from the plan alone.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np

from grovekeeper_forests.array_types import Float64Array, Int64Array
from grovekeeper_forests.bins import noisy_counts
from grovekeeper_forests.bins.noisy_counts import in_rows, per_row
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.json_types import JsonObject
from grovekeeper_forests.privacy.events import DiscreteLaplace, Event
from grovekeeper_forests.releases.statistics.price import (
    Measure,
    StatisticsInvalid,
    StatisticsPlan,
    centre_of,
    measures,
    radius_of,
)
from grovekeeper_forests.releases.statistics.quantile_price import rank_error
from grovekeeper_forests.releases.statistics.quantile_read import (
    are_edges,
    in_order,
    is_selection,
)
from grovekeeper_forests.releases.statistics.tables import MEAN, SUM, VARIANCE, Table

LEVEL = 0.95
"""Confidence of half widths and intervals."""


@dataclass(frozen=True, eq=False)
class Statistics:
    """Released statistics, and no other fact about the rows.

    Attributes:
        measured: for each table and each of its measures, int64 ``(n_cells,)`` in
            steps; before these, where the table has private bins, int64 ``(n_edges,)``:
            the cells of the grid where bins begin.
    """

    plan: StatisticsPlan
    measured: Sequence[Sequence[Int64Array]]

    def to_json(self) -> JsonObject:
        """Numbers as text, because they may have more than 53 bits."""
        tables = [
            [list(map(str, measure.tolist())) for measure in table]
            for table in self.measured
        ]
        return {"plan": self.plan.to_json(), "tables": tables}

    @classmethod
    def from_json(cls, value: object, schema: Schema) -> Statistics:
        """Inverse of :meth:`to_json`; checks everything that a reader relies on.

        Raises:
            StatisticsInvalid: the value is not valid statistics of this schema.
        """
        try:
            match value:
                case {"plan": planned, "tables": [*tables], **rest} if not rest:
                    plan = StatisticsPlan.from_json(planned, schema)
                    read = cls(plan, [list(map(_exact, table)) for table in tables])
                    if read._is_whole() and read.to_json() == value:
                        return read
        except (ArithmeticError, TypeError, ValueError) as error:
            raise StatisticsInvalid from error
        raise StatisticsInvalid

    def _is_whole(self) -> bool:
        shapes = [[numbers.shape for numbers in of_table] for of_table in self.measured]
        if shapes != list(map(_shapes, self.plan.tables)):
            return False
        for table, numbers in zip(self.plan.tables, self.measured, strict=True):
            edges = table.of_edges
            if table.quantiles and not is_selection(table, numbers):
                return False
            if edges is not None and not are_edges(edges, numbers[0]):
                return False
        return True

    def table(self, index: int) -> Table:
        """A table of the plan, with the edges that were released."""
        table = self.plan.tables[index]
        if table.of_edges is None:
            return table
        return table.with_edges(self.measured[index][0].tolist())

    def numbers(self, index: int) -> Sequence[Int64Array]:
        """The released numbers of the measures of a table."""
        has_edges = self.plan.tables[index].of_edges is not None
        return self.measured[index][has_edges:]

    def estimates(self, index: int) -> list[Estimate]:
        """The numbers of a table, one for each cell; of quantiles, those of a group
        after one another, each with the ends of the cell that was selected.
        """
        table, priced = list(self.plan.measured)[index]
        if table.quantiles:
            groups = in_order(table, self.measured[index])
            return [Estimate(**vars(cell)) for group in groups for cell in group]
        columns, widths, roundings = [], [], []
        for numbers, (measure, event) in zip(self.numbers(index), priced, strict=True):
            columns.append(in_units(numbers, measure, event))
            widths.append(half_width(measure, event, n=len(priced)))
            # Rounding to steps moves what each row adds, so a mean, by half a step at
            # most.
            roundings.append(measure.reach / per_row(event) / 2)
        return [
            _estimate(table, values, widths, roundings)
            for values in zip(*columns, strict=True)
        ]


def _exact(numbers: Sequence[str]) -> Int64Array:
    return np.array(list(map(int, numbers)), np.int64)


def _shapes(table: Table) -> list[tuple[int]]:
    """The shapes of the released numbers of a table."""
    edges = table.of_edges
    of_edges = [] if edges is None else [(len(edges.quantiles),)]
    return of_edges + [(table.n_cells,)] * len(measures(table))


@dataclass(frozen=True)
class Estimate:
    """A number with an interval that has it with probability :data:`LEVEL`, whatever
    the rows are: the noise alone is uncertain. The value is ``None`` where the noise
    outweighs the rows of a mean or a variance.
    """

    value: float | None
    low: float
    high: float


def in_units(numbers: Int64Array, measure: Measure, event: Event) -> Float64Array:
    """Steps in the unit of the measure."""
    return in_rows(numbers, event) * measure.reach


def half_widths(table: Table, priced: Sequence[tuple[Measure, Event]]) -> list[float]:
    """The 95 % half width of the numbers of a table that is no mean and no variance:
    of quantiles in rank, of others by measure.
    """
    if table.quantiles:
        return [rank_error(table, [event for _, event in priced], LEVEL)]
    return [half_width(measure, event) for measure, event in priced]


def half_width(measure: Measure, event: Event, *, n: int = 1) -> float:
    """The 95 % half width of a number of a measure, before it is paid for, from the law
    of its noise alone: that which ``n`` numbers keep together (Bonferroni).
    """
    miss = (1.0 - LEVEL) / n
    return _noise_quantile(event, miss) / per_row(event) * measure.reach


def _noise_quantile(event: Event, miss: float) -> float:
    """The smallest whole t with Pr[|noise| > t] ≤ ``miss``."""
    if isinstance(event, DiscreteLaplace):
        # Pr[|z| > t] = 2 q^(t+1) / (1 + q) for whole t, with q = exp(−scale).
        scale = float(event.inverse_scale)
        tail = math.log(miss * (1.0 + math.exp(-scale)) / 2.0) / -scale
        return float(max(math.ceil(tail - 1.0), 0))
    # A rounded normal is above t if the normal is at least t + 1/2.
    deviation = math.sqrt(noisy_counts.VARIANCE)
    return max(math.ceil(deviation * NormalDist().inv_cdf(1.0 - miss / 2.0) - 0.5), 0)


def _estimate(
    table: Table,
    values: Sequence[float],
    widths: Sequence[float],
    roundings: Sequence[float],
) -> Estimate:
    """What a table says of a cell.

    Intervals of several numbers hold together by Bonferroni, and bounds of a quotient
    are taken at the corners: they are wide, and right for every dataset.
    """
    if table.value is None or table.statistic == SUM:
        [value], [width] = values, widths
        return Estimate(value, value - width, value + width)
    n_rows, *sums = zip(values, widths, strict=True)
    radius = radius_of(table.value)
    mean = _Share.of(sums[0], n_rows, reach=radius, rounding=roundings[1])
    if table.statistic == MEAN:
        return mean.shifted(centre_of(table.value))
    square = _Share.of(sums[1], n_rows, reach=radius**2 / 2, rounding=roundings[2])
    return _variance(mean, square, radius)


def _variance(mean: _Share, square: _Share, radius: float) -> Estimate:
    """The mean of squares less the square of the mean, both about the centre; a
    variance is from 0 to the square of the radius.
    """
    middle = radius**2 / 2
    at_ends = mean.low**2, mean.high**2
    smallest = 0.0 if mean.low <= 0.0 <= mean.high else min(at_ends)
    value = None
    if mean.value is not None and square.value is not None:
        value = min(max(middle + square.value - mean.value**2, 0.0), radius**2)
    return Estimate(
        value,
        max(middle + square.low - max(at_ends), 0.0),
        min(middle + square.high - smallest, radius**2),
    )


@dataclass(frozen=True)
class _Share:
    """A sum divided by a number of rows, within the bounds of one row."""

    value: float | None
    low: float
    high: float

    @classmethod
    def of(
        cls,
        total: tuple[float, float],
        rows: tuple[float, float],
        *,
        reach: float,
        rounding: float,
    ) -> _Share:
        """The share of noisy numbers, each with its half width."""
        (total_value, total_width), (n_rows, n_width) = total, rows
        few = n_rows - n_width
        if few < 1.0:  # perhaps no row at all
            return cls(None, -reach, reach)

        def bounded(share: float) -> float:
            return min(max(share, -reach), reach)

        corners = [
            bounded(bound / number)
            for bound in (total_value - total_width, total_value + total_width)
            for number in (few, n_rows + n_width)
        ]
        low = min(corners) - rounding
        high = max(corners) + rounding
        return cls(bounded(total_value / n_rows), bounded(low), bounded(high))

    def shifted(self, centre: float) -> Estimate:
        """The share about another point."""
        value = None if self.value is None else centre + self.value
        return Estimate(value, centre + self.low, centre + self.high)


def error_before(
    table: Table, priced: Sequence[tuple[Measure, Event]], size: int | None
) -> float | None:
    """The half width of each number of a table, known before it is paid for.

    Args:
        size: as in :func:`error_at_size`.

    Returns:
        ``None`` where the error depends on how many rows there are and nobody declared
        that: means and variances of groups, of some rows, or of a column with empty
        cells.
    """
    if table.statistic in (MEAN, VARIANCE):
        assert table.value is not None
        is_of_some = table.axes or table.where or table.value.missing
        return None if is_of_some else error_at_size(table, priced, size)
    [width] = half_widths(table, priced)
    return width


def error_at_size(
    table: Table, priced: Sequence[tuple[Measure, Event]], size: int | None
) -> float | None:
    """The half width of a mean or a variance of as many rows as were declared.

    Args:
        size: the declared number of rows that the request reads; ``None`` where none is
            declared.

    Returns:
        ``None`` for other statistics, without a size, and where the noise may outweigh
        the size.
    """
    if table.statistic not in (MEAN, VARIANCE) or size is None:
        return None
    n_width, *widths = (half_width(*each, n=len(priced)) for each in priced)
    if size <= n_width:
        return None
    # The widest case: all rows are at a bound.
    mean, *of_squares = (
        (width + measure.reach * n_width) / (size - n_width)
        for width, (measure, _) in zip(widths, priced[1:], strict=True)
    )
    # Two squares differ by at most twice the largest number, times their difference.
    return of_squares[0] + 2 * priced[1][0].reach * mean if of_squares else mean


_DIGITS = range(100, 1_000)
_EXPONENTS = range(-6, 1)
EPSILONS = tuple(
    Fraction(digits) * Fraction(10) ** exponent
    for exponent in _EXPONENTS
    for digits in _DIGITS
)
"""The ε that a wanted error can lead to: three digits, 0.0001 to 999."""


def epsilon_for(
    error: Fraction, plan_at: Callable[[Fraction], StatisticsPlan]
) -> Fraction:
    """The smallest of :data:`EPSILONS` at which no table has a larger half width.

    Args:
        error: half width of each number, above zero: in rows, of a quantile in rank,
            and of a sum in the unit of its column.
        plan_at: plans the request at an ε, from public facts.

    Raises:
        ParameterInvalid: a mean or a variance, whose error depends on the rows, or an
            error that no ε reaches.
    """

    def widest_at(epsilon: Fraction) -> float:
        try:
            planned = plan_at(epsilon)
        except ParameterInvalid as refused:
            if any(problem.place == ("epsilon",) for problem in refused.problems):
                return math.inf
            raise
        if any(table.statistic in (MEAN, VARIANCE) for table in planned.tables):
            raise ParameterInvalid.named(
                "error",
                "not-of-this-statistic",
                accepted=[
                    "counts, sums and quantiles",
                    "for a mean or a variance an epsilon: its quote states the error",
                ],
            )
        return max(max(half_widths(*measured)) for measured in planned.measured)

    index = bisect_left(EPSILONS, True, key=lambda at: widest_at(at) <= error)
    if index == len(EPSILONS):
        accepted = [f"at least {widest_at(EPSILONS[-1])}"]
        raise ParameterInvalid.named("error", "too-small", accepted=accepted)
    return EPSILONS[index]


def total(statistics: Statistics, index: int) -> Estimate | None:
    """The number of rows that a table counts: the sum of its cells; ``None`` where it
    counts no rows.
    """
    table, priced = list(statistics.plan.measured)[index]
    measure, event = priced[0]
    if table.value is not None:
        return None
    [numbers] = statistics.numbers(index)
    value = float(in_units(numbers, measure, event).sum())
    width = noisy_counts.noise_bound(event, level=LEVEL, n_counts=table.n_cells)
    return Estimate(value, value - width, value + width)
