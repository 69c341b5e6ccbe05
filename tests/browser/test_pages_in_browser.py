"""The dashboard in a real Chromium: readable at three widths in both themes, live, and
quiet.
"""

import csv
import re
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import (
    Browser,
    BrowserContext,
    FilePayload,
    Page,
    ViewportSize,
    expect,
    sync_playwright,
)

from app.core import limits
from tests.support.chromium import CHROMIUM, FLAGS
from tests.support.databases import MigratedDatabase
from tests.support.estate import with_person, with_unit
from tests.support.prefix_proxy import prefix_proxy
from tests.support.server import (
    Server,
    csv_rows,
    new_idempotency_key,
    running_server,
    worker,
)

WIDTHS = (320, 360, 800, 1440)
"""Pixels; 320 are a window of 1,280 at 400 %."""
TOO_WIDE = """() => document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("body *")]
  .filter(part => part.getBoundingClientRect().right > innerWidth).map(part => part.outerHTML.slice(0, 200))"""
CUT = """() => [...document.querySelectorAll("main td, main th, main dd")]
  .filter(cell => cell.getBoundingClientRect().right > innerWidth).map(cell => cell.textContent.trim())"""
WITHOUT_ZONE = """() => [...document.querySelectorAll("main time[datetime]")].filter(time => {
  const cell = time.closest("td")
  const place = cell ? cell.closest("table").tHead.rows[0].cells[cell.cellIndex] : time.closest("section")
  return !time.nextSibling?.textContent.startsWith(" UTC") && !place?.textContent.includes("UTC")
}).map(time => time.parentElement.outerHTML.slice(0, 200))"""
"""Times that are followed by no zone, and that neither the head of their column nor a
note of their section gives one.
"""
VIOLATIONS = "async options => (await axe.run(options)).violations.map(violation => violation.id)"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH"),
]


_GIVE_UP_MS = 120_000
"""Much longer than needed, because other processes use the processors."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=_GIVE_UP_MS)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


def _page(context: BrowserContext, server: Server, complaints: list[str]) -> Page:
    """A page of a signed-in browser that notes errors on its console and requests to
    other hosts.
    """
    context.set_default_timeout(_GIVE_UP_MS)
    page = context.new_page()
    page.on(
        "console",
        lambda message: (
            complaints.append(message.text) if message.type == "error" else None
        ),
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith((server.url, "data:"))
            else complaints.append(request.url)
        ),
    )
    page.goto(f"{server.url}/ui/jobs")
    page.fill("#key", server.admin.key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    return page


def _violations(page: Page, **options: Any) -> list[str]:
    """The rules of axe that a page violates; what passes is not collected, which would
    take longer than the rules.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    violations: list[str] = page.evaluate(
        VIOLATIONS, options | {"resultTypes": ["violations"], "preload": False}
    )
    return violations


def _evaluation(server: Server, model: str | None) -> str:
    """The path of the page of an evaluation with every release."""
    assert model is not None
    body = {"epsilon": "0.5", "metrics": ["confusion", "auroc"]}
    path = f"{model.removeprefix('/ui')}/evaluations"
    job = (
        server.admin.http.post(path, json=body, headers=new_idempotency_key())
        .raise_for_status()
        .json()["job_id"]
    )
    return f"/ui/evaluations/{server.ended(job)['evaluation_id']}"


_TABLES = [
    {"statistic": "histogram", "column": "age", "by": ["sex"]},
    {"statistic": "crosstab", "columns": ["sex", "income"]},
    {"statistic": "mean", "column": "age", "by": ["income"]},
]


def _released(server: Server, dataset: str, kind: str, **body: object) -> str:
    """The path of the page of released numbers."""
    answer = server.admin.http.post(
        f"/datasets/{dataset}/{kind}", json=body, headers=new_idempotency_key()
    )
    job = server.ended(answer.raise_for_status().json()["job_id"])
    return f"/ui/{kind}/{job['statistics_id'] or job['profile_id']}"


@pytest.mark.parametrize("idle_server", ["sqlite"], indirect=True)
def test_a_job_is_followed_from_the_quote_to_the_prediction(
    browser: Browser, idle_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The state of the job changes on the page without a reload; then every page passes
    axe in both themes.
    """
    longest = secrets.token_hex(limits.MAX_DATASET_NAME_CHARS // 2)
    partitions = [
        {"name": "shard", "kind": "hash", "cells": 4},
        {"name": "sex", "kind": "column", "column": "sex"},
    ]
    dataset = idle_server.uploaded(name=longest, partitions=partitions)
    idle_server.admin.http.delete(
        f"/datasets/{idle_server.uploaded(name=f'{longest[:-1]}g')['id']}"
    ).raise_for_status()
    complaints: list[str] = []
    with browser.new_context(color_scheme="light") as context:
        page = _page(context, idle_server, complaints)
        page.goto(f"{idle_server.url}/ui/datasets/{dataset['id']}")
        page.get_by_role("link", name="Quote or train").click()
        page.select_option("#algorithm", "rdt-ta")
        page.get_by_label("logarithmic scale").fill("0")
        expect(page.locator("#answer h2").first).to_contain_text("rdt-ta at ε = 1 on ")
        page.fill("#epsilon", "0.5")
        expect(page.locator("#answer h2").first).to_contain_text(
            "rdt-ta at ε = 0.5 on "
        )
        page.get_by_role("button", name="Train and spend 0.5 ε").click()
        expect(page.locator("#live .state")).to_have_text("queued")
        page.evaluate("window.notReloaded = true")
        with worker(
            idle_server.settings, log=tmp_path_factory.mktemp("browser") / "worker.log"
        ):
            expect(page.locator("#live .state")).to_have_text(
                "succeeded", timeout=120_000
            )
            evaluation = _evaluation(
                idle_server,
                page.get_by_role("link", name="Open the model").get_attribute("href"),
            )
            statistics = _released(
                idle_server, dataset["id"], "statistics", epsilon="0.5", tables=_TABLES
            )
            profile = _released(idle_server, dataset["id"], "profiles", epsilon="0.5")
        assert page.evaluate("window.notReloaded")
        job = page.url
        page.get_by_role("link", name="Open the model").click()
        page.get_by_label("age", exact=True).fill("39")
        page.get_by_role("button", name="Predict").click()
        expect(page.get_by_role("status")).to_contain_text("the label")
        model = page.url.partition("#")[0]
        alias = f"/datasets/{dataset['id']}/aliases/{'a' * limits.MAX_ALIAS_CHARS}"
        idle_server.admin.http.put(
            alias, json={"model": model.rpartition("/")[2]}
        ).raise_for_status()
        page.goto(f"{idle_server.url}/ui/datasets/{dataset['id']}")
        page.get_by_role("link", name="0.5 ε charged, 0.5 ε in all").focus()
        expect(page.locator("figure output")).to_contain_text(
            "0.5 ε charged, 0.5 ε in all: jb_"
        )
        page.goto(f"{idle_server.url}/ui/datasets/{dataset['id']}/rows")
        page.set_input_files(
            "#file",
            FilePayload(
                name="rows.csv", mimeType="text/csv", buffer=csv_rows(20).encode()
            ),
        )
        page.get_by_role("button", name="Upload", exact=True).click()
        expect(
            page.locator("#answer").get_by_text("Only owners see this report")
        ).to_be_visible()
        page.goto(f"{idle_server.url}/ui/datasets/new")
        page.get_by_label("Name", exact=True).first.fill("age")
        page.get_by_label("Lower").fill("5")
        page.get_by_label("Upper").fill("4")
        expect(
            page.locator(".problem").get_by_text("Larger than the upper bound.")
        ).to_be_visible()
        page.get_by_label("Upper").fill("6")
        expect(
            page.locator(".problem").get_by_text("Larger than the upper bound.")
        ).to_have_count(0)
        page.get_by_label("Name of the dataset").fill(f"visits-{secrets.token_hex(4)}")
        page.get_by_label("Name", exact=True).last.fill("readmitted")
        page.get_by_label("Classes").fill("no\nyes")
        page.get_by_role("button", name="Next: the budget").click()
        page.get_by_label("The cap for the whole life", exact=True).fill("2")
        expect(page.locator("#promise")).to_contain_text("guesses right at most 89 %")
        assert _violations(page) == []
        page.get_by_role("button", name="Next: the review").click()
        expect(page.get_by_role("heading", name="Public for ever")).to_be_visible()
        assert _violations(page) == []
        asking = f"/ui/datasets/{dataset['id']}/statistics/new"
        page.goto(f"{idle_server.url}{asking}")
        expect(page.get_by_label("Of the column", exact=True)).to_be_hidden()
        bins = page.get_by_label("Bins of a number")
        expect(bins).to_be_hidden()
        page.get_by_label("For each group of").select_option("age")
        expect(bins).to_be_visible()
        page.get_by_label("For each group of").select_option("")
        expect(bins).to_be_hidden()
        page.get_by_label("Statistic", exact=True).select_option("crosstab")
        page.get_by_label("Of the column", exact=True).select_option("sex")
        page.get_by_label("And of the column").select_option("income")
        page.get_by_label("Or the error that you can bear").fill("20")
        expect(page.locator("#answer")).to_contain_text("12 numbers will be within ± ")
    upload = idle_server.admin.http.get(f"/datasets/{dataset['id']}").json()["epochs"][
        0
    ]["epoch"]
    paths = [
        "/", "/ui/datasets",
        *(f"/ui/datasets/{dataset['id']}{tab}" for tab in ("", "/uploads", "/access", "/rules")),
        f"/ui/datasets/{dataset['id']}/train?algorithm=mrf&epsilon=1", job, model,
        "/ui/jobs", "/ui/models", "/ui/ledger", f"/ui/ledger/{dataset['id']}", f"/ui/ledger/{dataset['id']}/entries/3",
        f"/ui/ledger/{dataset['id']}/spent", f"/ui/ledger/{dataset['id']}/report",
        evaluation, statistics, profile, f"/ui/datasets/{dataset['id']}/statistics",
        f"/ui/datasets/{dataset['id']}/profiles/new?epsilon=0.5&bins=8&size_share=0.1",
        f"/ui/datasets/{with_unit(idle_server)}/erase-unit",
        f"{asking}?statistic=crosstab&column=sex&second=income&epsilon=0.5",
        "/ui/datasets/new", "/ui/admin", "/ui/admin/keys", "/ui/populations", "/ui/approvals",
        f"/ui/populations/{with_person(idle_server)}/erase-unit",
        "/ui/acts", "/ui/acts/verification",
        f"/ui/datasets/{dataset['id']}/erase", f"/ui/datasets/{dataset['id']}/choice",
        f"/ui/datasets/{dataset['id']}/rows", f"{model}/evaluate", f"{model}?alias={'a' * limits.MAX_ALIAS_CHARS}",
        f"/ui/datasets/{dataset['id']}/uploads/{upload}/erase", f"/ui/admin/keys/{idle_server.admin.id}/revoke",
        f"/ui/datasets/{dataset['id']}/grants/{idle_server.admin.id}/revoke",
    ]  # fmt: skip
    n_times = 0
    with browser.new_context(color_scheme="light") as context:
        page = _page(context, idle_server, complaints)
        for path in paths:
            page.goto(path if path.startswith("http") else f"{idle_server.url}{path}")
            for width in WIDTHS:
                page.set_viewport_size(ViewportSize(width=width, height=900))
                assert page.evaluate(TOO_WIDE) == [], (
                    f"{path} is wider than {width} pixels"
                )
            assert page.evaluate(WITHOUT_ZONE) == [], path
            n_times += page.locator("main time[datetime]").count()
            page.emulate_media(color_scheme="light")
            violations = _violations(page)
            page.emulate_media(color_scheme="dark")  # the themes differ in colours only
            violations += _violations(page, runOnly=["color-contrast"])
            assert not violations, (path, violations)
    assert n_times > len(paths)
    assert complaints == []


@pytest.mark.parametrize("idle_server", ["sqlite"], indirect=True)
@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_a_file_of_rows_is_downloaded_with_its_predictions_or_its_column_is_named(
    browser: Browser, idle_server: Server, tmp_path: Path, script: bool
) -> None:
    dataset = idle_server.uploaded()["id"]
    with worker(idle_server.settings, log=tmp_path / "worker.log"):
        model = idle_server.trained(dataset)["model_id"]
    rows = [{"age": age, "height": 1.75, "sex": "Male"} for age in (18, 39, 90)]
    expected = idle_server.admin.http.post(
        f"/models/{model}/predict", json={"rows": rows}
    ).json()
    complaints: list[str] = []
    with browser.new_context(java_script_enabled=script) as context:
        page = _page(context, idle_server, complaints)
        page.goto(f"{idle_server.url}/ui/models/{model}")
        page.get_by_text("Predict a CSV file").click()

        def send(text: str) -> None:
            file = FilePayload(
                name="rows.csv", mimeType="text/csv", buffer=text.encode()
            )
            page.get_by_label("CSV file with a header").set_input_files(file)
            page.get_by_role("button", name="Predict the file").click()

        with page.expect_download() as downloading:
            send(
                "note,age,height,sex\n"
                + "".join(
                    f"row {row['age']},{row['age']},{row['height']},{row['sex']}\n"
                    for row in rows
                )
            )
        download = downloading.value
        assert download.suggested_filename == f"predictions-{model}.csv"
        with download.path().open(encoding="utf-8", newline="") as file:
            records = list(csv.DictReader(file))
        assert [record["note"] for record in records] == ["row 18", "row 39", "row 90"]
        assert [record["predicted"] for record in records] == expected["labels"]
        shares = [
            [float(record[f"P({name})"]) for name in expected["classes"]]
            for record in records
        ]
        assert shares == expected["probabilities"]

        send("age,height,sex\n39,tall,Male\n")
        refusal = page.locator("#file")
        expect(refusal.get_by_role("alert")).to_contain_text("cannot be predicted")
        expect(refusal.get_by_role("row").filter(has_text="height")).to_contain_text(
            "not a number"
        )
        expect(refusal.get_by_role("row").filter(has_text="age")).to_have_count(0)
        assert "tall" not in page.locator("main").inner_text()
    # Chromium's console names the refusal
    assert [text for text in complaints if "422" not in text] == []


@pytest.mark.parametrize("idle_server", ["sqlite"], indirect=True)
def test_pages_work_without_the_script(browser: Browser, idle_server: Server) -> None:
    dataset = idle_server.uploaded()["id"]
    complaints: list[str] = []
    with browser.new_context(java_script_enabled=False) as context:
        page = _page(context, idle_server, complaints)
        page.goto(
            f"{idle_server.url}/ui/datasets/{dataset}/train?algorithm=mrf&epsilon=0.5"
        )
        page.get_by_role("button", name="Train and spend 0.5 ε").click()
        expect(page.locator("#live .state")).to_have_text("queued")
        page.get_by_role("button", name="Cancel (costs nothing)").click()
        expect(page.locator("#live .state")).to_have_text("cancelled")
        page.goto(f"{idle_server.url}/ui/datasets/{dataset}/statistics/new")
        page.get_by_label("Or the error that you can bear").fill("20")
        page.get_by_role("button", name="Quote: costs nothing").click()
        page.get_by_role("button", name="Release and spend").click()
        expect(page.locator("#live .state")).to_have_text("queued")
        page.get_by_role("button", name="Cancel (costs nothing)").click()
        page.goto(f"{idle_server.url}/ui/datasets/{dataset}/rows")
        page.set_input_files(
            "#file",
            FilePayload(
                name="rows.csv", mimeType="text/csv", buffer=csv_rows(20).encode()
            ),
        )
        page.get_by_role("button", name="Upload", exact=True).click()
        expect(
            page.get_by_role("status").get_by_text("Only owners see this report")
        ).to_be_visible()
    assert complaints == []


@pytest.mark.parametrize("idle_server", ["sqlite"], indirect=True)
def test_an_upload_of_a_session_that_has_ended_is_said_to_have_no_effect(
    browser: Browser, idle_server: Server
) -> None:
    path = f"/ui/datasets/{idle_server.declared()['id']}/rows"
    rows = FilePayload(
        name="rows.csv", mimeType="text/csv", buffer=csv_rows(20).encode()
    )
    with browser.new_context() as context:
        page = _page(context, idle_server, [])
        page.goto(f"{idle_server.url}{path}")
        context.clear_cookies()
        page.set_input_files("#file", rows)
        page.get_by_role("button", name="Upload", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("had no effect")
        page.get_by_label("Key").fill(idle_server.admin.key)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("#file")).to_be_visible()
        assert page.url == f"{idle_server.url}{path}"


@pytest.mark.parametrize("idle_server", ["sqlite"], indirect=True)
def test_a_changed_quote_is_not_bought_before_its_answer(
    browser: Browser, idle_server: Server
) -> None:
    """A charge is final, so the button of an earlier quote is off; what was typed beside
    it stays.
    """
    dataset = idle_server.uploaded()["id"]
    spend = re.compile("Train and spend")
    with browser.new_context() as context:
        page = _page(context, idle_server, [])
        page.goto(
            f"{idle_server.url}/ui/datasets/{dataset}/train?algorithm=mrf&epsilon=0.5"
        )
        page.get_by_label("Purpose").fill("compare with last year")
        context.set_offline(True)
        page.fill("#epsilon", "0.25")
        expect(page.get_by_role("alert")).to_contain_text("does not answer")
        expect(page.get_by_role("button", name=spend)).to_be_disabled()
        context.set_offline(False)
        page.fill("#epsilon", "0.2")
        expect(page.get_by_role("button", name=spend)).to_have_text(
            "Train and spend 0.2 ε"
        )
        expect(page.get_by_role("button", name=spend)).to_be_enabled()
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.get_by_label("Purpose")).to_have_value("compare with last year")


@pytest.mark.parametrize("idle_server", ["sqlite"], indirect=True)
def test_a_form_of_a_session_that_has_ended_keeps_what_was_typed(
    browser: Browser, idle_server: Server
) -> None:
    """A form that is sent by itself, and one with a button."""
    path = f"/ui/datasets/{idle_server.declared()['id']}/access"
    with browser.new_context() as context:
        page = _page(context, idle_server, [])
        session = context.cookies()
        for form, field, act in (
            ("/ui/datasets/new", "Name of the dataset", None),
            (path, "Key", "Grant"),
        ):
            page.goto(f"{idle_server.url}{form}")
            context.clear_cookies()
            page.get_by_label(field, exact=True).fill("typed-before")
            if act is not None:
                page.get_by_role("button", name=act).click()
            expect(page.get_by_role("alert")).to_contain_text("session has ended")
            with context.expect_page() as opened:
                page.get_by_role("link", name="Sign in in another tab").click()
            expect(opened.value.get_by_role("heading", level=1)).to_have_text("Sign in")
            expect(page.get_by_label(field, exact=True)).to_have_value("typed-before")
            context.add_cookies(session)  # type: ignore[arg-type]
        colleague = idle_server.caller().id
        page.get_by_label("Key", exact=True).fill(colleague)
        page.get_by_role("button", name="Grant").click()
        expect(page.get_by_role("row").filter(has_text=colleague)).to_be_visible()


@pytest.mark.parametrize("idle_server", ["sqlite"], indirect=True)
def test_a_name_without_a_blank_pushes_nothing_away(
    browser: Browser, idle_server: Server
) -> None:
    name = secrets.token_hex(limits.MAX_DATASET_NAME_CHARS // 2)
    sex = {"name": "s" * 120, "type": "categorical", "categories": ["f" * 120, "m"]}
    schema = {"features": [sex], "label": {"name": "l" * 120, "classes": ["n", "y"]}}
    partitions = [
        {"name": "p" * 60, "kind": "column", "column": sex["name"]},
        {"name": "q" * 60, "kind": "hash", "cells": 2},
    ]
    dataset = idle_server.declared(name=name, schema=schema, partitions=partitions)
    page_of = f"/ui/datasets/{dataset['id']}"
    with browser.new_context() as context:
        page = _page(context, idle_server, [])
        for path in (
            page_of,
            f"{page_of}/train?epsilon=1",
            f"{page_of}/statistics/new",
            f"/ui/ledger/{dataset['id']}",
            f"/ui/ledger/{dataset['id']}/report",
        ):
            page.goto(f"{idle_server.url}{path}")
            for width in WIDTHS:
                page.set_viewport_size(ViewportSize(width=width, height=900))
                assert page.evaluate(TOO_WIDE) == [], (path, width)
        page.goto(f"{idle_server.url}/ui/datasets?name={name}")
        assert page.evaluate(CUT) == []


@pytest.mark.parametrize("idle_server", ["sqlite"], indirect=True)
def test_the_theme_stays_as_it_was_switched(
    browser: Browser, idle_server: Server
) -> None:
    with browser.new_context(color_scheme="light") as context:
        page = _page(context, idle_server, [])
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.get_by_role("button", name="Light or dark").click()
        page.goto(idle_server.url)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light


@pytest.fixture
def below(migrated_database: MigratedDatabase, tmp_path: Path) -> Iterator[Server]:
    """A server behind a proxy that removes a path prefix; its address is that of the
    proxy.
    """
    prefix = "/tools/grovekeeper"
    with (
        migrated_database("sqlite", tmp_path) as url,
        running_server(
            url, tmp_path / "home", n_workers=0, path_prefix=prefix
        ) as server,
        prefix_proxy(int(server.url.rpartition(":")[2]), prefix) as proxy,
    ):
        yield replace(server, url=proxy.url)


def test_the_dashboard_works_below_a_path_prefix(
    browser: Browser, below: Server, tmp_path: Path
) -> None:
    """Every request of the browser is below the prefix, those of the script and of the
    stream of events, too.
    """
    dataset = below.uploaded()
    complaints: list[str] = []
    with browser.new_context() as context:
        page = _page(context, below, complaints)
        assert page.url == f"{below.url}/ui/jobs"
        page.get_by_role("link", name="Datasets", exact=True).click()
        page.get_by_role("link", name=dataset["name"]).click()
        page.get_by_role("link", name="Quote or train").click()
        page.select_option("#algorithm", "rdt-ta")
        page.fill("#epsilon", "0.5")
        expect(page.locator("#answer h2").first).to_contain_text(
            "rdt-ta at ε = 0.5 on "
        )
        page.get_by_role("button", name="Train and spend 0.5 ε").click()
        expect(page.locator("#live .state")).to_have_text("queued")
        page.evaluate("window.notReloaded = true")
        with worker(below.settings, log=tmp_path / "worker.log"):
            expect(page.locator("#live .state")).to_have_text(
                "succeeded", timeout=120_000
            )
        assert page.evaluate("window.notReloaded")
        page.get_by_role("link", name="Open the model").click()
        page.get_by_label("age", exact=True).fill("39")
        page.get_by_role("button", name="Predict").click()
        expect(page.get_by_role("status")).to_contain_text("the label")
        page.goto(f"{below.url}/ui/datasets/{dataset['id']}/rows")
        page.set_input_files(
            "#file",
            FilePayload(
                name="rows.csv", mimeType="text/csv", buffer=csv_rows(20).encode()
            ),
        )
        page.get_by_role("button", name="Upload", exact=True).click()
        expect(
            page.locator("#answer").get_by_text("Only owners see this report")
        ).to_be_visible()
        uploading = page.url
        context.clear_cookies()
        page.get_by_role("button", name="Upload", exact=True).click()
        page.get_by_label("Key").fill(below.admin.key)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("#file")).to_be_visible()
        assert page.url == uploading
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        assert page.url == f"{below.url}/ui/sign-in"
    assert complaints == []


@pytest.mark.parametrize("idle_server", ["sqlite"], indirect=True)
def test_phones_show_every_fact_of_home_report_and_job_without_scrolling(
    browser: Browser, idle_server: Server
) -> None:
    dataset = idle_server.uploaded(
        name=f"hospital-readmissions-{secrets.token_hex(4)}"
    )["id"]
    body = {
        "name": "the forest that is compared with last year",
        "purpose": "compare with last year",
    }
    job = idle_server.submitted(dataset, **body).json()["job_id"]
    with browser.new_context(viewport=ViewportSize(width=390, height=844)) as context:
        page = _page(context, idle_server, [])
        for path, title in (
            ("/", "Ledgers to verify"),
            (f"/ui/ledger/{dataset}/report", "Who has access"),
        ):
            page.goto(f"{idle_server.url}{path}")
            expect(page.get_by_role("heading", name=title)).to_be_visible()
            assert page.evaluate(CUT) == [], path
            assert _violations(page) == [], path
        for path in (f"/ui/jobs?dataset={dataset}", f"/ui/jobs/{job}"):
            page.goto(f"{idle_server.url}{path}")
            assert page.evaluate(CUT) == [], path
            expect(page.get_by_text("queued", exact=True)).to_be_visible()
            expect(page.get_by_text("1 ε").first).to_be_visible()
            assert _violations(page) == [], path


@pytest.mark.parametrize("idle_server", ["sqlite"], indirect=True)
def test_the_printed_report_has_no_controls(
    browser: Browser, idle_server: Server
) -> None:
    dataset = idle_server.uploaded()["id"]
    with browser.new_context() as context:
        page = _page(context, idle_server, [])
        page.goto(f"{idle_server.url}/ui/ledger/{dataset}/report")
        expect(page.get_by_role("button", name="Light or dark")).to_be_visible()
        page.emulate_media(media="print")
        assert [
            button.inner_text() for button in page.locator("button:visible").all()
        ] == []
        # A4 within margins of 10 mm: the line to sign stands below what is signed
        page.set_viewport_size(ViewportSize(width=718, height=1047))
        paper = page.locator(".paper").bounding_box()
        assert paper is not None
        assert paper["height"] <= 1047


@pytest.mark.parametrize("idle_server", ["sqlite"], indirect=True)
def test_fields_of_a_row_begin_at_one_height(
    browser: Browser, idle_server: Server
) -> None:
    """The field of the person has a help text, and the field beside it has none."""
    with browser.new_context(viewport=ViewportSize(width=1440, height=900)) as context:
        page = _page(context, idle_server, [])
        page.goto(f"{idle_server.url}/ui/datasets/new")
        fields = {
            "Name of the dataset": "visits",
            "Lower": "0",
            "Upper": "9",
            "Classes": "no\nyes",
        }
        for label, text in fields.items():
            page.get_by_label(label).fill(text)
        page.get_by_label("Name", exact=True).first.fill("age")
        page.get_by_label("Name", exact=True).last.fill("readmitted")
        page.get_by_role("button", name="Next: the budget").click()
        boxes = [
            page.get_by_label(name).bounding_box()
            for name in ("Column of the person", "Rows of one person")
        ]
        assert boxes[0] is not None
        assert boxes[1] is not None
        assert boxes[0]["y"] == boxes[1]["y"]
