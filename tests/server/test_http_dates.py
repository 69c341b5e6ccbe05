"""Columns of dates over HTTP: declared, uploaded, counted, learned from, predicted with,
and written as dates again wherever a value is shown.
"""

import io
import math
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from app.cli.main import app as grovekeeper
from grovekeeper_client import Grovekeeper
from grovekeeper_common.number_words import error_in_words
from tests.server.test_http_statistics import _released, _submitted
from tests.support.pages import signed_in, text_of
from tests.support.server import CSV, Server, new_idempotency_key

pytestmark = pytest.mark.in_turn("server")

FIRST = date(2015, 1, 1)
SCHEMA = {
    "features": [
        {
            "name": "admitted",
            "type": "date",
            "lower": "2015-01-01",
            "upper": "2024-12-31",
            "missing": True,
            "bounds": "documented",
        },
        {"name": "age", "type": "integer", "lower": 0, "upper": 120},
    ],
    "label": {"name": "ill", "classes": ["no", "yes"]},
}
N_ROWS = 400
DAYS = [FIRST + timedelta(days=9 * index) for index in range(N_ROWS)]
BY_YEAR = [f"{year}-01-01" for year in range(2016, 2025)]
TABLES: list[dict[str, Any]] = [
    {"statistic": "histogram", "column": "admitted", "bins": {"admitted": BY_YEAR}},
    {"statistic": "median", "column": "admitted"},
    {"statistic": "mean", "column": "admitted"},
    {"statistic": "count", "where": [{"column": "admitted", "from": "2020-01-01", "below": "2021-01-01"}]},
    {"statistic": "count", "by": ["admitted"], "bins": {"admitted": {"quantiles": 4}}},
    {"statistic": "variance", "column": "admitted"},
]  # fmt: skip


def _csv(days: list[Any]) -> bytes:
    lines = [
        f"{day},{index % 100},{'yes' if index % 2 else 'no'}"
        for index, day in enumerate(days)
    ]
    return "\n".join(["admitted,age,ill", *lines, ""]).encode()


def _declared(server: Server, **changes: object) -> dict[str, Any]:
    budget = {"accountant": "pure", "epsilon": "1000"}
    return server.declared(schema=SCHEMA, budget=budget, partitions=[], **changes)


def _uploaded(server: Server) -> dict[str, Any]:
    dataset = _declared(server)
    path = f"/datasets/{dataset['id']}/rows"
    answer = server.admin.http.post(path, content=_csv(DAYS), headers=CSV)
    assert answer.status_code == 201, answer.text
    return dataset


def test_a_declaration_keeps_its_first_and_last_day(server: Server) -> None:
    dataset = _declared(server)
    shown = server.admin.http.get(f"/datasets/{dataset['id']}").json()
    assert shown["schema"]["features"][0] == SCHEMA["features"][0]  # type: ignore[index]
    client = signed_in(server, server.admin)
    page = text_of(client.get(f"/ui/datasets/{dataset['id']}"))
    assert "2015-01-01 to 2024-12-31, or missing" in page


@pytest.mark.parametrize(
    ("bounds", "at", "problem"),
    [
        ({"lower": "2015-02-29"}, "lower", "not-a-date"),
        ({"lower": 0}, "lower", "not-a-date"),
        ({"upper": None}, "upper", "not-a-date"),
        ({"lower": "01.01.2015"}, "lower", "not-a-date"),
        ({"lower": "2025-01-01"}, "lower", "above-upper"),
        ({"type": "integer"}, "lower", "not-a-number"),
        ({"categories": ["2015-01-01"]}, "categories", "not-for-numbers"),
    ],
)
def test_bounds_of_dates_are_dates(
    server: Server, bounds: dict[str, Any], at: str, problem: str
) -> None:
    feature = SCHEMA["features"][0] | bounds  # type: ignore[index, operator]
    schema = SCHEMA | {"features": [feature]}
    body = {
        "name": "dated",
        "schema": schema,
        "budget": {"accountant": "pure", "epsilon": "1"},
    }
    answer = server.admin.http.post("/declarations", json=body)
    assert answer.status_code == 422, answer.text
    errors = [(error["at"], error["problem"]) for error in answer.json()["errors"]]
    assert (f"/schema/features/0/{at}", problem) in errors


@pytest.mark.parametrize(
    ("cell", "cause"),
    [
        ("29.02.2024", "another form"),
        ("02/29/2024", "another form"),
        ("2024-02-29 12:00:00", "a time of the day"),
        ("2023-02-29", "its month does not have"),
        ("45351", "numbers in a column of dates"),
        ("NA", "a mark such as NA"),
    ],
)
def test_another_form_of_a_date_is_refused_with_its_row_and_cause(
    server: Server, cell: str, cause: str
) -> None:
    dataset = _declared(server)
    path = f"/datasets/{dataset['id']}/rows"
    rows = _csv(["2024-02-28", cell, ""])
    answer = server.admin.http.post(path, content=rows, headers=CSV)
    assert answer.status_code == 422
    column = answer.json()["columns"][0]
    assert (column["name"], column["problem"]) == ("admitted", "not-a-date")
    assert (column["count"], column["row"]) == (1, 2)
    assert cause in column["suspected"]


def test_dates_out_of_bounds_are_clamped_and_counted(server: Server) -> None:
    dataset = _declared(server)
    rows = _csv(["2014-12-31", "2025-01-01", "", "2024-02-29"] * 10)
    answer = server.admin.http.post(
        f"/datasets/{dataset['id']}/rows?accept_unknown=true", content=rows, headers=CSV
    )
    assert answer.status_code == 201, answer.text
    column = answer.json()["columns"][0]
    assert (column["clamped"], column["missing"]) == (20, 10)


def test_the_quote_of_a_median_of_dates_says_days(server: Server) -> None:
    dataset = _uploaded(server)
    path = f"/datasets/{dataset['id']}/statistics"
    body = {"epsilon": "8", "tables": [TABLES[1]]}
    [quoted] = server.admin.http.post(f"{path}/quote", json=body).json()["tables"]
    assert (quoted["resolution"], quoted["resolution_unit"]) == (3, "days")
    browser = signed_in(server, server.granted(dataset["id"], "analyst"))
    fields = {"statistic": "median", "column": "admitted", "epsilon": "8"}
    page = browser.get(f"/ui{path}/new", params=fields)
    assert "a cell of admitted that is at most 3 days wide." in text_of(page)


def test_statistics_of_dates_are_dates(server: Server) -> None:
    dataset = _uploaded(server)
    shown = _released(server, dataset["id"], epsilon="600", tables=TABLES)
    histogram, median, mean, count, private, variance = shown["tables"]
    assert histogram["table"]["bins"] == {"admitted": BY_YEAR}
    cells = [row["cells"][0] for row in histogram["rows"]]
    assert cells[0] == "2015-01-01 to below 2016-01-01"
    assert cells[-2:] == ["2024-01-01 to 2024-12-31", "MISSING"]
    of_2015 = sum(day.year == 2015 for day in DAYS)
    assert abs(histogram["rows"][0]["value"] - of_2015) < 5

    [row] = median["rows"]
    middle = date.fromisoformat(row["value"])
    assert row["low"] <= row["value"] <= row["high"]
    assert abs((middle - DAYS[N_ROWS // 2]).days) < 60
    assert median["resolution"] == 3, "a thousand cells of 3,653 days"
    assert median["resolution_unit"] == "days"
    assert mean["resolution_unit"] is None
    [row] = mean["rows"]
    exact = FIRST + sum((day - FIRST for day in DAYS), timedelta()) / N_ROWS
    low, middle, high = (
        date.fromisoformat(row[name]) for name in ("low", "value", "high")
    )
    assert low <= middle <= high
    # seven times the half width of 95 %: Laplace noise exceeds it once in 10⁹ releases
    assert abs(middle - exact) <= 4 * (high - low)
    assert high - low < timedelta(days=60)

    assert count["table"]["where"] == TABLES[3]["where"]
    assert abs(count["total"]["value"] - sum(day.year == 2020 for day in DAYS)) < 5
    assert all(
        date.fromisoformat(cell["from"]) for cell in private["axes"][0]["cells"][:-1]
    )
    [row] = variance["rows"]
    width = row["high"] - row["low"]
    assert abs(row["value"] - (9 * N_ROWS) ** 2 / 12) <= 4 * width

    address = f"/statistics/{shown['id']}"
    text = server.admin.http.get(f"{address}?format=csv").text
    assert f",{median['rows'][0]['value']}," in text
    arrow = {"Accept": "application/vnd.apache.arrow.stream"}
    stream = server.admin.http.get(address, headers=arrow)
    if stream.headers["content-type"].startswith("application/vnd.apache.arrow"):
        values = pa.ipc.open_stream(stream.content).read_all()["value"].to_pylist()
        assert median["rows"][0]["value"] in values
    units = [table["unit"] for table in shown["tables"]]
    assert units == ["rows", "days", "days", "rows", "rows", "days²"]
    page = signed_in(server, server.admin).get(f"/ui{address}")
    assert page.status_code == 200
    assert "Mean, a date" in page.text
    assert "Variance, in days²" in page.text
    assert median["rows"][0]["value"] in page.text

    with Grovekeeper(server.url, key=server.admin.key) as gk:
        released = gk.statistics(shown["id"])
        assert released[1].value == median["rows"][0]["value"]
        assert "2015-01-01 to below 2016-01-01" in released[0].frame().to_string()


def test_the_error_of_a_mean_of_dates_is_in_days(server: Server) -> None:
    days = SCHEMA["features"][0] | {"missing": False}  # type: ignore[index, operator]
    schema = SCHEMA | {"features": [days]}
    dataset = server.declared(schema=schema, partitions=[], public_size=9_000)["id"]

    def quoted(statistic: str) -> dict[str, Any]:
        table = {"statistic": statistic, "column": "admitted"}
        path = f"/datasets/{dataset}/statistics/quote"
        body = {"epsilon": "2", "tables": [table]}
        [quote] = server.admin.http.post(path, json=body).json()["tables"]
        return quote  # type: ignore[no-any-return]

    mean = quoted("mean")
    assert (mean["unit"], quoted("variance")["unit"]) == ("days", "days²")
    # of 3,652 days, and two numbers with the noise of a few rows
    assert 1 < mean["half_width"] < 30
    words = f"± {error_in_words(mean['half_width'])} days"
    asked = {"statistic": "mean", "column": "admitted", "epsilon": "2"}
    browser = signed_in(server, server.admin)
    page = browser.get(f"/ui/datasets/{dataset}/statistics/new", params=asked)
    assert f"{words} of the exact one" in text_of(page)
    typed = ["mean", dataset, "admitted", "--epsilon=2", "--quote"]
    environ = {
        "GROVEKEEPER_URL": server.url, "GROVEKEEPER_API_KEY": server.admin.key, "COLUMNS": "200",
    }  # fmt: skip
    done = CliRunner().invoke(grovekeeper, typed, env=environ)
    assert words in done.stdout, done.output


@pytest.mark.parametrize(
    ("table", "at", "problem"),
    [
        ({"statistic": "sum", "column": "admitted"}, "column", "not-of-dates"),
        ({"by": ["admitted"], "bins": {"admitted": [18.0]}}, "bins/admitted", "not-a-date"),
        ({"by": ["admitted"], "bins": {"admitted": ["2015-02-29"]}}, "bins/admitted", "not-a-date"),
        ({"by": ["admitted"], "bins": {"admitted": ["2014-12-31"]}}, "bins/admitted", "out-of-bounds"),
        ({"by": ["age"], "bins": {"age": ["2015-01-01"]}}, "bins/age", "not-a-number"),
        ({"statistic": "count", "where": [{"column": "admitted", "from": 5}]}, "where/0/from", "not-a-date"),
        ({"statistic": "count", "where": [{"column": "age", "below": "2015-01-01"}]}, "where/0/below", "not-a-number"),
    ],
)  # fmt: skip
def test_statistics_that_dates_have_not_are_refused(
    server: Server, table: dict[str, Any], at: str, problem: str
) -> None:
    dataset = _declared(server)
    tables = [{"statistic": "count", **table}]
    answer = _submitted(server, dataset["id"], epsilon="1", tables=tables)
    [error] = answer.json()["errors"]
    assert (error["at"], error["problem"]) == (f"/tables/0/{at}", problem)


@pytest.mark.parametrize(
    ("table", "problem", "accepted"),
    [
        ({"statistic": "sum", "column": "ill"}, "not-a-number", ["age"]),
        ({"statistic": "mean", "column": "ill"}, "not-a-number", ["admitted", "age"]),
        ({"where": [{"column": "admitted", "in": ["x"]}]}, "needs-a-range", ["dates from 2015-01-01 to 2024-12-31"]),
        ({"where": [{"column": "ill", "from": 1}]}, "needs-categories", ["no", "yes"]),
    ],
)  # fmt: skip
def test_what_a_refusal_of_a_table_accepts_is_not_refused_next(
    server: Server, table: dict[str, Any], problem: str, accepted: list[str]
) -> None:
    constant = {"name": "same", "type": "integer", "lower": 1, "upper": 1}
    schema = SCHEMA | {"features": [*SCHEMA["features"], constant]}  # type: ignore[misc]
    dataset = server.declared(schema=schema, partitions=[])
    tables = [{"statistic": "count", **table}]
    answer = _submitted(server, dataset["id"], epsilon="1", tables=tables)
    [error] = answer.json()["errors"]
    assert (error["problem"], error["accepted"]) == (problem, accepted)


def test_a_model_reads_dates_on_every_way(server: Server) -> None:
    dataset = _uploaded(server)
    job = server.trained(dataset["id"], epsilon="10")
    model = f"/models/{job['model_id']}"
    card = server.admin.http.get(model).json()
    assert card["schema"]["features"][0]["lower"] == "2015-01-01"

    cells = ["2024-02-29", None, "1999-01-01", " 2024-02-29"]
    rows = [{"admitted": cell, "age": 40} for cell in cells]
    answer = server.admin.http.post(
        f"{model}/predict", json={"rows": rows, "counts": True}
    ).json()
    assert answer["counts"]["clamped"] == {"admitted": 1}
    expected = answer["probabilities"]
    for row, shares in zip(rows, expected, strict=True):
        alone = server.admin.http.post(f"{model}/predict", json={"rows": [row]}).json()
        assert alone["probabilities"] == [shares]

    column = pa.array([date(2024, 2, 29), None, date(1999, 1, 1), date(2024, 2, 29)])
    ages = pa.array([40] * 4)
    for typed in (column, column.cast(pa.timestamp("ns")), column.cast(pa.string())):
        sink = io.BytesIO()
        table = pa.table({"admitted": typed, "age": ages})
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
        sent = server.admin.http.post(
            f"{model}/predict", content=sink.getvalue(), headers=headers
        )
        read = pa.ipc.open_stream(sent.content).read_all()
        assert read["probabilities"].to_pylist() == expected

    described = server.admin.http.get(f"/v2{model}").json()
    assert described["inputs"][0]["datatype"] == "BYTES"
    tensors = [
        {"name": "admitted", "datatype": "BYTES", "shape": [4], "data": [cell or "" for cell in cells]},
        {"name": "age", "datatype": "INT64", "shape": [4], "data": [40] * 4},
    ]  # fmt: skip
    inferred = server.admin.http.post(f"/v2{model}/infer", json={"inputs": tensors})
    outputs = {output["name"]: output for output in inferred.json()["outputs"]}
    assert outputs["probabilities"]["data"] == [
        share for shares in expected for share in shares
    ]

    refused = server.admin.http.post(
        f"{model}/predict", json={"rows": [{"admitted": "29.02.2024", "age": 40}]}
    )
    [error] = refused.json()["errors"]
    assert (error["at"], error["problem"]) == ("/rows/0/admitted", "not-a-date")

    page = signed_in(server, server.admin).get(f"/ui{model}")
    assert "2015-01-01 to 2024-12-31" in page.text
    # the exported model takes days since the first one
    assert '"admitted": 0, "age": 0' in page.text.replace("&#34;", '"')

    with Grovekeeper(server.url, key=server.admin.key) as gk:
        given = [date(2024, 2, 29), None, date(1999, 1, 1), date(2024, 2, 29)]
        predicted = gk.model(job["model_id"]).predict_proba(
            {"admitted": given, "age": [40] * 4}
        )
        assert predicted == {
            name: [shares[place] for shares in expected]
            for place, name in enumerate(["no", "yes"])
        }


def test_a_profile_has_edges_that_are_dates(server: Server) -> None:
    dataset = _uploaded(server)
    answer = server.admin.http.post(
        f"/datasets/{dataset['id']}/profiles",
        json={"epsilon": "20"},
        headers=new_idempotency_key(),
    )
    job = server.ended(answer.json()["job_id"])
    shown = server.admin.http.get(f"/profiles/{job['profile_id']}").json()
    edges = shown["features"][0]["edges"]
    assert edges == sorted(edges)
    assert all("2015-01-01" <= edge <= "2024-12-31" for edge in edges)
    assert server.trained(dataset["id"], parameters={}, epsilon="10")


def test_dummy_rows_of_dates_are_accepted(server: Server, tmp_path: Path) -> None:
    dataset = _declared(server)
    with Grovekeeper(server.url, key=server.admin.key) as gk:
        own = gk.dataset(dataset["id"])
        dummies = own.dummy(300, seed=1)
        days = [day for day in dummies.columns["admitted"] if day is not None]
        assert all(isinstance(day, date) for day in days)
        assert min(days) >= FIRST
        file = tmp_path / "rows.csv"
        dummies.write(file)
        for source in (dummies.frame(), dummies.table(), file):
            report = own.upload(source, again=True)
            assert report["columns"][0]["clamped"] == 0


def test_an_exported_model_counts_days_from_the_first_declared_one(
    server: Server,
) -> None:
    dataset = _declared(server)["id"]
    days = [FIRST + timedelta(days=9 * index) for index in range(N_ROWS)]
    lines = [f"{day},40,{'yes' if day.year > 2019 else 'no'}" for day in days]
    rows = "\n".join(["admitted,age,ill", *lines, ""]).encode()
    path = f"/datasets/{dataset}/rows"
    server.admin.http.post(path, content=rows, headers=CSV).raise_for_status()
    model = server.trained(dataset, algorithm="rpf", epsilon="200")["model_id"]
    file = server.admin.http.get(
        f"/models/{model}/artifact", params={"format": "onnx"}
    ).content
    days = [FIRST, date(2019, 6, 30), date(2024, 2, 29), date(2030, 1, 1)]
    asked = [{"admitted": day.isoformat(), "age": 40} for day in days]
    asked.append({"admitted": None, "age": 40})
    numbers = [[float((day - FIRST).days)] for day in days] + [[math.nan]]
    session = onnxruntime.InferenceSession(file)
    inputs = {"admitted": np.array(numbers), "age": np.full((5, 1), 40.0)}
    (probabilities,) = session.run(["probabilities"], inputs)
    answer = server.admin.http.post(f"/models/{model}/predict", json={"rows": asked})
    expected = np.array(answer.json()["probabilities"])
    assert probabilities == pytest.approx(expected, abs=1e-12)
    assert len(np.unique(expected[:, 0])) > 1, "the model looks at the dates"
    described = onnx.load_from_string(file).graph.input[0].doc_string
    assert described.startswith("date days since 2015-01-01, a number from 0.0")
