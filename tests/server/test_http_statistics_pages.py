"""The pages of statistics over HTTP: the numbers of the API in words, and who sees them."""

from typing import Any

from tests.support.databases import on_one_server
from tests.support.pages import signed_in, text_of
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
    assert "count, where sex is Female" in shown
    total = crosstab["total"]["value"]
    assert f"All cells together: {total:,.0f} (" in shown
    assert page.text.count('<tbody class="heat">') == 1, "that of the cross-table"
    assert means["rows"][-1]["value"] is None
    assert "OTHER not told 0 to 120" in shown
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
    named = _released(
        server, dataset, epsilon="1", tables=TABLES[:1], name="ages", scope={}
    )
    unnamed = _released(server, dataset, epsilon="1", tables=TABLES[:2])
    first = browser.get(path, params={"limit": 1})
    assert "histogram, crosstab" in text_of(first)
    assert f'href="/ui/statistics/{unnamed["id"]}"' in first.text
    assert named["id"] not in first.text
    assert "Next page" in text_of(first)
    assert "ages histogram the whole dataset 1 ε" in text_of(browser.get(path))
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
