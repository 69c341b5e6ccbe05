"""Defines the types of statistics: noisy counts, sums, means, variances and quantiles."""

from typing import Annotated, Literal

from pydantic import Field

from app.core import limits
from app.wire.base import (
    Answer,
    JsonObjectIn,
    NumberOrDate,
    PositiveAmount,
    Reference,
    Request,
)
from app.wire.datasets import Category
from app.wire.jobs import NamedJobIn
from app.wire.spending import AccountPlanOut, PriceOut
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests import limits as forest_limits

StatisticName = Literal[
    "count",
    "histogram",
    "crosstab",
    "sum",
    "mean",
    "variance",
    "quantiles",
    "median",
]

Categories = Annotated[
    list[Category | None],
    Field(min_length=1, max_length=forest_limits.MAX_CLASSES + 1, fail_fast=True),
]


class ConditionIn(Request):
    """Rows that a table reads: with a category ``in`` a list (null: an empty cell, and of the
    label an undeclared class), or with a number or a date ``from`` a bound (included) and ``below`` another.
    """

    column: Reference
    among: Annotated[Categories | None, Field(alias="in")] = None
    lower: Annotated[NumberOrDate | None, Field(alias="from")] = None
    below: NumberOrDate | None = None


class QuantileBins(Request):
    """Bins with about equally many rows: their edges are private ``quantiles``, which a
    quarter of the table's price pays for.
    """

    quantiles: int


Bins = (
    int
    | QuantileBins
    | Annotated[
        list[NumberOrDate],
        Field(max_length=forest_limits.MAX_STATISTICS_BINS, fail_fast=True),
    ]
)
"""Of a number: how many bins of equal width, how many with private edges, or the edges
between the bins.
"""

Columns = Annotated[
    list[Reference], Field(max_length=3, fail_fast=True, default_factory=list)
]


class TableIn(Request):
    """One table.

    ``column``: of a histogram, a sum, a mean, a variance, quantiles or a median;
    ``columns``: two or three, of a crosstab. ``quantiles``: ascending, such as 0.25,
    with at most three digits; at most nine. ``by``: up to two columns, for one number
    in each group. ``bins``: by the name of a numeric column; ten of equal width where
    nothing is named. Of the column whose quantiles are asked: the cells among which a
    quantile is selected, a thousand of equal width where nothing is named, and each
    value of an integer with at most a thousand values. ``{"quantiles": n}``, of one
    column of a count, a histogram or a crosstab: n bins, at most 20, with about equally
    many of the rows that the table reads; their edges are private. A value on an edge belongs to
    the bin above it. ``weight``: of the table's share of the price.
    """

    statistic: StatisticName
    column: Reference | None = None
    columns: Columns
    quantiles: Annotated[
        list[PositiveAmount],
        Field(
            default_factory=list,
            max_length=forest_limits.MAX_STATISTICS_QUANTILES,
            fail_fast=True,
        ),
    ]
    by: Columns
    bins: Annotated[
        dict[Reference, Bins],
        Field(default_factory=dict, max_length=limits.MAX_JSON_MEMBERS),
    ]
    where: Annotated[
        list[ConditionIn],
        Field(
            default_factory=list,
            max_length=forest_limits.MAX_STATISTICS_CONDITIONS,
            fail_fast=True,
        ),
    ]
    weight: PositiveAmount | None = None


class StatisticsIn(NamedJobIn):
    """A request for statistics, or for their quote.

    One of ``epsilon``, ``error`` and ``error_share`` says what to pay. ``error``: the
    95 % half width that no count and no sum may exceed, in rows or in the unit of the
    column; of a quantile, in rank. ``error_share``: the same, as a share of the declared ``public_size``.
    """

    epsilon: PositiveAmount | None = None
    error: PositiveAmount | None = None
    error_share: PositiveAmount | None = None
    delta: PositiveAmount | None = None
    scope: Annotated[JsonObjectIn, Field(default_factory=dict)]
    tables: Annotated[
        list[TableIn],
        Field(
            min_length=1,
            max_length=forest_limits.MAX_STATISTICS_TABLES,
            fail_fast=True,
        ),
    ]


class TableQuoteOut(Answer):
    """A table before it is paid for.

    ``half_width``: with probability 0.95, each of its numbers is at most this far from
    the exact one: of a count and a sum from the law of the noise (without the rounding
    of what each row adds), of a mean and a variance of all rows at the declared size. Null
    where it depends on how many rows there are: of groups, of some rows, or of a column
    with empty cells. ``half_width_at_size``: of any mean and variance, that of as many
    rows as were declared; of half as many rows, more than twice that. ``unit``: ``rows``, or the column whose unit it
    is, or ``days`` of a column of dates; of quantiles ``rank``: with probability 0.95, the cell of each quantile q of a
    group of n rows holds a value with at most q · n + ``half_width`` rows below it, and
    at least q · n − ``half_width`` rows up to it. ``resolution``: the widest cell from
    which a quantile is selected, in the unit of its column; null for other statistics.
    ``resolution_unit``: ``days`` where the column has dates; else null.
    """

    table: JsonObject
    n_cells: int
    half_width: float | None
    half_width_at_size: float | None
    unit: str
    resolution: float | None
    resolution_unit: str | None


class StatisticsQuoteOut(AccountPlanOut):
    """The tables of a request with their errors, and their price together."""

    tables: list[TableQuoteOut]
    warnings: list[str]


class AxisOut(Answer):
    """A column by whose cells a table groups rows: each has a ``category``, is
    ``other`` or ``missing``, or has the numbers ``from`` a bound and ``below`` another
    (``to``: the last bin has its upper bound). Of quantiles, the last axis has the
    column ``quantile`` and cells with a ``quantile``, such as ``0.25``.
    """

    column: str
    cells: list[JsonObject]


class EstimateOut(Answer):
    """A released number. The exact one, but for the rounding of a sum, is from ``low``
    to ``high`` with probability 0.95. Null where the noise outweighs the rows of a mean or a variance.
    Of a quantile: the middle and the ends of the cell that was selected, which may hold the exact
    quantile or not; ``rank_error`` says how far it is. A quantile or a mean of dates is a date.
    """

    value: float | str | None
    low: float | str
    high: float | str


class CellOut(EstimateOut):
    """The number of one cell. ``cells``: its place on each axis, in words; a declared
    category that is itself OTHER or MISSING is in quotes.
    """

    cells: list[str]


class StatisticsTableOut(Answer):
    """A released table. ``total``: of the rows that it counts. ``rank_error`` and
    ``resolution``: of quantiles, the ``half_width``, in rank, and the ``resolution`` of
    the quote, with its ``resolution_unit``; null for other statistics.
    """

    table: JsonObject
    unit: str
    axes: list[AxisOut]
    rows: list[CellOut]
    total: EstimateOut | None
    rank_error: float | None
    resolution: float | None
    resolution_unit: str | None


class StatisticsSummary(Answer):
    """Released statistics in a list. ``half_widths``: of each table, as in its quote;
    null where it depends on how many rows there are, and of profiles.
    """

    id: str
    name: str | None
    dataset: str
    dataset_name: str
    statistics: list[str]
    titles: list[str]
    half_widths: list[float | None]
    scope: JsonObject
    epochs: list[str]
    price: PriceOut
    created_at: str
    job_id: str


class StatisticsOut(StatisticsSummary):
    """Released statistics. All of it is public."""

    tables: list[StatisticsTableOut]
    guarantee: JsonObject
    receipt: str
    event: JsonObject
    ledger: JsonObject


class StatisticsList(Answer):
    statistics: list[StatisticsSummary]
    next: str | None
