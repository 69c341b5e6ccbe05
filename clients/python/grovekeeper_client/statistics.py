"""Represents released statistics: numbers with their intervals."""

from collections.abc import Iterator
from datetime import date
from typing import Any

from grovekeeper_client.client import Client
from grovekeeper_client.views import table
from grovekeeper_common.json_types import JsonMapping, JsonObject

_NUMBERS = ("value", "low", "high")
_QUANTILE = "quantile"


class Statistics:
    """Released statistics of a dataset. All of it is public.

    Args:
        facts: answer of ``GET /statistics/{id}``.
    """

    def __init__(self, facts: JsonMapping) -> None:
        self.facts = facts

    def __repr__(self) -> str:
        return f"Statistics({self.id!r})"

    @property
    def id(self) -> str:
        """Id of the statistics."""
        return str(self.facts["id"])

    @property
    def guarantee(self) -> JsonMapping:
        """The guarantee, as the card of a model states it."""
        return dict(self.facts["guarantee"])

    def __len__(self) -> int:
        return len(self.facts["tables"])

    def __iter__(self) -> Iterator["Table"]:
        return (Table(table) for table in self.facts["tables"])

    def __getitem__(self, index: int) -> "Table":
        """A table, in the order of the request."""
        return Table(self.facts["tables"][index])


class Table:
    """One table: a number for each of its public cells.

    Args:
        facts: of the answer of ``GET /statistics/{id}``.
    """

    def __init__(self, facts: JsonMapping) -> None:
        self.facts = facts

    def __repr__(self) -> str:
        columns = ", ".join(self.columns)
        statistic = self.facts["table"]["statistic"]
        return f"Table({statistic!r}, by=[{columns}])"

    def _repr_html_(self) -> str:
        records = self.records
        return table(list(records[0]) if records else [], records)

    @property
    def columns(self) -> list[str]:
        """The columns by whose cells the table groups rows."""
        return [axis["column"] for axis in self.facts["axes"]]

    @property
    def records(self) -> list[JsonObject]:
        """A record for each cell: its place in each column, then ``value``, ``low`` and
        ``high``, between which the exact number is with probability 0.95; of quantiles,
        the ends of the cell that was selected. The column ``quantile`` tells several
        quantiles apart. A column of the dataset that has one of these names stands with
        ``_`` after it.
        """
        places = [self._place(axis) for axis in self.facts["axes"]]
        return [
            dict(zip(places, row["cells"], strict=True))
            | {name: row[name] for name in _NUMBERS}
            for row in self.facts["rows"]
        ]

    def _place(self, axis: JsonMapping) -> str:
        """The name of an axis in a record."""
        name = str(axis["column"])
        if _QUANTILE in axis["cells"][0]:
            return name
        has_quantiles = self.facts["table"]["statistic"] == "quantiles"
        taken = (*_NUMBERS, _QUANTILE) if has_quantiles else _NUMBERS
        return f"{name}_" if name in taken else name

    @property
    def rank_error(self) -> float | None:
        """Of quantiles: with probability 0.95, the cell of each quantile q of a group
        of n rows holds a value with at most q · n + ``rank_error`` rows below it, and
        at least q · n − ``rank_error`` rows up to it. ``None`` for other statistics.
        """
        error: float | None = self.facts["rank_error"]
        return error

    @property
    def value(self) -> float | str | None:
        """The number of a table that has one cell, or the date; ``None`` where the noise
        outweighs the rows.

        Raises:
            ValueError: the table has several cells.
        """
        rows = self.facts["rows"]
        if len(rows) != 1:
            raise ValueError(
                "the table has several numbers: read `records` or `frame()`"
            )
        value: float | str | None = rows[0]["value"]
        return value

    def frame(self) -> Any:
        """The records as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.records)

    def plot(self, **options: Any) -> Any:
        """A bar for each cell with its interval, by pandas and matplotlib. A bar of a
        date is as long as the days after the first one.

        Args:
            options: of ``DataFrame.plot.bar``.
        """
        rows = self.facts["rows"]
        frame = self.frame()[list(_NUMBERS)]
        if isinstance(rows[0]["low"], str):
            first = min(row["low"] for row in rows)
            start = date.fromisoformat(first).toordinal()
            frame = frame.map(
                lambda day: date.fromisoformat(day).toordinal() - start,
                na_action="ignore",
            )
            options = {"ylabel": f"days after {first}"} | options
        frame = frame.astype(float)
        frame.index = [", ".join(row["cells"]) for row in rows]
        errors = [frame["value"] - frame["low"], frame["high"] - frame["value"]]
        return frame["value"].plot.bar(yerr=errors, **options)


def statistics_of(client: Client, job: JsonMapping) -> Statistics:
    """The statistics that a job released."""
    return Statistics(client.statistics(job["statistics_id"]))
