"""Statistics without noise: exact numbers of rows and of private bins, with and without
a label, and what a job reads.
"""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from grovekeeper_forests.bins.noisy_counts import per_row
from grovekeeper_forests.data.coded_rows import ColumnRequest
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.statistics import draw, price
from grovekeeper_forests.releases.statistics.price import StatisticsPlan
from grovekeeper_forests.releases.statistics.read import Statistics
from tests.privacy.noiseless import Noiseless
from tests.privacy.test_statistics_exact_loss import (
    ACCOUNTS,
    NAN,
    SCHEMA,
    Row,
    private_rows,
)

ROWS: tuple[Row, ...] = (
    (0.0, -1.0, 0, 0),
    (0.0, 0.3, 0, 1),
    (2.0, 2.0, 1, 1),
    (3.0, NAN, 3, -1),
    (NAN, 1.0, 2, -1),
    (1.0, 0.0, 1, 0),
    (2.0, 0.5, 0, 0),
)
"""age, debt, code of sex, class."""


def planned(*asked: dict[str, Any]) -> StatisticsPlan:
    terms = ACCOUNTS["pure"]
    return price.plan(asked, public_facts(terms, None, SCHEMA, terms.adjacency))


def test_a_job_reads_the_columns_of_its_plan_and_rows_without_a_label() -> None:
    plan = planned(
        {"statistic": "histogram", "column": "ill"},
        {"statistic": "count", "where": [{"column": "sex", "in": ["f"]}]},
    )
    asked = []

    def columns(request: ColumnRequest, *, keep_unlabelled: bool = False) -> Any:
        asked.append((request, keep_unlabelled))
        return private_rows(ROWS)

    job: Any = SimpleNamespace(
        schema=lambda: SCHEMA,
        work={"plan": plan.to_json()},
        columns=columns,
        randomness=Noiseless(),
    )
    released = Statistics.from_json(json.loads(draw.draw(job)), SCHEMA)
    assert asked == [(ColumnRequest(SCHEMA, ("ill", "sex")), True)]
    assert [estimate.value for estimate in released.estimates(0)] == [3, 2, 2]
    assert [estimate.value for estimate in released.estimates(1)] == [3]


@pytest.mark.parametrize(
    ("values", "expected"),
    [(["no"], 3), (["no", None], 5), ([None], 2), (["no", "yes"], 5)],
)
def test_an_unknown_label_is_an_empty_one(
    values: list[str | None], expected: int
) -> None:
    plan = planned({"statistic": "count", "where": [{"column": "ill", "in": values}]})
    released = draw.release(plan, private_rows(ROWS), Noiseless())
    assert [estimate.value for estimate in released.estimates(0)] == [expected]


@pytest.mark.parametrize("columns", [["age"], ["sex", "age"], ["age", "sex", "ill"]])
def test_private_bins_hold_the_rows_between_their_edges(columns: list[str]) -> None:
    """Every row is in a bin or in the cell of empty ones, whatever other columns are
    beside it.
    """
    bins = {"age": {"quantiles": 2}}
    statistic = "histogram" if len(columns) == 1 else "crosstab"
    named = {"column": "age"} if len(columns) == 1 else {"columns": columns}
    plan = planned({"statistic": statistic, "bins": bins} | named)
    released = draw.release(plan, private_rows(ROWS), Noiseless())
    edges, counts = released.measured[0]
    [(table, [(_, event)])] = plan.measured
    by_cell = (counts // per_row(event)).reshape(table.shape)
    [edge] = edges.tolist()
    expected = np.zeros(table.shape, dtype=int)
    for age, _, sex, label in ROWS:
        of_row = {
            "age": 2 if np.isnan(age) else int(age >= edge),
            "sex": sex,
            "ill": label if label >= 0 else 2,
        }
        expected[tuple(of_row[column] for column in columns)] += 1
    assert by_cell.tolist() == expected.tolist()
    assert edge == 1, "the first of two cells in the middle"


def test_cells_of_the_grid_are_counted_over_all_other_columns() -> None:
    columns = ["sex", "age", "ill"]
    bins = {"age": {"quantiles": 2}}
    plan = planned({"statistic": "crosstab", "columns": columns, "bins": bins})
    table = plan.tables[0]
    counts = np.arange(1, 1 + np.prod(table.exact.shape)).reshape(table.exact.shape)
    by_cell = draw._by_grid_cell(counts, table)
    assert by_cell.tolist() == [int(counts[:, cell].sum()) for cell in range(4)]
