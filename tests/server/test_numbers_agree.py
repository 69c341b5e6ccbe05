"""A number that is printed in several places is one number: the JSON API, the text and
the JSON of the command line, the pages and the report are compared on one estate.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from app.cli.main import app as grovekeeper
from tests.support.databases import MigratedDatabase
from tests.support.operations import EXTERNAL
from tests.support.pages import signed_in, text_of
from tests.support.server import (
    Caller,
    Server,
    new_idempotency_key,
    running_server,
    training,
)

pytestmark = pytest.mark.parametrize(
    "office",
    ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)],
    indirect=True,
)

AMOUNTS = ("cap", "charged", "reserved", "remaining")
_WITH_DELTA = {"epsilon": "3", "delta": "1e-6"}
_BUDGETS: dict[str, dict[str, str]] = {
    "pure": {"accountant": "pure", "epsilon": "7"},
    "zcdp": {"accountant": "zcdp", **_WITH_DELTA},
    "gdp": {"accountant": "gdp", **_WITH_DELTA},
    "member": {"accountant": "pure", "epsilon": "3.3"},
    "closed": {"accountant": "pure", "epsilon": "2"},
}
_EVERY_JOB = ("pure", "gdp")
"""Datasets with a job of each kind; others are trained on and counted."""
_SEXES = [{"name": "sex", "kind": "column", "column": "sex"}]
_TABLES = [
    {"statistic": "histogram", "column": "sex"},
    {"statistic": "mean", "column": "age"},
]
_RULES: dict[str, Any] = {
    "largest_job": None, "approval_above": "1.2", "quotas": [], "frozen": False, "erase_rows_at": None,
}  # fmt: skip


@dataclass
class Office:
    """What was made on a server, by a name of each dataset.

    Attributes:
        http: asks the API as the admin, on a connection for each request: none is idle
            for as long as a busy machine takes for a command.
        browser: shows pages, so too.
        names: of the datasets.
        ids: of the datasets.
        jobs: the jobs that succeeded on each dataset, as the API shows them.
    """

    server: Server
    http: httpx.Client
    browser: httpx.Client
    names: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    population: str = ""

    def json(self, path: str, **query: str) -> Any:
        """The answer of the API."""
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def cli(self, *words: str, exit_code: int = 0) -> str:
        """What a command prints for people, on both of its outputs."""
        done = CliRunner().invoke(grovekeeper, list(words))
        assert done.exit_code == exit_code, (words, done.output, done.exception)
        return done.output

    def cli_json(self, *words: str, exit_code: int = 0) -> Any:
        """What a command prints for programs."""
        return json.loads(self.cli(*words, "--json", exit_code=exit_code))

    def page(self, path: str, **query: str) -> str:
        """The text of a page."""
        return text_of(self.browser.get(path, params=query))


@pytest.fixture(scope="module")
def office(
    request: pytest.FixtureRequest,
    migrated_database: MigratedDatabase,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Office]:
    """On a server of its own: what needs attention is a list of the few budgets that end
    first.
    """
    folder = tmp_path_factory.mktemp("office")
    with (
        migrated_database(request.param, folder) as url,
        running_server(url, folder / "home", n_workers=1) as server,
        pytest.MonkeyPatch.context() as environ,
    ):
        environ.setenv("GROVEKEEPER_URL", server.url)
        environ.setenv("GROVEKEEPER_API_KEY", server.admin.key)
        environ.setenv("NO_PROXY", "127.0.0.1")
        yield _built(server)


def _built(server: Server) -> Office:
    office = Office(
        server, server.client(server.admin.key), signed_in(server, server.admin)
    )
    for client in (office.http, office.browser):
        client.headers["Connection"] = "close"
    population = f"everybody-{secrets.token_hex(4)}"
    for kind, budget in _BUDGETS.items():
        members: dict[str, Any] = {}
        if kind == "pure":
            members = {"partitions": _SEXES}
        if kind == "member":
            members = {"population": population}
        declared = server.uploaded(budget=budget, **members)
        office.names[kind], office.ids[kind] = declared["name"], declared["id"]
        office.jobs[kind] = []
        _spend(office, kind)
    pure = office.ids["pure"]
    office.population = office.json(f"/populations/{population}")["id"]
    rules = server.admin.http.put(f"/datasets/{pure}/rules", json=_RULES)
    assert rules.status_code == 200, rules.text
    analyst = server.granted(pure, "analyst")
    for decision in (None, "reject"):
        _wait_for_a_decision(server, analyst, pure, decision)
    deleted = server.admin.http.delete(f"/datasets/{office.ids['closed']}")
    assert deleted.is_success, deleted.text
    return office


def _spend(office: Office, kind: str) -> None:
    """Charges an account by every kind of job, by an external mechanism, and asks for
    more than fits.
    """
    server, dataset = office.server, office.ids[kind]
    scope = {"scope": {"sex": ["Female"]}} if kind == "pure" else {}
    trained = server.trained(dataset, epsilon="0.37", purpose="a first forest", **scope)
    office.jobs[kind].append(trained)
    statistics = {"epsilon": "0.123", "tables": _TABLES, "purpose": "a count"}
    asked: list[tuple[str, dict[str, Any]]] = [
        (f"/datasets/{dataset}/statistics", statistics)
    ]
    if kind in _EVERY_JOB:
        asked += [
            (f"/datasets/{dataset}/profiles", {"epsilon": "0.2"}),
            (f"/models/{trained['model_id']}/evaluations", {"epsilon": "0.41"}),
        ]
    for path, body in asked:
        answer = server.admin.http.post(path, json=body, headers=new_idempotency_key())
        assert answer.status_code == 202, answer.text
        job = server.ended(answer.json()["job_id"])
        assert job["state"] == "succeeded", job
        office.jobs[kind].append(job)
    charged = server.admin.http.post(
        f"/ledger/{dataset}/reservations", json=EXTERNAL, headers=new_idempotency_key()
    )
    assert charged.status_code == 201, charged.text
    refused = server.submitted(dataset, epsilon="50")
    assert refused.status_code == 409, refused.text


def _wait_for_a_decision(
    server: Server, analyst: Caller, dataset: str, decision: str | None
) -> None:
    """Submits a job that waits for an owner, who may decide about it."""
    body = training(dataset, epsilon="1.7")
    answer = analyst.http.post("/train", json=body, headers=new_idempotency_key())
    assert answer.json()["state"] == "waiting", answer.text
    if decision is None:
        return
    decided = server.admin.http.post(
        f"/approvals/{answer.json()['job_id']}",
        json={"decision": decision, "reason": "too much"},
    )
    assert decided.status_code == 200, decided.text


def _is_rounded(shown: str, exact: str, *, up: bool) -> bool:
    """Whether a page's number is the exact one, or has at least four of its digits and
    is on the safe side.
    """
    difference = Decimal(shown) - Decimal(exact)
    is_safe = difference >= 0 if up else difference <= 0
    return is_safe and abs(difference) <= abs(Decimal(exact)) / 1000


def _agrees(shown: tuple[str, ...], account: dict[str, Any]) -> None:
    """Requires that charged, cap, reserved and remaining of a bar are those of an
    account.
    """
    names = ("charged", "cap", "reserved", "remaining")
    assert shown == tuple(account[name] for name in names), (shown, account)


_BAR = re.compile(r"(\S+) of (\S+) \S+ charged, (\S+) reserved, (\S+) left")
_ROW = re.compile(r"(\S+) of (\S+) \S+ charged(?:, (\S+) reserved)?")
_SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu_squared": "μ²"}


def _numbers(account: dict[str, Any]) -> dict[str, str]:
    return {name: account[name] for name in (*AMOUNTS, "unit", "accountant")}


@pytest.mark.parametrize("kind", ["pure", "zcdp", "gdp", "member"])
def test_cap_spent_reserved_and_left_of_a_dataset(office: Office, kind: str) -> None:
    id_, name = office.ids[kind], office.names[kind]
    of_api = office.json(f"/datasets/{id_}")["account"]
    balance = office.json(f"/ledger/{id_}")
    expected = _numbers(of_api)
    assert Decimal(expected["charged"]) > 0
    seen = {
        "balance": balance,
        "datasets": _one(office.json("/datasets", name=name)["datasets"])["account"],
        "ledger": _find(office.json("/ledger", limit="500")["datasets"], id_),
        "attention": _find(office.json("/attention")["budgets"], id_, by="dataset")[
            "account"
        ],
        "datasets show": office.cli_json("datasets", "show", name)["account"],
        "datasets list": _one(
            office.cli_json("datasets", "list", "--name", name)["datasets"]
        )["account"],
        "ledger show": office.cli_json("ledger", "show", name),
        "ledger show, all": _find(office.cli_json("ledger", "show")["datasets"], id_),
    }
    for view, account in seen.items():
        assert _numbers(account) == expected, view
    symbol = _SYMBOLS[expected["unit"]]
    facts = office.cli("datasets", "show", name)
    for amount in AMOUNTS:
        assert re.search(
            rf"^{amount} +{re.escape(expected[amount])} {symbol}$", facts, re.MULTILINE
        ), facts
    row = " +".join(re.escape(expected[name]) for name in ("accountant", *AMOUNTS))
    for command in (
        ("ledger", "show"),
        ("ledger", "show", name),
        ("datasets", "list", "--name", name),
    ):
        assert re.search(rf"{id_} +{row}\b", office.cli(*command)), command
    for path in (
        f"/ui/datasets/{id_}",
        f"/ui/ledger/{id_}",
        f"/ui/ledger/{id_}/report",
    ):
        bar = _BAR.search(office.page(path))
        assert bar is not None, path
        _agrees(bar.groups(), of_api)
    for page in (office.page("/ui/datasets", name=name), office.page("/")):
        row_of = page.partition(name)[2]
        charged, cap, reserved = _ROW.search(row_of).groups()  # type: ignore[union-attr]
        left = re.search(r"charged\S*(?: \S+ reserved)? (\S+)", row_of)
        assert left is not None
        _agrees((charged, cap, reserved or "0", left[1]), of_api)
    listed = office.page("/ui/ledger").partition(name)[2]
    _agrees(_BAR.search(listed).groups(), of_api)  # type: ignore[union-attr]
    annex = office.page(f"/ui/ledger/{id_}/report").partition("Annex")[2]
    for fact in (
        f"Cap now {expected['cap']} {symbol}",
        f"Charged {expected['charged']} {symbol}, for good",
        f"Reserved {expected['reserved']} {symbol}, for jobs",
        f"Left {expected['remaining']} {symbol}",
    ):
        assert fact in annex


def _one(items: list[dict[str, Any]]) -> dict[str, Any]:
    (item,) = items
    return item


def _find(
    items: list[dict[str, Any]], value: str, *, by: str = "account"
) -> dict[str, Any]:
    return _one([item for item in items if item[by] == value])


@pytest.mark.parametrize("kind", ["pure", "zcdp", "gdp", "member"])
def test_the_largest_job_that_fits(office: Office, kind: str) -> None:
    id_, name = office.ids[kind], office.names[kind]
    largest = office.json(f"/ledger/{id_}")["largest_that_fits"]
    budgets = office.json("/attention")["budgets"]
    assert _find(budgets, id_, by="dataset")["largest_that_fits"] == largest
    budgets = office.cli_json("attention")["budgets"]
    assert _find(budgets, id_, by="dataset")["largest_that_fits"] == largest
    assert office.cli_json("ledger", "show", name)["largest_that_fits"] == largest
    datasets = office.json("/datasets", name=name)["datasets"]
    for listed in (_one(datasets), office.json(f"/datasets/{id_}")):
        assert listed["largest_that_fits"] == largest
    listed = office.cli("datasets", "list", "--name", name)
    assert re.search(rf" {re.escape(largest)} .* owner +active *$", listed, re.M)
    exact = re.escape(largest)
    assert re.search(
        rf"^largest ε that fits: {exact}\b", office.cli("ledger", "show", name), re.M
    )
    assert re.search(rf"^{name} .* {exact} *$", office.cli("attention"), re.M)
    shown = re.search(r"that fits now: (\S+?),? ", office.page(f"/ui/datasets/{id_}"))
    assert shown is not None
    assert _is_rounded(shown[1], largest, up=False)
    for page in (office.page("/"), office.page("/ui/datasets", name=name)):
        fits = re.search(r"ε = (\S+)", page.partition(name)[2])
        assert fits is not None
        assert _is_rounded(fits[1], largest, up=False)
    quoted = office.http.post("/plans", json=training(id_)).json()
    assert quoted["largest_that_fits"] == largest
    plan = office.cli("plan", name, "--epsilon", "1", "--algorithm", "rdt-ta")
    assert re.search(rf"largest ε that fits +{exact}$", plan, re.M), plan
    refused = office.http.post(
        "/train", json=training(id_, epsilon="50"), headers=new_idempotency_key()
    )
    assert refused.json()["largest_that_fits"] == largest
    said = office.cli(
        "train", name, "--epsilon", "50", "--algorithm", "rdt-ta", exit_code=3
    )
    assert f"largest ε that fits: {largest}\n" in said
    page = office.page(f"/ui/datasets/{id_}/train", algorithm="rdt-ta", epsilon="50")
    offered = re.search(r"Ask for ε = (\S+) instead", page)
    assert offered is not None
    assert _is_rounded(offered[1], largest, up=False)


def _groups_of_cli(printed: str) -> list[list[str]]:
    """The rows of the table that ``ledger spent`` prints, below its rule."""
    lines = printed.partition("━" if "━" in printed else "─")[2].splitlines()[1:]
    rows = []
    for line in lines:
        if line.startswith("charges shown"):
            break
        rows.append(re.split(r" {2,}", line.strip()))
    return rows


@pytest.mark.covering("kind", "by")
@pytest.mark.parametrize("by", ["key", "purpose", "kind", "month", "cell"])
@pytest.mark.parametrize("kind", ["pure", "gdp"])
def test_what_was_spent_by_whom_and_for_what(
    office: Office, kind: str, by: str
) -> None:
    id_, name = office.ids[kind], office.names[kind]
    spent = office.json(f"/ledger/{id_}/spent", by=by)
    assert office.cli_json("ledger", "spent", name, "--by", by) == spent
    symbol = _SYMBOLS[spent["unit"]]
    assert spent["spent"] == office.json(f"/ledger/{id_}")["charged"]
    printed = office.cli("ledger", "spent", name, "--by", by)
    assert (
        f"charges shown: {spent['charged']} {symbol}; spent of the cap, by everybody: {spent['spent']} {symbol}"
        in printed
    )
    page = office.page(f"/ui/ledger/{id_}/spent", by=by)
    assert f"{spent['charged']} {symbol} in the charges that your key sees" in page
    assert f"{spent['spent']} {symbol} spent of the cap" in page
    rows = _groups_of_cli(printed) if spent["groups"] else []
    assert len(rows) == len(spent["groups"])
    for group, row in zip(spent["groups"], rows, strict=True):
        charges = [] if group["charges"] is None else [str(group["charges"])]
        assert row[1:-1] == [*charges, group["charged"]]
        assert f"{' '.join(charges)} {group['charged']} {symbol} {row[-1]}" in page
        assert f"{100 * group['share']:.1f} %" == row[-1]


def test_the_price_of_each_release(office: Office) -> None:
    """Of every kind of job, on every accountant; the ledger, the list of jobs and the
    release say what it cost.
    """
    for kind, jobs in office.jobs.items():
        id_, name = office.ids[kind], office.names[kind]
        entries = office.json(f"/ledger/{id_}/entries", kind="charge", limit="500")
        charged = {entry["job_id"]: entry for entry in entries["entries"]}
        printed = office.cli("ledger", "entries", name, "--kind", "charge")
        ledger = office.page(f"/ui/ledger/{id_}", kind="charge")
        report = office.page(f"/ui/ledger/{id_}/report").partition("Annex")[0]
        listed = office.cli("jobs", "list", "--dataset", id_)
        page_of_jobs = office.page("/ui/jobs", dataset=id_)
        for job in jobs:
            price = job["price"]
            amount, symbol = price["amount"], _SYMBOLS[price["unit"]]
            entry = charged[job["id"]]
            number = str(entry["sequence"])
            assert entry["amount"] == amount
            assert f"{amount} {symbol}" in office.cli("jobs", "show", job["id"])
            assert re.search(rf"{job['id']} .* {re.escape(amount)} {symbol}", listed)
            assert re.search(
                rf"^ *{number} +charge +{re.escape(amount)} ", printed, re.M
            )
            assert f" {number} charge {amount} " in ledger
            assert f" {number} {amount} {symbol} " in report
            for page in (office.page(f"/ui/jobs/{job['id']}"), page_of_jobs):
                after = page.partition(job["id"])[2] if page is page_of_jobs else page
                shown = re.search(rf"(\S+) {symbol}", after)
                assert shown is not None
                assert _is_rounded(shown[1], amount, up=True), (job["kind"], shown[1])
            _same_price_of_release(office, job)


def _same_price_of_release(office: Office, job: dict[str, Any]) -> None:
    """The release of a job costs what the job costs."""
    amount, symbol = job["price"]["amount"], _SYMBOLS[job["price"]["unit"]]
    collection = {
        "train": "models",
        "statistics": "statistics",
        "profile": "profiles",
        "evaluation": "evaluations",
    }[job["kind"]]
    id_ = job[f"{'model' if job['kind'] == 'train' else job['kind']}_id"]
    released = office.json(f"/{collection}/{id_}")
    if job["kind"] == "train":
        listed = office.json("/models", dataset=job["dataset"])["models"]
        assert _one(listed)["price"] == job["price"]
        assert released["guarantee"]["adds"]["add_remove"] == amount
        printed = office.cli("models", "list", "--dataset", job["dataset"])
        page = office.page("/ui/models", dataset=job["dataset"])
    else:
        assert released["price"] == job["price"]
        printed = office.cli(collection, "show", id_)
        if job["kind"] == "profile":
            return
        page = office.page(f"/ui/{collection}/{id_}")
    assert f"{amount} {symbol}" in printed
    shown = re.search(rf"(\S+) {symbol}", page)
    assert shown is not None
    assert _is_rounded(shown[1], amount, up=True)


def test_the_number_of_jobs_in_each_state(office: Office) -> None:
    page = office.page("/ui/jobs")
    states = ("waiting", "queued", "running", "succeeded", "failed", "cancelled")
    counted = {}
    for state in states:
        jobs = office.json("/jobs", state=state, limit="500")["jobs"]
        counted[state] = len(jobs)
        assert len(office.cli_json("jobs", "list", "--state", state)["jobs"]) == len(
            jobs
        )
        tab = re.search(rf"{state.capitalize()} ([0-9]+) ", page)
        assert (int(tab[1]) if tab else 0) == len(jobs), state
    assert counted["waiting"] == 1
    assert counted["cancelled"] == 1
    running = {state: counted[state] for state in ("waiting", "queued", "running")}
    assert office.json("/attention")["jobs"] == running
    assert office.cli_json("attention")["jobs"] == running
    home = office.page("/")
    assert f"{counted['running']} running" in home
    assert (
        f"{counted['queued']} queued, {counted['waiting']} waiting for an owner" in home
    )


def test_the_accuracy_of_an_evaluation(office: Office) -> None:
    for kind in _EVERY_JOB:
        jobs = office.jobs[kind]
        trained = _find(jobs, "train", by="kind")
        evaluated = _find(jobs, "evaluation", by="kind")
        evaluation = office.json(f"/evaluations/{evaluated['evaluation_id']}")
        accuracy = evaluation["accuracy"]
        of_model = office.json(f"/models/{trained['model_id']}/evaluations")
        assert _one(of_model["evaluations"])["accuracy"] == accuracy
        shown = "not told: the noise outweighs the counts"
        if accuracy["estimate"] is not None:
            shown = f"{100 * accuracy['estimate']:.1f} %"
        printed = [
            office.cli("evaluations", "show", evaluation["id"]),
            office.cli("evaluations", "list", trained["model_id"]),
            office.page(f"/ui/models/{trained['model_id']}"),
        ]
        assert all(shown in text for text in printed), (shown, printed)
        page = office.page(f"/ui/evaluations/{evaluation['id']}")
        if accuracy["estimate"] is None:
            continue
        interval = accuracy["interval"]
        low, high = (f"{100 * interval[end]:.1f} %" for end in ("low", "high"))
        assert shown in page
        assert f"{low} to {high}" in page
        assert f"{low} to {high}" in printed[0]
        assert f"{low} to {high}" in printed[2]


def test_the_numbers_and_errors_of_statistics(office: Office) -> None:
    for kind, jobs in office.jobs.items():
        id_ = _find(jobs, "statistics", by="kind")["statistics_id"]
        released = office.json(f"/statistics/{id_}")
        assert office.cli_json("statistics", "show", id_) == released
        printed = re.sub(r" +", " ", office.cli("statistics", "show", id_))
        page = office.page(f"/ui/statistics/{id_}")
        for table in released["tables"]:
            for row in table["rows"]:
                places = " ".join(row["cells"])
                told = re.search(
                    rf"^{re.escape(places)} ?(not told|\S+) (\S+ to \S+)",
                    printed,
                    re.MULTILINE,
                )
                assert told is not None, (places, printed)
                assert f"{told[1]} {told[2]}" in page, (kind, told[0])
                low, high = (_number(end) for end in told[2].split(" to "))
                assert low <= row["low"] <= row["high"] <= high
                if row["value"] is None:
                    assert told[1] == "not told"
                else:
                    assert low <= _number(told[1]) <= high


def _number(shown: str) -> float:
    return float(shown.replace("−", "-").replace(",", ""))


def test_the_error_of_a_quote(office: Office) -> None:
    """The half width of each number, before it is paid."""
    for kind in ("pure", "zcdp", "gdp", "member"):
        id_, name = office.ids[kind], office.names[kind]
        body = {
            "epsilon": "0.05",
            "tables": [{"statistic": "histogram", "column": "sex"}],
        }
        quoted = office.http.post(f"/datasets/{id_}/statistics/quote", json=body).json()
        width = quoted["tables"][0]["half_width"]
        words = ("histogram", name, "sex", "--epsilon", "0.05", "--quote")
        assert office.cli_json(*words)["tables"] == quoted["tables"]
        told = re.search(r"± (\S+) rows", office.cli(*words))
        asked = {"statistic": "histogram", "column": "sex", "epsilon": "0.05"}
        page = office.page(f"/ui/datasets/{id_}/statistics/new", **asked)
        shown = re.search(r"within ± (\S+) rows", page)
        assert told is not None
        assert shown is not None
        assert told[1] == shown[1]
        assert _number(told[1]) >= width


def test_cap_spent_reserved_and_left_of_a_population(office: Office) -> None:
    population = office.json(f"/populations/{office.population}")
    expected = _numbers(population)
    symbol = _SYMBOLS[expected["unit"]]
    assert _numbers(office.json(f"/ledger/{office.population}")) == expected
    shown = office.cli_json("populations", "show", office.population)
    assert shown == population
    for command in (("populations", "list"), ("ledger", "show", office.population)):
        row = " +".join(re.escape(expected[name]) for name in ("accountant", *AMOUNTS))
        assert re.search(rf"{office.population} +{row}\b", office.cli(*command))
    member = _one(population["members"])
    loads = f"{member['charged']} {symbol} {member['reserved']} {symbol}"
    page = office.page("/ui/populations").partition(population["name"])[2]
    report = office.page(f"/ui/ledger/{office.population}/report")
    for text in (page, report, office.page(f"/ui/datasets/{office.ids['member']}")):
        bars = [bar.groups() for bar in _BAR.finditer(text)]
        _agrees(bars[-1], population)
    assert loads in page
    assert loads in report
    printed = office.cli("populations", "show", office.population)
    assert re.search(
        rf"{member['dataset']} +{re.escape(member['charged'])} +{re.escape(member['reserved'])}\b",
        printed,
    )


def test_what_a_closed_dataset_had_spent(office: Office) -> None:
    id_, name = office.ids["closed"], office.names["closed"]
    account = office.json(f"/datasets/{id_}")["account"]
    assert _numbers(office.json(f"/ledger/{id_}")) == _numbers(account)
    row = " +".join(re.escape(account[name]) for name in ("accountant", *AMOUNTS))
    assert re.search(rf"{id_} .*{row}\b", office.cli("ledger", "show"))
    assert re.search(rf"{id_} +{row}\b", office.cli("datasets", "list", "--name", name))
    erased = office.page("/ui/datasets", name=name).partition(name)[2]
    assert f"{account['charged']} ε" in erased
    for path in (
        f"/ui/datasets/{id_}",
        f"/ui/ledger/{id_}",
        f"/ui/ledger/{id_}/report",
    ):
        bar = _BAR.search(office.page(path))
        assert bar is not None
        _agrees(bar.groups(), account)


def test_the_refusals_of_the_report_are_those_of_the_acts(office: Office) -> None:
    id_ = office.ids["pure"]
    acts = office.json("/audit", dataset=id_, limit="500")["acts"]
    rejected = _one([act for act in acts if act["kind"] == "job-rejected"])
    assert office.cli_json("audit", "list", "--dataset", id_)["acts"] == acts
    number = str(rejected["sequence"])
    report = office.page(f"/ui/ledger/{id_}/report").partition("Annex")[0]
    page = office.page("/ui/acts", dataset=id_)
    assert re.search(rf" {number} .{{16}} .*Rejected the job", report)
    assert f"{rejected['details']['job']}" in report
    assert re.search(rf" {number} .*Rejected the job", page)


@pytest.mark.parametrize("kind", ["pure", "zcdp", "gdp"])
def test_the_odds_of_a_guess(office: Office, kind: str) -> None:
    id_, name = office.ids[kind], office.names[kind]
    odds: dict[str, str] = office.json(f"/ledger/{id_}")["guarantee"]["odds"]
    printed = office.cli("ledger", "show", name)
    pages: list[Callable[[], str]] = [
        lambda: office.page(f"/ui/datasets/{id_}"),
        lambda: office.page(f"/ui/ledger/{id_}"),
        lambda: office.page(f"/ui/ledger/{id_}/report"),
    ]
    for text in (printed, *(page() for page in pages)):
        told = re.findall(r"guesses right (.+?) of the time", text)
        whole = [
            (Decimal(chance) * 100).to_integral_value(ROUND_CEILING)
            for chance in odds.values()
        ]
        assert [re.sub(r"[^0-9]", "", words) for words in told[-len(whole) :]] == [
            str(min(int(chance), 99)) for chance in whole
        ]
