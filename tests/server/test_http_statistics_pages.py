"""The pages of statistics over HTTP: the numbers of the API in words, and who sees them."""

import re
from typing import Any

import pytest

from app.api.pages import statistics
from grovekeeper_common.number_words import error_in_words, estimate_in_words
from tests.support.databases import on_one_server
from tests.support.pages import fields, signed_in, text_of
from tests.support.server import Server, new_idempotency_key

pytestmark = on_one_server

TABLES: list[dict[str, Any]] = [
    {"statistic": "histogram", "column": "age", "bins": {"age": [18, 65]}},
    {"statistic": "crosstab", "columns": ["sex", "income"]},
    {"statistic": "mean", "column": "age", "by": ["sex"]},
    {"statistic": "count", "where": [{"column": "sex", "in": ["Female"]}]},
]


def _released(server: Server, dataset: str, **body: object) -> dict[str, Any]:
    answer = server.admin.http.post(
        f"/datasets/{dataset}/statistics", json=body, headers=new_idempotency_key()
    )
    assert answer.status_code == 202, answer.text
    job = server.ended(answer.json()["job_id"])
    return dict(server.admin.http.get(f"/statistics/{job['statistics_id']}").json())


def test_the_page_shows_the_numbers_of_the_api(server: Server) -> None:
    dataset = server.uploaded(400)["id"]
    released = _released(
        server, dataset, epsilon="4", tables=TABLES, name="a first look"
    )
    browser = signed_in(server, server.granted(dataset, "analyst"))
    page = browser.get(f"/ui/statistics/{released['id']}")
    shown = text_of(page)
    assert shown.startswith('id="content"> a first look')
    histogram, crosstab, means, count = released["tables"]
    for row in [*histogram["rows"], *crosstab["rows"], *count["rows"]]:
        numbers = [
            f"{row[name]:,.0f}".replace("-", "−") for name in ("value", "low", "high")
        ]
        place = " ".join(row["cells"]) or "all these rows"
        assert "{} {} {} to {}".format(place, *numbers) in shown
    assert "Count, where sex is Female" in shown
    assert "Mean of age by sex" in shown
    total = crosstab["total"]["value"]
    assert f"All cells together: {total:,.0f} (" in shown
    assert page.text.count('<table class="heat">') == 1, "that of the cross-table"
    other = means["rows"][-1]
    # of no row: most often, the noise leaves no value
    value, interval = estimate_in_words(other["value"], other["low"], other["high"])
    assert f"OTHER {value} {interval}" in shown
    n_numbers = sum(len(table["rows"]) for table in released["tables"])
    assert page.text.count('<svg class="plot interval-row"') == n_numbers
    assert released["receipt"].splitlines()[0] in page.text
    assert f'href="/ui/jobs/{released["job_id"]}"' in page.text
    assert f"reservation {released['ledger']['reservation_id']}" in shown
    entries = f'href="/ui/ledger/{dataset}?job={released["job_id"]}"'
    assert entries not in page.text, "an analyst reads no ledger"
    of_auditors = signed_in(server, server.admin).get(str(page.url.path))
    assert entries in of_auditors.text

    job = browser.get(f"/ui/jobs/{released['job_id']}").text
    assert f'href="/ui/statistics/{released["id"]}"' in job
    path = f"/statistics/{released['id']}?format=csv"
    file = browser.get(f"/ui/statistics/{released['id']}/file")
    assert file.text == server.admin.http.get(path).text
    assert f'filename="{released["id"]}.csv"' in file.headers["Content-Disposition"]


def test_statistics_are_listed_for_those_who_may_train(server: Server) -> None:
    dataset = server.uploaded(20)["id"]
    path = f"/ui/datasets/{dataset}/statistics"
    browser = signed_in(server, server.granted(dataset, "analyst"))
    assert f'href="{path}"' in browser.get(f"/ui/datasets/{dataset}").text
    assert "None yet." in text_of(browser.get(path))
    assert f'href="{path}/new"' in browser.get(path).text
    named = _released(
        server, dataset, epsilon="1", tables=TABLES[:1], name="ages", scope={}
    )
    unnamed = _released(server, dataset, epsilon="1", tables=TABLES[:2])
    first = browser.get(path, params={"limit": 1})
    assert "histogram, crosstab" in text_of(first)
    assert f'href="/ui/statistics/{unnamed["id"]}"' in first.text
    assert named["id"] not in first.text
    assert "Next page" in text_of(first)
    listed = text_of(browser.get(path))
    [half_width] = named["half_widths"]
    said = f"± {error_in_words(half_width)}"
    assert f"ages histogram the whole dataset {said} 1 ε none stated " in listed
    pages = (
        path,
        f"/ui/statistics/{named['id']}",
        f"/ui/statistics/{named['id']}/file",
    )
    for caller, status in (
        (server.granted(dataset, "predictor"), 403),
        (server.caller(), 404),
    ):
        browser = signed_in(server, caller)
        assert {browser.get(page).status_code for page in pages} == {status}
        assert path not in browser.get(f"/ui/datasets/{dataset}").text


def test_a_page_shows_the_first_numbers_of_a_long_table(server: Server) -> None:
    dataset = server.uploaded(20)["id"]
    table = {
        "statistic": "histogram",
        "column": "age",
        "bins": {"age": 110},
        "by": ["income"],
    }
    released = _released(server, dataset, epsilon="1", tables=[table])
    page = signed_in(server, server.admin).get(f"/ui/statistics/{released['id']}")
    assert page.text.count('<svg class="plot interval-row"') == 300
    assert "30 more numbers are in the CSV file." in text_of(page)


def test_statistics_are_quoted_and_released_by_form(server: Server) -> None:
    dataset = server.uploaded(400)["id"]
    path = f"/ui/datasets/{dataset}/statistics/new"
    browser = signed_in(server, server.granted(dataset, "analyst"))
    assert "Choose an ε, or the error" in text_of(browser.get(path))
    query = {
        "statistic": "histogram",
        "column": "age",
        "by": "sex",
        "bins": "18, 65\r\n ",
        "where": "income=>50K\r\nage=18..60",
        "epsilon": "2",
    }
    before = server.footprint()
    quoted = browser.get(path, params=query)
    assert server.footprint() == before
    words = "histogram of age by sex, where income is >50K and age from 18 below 60"
    shown = text_of(quoted)
    assert f"{words} at ε = 2" in shown
    body = {"epsilon": "2", "tables": [_TABLE]}
    plan = server.admin.http.post(
        f"/datasets/{dataset}/statistics/quote", json=body
    ).json()
    planned = plan["tables"][0]
    error = f"{planned['n_cells']} numbers will be within ± {planned['half_width']:.0f}"
    assert f"Each of the {error} rows of the exact one" in shown

    form = fields(quoted.text.rpartition("<form")[2]) | {"name": "grown-ups"}
    submitted = [browser.post(path, data=form) for _ in range(2)]
    assert {answer.status_code for answer in submitted} == {303}
    assert submitted[0].headers["Location"] == submitted[1].headers["Location"], (
        "a form that is sent twice is one job"
    )
    job = server.ended(submitted[0].headers["Location"].removeprefix("/ui/jobs/"))
    released = server.admin.http.get(f"/statistics/{job['statistics_id']}").json()
    assert (released["name"], released["price"]) == ("grown-ups", plan["price"])
    assert released["tables"][0]["table"] == plan["tables"][0]["table"]

    too_much = browser.post(path, data=form | {"epsilon": "1000", "once": "c" * 22})
    assert too_much.status_code == 409
    assert "Ask for ε = " in too_much.text
    [kept] = re.findall("<form method=.get.*?</form>", too_much.text, re.DOTALL)
    assert fields(kept)["name"] == "grown-ups", "a refusal loses no name"
    offered = too_much.text.partition('<a class="button" href="?')[2].partition('"')[0]
    assert "name=grown-ups" in offered
    for other, status in (
        (server.granted(dataset, "predictor"), 403),
        (server.caller(), 404),
    ):
        assert signed_in(server, other).get(path, params=query).status_code == status


_TABLE = {
    "statistic": "histogram",
    "column": "age",
    "by": ["sex"],
    "bins": {"age": [18, 65]},
    "where": [
        {"column": "income", "in": [">50K"]},
        {"column": "age", "from": 18, "below": 60},
    ],
}


def test_a_wanted_error_gives_the_price_and_an_offer_takes_its_place(
    server: Server,
) -> None:
    budget = {"accountant": "pure", "epsilon": "1"}
    dataset = server.uploaded(400, budget=budget)["id"]
    path = f"/ui/datasets/{dataset}/statistics/new"
    browser = signed_in(server, server.granted(dataset, "analyst"))
    table = {"statistic": "crosstab", "columns": ["sex", "income"]}
    for error, body in (("20", {"error": "20"}), ("10%", {"error_share": "0.1"})):
        query = {
            "statistic": "crosstab",
            "column": "sex",
            "second": "income",
            "error": error,
        }
        plan = server.admin.http.post(
            f"/datasets/{dataset}/statistics/quote", json={**body, "tables": [table]}
        ).json()
        title = f"crosstab of sex, income at ε = {plan['price']['epsilon']}"
        assert title in text_of(browser.get(path, params=query))
    offered = browser.get(path, params={"error": "1"}).text
    assert "It does not fit." in offered
    link = offered.partition('<a class="button" href="?')[2].partition('"')[0]
    assert "epsilon=" in link
    assert "error" not in link


def test_quantiles_are_asked_for_with_the_error_of_their_rank(server: Server) -> None:
    dataset = server.uploaded(400)["id"]
    path = f"/ui/datasets/{dataset}/statistics/new"
    browser = signed_in(server, server.granted(dataset, "analyst"))
    query = {
        "statistic": "quantiles",
        "column": "age",
        "quantiles": "0.1, 0.5",
        "epsilon": "2",
    }
    quoted = browser.get(path, params=query)
    shown = text_of(quoted)
    assert "With probability 95 %, the cells of a group hold values within ± " in shown
    assert " rows of the ranks asked for" in shown
    submitted = browser.post(path, data=fields(quoted.text.rpartition("<form")[2]))
    job = server.ended(submitted.headers["Location"].removeprefix("/ui/jobs/"))
    released = server.admin.http.get(f"/statistics/{job['statistics_id']}").json()
    [table] = released["tables"]
    assert table["table"]["quantiles"] == ["0.1", "0.5"]
    median = browser.get(path, params=query | {"statistic": "median"})
    assert "its cell holds a value within ± " in text_of(median)


WRONG = [
    ({"statistic": "histogram"}, "column: Needed."),
    ({"statistic": "mean", "column": "sex"}, "column: Not a number."),
    ({"statistic": "crosstab", "column": "sex"}, "columns: Needs more values."),
    ({"statistic": "count", "column": "sex", "second": "sex"}, "It fits."),
    ({"where": "income"}, "where: Malformed. Accepted: sex=Female,Male, age=18..65."),
    ({"where": "age=.."}, "where: Malformed."),
    (
        {"by": "age", "bins": "few"},
        "bins: Malformed. Accepted: 5, 18,65, quantiles:5, age=18,65.",
    ),
    ({"by": "age", "bins": "5"}, "It fits."),
    ({"by": "age", "bins": "quantiles:5"}, "It fits."),
    ({"by": "age", "bins": "age=1,2;age=3"}, "bins: Malformed."),
    ({"by": "age", "bins": "age=1,2\nage=3"}, "bins: Malformed."),
    ({"where": "age=1..2\n\nsex=other"}, "where 2 in: Unknown."),
    ({"where": "sex=Female\nsex=Male"}, "where 2: Excludes another."),
    ({"statistic": "quantiles", "column": "age", "quantiles": "2"}, "quantiles 1: "),
    (
        {"statistic": "sum", "column": "age", "by": "sex", "bins": "5"},
        "bins sex: Not for categories.",
    ),
    ({"statistic": "histogram", "column": "sex", "by": "age", "bins": "5"}, "It fits."),
    ({"statistic": "count", "column": "sex", "by": "age", "bins": "5"}, "It fits."),
    ({"statistic": "count", "column": "age", "bins": "5"}, "bins: Not grouped by."),
    ({"by": "b" * 128}, "by: Unknown."),
    ({"error": "x%"}, "error: Malformed. Accepted: 50, 1%."),
    ({"error": "1e999999999%"}, "error: Malformed. Accepted: 50, 1%."),
    ({"error": "5"}, "epsilon: State an ε or an error, not both."),
]


@pytest.mark.parametrize(("changed", "words"), WRONG)
def test_a_wrong_field_is_named(
    server: Server, changed: dict[str, str], words: str
) -> None:
    dataset = server.uploaded(20)["id"]
    browser = signed_in(server, server.admin)
    query = {"statistic": "count", "epsilon": "1", **changed}
    page = browser.get(f"/ui/datasets/{dataset}/statistics/new", params=query)
    main = page.text.partition("<main")[2]
    assert words in main, main
    assert page.status_code == (200 if words == "It fits." else 422)


def test_statistics_outlive_the_rows_and_no_more_are_sold(server: Server) -> None:
    dataset = server.uploaded(20)["id"]
    released = _released(server, dataset, epsilon="1", tables=TABLES[:1])
    server.admin.http.delete(f"/datasets/{dataset}").raise_for_status()
    browser = signed_in(server, server.admin)
    path = f"/ui/datasets/{dataset}/statistics"
    listed = browser.get(path)
    assert f'href="/ui/statistics/{released["id"]}"' in listed.text
    assert f'href="{path}/new"' not in listed.text
    assert browser.get(f"/ui/statistics/{released['id']}").status_code == 200
    refused = browser.get(f"{path}/new", params={"epsilon": "1"})
    assert refused.status_code == 409
    assert "Release and spend" not in refused.text
    assert browser.get(f"{path}/new").status_code == 409
    assert browser.get(f"/ui/datasets/{dataset}/train").status_code == 409


def test_bins_without_a_name_look_for_their_column_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A form has room for thirty thousand lines, and a dataset for two thousand
    columns: looking at all columns for each line took five seconds.
    """
    dataset = server.uploaded(20)["id"]
    browser = signed_in(server, server.admin)
    looks: list[Any] = []
    honest = statistics.columns_by_kind

    def columns_by_kind(schema: Any) -> list[tuple[str, list[str]]]:
        looks.append(schema)
        return honest(schema)

    monkeypatch.setattr(statistics, "columns_by_kind", columns_by_kind)
    query = {"statistic": "count", "epsilon": "1", "by": "age", "bins": "5\n" * 100}
    page = browser.get(f"/ui/datasets/{dataset}/statistics/new", params=query)
    assert "bins: Malformed." in page.text.partition("<main")[2]
    assert len(looks) == 2, "for the line, and for the form"
