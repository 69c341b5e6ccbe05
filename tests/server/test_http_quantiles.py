"""Quantiles over HTTP: quoted with their error in rank, released once, shown as JSON and
CSV, and read by the client.
"""

import csv
import io
from typing import Any

import pyarrow as pa
import pytest

from grovekeeper_client import Grovekeeper
from grovekeeper_common.number_words import error_in_words
from grovekeeper_verifier.dataset_replay import verify
from tests.server.test_http_statistics import BUDGETS, N_ROWS, _released, _submitted
from tests.support.pages import signed_in, text_of
from tests.support.server import Server

pytestmark = pytest.mark.in_turn("server")

QUANTILES = {
    "statistic": "quantiles",
    "column": "age",
    "quantiles": [0.25, "0.5", 0.9],
    "by": ["income"],
}
MEDIAN = {
    "statistic": "median",
    "column": "age",
    "where": [{"column": "income", "in": [">50K"]}],
}
TABLES: list[dict[str, Any]] = [QUANTILES, MEDIAN]
AGES = [index * 37 % 100 for index in range(N_ROWS)]


@pytest.mark.parametrize("protects", ["row", "label"])
@pytest.mark.parametrize("accountant", BUDGETS)
def test_quantiles_cost_what_was_quoted_and_are_near_in_rank(
    server: Server, accountant: str, protects: str
) -> None:
    dataset = server.uploaded(N_ROWS, budget=BUDGETS[accountant], protects=protects)
    path = f"/datasets/{dataset['name']}/statistics"
    body = {"epsilon": "24", "tables": TABLES}
    before = server.footprint()
    quote = server.admin.http.post(f"{path}/quote", json=body).json()
    assert server.footprint() == before, "a quote changes nothing"

    shown = _released(server, dataset["id"], **body)
    assert (shown["event"], shown["price"], shown["receipt"]) == (
        quote["event"], quote["price"], quote["receipt"],
    )  # fmt: skip
    assert "public candidates" in shown["receipt"]
    export = server.admin.http.get(f"/ledger/{dataset['id']}/export").content
    assert verify(export.splitlines(keepends=True))

    for quoted, table in zip(quote["tables"], shown["tables"], strict=True):
        assert quoted["table"] == table["table"]
        assert (quoted["unit"], table["unit"]) == ("rank", "age")
        assert quoted["half_width"] == table["rank_error"] > 0
        assert quoted["resolution"] == table["resolution"] == 0, (
            "each age is a candidate"
        )
        assert quoted["n_cells"] == len(table["rows"])
    quantiles, [median] = (table["rows"] for table in shown["tables"])
    assert [row["cells"] for row in quantiles] == [
        [income, share]
        for income in ("<=50K", ">50K", "OTHER")
        for share in ("0.25", "0.5", "0.9")
    ]
    values = [row["value"] for row in quantiles]
    assert values[:3] == sorted(values[:3])
    assert all(row["low"] == row["value"] == row["high"] for row in quantiles)
    rich = [age for age in AGES if age > 50]
    # by chance, one in 10⁵ is twice as far in rank as it is with probability 95 %
    reach = 4 * shown["tables"][1]["rank_error"]
    assert _distance_in_rank(rich, 0.5, median["value"]) <= reach


def _distance_in_rank(ages: list[int], share: float, value: float) -> float:
    target = share * len(ages)
    below = sum(age < value for age in ages)
    up_to = sum(age <= value for age in ages)
    return max(below - target, target - up_to, 0.0)


@pytest.mark.parametrize("accountant", BUDGETS)
def test_a_wanted_error_in_rank_gives_the_smallest_price(
    server: Server, accountant: str
) -> None:
    dataset = server.uploaded(N_ROWS, budget=BUDGETS[accountant])
    path = f"/datasets/{dataset['id']}/statistics/quote"
    quotes = [
        server.admin.http.post(path, json={**asked, "tables": TABLES}).json()
        for asked in ({"error": "20"}, {"error_share": "0.1"})
    ]
    assert quotes[0] == quotes[1], "a tenth of the declared 200 rows"
    widest = max(table["half_width"] for table in quotes[0]["tables"])
    assert 15 < widest <= 20


def test_a_quote_does_not_depend_on_rows(server: Server) -> None:
    body = {"epsilon": "3", "tables": TABLES}
    answers = []
    for n_rows in (10, 900):
        dataset = server.uploaded(n_rows)
        path = f"/datasets/{dataset['id']}/statistics/quote"
        text = server.admin.http.post(path, json=body).text
        answers.append(
            text.replace(dataset["id"], "ID").replace(dataset["name"], "NAME")
        )
    assert answers[0] == answers[1]


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"statistic": "median", "column": "sex"}, "/tables/0/column", "not-a-number"),
    ({"statistic": "quantiles", "column": "age"}, "/tables/0/quantiles", "missing"),
    (QUANTILES | {"quantiles": [0.5, 0.25]}, "/tables/0/quantiles", "not-ascending"),
    (QUANTILES | {"quantiles": [0.5, 1.5]}, "/tables/0/quantiles/1", "out-of-range"),
    (MEDIAN | {"quantiles": [0.5]}, "/tables/0/quantiles", "not-of-this-statistic"),
    (QUANTILES | {"by": ["age"]}, "/tables/0/by", "not-distinct"),
]


@pytest.mark.parametrize(("table", "pointer", "problem"), REFUSED)
def test_a_table_that_is_wrong_is_named_and_costs_nothing(
    server: Server, table: dict[str, Any], pointer: str, problem: str
) -> None:
    dataset = server.uploaded(20)
    before = server.footprint()
    answer = _submitted(server, dataset["id"], epsilon="1", tables=[table])
    assert answer.status_code == 422, answer.text
    [found] = answer.json()["errors"]
    assert (found["at"], found["problem"]) == (pointer, problem)
    assert server.footprint() == before


def test_an_account_that_protects_labels_sells_quantiles_by_label(
    server: Server,
) -> None:
    dataset = server.uploaded(20, protects="label")
    table = {"statistic": "median", "column": "age"}
    answer = _submitted(server, dataset["id"], epsilon="1", tables=[table])
    [found] = answer.json()["errors"]
    assert (found["at"], found["problem"]) == ("/tables/0", "needs-the-label")


def test_quantiles_are_written_as_csv_and_read_by_the_client(server: Server) -> None:
    dataset = server.uploaded(N_ROWS)
    with Grovekeeper(server.url, server.admin.key) as connection:
        rows = connection.dataset(dataset["name"])
        job = rows.quantiles("age", [0.25, "0.5"], by=["sex"], epsilon="8")
        table = job.wait(progress=False)[0]
        median = rows.median("age", bins=[60], epsilon="8").wait(progress=False)[0]
    assert list(table.records[0]) == ["sex", "quantile", "value", "low", "high"]
    assert table.records[1]["quantile"] == "0.5"
    assert table.rank_error is not None
    assert median.records[0]["low"] in (0, 60)
    assert median.records[0]["high"] in (59, 120)

    shown = server.admin.http.get(f"/jobs/{job.id}").json()["statistics_id"]
    answer = server.admin.http.get(f"/statistics/{shown}", params={"format": "csv"})
    lines = list(csv.DictReader(io.StringIO(answer.text)))
    assert [(line["by_2"], line["cell_2"]) for line in lines[:2]] == [
        ("quantile", "0.25"),
        ("quantile", "0.5"),
    ]
    assert [float(line["value"]) for line in lines] == [
        record["value"] for record in table.records
    ]
    assert {float(line["rank_error"]) for line in lines} == {table.rank_error}
    assert _arrow(server, shown).to_pylist() == [_typed(line) for line in lines]
    counted = _released(
        server, dataset["id"], epsilon="1", tables=[{"statistic": "count"}, MEDIAN]
    )
    path = f"/statistics/{counted['id']}?format=csv"
    of_both = csv.DictReader(io.StringIO(server.admin.http.get(path).text))
    records = _arrow(server, counted["id"]).to_pylist()
    assert records == [_typed(line) for line in of_both]
    assert (records[0]["column"], records[0]["rank_error"]) == (None, None)


def _arrow(server: Server, statistics: str) -> pa.Table:
    answer = server.admin.http.get(
        f"/statistics/{statistics}", params={"format": "arrow"}
    )
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    return pa.ipc.open_stream(answer.content).read_all()


def _typed(line: dict[str, str]) -> dict[str, object]:
    """A line of CSV as a record of Arrow."""
    numbers = {"table": int} | dict.fromkeys(
        ("value", "low", "high", "rank_error"), float
    )
    return {
        name: numbers.get(name, str)(text) if text else None
        for name, text in line.items()
    }


def test_the_page_says_what_is_known_of_a_quantile(server: Server) -> None:
    dataset = server.uploaded(N_ROWS)
    released = _released(server, dataset["id"], epsilon="8", tables=TABLES)
    browser = signed_in(server, server.granted(dataset["id"], "analyst"))
    page = browser.get(f"/ui/statistics/{released['id']}")
    shown = text_of(page)
    for table in released["tables"]:
        assert f"within ± {error_in_words(table['rank_error'])} rows of the" in shown
        for row in table["rows"]:
            place = " ".join(row["cells"]) or "all these rows"
            assert f"{place} {row['value']:.0f} {row['low']:.0f} to" in shown
    assert 'data-label="95 % interval"' not in page.text
    assert "has the exact number" not in shown
    assert "those of the cell that was selected" in shown
    assert "number of rows below zero" not in shown, "no table counts rows"


def test_what_is_said_of_a_wide_cell_is_its_width(server: Server) -> None:
    dataset = server.uploaded(N_ROWS)
    table = {**MEDIAN, "bins": {"age": [7, 90]}}
    browser = signed_in(server, server.granted(dataset["id"], "analyst"))
    fields = {"statistic": "median", "column": "age", "bins": "7,90", "epsilon": "8"}
    page = browser.get(f"/ui/datasets/{dataset['id']}/statistics/new", params=fields)
    words = "The number is the middle of a cell of age that is at most 82 wide."
    assert words in text_of(page)
    released = _released(server, dataset["id"], epsilon="8", tables=[table])
    assert released["tables"][0]["resolution"] == 82
    assert released["tables"][0]["resolution_unit"] is None
    assert words in text_of(browser.get(f"/ui/statistics/{released['id']}"))


def test_the_dashboard_quotes_a_median_with_its_error_in_rank(server: Server) -> None:
    dataset = server.uploaded(20)
    browser = signed_in(server, server.granted(dataset["id"], "analyst"))
    fields = {"statistic": "median", "column": "age", "epsilon": "8"}
    page = browser.get(f"/ui/datasets/{dataset['id']}/statistics/new", params=fields)
    path = f"/datasets/{dataset['id']}/statistics/quote"
    table = {"statistic": "median", "column": "age"}
    body = {"epsilon": "8", "tables": [table]}
    quoted = server.admin.http.post(path, json=body).json()["tables"][0]
    width = error_in_words(quoted["half_width"])
    sentence = f"its cell holds a value within ± {width} rows of the rank asked for."
    assert sentence in text_of(page)
