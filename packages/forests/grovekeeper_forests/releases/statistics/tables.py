"""Defines tables of statistics: which rows a table reads, by which public cells it
groups them, and what it adds up in each cell.

Cells follow from the declaration and the request alone. No group is discovered in the
rows, and none is left out because it is small: OTHER, and MISSING where the declaration
permits it, are always cells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from grovekeeper_forests import limits
from grovekeeper_forests.amounts import NotAnAmount, parse, to_text
from grovekeeper_forests.data.days import day_of
from grovekeeper_forests.data.schema import Feature, Schema, plain_number
from grovekeeper_forests.errors import ParameterInvalid, ParameterProblem, Place

COUNT = "count"
HISTOGRAM = "histogram"
CROSSTAB = "crosstab"
SUM = "sum"
MEAN = "mean"
VARIANCE = "variance"
QUANTILES = "quantiles"
MEDIAN = "median"

STATISTICS: Final = (
    COUNT,
    HISTOGRAM,
    CROSSTAB,
    SUM,
    MEAN,
    VARIANCE,
    QUANTILES,
    MEDIAN,
)

_OF_RANKS: Final = (QUANTILES, MEDIAN)
_OF_A_NUMBER: Final = (SUM, MEAN, VARIANCE, *_OF_RANKS)

MAX_BY: Final = 2
MAX_AXES: Final = 3
MAX_PRIVATE_BINS: Final = 20
"""Most bins whose edges are private quantiles: each edge is paid for."""

DEFAULT_BINS: Final = 10
"""Bins of a number for which a request names none."""

QUANTILE_STEPS: Final = 1_000
"""A quantile is a multiple of a thousandth, between 0 and 1."""

OTHER = "OTHER"
MISSING = "MISSING"


@dataclass(frozen=True)
class Axis:
    """A column by whose public cells a table groups rows.

    Attributes:
        column: a feature or a label.
        categories: declared; empty for a number, also in a label.
        edges: of the bins of a number, ascending, inside its bounds. A value on an edge
            belongs to the bin above it.
        bounds: declared, of a number.
        has_missing: whether empty cells have a cell of their own. In a label of classes
            they are in OTHER with undeclared ones, from which storage does not tell
            them.
        has_other: of categories, whether undeclared cells have a cell of their own. A
            label that is cut into classes has none.
        is_label: whether the column is a label.
        n_private: number of bins whose edges a release selects among ``edges``; 0 where
            ``edges`` are those of the bins.
        first_day: of a column of dates.
    """

    column: str
    categories: tuple[str, ...] = ()
    edges: tuple[float, ...] = ()
    bounds: tuple[float, float] = (0.0, 0.0)
    has_missing: bool = False
    has_other: bool = True
    is_label: bool = False
    n_private: int = 0
    first_day: int | None = None

    @property
    def n_cells(self) -> int:
        """Number of cells, OTHER and MISSING included."""
        if self.n_private:
            return self.n_private + self.has_missing
        own = len(self.edges) + 1
        if self.categories:
            own = len(self.categories) + self.has_other
        return own + self.has_missing

    @property
    def cells(self) -> list[dict[str, Any]]:
        """What each cell holds: a declared ``category``; the numbers ``from`` a bound
        and ``below`` another, the last bin with its upper bound; ``other``; ``missing``.
        """
        missing = [{"missing": True}] if self.has_missing else []
        if self.categories:
            declared = [{"category": category} for category in self.categories]
            return [*declared, *[{"other": True}] * self.has_other, *missing]
        limits_of_bins = [self.bounds[0], *self.edges, self.bounds[1]]
        numbers = [plain_number(edge, self.first_day) for edge in limits_of_bins]
        bins: list[dict[str, Any]] = [
            {"from": low, "below": high} for low, high in itertools.pairwise(numbers)
        ]
        bins[-1] = {"from": numbers[-2], "to": numbers[-1]}
        return [*bins, *missing]


@dataclass(frozen=True)
class Condition:
    """Rows that a table reads: those with one of several categories, or with a number
    in a range.

    Attributes:
        column: a feature or a label.
        values: categories or classes; ``None`` among them is an empty cell. ``None``
            for a number.
        lower: the smallest number; ``None``: no bound.
        below: above the largest number; ``None``: no bound.
        first_day: of a column of dates.
    """

    column: str
    values: tuple[str | None, ...] | None = None
    lower: float | None = None
    below: float | None = None
    first_day: int | None = None

    def to_json(self) -> dict[str, Any]:
        """In the form of a request."""
        if self.values is not None:
            return {"column": self.column, "in": list(self.values)}
        return {
            "column": self.column,
            "from": _stored(self.lower, self.first_day),
            "below": _stored(self.below, self.first_day),
        }


@dataclass(frozen=True)
class Table:
    """One table of a request, settled: nothing of it depends on rows.

    Attributes:
        statistic: one of :data:`STATISTICS`.
        value: the number that is added up, or whose quantiles are released, where the
            statistic reads one.
        axes: in the order of the cells; the last runs fastest.
        where: conditions that a row has to meet, all of them.
        weight: of the table's share of the price, above zero.
        n_by: how many of the axes the request named in ``by``.
        quantiles: ascending, each above 0 and below 1; empty for other statistics.
        grid: the candidates of quantiles; ``None`` for other statistics.
    """

    statistic: str
    value: Feature | None
    axes: tuple[Axis, ...]
    where: tuple[Condition, ...]
    weight: Fraction
    n_by: int
    quantiles: tuple[Fraction, ...] = ()
    grid: Axis | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of cells of each axis."""
        return tuple(axis.n_cells for axis in self.axes)

    @property
    def n_cells(self) -> int:
        """Number of cells; of quantiles, number of groups."""
        return math.prod(self.shape)

    @property
    def n_numbers(self) -> int:
        """Number of released numbers that are shown."""
        return self.n_cells * max(len(self.quantiles), 1)

    @property
    def n_candidates(self) -> int:
        """Number of cells among which a quantile is selected; 1 for other statistics."""
        return 1 if self.grid is None else len(self.grid.edges) + 1

    @property
    def private_axis(self) -> int | None:
        """The number of the axis whose edges are selected privately."""
        for index, axis in enumerate(self.axes):
            if axis.n_private:
                return index
        return None

    @property
    def of_edges(self) -> Table | None:
        """The quantiles of all rows of the table that become the edges of its private
        bins.
        """
        if self.private_axis is None:
            return None
        axis = self.axes[self.private_axis]
        shares = [Fraction(step, axis.n_private) for step in range(1, axis.n_private)]
        grid = replace(axis, n_private=0, has_missing=False)
        return Table(
            QUANTILES, None, (), self.where, self.weight, 0, tuple(shares), grid
        )

    @property
    def exact(self) -> Table:
        """The table whose exact counts are added up: with every cell of the grid in
        place of private bins.
        """
        axes = tuple(replace(axis, n_private=0) for axis in self.axes)
        return replace(self, axes=axes)

    def with_edges(self, starts: Sequence[int]) -> Table:
        """The table after the release of its edges.

        Args:
            starts: the first cell of the grid in each private bin but the lowest.
        """
        assert self.private_axis is not None
        axes = list(self.axes)
        axis = axes[self.private_axis]
        edges = tuple(axis.edges[start - 1] for start in starts)
        axes[self.private_axis] = replace(axis, edges=edges, n_private=0)
        return replace(self, axes=tuple(axes))

    @property
    def groups_by_label(self) -> bool:
        """Whether labels decide in which cell a row is."""
        return any(axis.is_label for axis in self.axes)

    @property
    def counted_axes(self) -> tuple[Axis, ...]:
        """The axes by which rows are counted: those of the cells, then the grid."""
        return self.axes if self.grid is None else (*self.axes, self.grid)

    @property
    def ranked_or_added(self) -> str | None:
        """The column whose numbers are added up, or whose quantiles are released, also
        as edges of private bins.
        """
        if self.private_axis is not None:
            return self.axes[self.private_axis].column
        return None if self.value is None else self.value.name

    @property
    def columns(self) -> set[str]:
        """Every column that the table reads."""
        named = {axis.column for axis in self.axes}
        named |= {condition.column for condition in self.where}
        return named if self.value is None else named | {self.value.name}

    def to_json(self) -> dict[str, Any]:
        """The request that has this table, with every field written out."""
        own = [axis.column for axis in self.axes[self.n_by :]]
        value = None if self.value is None else self.value.name
        is_one_column = self.statistic == HISTOGRAM
        bins: dict[str, Any] = {}
        for axis in self.counted_axes:
            if axis.categories or axis == self._default_grid:
                continue
            if axis.n_private:
                bins[axis.column] = {"quantiles": axis.n_private}
            else:
                bins[axis.column] = [
                    _stored(edge, axis.first_day) for edge in axis.edges
                ]
        return {
            "statistic": self.statistic,
            "column": own[0] if is_one_column else value,
            "columns": own if self.statistic == CROSSTAB else [],
            "bins": bins,
            "by": [axis.column for axis in self.axes[: self.n_by]],
            "where": [condition.to_json() for condition in self.where],
            "weight": to_text(self.weight),
        } | self._named_quantiles()

    @property
    def _default_grid(self) -> Axis | None:
        """The grid of a request that names no cells. It is long, and not written out."""
        if self.grid is None or self.value is None:
            return None
        edges = _equal_edges(self.value, limits.MAX_STATISTICS_BINS)
        return replace(self.grid, edges=edges)

    def _named_quantiles(self) -> dict[str, Any]:
        """The field of a request that only quantiles have."""
        if self.statistic != QUANTILES:
            return {}
        return {"quantiles": list(map(to_text, self.quantiles))}


def read_tables(asked: Sequence[Mapping[str, Any]], schema: Schema) -> list[Table]:
    """Settles the tables of a request. Reads no row.

    Args:
        asked: tables in the form of ``POST /datasets/{id}/statistics``, with the types
            of its fields checked.
        schema: public.

    Raises:
        ParameterInvalid: with a place in ``tables``; a column that is not declared, an
            edge outside of the bounds, or more cells than one release may have.
    """
    if not 1 <= len(asked) <= limits.MAX_STATISTICS_TABLES:
        raise ParameterInvalid.named(
            "tables",
            "too-many" if asked else "too-few",
            limit=limits.MAX_STATISTICS_TABLES,
        )
    tables = [
        _TableReader(schema, ("tables", index), table).table()
        for index, table in enumerate(asked)
    ]
    n_counts = sum(table.exact.n_cells * table.n_candidates for table in tables)
    if n_counts > limits.MAX_STATISTICS_COUNTS:
        raise ParameterInvalid.named(
            "tables", "too-many-cells", limit=limits.MAX_STATISTICS_COUNTS
        )
    if sum(table.n_numbers for table in tables) > limits.MAX_STATISTICS_CELLS:
        raise ParameterInvalid.named(
            "tables", "too-many-cells", limit=limits.MAX_STATISTICS_CELLS
        )
    return tables


def require_possible(tables: Sequence[Table]) -> None:
    """Raises ``ParameterInvalid`` where the conditions of a table exclude each other.

    What was stored before this rule stays readable: only requests are held to it.
    """
    for index, table in enumerate(tables):
        for end, condition in enumerate(table.where):
            earlier = [c for c in table.where[:end] if c.column == condition.column]
            if earlier and _exclude_each_other([*earlier, condition]):
                place = ("tables", index, "where", end)
                problem = ParameterProblem(place, "excludes-another")
                raise ParameterInvalid([problem])


def _exclude_each_other(conditions: Sequence[Condition]) -> bool:
    """Whether no cell of their column meets all conditions."""
    listed = [set(item.values) for item in conditions if item.values is not None]
    if listed:
        return not set.intersection(*listed)
    lower = [item.lower for item in conditions if item.lower is not None]
    below = [item.below for item in conditions if item.below is not None]
    return max(lower, default=-math.inf) >= min(below, default=math.inf)


class _TableReader:
    """Reads one table of a request, field by field."""

    def __init__(self, schema: Schema, place: Place, asked: Mapping[str, Any]) -> None:
        self._schema = schema
        self._place = place
        self._asked = asked
        self._bins: Mapping[str, Any] = asked.get("bins") or {}
        # a label that is a number is read as a feature
        numbers = [label.column for label in schema.labels if label.is_number]
        self._as_feature = {
            feature.name: feature for feature in (*schema.features, *numbers)
        }
        self._labels = {label.name for label in schema.labels}
        self._classes = {label.name: label for label in schema.labels if label.classes}

    def table(self) -> Table:
        statistic = self._asked["statistic"]
        if statistic not in STATISTICS:
            raise self._invalid("unknown", "statistic", accepted=STATISTICS)
        by = list(self._asked.get("by") or ())
        if len(by) > MAX_BY:
            raise self._invalid("too-many", "by", limit=MAX_BY)
        own = self._own_columns(statistic)
        axes = self._axes(by, own)
        value = None
        if statistic in _OF_A_NUMBER:
            value = self._value(statistic)
        return Table(
            statistic,
            value,
            axes,
            self._where(),
            self._weight(),
            len(by),
            self._quantiles(statistic),
            self._grid(value) if statistic in _OF_RANKS else None,
        )

    def _quantiles(self, statistic: str) -> tuple[Fraction, ...]:
        asked = self._asked.get("quantiles") or []
        if statistic != QUANTILES:
            if asked:
                raise self._invalid("not-of-this-statistic", "quantiles")
            return (Fraction(1, 2),) if statistic == MEDIAN else ()
        most = limits.MAX_STATISTICS_QUANTILES
        if not 1 <= len(asked) <= most:
            problem = "too-many" if asked else "missing"
            raise self._invalid(problem, "quantiles", limit=most)
        quantiles = tuple(map(self._quantile, range(len(asked)), asked))
        if not all(low < high for low, high in itertools.pairwise(quantiles)):
            raise self._invalid("not-ascending", "quantiles")
        return quantiles

    def _quantile(self, index: int, text: str) -> Fraction:
        try:
            quantile = parse(text)
        except NotAnAmount:
            quantile = Fraction(0)
        if not 0 < quantile < 1 or (quantile * QUANTILE_STEPS).denominator != 1:
            accepted = ["0.001 to 0.999, with at most three digits"]
            raise self._invalid("out-of-range", "quantiles", index, accepted=accepted)
        return quantile

    def _grid(self, value: Feature | None) -> Axis:
        """The candidates of quantiles: equal cells, or those between named edges."""
        assert value is not None
        asked = self._bins.get(value.name, limits.MAX_STATISTICS_BINS)
        edges = self._edges(value, asked)
        bounds = (value.lower, value.upper)
        return Axis(value.name, edges=edges, bounds=bounds, first_day=value.first_day)

    def _own_columns(self, statistic: str) -> list[str]:
        """The columns that the statistic itself groups by, beside those of ``by``."""
        columns = self._asked.get("columns") or []
        column = self._asked.get("column")
        if statistic != CROSSTAB and columns:
            raise self._invalid("not-of-this-statistic", "columns")
        if statistic in (COUNT, CROSSTAB) and column is not None:
            raise self._invalid("not-of-this-statistic", "column")
        if statistic in (HISTOGRAM, *_OF_A_NUMBER) and column is None:
            raise self._invalid("missing", "column", accepted=self._names())
        if statistic == CROSSTAB and not 2 <= len(columns) <= MAX_AXES:
            raise self._invalid(
                "too-few" if len(columns) < 2 else "too-many", "columns"
            )
        if statistic == HISTOGRAM:
            return [str(column)]
        return list(columns)

    def _axes(self, by: Sequence[str], own: Sequence[str]) -> tuple[Axis, ...]:
        names = [*by, *own]
        field = "columns" if len(own) > 1 else "column"
        candidates = self._columns_of_candidates()
        if len({*names, *candidates}) < len(names) + len(candidates):
            repeated = field if len(set(own)) < len(own) else "by"
            raise self._invalid("not-distinct", repeated)
        if len(names) > MAX_AXES:
            raise self._invalid("too-many", "by", limit=MAX_AXES - len(own))
        axes = tuple(self._axis(name, "by" if name in by else field) for name in names)
        if sum(axis.n_private > 0 for axis in axes) > 1:
            raise self._invalid("too-many", "bins", limit=1)
        names += candidates
        if unused := sorted(set(self._bins) - set(names)):
            raise self._invalid("not-grouped-by", "bins", unused[0], accepted=names)
        return axes

    def _columns_of_candidates(self) -> list[str]:
        """The column of whose cells quantiles are selected."""
        is_ranked = self._asked["statistic"] in _OF_RANKS
        return [str(self._asked["column"])] if is_ranked else []

    def _axis(self, name: str, field: str) -> Axis:
        if name in self._classes:
            self._require_no_bins(name)
            return Axis(
                name,
                categories=self._classes[name].classes,
                has_missing=bool(self._classes[name].cuts),
                has_other=not self._classes[name].cuts,
                is_label=True,
            )
        feature = self._feature(name, field)
        if feature.is_categorical:
            self._require_no_bins(name)
            return Axis(
                name, categories=feature.categories, has_missing=feature.missing
            )
        asked = self._bins.get(feature.name, DEFAULT_BINS)
        n_private = 0
        if isinstance(asked, Mapping):
            n_private = self._private_bins(feature, asked["quantiles"])
            asked = limits.MAX_STATISTICS_BINS
        return Axis(
            name,
            edges=self._edges(feature, asked),
            bounds=(feature.lower, feature.upper),
            has_missing=feature.missing,
            is_label=name in self._labels,
            n_private=n_private,
            first_day=feature.first_day,
        )

    def _private_bins(self, feature: Feature, n_bins: int) -> int:
        """The number of bins whose edges are private quantiles."""
        if self._asked["statistic"] in _OF_A_NUMBER:
            raise self._invalid("not-of-this-statistic", "bins", feature.name)
        n_cells = len(_equal_edges(feature, limits.MAX_STATISTICS_BINS)) + 1
        most = min(MAX_PRIVATE_BINS, n_cells)
        if not 2 <= n_bins <= most:
            raise self._invalid("out-of-range", "bins", feature.name, limit=most)
        return n_bins

    def _edges(self, feature: Feature, asked: Any) -> tuple[float, ...]:
        if isinstance(asked, Mapping):
            raise self._invalid("not-of-this-statistic", "bins", feature.name)
        if isinstance(asked, int):
            if not 1 <= asked <= limits.MAX_STATISTICS_BINS:
                raise self._invalid(
                    "out-of-range",
                    "bins",
                    feature.name,
                    limit=limits.MAX_STATISTICS_BINS,
                )
            return _equal_edges(feature, asked)
        asked = [self._number(feature, edge, "bins", feature.name) for edge in asked]
        if not all(low < high for low, high in itertools.pairwise(asked)):
            raise self._invalid("not-ascending", "bins", feature.name)
        # The bounds may be written out as the ends of the first and the last bin.
        edges = tuple(float(edge) for edge in asked if _is_edge(feature, edge))
        if len(edges) >= limits.MAX_STATISTICS_BINS:
            raise self._invalid(
                "too-many", "bins", feature.name, limit=limits.MAX_STATISTICS_BINS - 1
            )
        if not all(feature.lower <= edge <= feature.upper for edge in asked):
            raise self._invalid(
                "out-of-bounds", "bins", feature.name, accepted=_in_bounds(feature)
            )
        return edges

    def _number(self, feature: Feature, asked: Any, *place: str | int) -> float:
        """A number of a request, which is a date for a column of dates."""
        if feature.first_day is None:
            if isinstance(asked, str):
                raise self._invalid("not-a-number", *place)
            return float(asked)
        day = day_of(asked)
        if not day.is_integer():
            raise self._invalid("not-a-date", *place, accepted=_in_bounds(feature))
        return day - feature.first_day

    def _value(self, statistic: str) -> Feature:
        name = self._asked["column"]
        if name in self._classes or self._feature(name, "column").is_categorical:
            accepted = [
                feature.name
                for feature in self._as_feature.values()
                if _is_stated_of(statistic, feature)
            ]
            raise self._invalid("not-a-number", "column", accepted=accepted)
        feature = self._feature(name, "column")
        if feature.is_date and statistic == SUM:
            raise self._invalid("not-of-dates", "column")
        if not feature.lower < feature.upper:
            raise self._invalid("constant", "column")
        if not _are_bounds_of(statistic, feature):
            raise self._invalid("bounds-too-close-or-too-wide", "column")
        return feature

    def _where(self) -> tuple[Condition, ...]:
        asked = self._asked.get("where") or ()
        if len(asked) > limits.MAX_STATISTICS_CONDITIONS:
            raise self._invalid(
                "too-many", "where", limit=limits.MAX_STATISTICS_CONDITIONS
            )
        return tuple(self._condition(index, item) for index, item in enumerate(asked))

    def _condition(self, index: int, item: Mapping[str, Any]) -> Condition:
        name = item["column"]
        values = item.get("in")
        lower = item.get("from")
        below = item.get("below")
        is_range = lower is not None or below is not None
        categories = self._categories(name, index)
        if categories is None:
            feature = self._as_feature[name]
            if values is not None or not is_range:
                raise self._invalid(
                    "needs-a-range", "where", index, accepted=_in_bounds(feature)
                )
            if lower is not None:
                lower = self._number(feature, lower, "where", index, "from")
            if below is not None:
                below = self._number(feature, below, "where", index, "below")
            if lower is not None and below is not None and lower >= below:
                raise self._invalid("empty-range", "where", index)
            is_above = lower is not None and lower > feature.upper
            if is_above or (below is not None and below <= feature.lower):
                raise self._invalid(
                    "out-of-bounds", "where", index, accepted=_in_bounds(feature)
                )
            return Condition(
                name, lower=lower, below=below, first_day=feature.first_day
            )
        if is_range or not values:
            raise self._invalid("needs-categories", "where", index, accepted=categories)
        if not set(values) <= {*categories, None}:
            raise self._invalid("unknown", "where", index, "in", accepted=categories)
        # a label of no declared class may always be empty
        feature_of_name = self._as_feature.get(name)
        if None in values and feature_of_name and not feature_of_name.missing:
            raise self._invalid(
                "no-missing-cells", "where", index, "in", accepted=categories
            )
        return Condition(name, values=tuple(dict.fromkeys(values)))

    def _categories(self, name: str, index: int) -> tuple[str, ...] | None:
        """The categories of a column of a condition; ``None`` for a number."""
        if name in self._classes:
            return self._classes[name].classes
        if name not in self._as_feature:
            raise self._invalid(
                "unknown", "where", index, "column", accepted=self._names()
            )
        feature = self._as_feature[name]
        return feature.categories if feature.is_categorical else None

    def _weight(self) -> Fraction:
        try:
            weight = parse(self._asked.get("weight") or "1")
        except NotAnAmount:
            weight = Fraction(0)
        if weight <= 0:
            accepted = ["0.000000000000000001 to 999999999999"]
            raise self._invalid("out-of-range", "weight", accepted=accepted)
        return weight

    def _feature(self, name: str, field: str) -> Feature:
        if name not in self._as_feature:
            raise self._invalid("unknown", field, accepted=self._names())
        return self._as_feature[name]

    def _require_no_bins(self, name: str) -> None:
        if name in self._bins:
            raise self._invalid("not-for-categories", "bins", name)

    def _names(self) -> list[str]:
        return [*self._as_feature, *self._classes]

    def _invalid(
        self,
        problem: str,
        *place: str | int,
        limit: int | None = None,
        accepted: Iterable[str] = (),
    ) -> ParameterInvalid:
        found = ParameterProblem(
            (*self._place, *place), problem, limit, tuple(accepted)
        )
        return ParameterInvalid([found])


def _is_stated_of(statistic: str, feature: Feature) -> bool:
    """Whether a statistic can be stated of a column."""
    return (
        not feature.is_categorical
        and not (feature.is_date and statistic == SUM)
        and feature.lower < feature.upper
        and _are_bounds_of(statistic, feature)
    )


def _are_bounds_of(statistic: str, feature: Feature) -> bool:
    """Whether a statistic can be stated of a number with these bounds."""
    if statistic in _OF_RANKS:
        # a cell may be as wide as the bounds are apart
        return math.isfinite(feature.upper - feature.lower)
    radius = feature.upper / 2 - feature.lower / 2
    # what a row adds is divided by its largest contribution
    return 0 < radius * radius / 2 < math.inf


def _in_bounds(feature: Feature) -> list[str]:
    """What is inside the bounds of a number, in words."""
    first_day = feature.first_day
    low = plain_number(feature.lower, first_day)
    high = plain_number(feature.upper, first_day)
    what = "numbers"
    if feature.is_date:
        what = "dates"
    return [f"{what} from {low} to {high}"]


def _stored(number: float | None, first_day: int | None) -> float | int | str | None:
    """A number of a request as a plan stores it: a date for a column of dates."""
    if number is None or first_day is None:
        return number
    return plain_number(number, first_day)


@lru_cache(maxsize=1_024)
def _equal_edges(feature: Feature, n_bins: int) -> tuple[float, ...]:
    """Edges of bins of equal width. Those of an integer are whole: a bin has one or
    more of its values.
    """
    low = Fraction(feature.lower)
    high = Fraction(feature.upper)
    if feature.type != "numeric":
        n_values = high - low + 1
        edges = {low + math.ceil(n_values * step / n_bins) for step in range(1, n_bins)}
    else:
        edges = {low + (high - low) * step / n_bins for step in range(1, n_bins)}
    inside = {edge for edge in map(float, edges) if _is_edge(feature, edge)}
    return tuple(sorted(inside))


def _is_edge(feature: Feature, number: float) -> bool:
    """Whether a number can be the edge between two bins. The upper bound of an integer
    can: it is a bin of its own.
    """
    is_last = feature.type != "numeric" and number == feature.upper
    return feature.lower < number < feature.upper or is_last
