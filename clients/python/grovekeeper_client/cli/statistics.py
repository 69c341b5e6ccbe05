"""Implements ``grovekeeper count``, ``histogram``, ``crosstab``, ``sum``, ``mean``,
``variance``, ``quantile``, ``median`` and ``statistics``: private statistics, whose
error is known before they are paid for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from grovekeeper_client.cli.command import (
    Client,
    DatasetArgument,
    DeltaOption,
    Group,
    PurposeOption,
    ReceiptOption,
    Remote,
    ScopeOption,
    Submission,
    WrongUse,
    argument,
    command,
    given,
    json_object,
    option,
    read_bytes,
    read_scope,
)
from grovekeeper_client.cli.jobs import price_of, show_head, show_quote, submit
from grovekeeper_client.cli.output import Output
from grovekeeper_common import statistic_words
from grovekeeper_common.json_types import JsonObject
from grovekeeper_common.number_words import error_in_words, estimate_in_words

_BAR_CELLS = 30
_Typed = TypeVar("_Typed")
_Value = TypeVar("_Value")

ColumnArgument = Annotated[str, argument("Name of the column.")]
ColumnsArgument = Annotated[list[str], argument("Names of two or three columns.")]


@dataclass(frozen=True)
class StatisticsOptions:
    """Options of statistics: what to pay, of which rows, and why."""

    epsilon: str | None = option("Exact decimal, such as 0.1.", "--epsilon", "-e")
    error: str | None = option(
        "In place of ε: the largest 95 % error of each number, such as 50, or "
        "1% of the declared size."
    )
    delta: DeltaOption = None
    scope: ScopeOption = None
    name: str | None = option("A name for the statistics.")
    purpose: PurposeOption = None
    quote: bool = option(
        "Quote error and price, and spend nothing.", "--quote", default=False
    )
    receipt: ReceiptOption = False

    def to_json(self, client: Client, dataset: str) -> JsonObject:
        """The body without its tables. Amounts are sent as they were typed."""
        scope = read_scope(self.scope, partial(client.dataset, dataset))
        amounts = given(epsilon=self.epsilon, delta=self.delta, scope=scope)
        if self.error is None:
            return amounts
        return amounts | _read("--error", statistic_words.error_of, self.error)


@dataclass(frozen=True)
class TableOptions:
    """Options of one table: its groups and the rows that it reads."""

    by: list[str] | None = option("Column to group by; may be given twice.")
    where: list[str] | None = option(
        "sex=Female,Male, sex=MISSING (no value), age=18..65 (65 excluded) or "
        "admitted=2020-01-01..2021-01-01; other signs in quotes: "
        'group="10..19"; may be repeated.'
    )
    bins: list[str] | None = option(
        "Of a number: age=5 (bins of equal width), age=18,65 (edges) or "
        "age=quantiles:5 (private edges, of about equally many rows); may be repeated."
    )

    def to_json(self, statistic: str, **fields: Any) -> JsonObject:
        """The table of a request."""
        return {
            "statistic": statistic,
            "by": self.by or [],
            "where": [
                _read("--where", statistic_words.condition_of, word)
                for word in self.where or ()
            ],
            "bins": _read("--bins", statistic_words.all_bins, self.bins or []),
            **fields,
        }


@dataclass(frozen=True, kw_only=True)
class QuantileOptions(TableOptions):
    """Options of a table of quantiles."""

    quantile: Annotated[
        list[str],
        typer.Option(
            "--quantile", "-q", help="Such as 0.25; may be repeated, up to nine times."
        ),
    ]


def _read(option: str, read: Callable[[_Typed], _Value], typed: _Typed) -> _Value:
    """The value of an option."""
    try:
        return read(typed)
    except ValueError as error:
        raise WrongUse(f"{option}: {error}") from None


@command
def count(
    call: Remote,
    dataset: DatasetArgument,
    table: TableOptions,
    spend: StatisticsOptions,
    how: Submission,
) -> None:
    """Count rows privately, of the dataset or of each group."""
    asked = table.to_json("count")
    _run(call, dataset, [asked], spend, how)


def _of_column(statistic: str, sentence: str) -> Callable[..., None]:
    """The command of a statistic of one column.

    Args:
        sentence: its help text.
    """

    @command
    def release_table(
        call: Remote,
        dataset: DatasetArgument,
        column: ColumnArgument,
        table: TableOptions,
        spend: StatisticsOptions,
        how: Submission,
    ) -> None:
        asked = table.to_json(statistic, column=column)
        _run(call, dataset, [asked], spend, how)

    release_table.__doc__ = sentence
    return release_table


histogram = _of_column(
    "histogram",
    "Count the rows of each category, or of each bin of a number, privately.",
)


@command
def crosstab(
    call: Remote,
    dataset: DatasetArgument,
    columns: ColumnsArgument,
    table: TableOptions,
    spend: StatisticsOptions,
    how: Submission,
) -> None:
    """Count the rows of each combination of two or three columns, privately."""
    asked = table.to_json("crosstab", columns=columns)
    _run(call, dataset, [asked], spend, how)


total = _of_column("sum", "Add up a number privately, over all rows or in each group.")
mean = _of_column("mean", "Average a number privately, over all rows or in each group.")
variance = _of_column(
    "variance",
    "Estimate the variance of a number privately, over all rows or in each group.",
)


@command
def quantile(
    call: Remote,
    dataset: DatasetArgument,
    column: ColumnArgument,
    table: QuantileOptions,
    spend: StatisticsOptions,
    how: Submission,
) -> None:
    """Find quantiles of a number privately, of all rows or of each group."""
    asked = table.to_json("quantiles", column=column, quantiles=table.quantile)
    _run(call, dataset, [asked], spend, how)


median = _of_column(
    "median", "Find the median of a number privately, of all rows or of each group."
)


app = Group("Release several tables of statistics at once, and look at them.")


@app.command("release")
def release(
    call: Remote,
    dataset: DatasetArgument,
    tables: Annotated[
        Path,
        argument('JSON: {"tables": [...]}, as in POST /datasets/ID/statistics.'),
    ],
    spend: StatisticsOptions,
    how: Submission,
) -> None:
    """Reserve budget and release several tables for one charge."""
    content = json_object(read_bytes(tables), "the file of tables")
    asked = content.get("tables")
    if not isinstance(asked, list) or len(content) > 1:
        raise WrongUse('the file is not {"tables": [...]}')
    _run(call, dataset, asked, spend, how)


@app.command("list")
def list_statistics(call: Remote, dataset: DatasetArgument) -> None:
    """List the statistics of a dataset, newest first."""
    call.show_all(
        "statistics",
        lambda client: client.all_statistics(dataset),
        {
            "id": "id",
            "name": "name",
            "statistics": "titles",
            "error (95 %)": statistic_words.errors,
            "price": price_of,
            "released": "created_at",
        },
    )


@app.command("show")
def show(
    call: Remote,
    statistics_id: Annotated[str, argument("Id of the statistics.")],
    receipt: ReceiptOption = False,
) -> None:
    """Show statistics: every number with its interval, and the guarantee."""
    released = call.ask(lambda client: client.statistics(statistics_id))
    _show_tables(call.output, released)
    call.output.promise(released, receipt=receipt)


def _run(
    call: Remote,
    dataset: str,
    tables: list[JsonObject],
    spend: StatisticsOptions,
    how: Submission,
) -> None:
    with call.client() as client:
        body = spend.to_json(client, dataset) | {"tables": tables}
        if spend.quote:
            answer = client.quote_statistics(dataset, body)
            call.output.answer(answer)
            _show_quote(call.output, answer, receipt=spend.receipt)
            return
        body |= given(name=spend.name, purpose=spend.purpose)
        submit(
            client,
            partial(client.release_statistics, dataset, body),
            call.output,
            how,
            show=partial(_show_made, receipt=spend.receipt),
        )


def _show_quote(output: Output, quote: JsonObject, *, receipt: bool) -> None:
    show_quote(output, quote, what="these statistics", receipt=receipt)
    show_errors(output, quote)
    if quote["fits"]:
        output.hint("the same command with --wait in place of --quote")


def show_errors(output: Output, quote: JsonObject) -> None:
    """Prints the error of each table of a quote."""
    rows = [
        [statistic_words.title(item["table"]), item["n_cells"], _error(item)]
        for item in quote["tables"]
    ]
    output.table(["table", "cells", "95 % error of each"], rows, empty="no tables")


def _error(item: JsonObject) -> str:
    if item["half_width"] is None:
        return statistic_words.error_of_some_rows(item["half_width_at_size"])
    width = f"± {error_in_words(item['half_width'])}"
    if item["unit"] == "rank":
        # an earlier service states no unit
        cell = statistic_words.width_of_cells(
            item["resolution"], item.get("resolution_unit")
        )
        of = "" if item["resolution"] == 0 else f", of cells at most {cell} wide"
        return f"{width} rows in rank{of}"
    if item["unit"] in ("rows", "days", "days²"):
        return f"{width} {item['unit']}"
    return width


def _show_made(
    client: Client, output: Output, job: JsonObject, *, receipt: bool
) -> None:
    released = client.statistics(job["statistics_id"])
    _show_tables(output, released)
    output.price_paid(released, receipt=receipt, show="grovekeeper statistics show")


def _show_tables(output: Output, released: JsonObject) -> None:
    show_head(output, "statistics", released)
    show_each_table(output, released)


def show_each_table(output: Output, released: JsonObject) -> None:
    """Prints the tables of a release."""
    for table in released["tables"]:
        output.say()
        show_table(output, table)


def show_table(output: Output, table: JsonObject, *, indent: int = 0) -> None:
    """Prints a released table, with a bar for each number of rows."""
    margin = " " * indent
    output.say(margin + statistic_words.title(table["table"]))
    total = table["total"]
    counts = [row["value"] for row in table["rows"]] if total is not None else []
    largest = max(counts, default=0.0)
    rows = [
        [
            *row["cells"],
            *_estimate(row),
            *([_bar(row["value"], largest)] if counts else []),
        ]
        for row in table["rows"]
    ]
    columns = [axis["column"] for axis in table["axes"]]
    is_ranked = table["rank_error"] is not None
    columns += [
        "rows" if counts else _value_title(table),
        "selected from" if is_ranked else "95 % interval",
    ]
    if counts:
        columns.append("")
    output.table(columns, rows, empty="no cells", indent=indent)
    if is_ranked:
        known = statistic_words.error_of_quantiles(
            table["table"]["column"],
            len(rows),
            table["resolution"],
            table["rank_error"],
            table.get("resolution_unit"),
        )
        output.say(margin + known)
    if counts[1:]:
        number, interval = _estimate(total)
        output.say(f"{margin}all cells together: {number} ({interval})")


def _value_title(table: JsonObject) -> str:
    """The head of the column of numbers."""
    statistic = table["table"]["statistic"]
    return str(table["table"]["column"] if statistic == "quantiles" else statistic)


def _estimate(row: JsonObject) -> tuple[str, str]:
    """A number and its interval."""
    return estimate_in_words(row["value"], row["low"], row["high"])


def _bar(value: float, largest: float) -> str:
    if largest <= 0:
        return ""
    return "█" * round(_BAR_CELLS * max(value, 0.0) / largest)
