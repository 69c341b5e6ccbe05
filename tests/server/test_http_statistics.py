"""Statistics over HTTP: quoted with their error, released once, shown, and available
after the rows are erased.
"""

import csv
import io
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from app.cli.main import app as grovekeeper
from grovekeeper_client import Grovekeeper
from grovekeeper_common.number_words import error_in_words
from grovekeeper_verifier.dataset_replay import verify
from tests.support.pages import signed_in, text_of
from tests.support.server import Server, new_idempotency_key

pytestmark = pytest.mark.in_turn("server")

N_ROWS = 400
DELTA = "0.000001"
BUDGETS = {
    "pure": {"accountant": "pure", "epsilon": "100"},
    "zcdp": {"accountant": "zcdp", "epsilon": "60", "delta": DELTA},
    "gdp": {"accountant": "gdp", "epsilon": "60", "delta": DELTA},
}
TABLES: list[dict[str, Any]] = [
    {"statistic": "count", "by": ["income"]},
    {"statistic": "histogram", "column": "age", "bins": {"age": [18, 65]}, "by": ["income"]},
    {"statistic": "crosstab", "columns": ["sex", "income"]},
    {"statistic": "sum", "column": "age", "by": ["income"]},
    {"statistic": "mean", "column": "age", "by": ["income"]},
    {"statistic": "variance", "column": "age", "where": [{"column": "income", "in": [">50K"]}]},
]  # fmt: skip


def _submitted(server: Server, dataset: str, **body: object) -> Any:
    return server.admin.http.post(
        f"/datasets/{dataset}/statistics", json=body, headers=new_idempotency_key()
    )


def _released(server: Server, dataset: str, **body: object) -> dict[str, Any]:
    answer = _submitted(server, dataset, **body)
    assert answer.status_code == 202, answer.text
    job = server.ended(answer.json()["job_id"])
    assert (job["state"], job["kind"]) == ("succeeded", "statistics"), job
    return dict(server.admin.http.get(f"/statistics/{job['statistics_id']}").json())


def _cells(table: dict[str, Any]) -> dict[tuple[str, ...], dict[str, Any]]:
    return {tuple(row["cells"]): row for row in table["rows"]}


def _within(row: dict[str, Any], exact: float, *, room: float = 5.0) -> bool:
    """Whether a number is near the exact one. Laplace noise is seven times as far as
    with probability 95 % by a chance of 0.05⁷ < 10⁻⁹.
    """
    reach = 7 * (row["high"] - row["low"]) / 2 + room
    return abs(row["value"] - exact) <= reach


@pytest.mark.parametrize("protects", ["row", "label"])
@pytest.mark.parametrize("accountant", BUDGETS)
def test_statistics_cost_what_was_quoted_and_are_near_the_rows(
    server: Server, accountant: str, protects: str
) -> None:
    dataset = server.uploaded(N_ROWS, budget=BUDGETS[accountant], protects=protects)
    path = f"/datasets/{dataset['name']}/statistics"
    body = {"epsilon": "24", "tables": TABLES, "purpose": "first look"}
    before = server.footprint()
    quote = server.admin.http.post(f"{path}/quote", json=body).json()
    assert server.footprint() == before, "a quote changes nothing"

    shown = _released(server, dataset["id"], **body)
    assert (shown["event"], shown["price"], shown["receipt"]) == (
        quote["event"], quote["price"], quote["receipt"],
    )  # fmt: skip
    assert [table["table"] for table in quote["tables"]] == [
        table["table"] for table in shown["tables"]
    ]
    balance = server.admin.http.get(f"/ledger/{dataset['id']}").json()
    assert balance["charged"] == quote["price"]["amount"]
    export = server.admin.http.get(f"/ledger/{dataset['id']}/export").content
    assert verify(export.splitlines(keepends=True))
    assert "this set of statistics adds" in shown["guarantee"]["text"]

    ages = [index * 37 % 100 for index in range(N_ROWS)]
    counts, histogram, crosstab, sums, means, variance = shown["tables"]
    rich = [age for age in ages if age > 50]
    assert _within(_cells(counts)[(">50K",)], len(rich))
    assert _within(_cells(counts)[("OTHER",)], 0)
    assert _within(counts["total"], N_ROWS)
    assert list(_cells(histogram)) == [
        (income, age)
        for income in ("<=50K", ">50K", "OTHER")
        for age in ("0 to below 18", "18 to below 65", "65 to 120")
    ]
    young = sum(18 <= age <= 50 for age in ages)
    assert _within(_cells(histogram)[("<=50K", "18 to below 65")], young)
    women = sum(age % 2 == 0 and age > 50 for age in ages)
    assert _within(_cells(crosstab)[("Female", ">50K")], women)
    assert _within(_cells(sums)[(">50K",)], sum(rich))
    mean = sum(rich) / len(rich)
    assert _within(_cells(means)[(">50K",)], mean, room=0)
    exact = sum((age - mean) ** 2 for age in rich) / len(rich)
    [spread] = variance["rows"]
    assert _within(spread, exact, room=0)


def test_the_error_is_known_before_it_is_paid_for(server: Server) -> None:
    dataset = server.uploaded(N_ROWS)
    tables = [
        {"statistic": "histogram", "column": "sex"},
        {"statistic": "sum", "column": "age"},
        {"statistic": "mean", "column": "age"},
        {"statistic": "mean", "column": "age", "by": ["sex"]},
    ]
    body = {"epsilon": "4", "tables": tables}
    path = f"/datasets/{dataset['id']}/statistics"
    quote = server.admin.http.post(f"{path}/quote", json=body).json()
    widths = [table["half_width"] for table in quote["tables"]]
    assert (widths[0], widths[1]) == (3.0, 359.0)  # ln(40) / 1, in rows and ages
    assert 0 < widths[2] < 120
    assert widths[3] is None, "it depends on how many rows each group has"
    shown = _released(server, dataset["id"], **body)
    row = shown["tables"][0]["rows"][0]
    assert (row["high"] - row["low"]) / 2 == widths[0]


@pytest.mark.parametrize("accountant", BUDGETS)
def test_a_wanted_error_gives_the_smallest_price(
    server: Server, accountant: str
) -> None:
    dataset = server.uploaded(N_ROWS, budget=BUDGETS[accountant])
    path = f"/datasets/{dataset['id']}/statistics/quote"
    tables = [{"statistic": "histogram", "column": "sex"}]
    quotes = [
        server.admin.http.post(path, json={**asked, "tables": tables}).json()
        for asked in ({"error": "20"}, {"error_share": "0.1"})
    ]
    assert quotes[0] == quotes[1], "a tenth of the declared 200 rows"
    assert quotes[0]["tables"][0]["half_width"] <= 20
    less = float(quotes[0]["price"]["epsilon"]) * 0.98
    cheaper = server.admin.http.post(
        path, json={"epsilon": f"{less:.6f}", "tables": tables}
    ).json()
    assert cheaper["tables"][0]["half_width"] >= 20
    shown = _released(server, dataset["id"], error="20", tables=tables)
    assert shown["price"] == quotes[0]["price"]


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


@pytest.mark.parametrize("accountant", BUDGETS)
def test_private_bins_cost_what_was_quoted(server: Server, accountant: str) -> None:
    n_rows = 4 * N_ROWS
    dataset = server.uploaded(n_rows, budget=BUDGETS[accountant])
    path = f"/datasets/{dataset['id']}/statistics"
    bins = _private(4)
    histogram = {"statistic": "histogram", "column": "age", "bins": bins}
    crosstab = {"statistic": "crosstab", "columns": ["sex", "age"], "bins": bins}
    body = {"epsilon": "24", "tables": [histogram, crosstab]}
    quote = server.admin.http.post(f"{path}/quote", json=body).json()
    shown = _released(server, dataset["id"], **body)
    assert (shown["event"], shown["price"]) == (quote["event"], quote["price"])
    export = server.admin.http.get(f"/ledger/{dataset['id']}/export").content
    assert verify(export.splitlines(keepends=True))
    ages = [index * 37 % 100 for index in range(n_rows)]
    of_ages, crossed = shown["tables"]
    assert of_ages["table"]["bins"] == bins
    assert [table["n_cells"] for table in quote["tables"]] == [4, len(crossed["rows"])]
    [axis] = of_ages["axes"]
    starts = [cell["from"] for cell in axis["cells"]]
    assert starts == sorted(set(starts))
    for row, cell in zip(of_ages["rows"], axis["cells"], strict=True):
        below = cell.get("below", 121)
        assert _within(row, sum(cell["from"] <= age < below for age in ages))
        # of a quarter of the rows, one edge in 10⁵ is so far away by chance, and the
        # exponent of that chance grows with the rows
        assert abs(row["value"] - n_rows / 4) < n_rows / 8
    assert sum(row["value"] for row in crossed["rows"]) == pytest.approx(
        crossed["total"]["value"]
    )


MEANS = [{"statistic": "mean", "column": "age"}]


def _private(n_bins: int) -> dict[str, Any]:
    return {"age": {"quantiles": n_bins}}


OF_GROUPS = {
    "statistic": "mean",
    "column": "height",
    "by": ["age"],
    "bins": _private(9),
}
OF_NOBODY = {
    "statistic": "count",
    "where": [
        {"column": "sex", "in": ["Male", "Female"]},
        {"column": "age", "from": 9},
        {"column": "sex", "in": ["Male"]},
        {"column": "age", "below": 9},
    ],
}
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"statistic": "histogram", "column": "weight"}, "/tables/0/column", "unknown"),
    ({"statistic": "mean", "column": "sex"}, "/tables/0/column", "not-a-number"),
    ({"statistic": "histogram"}, "/tables/0/column", "missing"),
    ({"statistic": "count", "column": "age"}, "/tables/0/column", "not-of-this-statistic"),
    ({"statistic": "crosstab", "columns": ["sex"]}, "/tables/0/columns", "too-few"),
    ({"statistic": "histogram", "column": "age", "bins": {"age": [500]}}, "/tables/0/bins/age", "out-of-bounds"),
    ({"statistic": "histogram", "column": "age", "bins": {"age": [9, 9]}}, "/tables/0/bins/age", "not-ascending"),
    ({"statistic": "histogram", "column": "sex", "bins": {"sex": 3}}, "/tables/0/bins/sex", "not-for-categories"),
    ({"statistic": "count", "where": [{"column": "sex", "in": ["x"]}]}, "/tables/0/where/0/in", "unknown"),
    ({"statistic": "count", "where": [{"column": "age", "in": ["x"]}]}, "/tables/0/where/0", "needs-a-range"),
    ({"statistic": "count", "where": [{"column": "age", "from": 3, "below": 3}]}, "/tables/0/where/0", "empty-range"),
    ({"statistic": "count", "where": [{"column": "age", "from": 900}]}, "/tables/0/where/0", "out-of-bounds"),
    (OF_NOBODY, "/tables/0/where/3", "excludes-another"),
    ({"statistic": "count", "by": ["sex", "sex"]}, "/tables/0/by", "not-distinct"),
    ({"statistic": "crosstab", "columns": ["sex", "sex"]}, "/tables/0/columns", "not-distinct"),
    ({"statistic": "histogram", "column": "age", "bins": _private(1)}, "/tables/0/bins/age", "out-of-range"),
    ({"statistic": "median", "column": "age", "bins": _private(9)}, "/tables/0/bins/age", "not-of-this-statistic"),
    (OF_GROUPS, "/tables/0/bins/age", "not-of-this-statistic"),
    ({"statistic": "sum", "column": "income"}, "/tables/0/column", "not-a-number"),
    ({"statistic": "count", "weight": "1e-19"}, "/tables/0/weight", "out-of-range"),
]  # fmt: skip


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


def test_what_to_pay_is_said_in_one_way(server: Server) -> None:
    dataset = server.uploaded(20, public_size=None)
    tables = [{"statistic": "count"}]
    for body, pointer, problem in (
        ({}, "/epsilon", "missing"),
        ({"epsilon": "1", "error": "5"}, "/epsilon", "one-of-these"),
        ({"error_share": "0.1"}, "/error_share", "needs-public-size"),
        ({"error": "5", "tables": MEANS}, "/error", "not-of-this-statistic"),
    ):
        asked: dict[str, Any] = {"tables": tables, **body}
        answer = _submitted(server, dataset["id"], **asked)
        [found] = answer.json()["errors"]
        assert (found["at"], found["problem"]) == (pointer, problem), body


def test_an_account_that_protects_labels_sells_tables_of_labels(
    server: Server,
) -> None:
    dataset = server.uploaded(20, protects="label")
    tables = [{"statistic": "histogram", "column": "sex"}]
    answer = _submitted(server, dataset["id"], epsilon="1", tables=tables)
    [found] = answer.json()["errors"]
    assert (found["at"], found["problem"]) == ("/tables/0", "needs-the-label")


def test_statistics_outlive_the_rows_and_are_written_as_csv(server: Server) -> None:
    dataset = server.uploaded(N_ROWS)
    shown = _released(server, dataset["id"], epsilon="10", tables=TABLES[:2])
    assert server.admin.http.delete(f"/datasets/{dataset['id']}").status_code == 204
    path = f"/statistics/{shown['id']}"
    assert server.admin.http.get(path).json() == shown
    answer = server.admin.http.get(path, params={"format": "csv"})
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    lines = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(lines) == 3 + 9
    third = lines[3]
    assert (third["by_1"], third["cell_1"]) == ("income", "<=50K")
    assert (third["by_2"], third["cell_2"]) == ("age", "0 to below 18")
    assert third["by_3"] == ""
    numbers = [row["value"] for table in shown["tables"] for row in table["rows"]]
    assert [float(line["value"]) for line in lines] == numbers


def test_a_file_says_which_rows_a_table_reads(server: Server) -> None:
    """Counts of men and of all people had the same columns, and no more."""
    dataset = server.uploaded(N_ROWS)
    where = [
        {"column": "age", "from": 18, "below": 65},
        {"column": "sex", "in": ["Male"]},
    ]
    tables = [{"statistic": "count"}, {"statistic": "count", "where": where}]
    shown = _released(server, dataset["id"], epsilon="1", tables=tables)
    address = f"/statistics/{shown['id']}"
    text = server.admin.http.get(address, params={"format": "csv"}).text
    stated = [line["where"] for line in csv.DictReader(io.StringIO(text))]
    assert stated == ["", "age from 18 below 65 and sex is Male"]
    arrow = server.admin.http.get(address, params={"format": "arrow"}).content
    in_table = pa.ipc.open_stream(arrow).read_all()["where"].to_pylist()
    assert in_table == [None, "age from 18 below 65 and sex is Male"]


def test_statistics_are_listed_and_shown_to_those_who_may_train(
    server: Server,
) -> None:
    dataset = server.uploaded(N_ROWS)
    shown = _released(
        server, dataset["id"], epsilon="1", tables=TABLES[:1], name="incomes"
    )
    listed = server.admin.http.get(f"/datasets/{dataset['id']}/statistics").json()
    assert [(s["id"], s["name"], s["statistics"]) for s in listed["statistics"]] == [
        (shown["id"], "incomes", ["count"])
    ]
    every = _released(server, dataset["id"], epsilon="1", tables=TABLES)
    quote = server.admin.http.post(
        f"/datasets/{dataset['id']}/statistics/quote",
        json={"epsilon": "1", "tables": TABLES},
    ).json()
    known = [table["half_width"] for table in quote["tables"]]
    # of groups and of some rows, the error of a mean and a variance depends on rows
    assert known[4:] == [None, None]
    assert None not in known[:4]
    newest = server.admin.http.get(f"/datasets/{dataset['id']}/statistics").json()
    assert newest["statistics"][0]["half_widths"] == every["half_widths"] == known
    page = signed_in(server, server.admin).get(f"/ui/jobs/{shown['job_id']}").text
    assert f'href="/ui/statistics/{shown["id"]}"' in page
    path = f"/statistics/{shown['id']}"
    assert server.granted(dataset["id"], "analyst").http.get(path).is_success
    assert server.granted(dataset["id"], "predictor").http.get(path).status_code == 403
    assert server.caller().http.get(path).status_code == 404


def test_every_list_of_jobs_and_charges_says_what_the_statistics_are_of(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists said "statistics" of every one of them."""
    dataset = server.uploaded(N_ROWS, budget=BUDGETS["pure"])
    tables = [
        {"statistic": "mean", "column": "age", "by": ["sex"]},
        {"statistic": "count", "where": [{"column": "age", "from": 18}]},
    ]
    what = "mean of age by sex; count, where age from 18"
    _released(server, dataset["id"], epsilon="1", tables=tables)
    api = server.admin.http
    [job] = api.get("/jobs", params={"dataset": dataset["id"]}).json()["jobs"]
    listed = api.get(f"/ledger/{dataset['id']}/entries").json()
    assert [job["what"], listed["jobs"][job["id"]]["what"]] == [what, what]
    assert api.get(f"/jobs/{job['id']}").json()["what"] == what
    text = api.get(f"/ledger/{dataset['id']}/export?format=csv").text
    whats = [row["what"] for row in csv.DictReader(io.StringIO(text))]
    assert whats == ["", what, what]

    monkeypatch.setenv("GROVEKEEPER_API_KEY", server.admin.key)
    monkeypatch.setenv("GROVEKEEPER_URL", server.url)
    for typed in (
        ["jobs", "list", "--dataset", dataset["id"]],
        ["jobs", "show", job["id"]],
        ["ledger", "entries", dataset["id"]],
    ):
        assert what in CliRunner().invoke(grovekeeper, typed).stdout, typed
    with Grovekeeper(server.url, key=server.admin.key) as gk:
        assert what in gk.jobs(dataset=dataset["id"])._repr_html_()
        released = gk.dataset(dataset["id"]).released_statistics()
        assert "mean of age by sex" in released._repr_html_()
    browser = signed_in(server, server.admin)
    ledger = f"/ui/ledger/{dataset['id']}"
    for page in (
        "/ui",
        f"/ui/jobs?dataset={dataset['id']}",
        f"/ui/jobs/{job['id']}",
        f"/ui/datasets/{dataset['id']}",
        ledger,
        f"{ledger}/entries/2",
        f"{ledger}/report",
    ):
        shown = browser.get(page, follow_redirects=True)
        assert shown.status_code == 200, page
        assert what in text_of(shown), page


def test_a_long_name_of_statistics_is_cut(server: Server) -> None:
    dataset = server.uploaded(N_ROWS, budget=BUDGETS["pure"])
    tables = [{"statistic": "mean", "column": "age", "by": ["sex"]}] * 20
    _released(server, dataset["id"], epsilon="1", tables=tables)
    path = f"/jobs?dataset={dataset['id']}"
    [job] = server.admin.http.get(path).json()["jobs"]
    assert job["what"].startswith("mean of age by sex; mean of age by sex; ")
    assert len(job["what"]) < 200
    assert job["what"].endswith("…")


def test_the_quote_of_a_mean_of_some_rows_says_its_error_at_the_declared_size(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was said before the charge where a cell may be empty."""
    budget = BUDGETS["pure"]
    dataset = server.uploaded(N_ROWS, budget=budget, public_size=N_ROWS)["id"]
    path = f"/datasets/{dataset}/statistics/quote"
    for statistic in ("mean", "variance"):
        tables = [{"statistic": statistic, "column": "age", "by": ["sex"]}]
        body = {"epsilon": "1", "tables": tables}
        [table] = server.admin.http.post(path, json=body).json()["tables"]
        assert table["half_width"] is None
        assert table["half_width_at_size"] > 0
    words = f"± {error_in_words(table['half_width_at_size'])} at the declared size"
    monkeypatch.setenv("GROVEKEEPER_API_KEY", server.admin.key)
    monkeypatch.setenv("GROVEKEEPER_URL", server.url)
    typed = ["variance", dataset, "age", "--by", "sex", "--epsilon", "1", "--quote"]
    assert words in CliRunner().invoke(grovekeeper, typed).stdout
    asked = {"statistic": "variance", "column": "age", "by": "sex", "epsilon": "1"}
    page = signed_in(server, server.admin).get(
        f"/ui/datasets/{dataset}/statistics/new", params=asked
    )
    assert words in text_of(page)


def test_the_client_has_a_method_for_each_statistic(server: Server) -> None:
    """Each releases the table that its form in the API describes."""
    dataset = server.uploaded(N_ROWS)
    where = [{"column": "sex", "in": ["Male"]}]
    with Grovekeeper(server.url, server.admin.key) as connection:
        rows = connection.dataset(dataset["name"])
        jobs = [
            rows.count(by=("sex",), epsilon="1", purpose="to plan"),
            rows.histogram("age", bins=[30, 60], epsilon=0.5),
            rows.crosstab("sex", "age", bins={"age": [60]}, epsilon="1"),
            rows.sum("age", where=where, error="400"),
            rows.mean("age", by=["sex"], epsilon="1", name="ages"),
            rows.variance("age", epsilon="1"),
        ]
        released = [job.wait(progress=False)[0] for job in jobs]
    plain: dict[str, Any] = {"column": None, "columns": [], "bins": {}, "by": [], "where": []}  # fmt: skip
    age = plain | {"column": "age"}
    tables = [
        plain | {"statistic": "count", "by": ["sex"]},
        age | {"statistic": "histogram", "bins": {"age": [30.0, 60.0]}},
        plain | {"statistic": "crosstab", "columns": ["sex", "age"], "bins": {"age": [60.0]}},
        age | {"statistic": "sum"},
        age | {"statistic": "mean", "by": ["sex"]},
        age | {"statistic": "variance"},
    ]  # fmt: skip
    shown = [dict(table.facts["table"]) for table in released]
    (condition,) = shown[3]["where"]
    assert (condition["column"], condition["in"]) == ("sex", ["Male"])
    shown[3]["where"] = []
    assert [table | {"weight": "1"} for table in tables] == shown
    assert [*released[1].frame()] == ["age", "value", "low", "high"]
    facts = [server.admin.http.get(f"/jobs/{job.id}").json() for job in jobs]
    assert (facts[0]["purpose"], facts[4]["name"]) == ("to plan", "ages")
