"""Tables of statistics in the terminal."""

from typing import Any

import pytest

from grovekeeper_client.cli.output import Output
from grovekeeper_client.cli.statistics import show_errors, show_table


def test_a_number_is_written_as_the_pages_write_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = {"statistic": "sum", "column": "debt", "columns": [], "by": [], "where": []}
    row = {"cells": [], "value": -1.25e18, "low": -1.2600004e18, "high": 7.0}
    table: dict[str, Any] = {
        "table": asked, "axes": [], "rows": [row], "total": None, "rank_error": None,
    }  # fmt: skip
    show_table(Output(as_json=False), table)
    shown = capsys.readouterr().out
    assert "−1.25e+18" in shown
    assert "−1.26001e+18 to 7" in shown, "an interval is never written too small"


def test_a_quantile_among_single_values_has_no_width_of_cells(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = {
        "statistic": "median",
        "column": "age",
        "columns": [],
        "by": [],
        "where": [],
    }
    quoted = {"table": asked, "n_cells": 1, "half_width": 291.2, "unit": "rank"}
    for resolution in (0.0, 2.5):
        tables = [quoted | {"resolution": resolution}]
        show_errors(Output(as_json=False), {"tables": tables})
    dated = quoted | {"resolution": 3.0, "resolution_unit": "days"}
    show_errors(Output(as_json=False), {"tables": [dated]})
    of_values, of_cells, of_dates = capsys.readouterr().out.split("median of age")[1:]
    assert "± 292 rows in rank\n" in of_values
    assert "± 292 rows in rank, of cells at most 2.5 wide" in of_cells
    assert "± 292 rows in rank, of cells at most 3 days wide" in of_dates
