"""Tables of statistics in the terminal."""

from typing import Any

import pytest

from grovekeeper_client.cli.output import Output
from grovekeeper_client.cli.statistics import show_table


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
