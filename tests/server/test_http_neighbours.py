"""For datasets that differ in one row or one unit, everybody but their owner gets the
same bytes over HTTP.

The worker's releases do not depend on rows, so releases are compared, too. Ids, times,
hashes and signatures are replaced by their kind and their order of appearance; their
lengths stay in the length of the answer.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.core.preconditions import etag_of
from app.datasets import row_files
from app.jobs.tables import JobRow
from app.ledger.rules import HeldBy
from app.services.jobs import show_jobs
from tests.support.databases import on_one_server
from tests.support.neighbours import (
    ALGORITHMS,
    BUDGETS,
    DECLARATION,
    HEADER,
    NEIGHBOURS,
    ROWS,
    UNIT,
    UNIT_HEADER,
    UNIT_NEIGHBOURS,
    UNIT_ROWS,
)  # fmt: skip
from tests.support.server import (
    CSV,
    Caller,
    Server,
    declaration,
    events_of,
    new_idempotency_key,
    worker,
)
from tests.support.set_limits import SetLimit

_VARIES = re.compile(
    rb"(?P<id>\b(?:ds|ep|rs|jb|md|pf|ev|key|pop)_[a-z2-7]{16})"
    rb"|(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)"
    rb"|(?P<hash>[0-9a-f]{64})|(?P<base64>[A-Za-z0-9+/]{43,}={0,2})|(?P<name>people-[0-9a-f]{12})"
)
_NOT_COMPARED = {"date", "x-request-id"}


@pytest.fixture(scope="module")
def server(
    idle_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server whose worker draws releases that no row influences."""
    log = tmp_path_factory.mktemp("worker") / "worker.log"
    with worker(
        idle_server.settings, log=log, module="tests.support.fixed_releases_worker"
    ):
        yield idle_server


@pytest.fixture(autouse=True)
def _no_old_facts(set_limit: SetLimit) -> None:
    set_limit("METRICS_AGE_S", 0)


@dataclass
class World:
    """One dataset, and all answers to everybody but its owner."""

    server: Server
    dataset: str
    owner: Caller
    left: list[tuple[str, int, dict[str, bytes], bytes]] = field(default_factory=list)
    _order: dict[bytes, bytes] = field(default_factory=dict)
    _measured: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.people = {
            role: self.server.granted(self.dataset, role)
            for role in ("analyst", "predictor", "auditor")
        }
        for caller in (self.owner, *self.people.values()):
            self._same(caller.id.encode())
        self._measured = _metrics(self.server)

    def ask(
        self, role: str, method: str, path: str, *expected: int, **body: Any
    ) -> Any:
        """Sends a request and records the answer without what varies between two equal
        datasets.
        """
        headers = _PLAIN | (new_idempotency_key() if method == "POST" else {})
        answer = self.people[role].http.request(
            method, path, json=body or None, headers=headers
        )
        assert answer.status_code in (expected or (200, 202)), (path, answer.text)
        kept = {
            name: self._same(value.encode())
            for name, value in answer.headers.items()
            if name not in _NOT_COMPARED
        }
        if "etag" in kept:
            kept["etag"] = _state_of_tag(answer).encode()
        named = f"{role}: {method} {self._same(path.encode()).decode()}"
        self.left.append((named, answer.status_code, kept, self._same(answer.content)))
        return (
            answer.json() if "/json" in answer.headers.get("content-type", "") else None
        )

    def upload(self, body: str) -> None:
        """Uploads rows as the owner, whose report is not recorded."""
        answer = self.owner.http.post(
            f"/datasets/{self.dataset}/rows?again=true&accept_unknown=true&accept_empty=true",
            content=body,
            headers=CSV,
        )
        assert answer.status_code == 201, answer.text

    def ended(self, accepted: dict[str, Any]) -> dict[str, Any]:
        """Follows a job to its end. The times of its steps, and so the number of
        events, are not compared.
        """
        path = f"/jobs/{accepted['job_id']}"
        last = events_of(self.people["analyst"].http.get(f"{path}/events"))[-1]
        shown: dict[str, Any] = self.ask("analyst", "GET", path)
        assert (shown, shown["state"]) == (last, "succeeded")
        return shown

    def measured(self) -> None:
        """Records how the metrics changed since the last call. Writers of heads,
        workers and waits have times of their own.
        """
        changes = _metrics(self.server)
        changes.subtract(self._measured)
        self._measured.update(changes)
        compared = sorted(
            f"{name} {change}"
            for name, change in changes.items()
            if change and not any(map(name.__contains__, _TIMES))
        )
        self.left.append(("metrics", 200, {}, "\n".join(compared).encode()))

    def _same(self, content: bytes) -> bytes:
        def kind(match: re.Match[bytes]) -> bytes:
            value = match.group()
            number = len(self._order)
            return self._order.setdefault(
                value, f"<{match.lastgroup} {number} of {len(value)}>".encode()
            )

        return _VARIES.sub(kind, content)


_PLAIN = {"Accept-Encoding": "identity"}
"""Ids and signatures differ between two runs, and so do sizes of what is compressed."""
_TIMES = (
    "heads",
    "longest_wait_seconds",
    "grovekeeper_workers",
    "duration_seconds_sum",
    "duration_seconds_bucket",
)


def _metrics(server: Server) -> Counter[str]:
    """Every sample of the metrics of an installation, by name and labels."""
    families = text_string_to_metric_families(server.admin.http.get("/metrics").text)
    samples = [sample for family in families for sample in family.samples]
    return Counter(
        {
            f"{sample.name} {sorted(sample.labels.items())}": int(sample.value)
            for sample in samples
        }
    )


def _world(server: Server, accountant: str, **declared: object) -> World:
    """A declared dataset without rows."""
    changes = {name: value for name, value in DECLARATION.items() if name != "name"}
    owner = server.caller("owner")
    sent = declaration(
        **changes, budget=BUDGETS[accountant], public_size=40, **declared
    )
    return World(
        server, str(owner.http.post("/datasets", json=sent).json()["id"]), owner
    )


def _walk(server: Server, rows: str, *, accountant: str, **declared: object) -> World:
    """Uploads rows and makes every request that somebody other than the owner can make."""
    world = _world(server, accountant, **declared)
    dataset = world.dataset
    world.ask("analyst", "POST", "/train", 409, **_training(dataset, accountant))
    world.ask("predictor", "GET", f"/datasets/{dataset}")
    world.upload(rows)
    world.upload(rows)
    _spend(world, accountant)
    world.measured()
    assert world.owner.http.delete(f"/datasets/{dataset}").status_code == 204
    world.ask("analyst", "POST", "/train", 409, **_training(dataset, accountant))
    _read(
        world,
        f"/datasets/{dataset}",
        f"/ledger/{dataset}",
        f"/ledger/{dataset}/export",
        "/datasets",
        "/ledger",
    )
    world.measured()
    return world


def _amount(accountant: str, epsilon: str = "1") -> dict[str, str]:
    return {"epsilon": epsilon} | (
        {} if accountant == "pure" else {"delta": "0.000001"}
    )


def _training(dataset: str, accountant: str, epsilon: str = "1") -> dict[str, Any]:
    fixed = {"scope": {"shard": [0]}, "parameters": {"n_estimators": 4, "max_depth": 3}}
    return {
        "dataset": dataset,
        "algorithm": ALGORITHMS[accountant],
        **fixed,
        **_amount(accountant, epsilon),
    }


def _spend(world: World, accountant: str) -> None:
    """Quotes, jobs of every kind, refusals and predictions, and everything that shows
    them.
    """
    dataset, amount = world.dataset, _amount(accountant)
    world.ask("analyst", "POST", f"/datasets/{dataset}/profiles/quote", **amount)
    profile = world.ended(
        world.ask("analyst", "POST", f"/datasets/{dataset}/profiles", **amount)
    )["profile_id"]
    training = _training(dataset, accountant) | {"profile": profile}
    world.ask("analyst", "POST", "/plans", **training)
    model = world.ended(world.ask("analyst", "POST", "/train", **training))["model_id"]
    evaluated = {
        "scope": {"shard": [1]},
        "metrics": ["accuracy", "auroc", "confusion"],
        **amount,
    }
    world.ask("analyst", "POST", f"/models/{model}/evaluations/quote", **evaluated)
    evaluation = world.ended(
        world.ask("analyst", "POST", f"/models/{model}/evaluations", **evaluated)
    )
    world.ask("analyst", "POST", "/train", 409, **_training(dataset, accountant, "100"))
    world.ask("analyst", "POST", "/plans", **_training(dataset, accountant, "100"))
    world.ask("analyst", "POST", "/train", 422, **training, another=1)
    world.ask("analyst", "DELETE", f"/jobs/{evaluation['id']}", 409)
    world.ask(
        "predictor",
        "POST",
        f"/models/{model}/predict",
        rows=[{"age": 30, "colour": "red"}],
    )
    world.ask(
        "predictor", "POST", f"/models/{model}/predict", 422, rows=[{"age": "old"}]
    )
    _read(
        world, f"/datasets/{dataset}", f"/datasets/{dataset}/profiles",
        f"/datasets/{dataset}/overlaps", f"/profiles/{profile}", f"/models/{model}", f"/models/{model}/artifact",
        f"/models/{model}/artifact?format=onnx", f"/models/{model}/evaluations",
        f"/evaluations/{evaluation['evaluation_id']}", f"/ledger/{dataset}", f'/ledger/{dataset}?scope={{"shard":[1]}}',
        f"/ledger/{dataset}/entries", f"/ledger/{dataset}/export", f"/ledger/{dataset}/export?format=csv",
        f"/ledger/{dataset}/checkpoint", f"/ledger/{dataset}/deployment", f"/ledger/{dataset}/proofs?sequence=2",
        "/datasets", "/jobs", "/models",
        "/ledger", "/audit", "/metrics",
    )  # fmt: skip


def _state_of_tag(answer: httpx.Response) -> str:
    """The state that a tag names; what follows its dash tells what the answer shows,
    where ids and times differ, and nothing else.
    """
    state, dash, rest = answer.headers["etag"].strip('"').partition("-")
    if dash:
        shown = answer.json()
        of_dataset = {name: shown[name] for name in shown if name != "schema"}
        of_rules = [quota["spent"] for quota in shown.get("quotas", [])]
        assert rest in (etag_of(of_dataset), etag_of(of_rules))
    return str(state)


def _read(world: World, *paths: str) -> None:
    for role in world.people:
        for path in paths:
            world.ask(role, "GET", path, 200, 403, 404)


def _differences(one: World, other: World) -> list[str]:
    assert len(one.left) == len(other.left)
    return [
        mine[0]
        for mine, theirs in zip(one.left, other.left, strict=True)
        if mine != theirs
    ]


OF_ROWS = {name: HEADER + rows for name, rows in NEIGHBOURS.items()}
OF_UNITS = {name: UNIT_HEADER + rows for name, rows in UNIT_NEIGHBOURS.items()}


@on_one_server
def test_a_neighbouring_dataset_gives_the_same_answers(server: Server) -> None:
    """With a row more on SQLite, and with a unit more on PostgreSQL."""
    if server.database.dialect == "sqlite":
        _assert_same_answers_of_rows(server, "a row more")
    else:
        _assert_same_answers_of_units(server, "a unit more")


@pytest.mark.long
def test_neighbouring_datasets_give_the_same_answers(server: Server) -> None:
    _assert_same_answers_of_rows(server, *OF_ROWS)
    _assert_same_answers_of_units(server, *OF_UNITS)


def _assert_same_answers_of_rows(server: Server, *names: str) -> None:
    whole = _walk(server, HEADER + ROWS, accountant="pure")
    assert len(whole.left) > 80
    for name in names:
        assert (
            _differences(whole, _walk(server, OF_ROWS[name], accountant="pure")) == []
        ), name


def _assert_same_answers_of_units(server: Server, *names: str) -> None:
    whole = _walk(server, UNIT_HEADER + UNIT_ROWS, accountant="gdp", privacy_unit=UNIT)
    assert len(whole.left) > 80
    for name in names:
        other = _walk(server, OF_UNITS[name], accountant="gdp", privacy_unit=UNIT)
        assert _differences(whole, other) == [], name


@on_one_server
def test_one_request_more_is_found_in_the_metrics(server: Server) -> None:
    worlds = [_world(server, "pure") for _ in range(2)]
    for world, n_requests in zip(worlds, (1, 2), strict=True):
        for _ in range(n_requests):
            world.upload(HEADER)
        world.measured()
    assert _differences(*worlds) == ["metrics"]


@on_one_server
def test_a_size_that_reaches_the_answers_is_found(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: a job is shown with the size of its rows."""
    honest = show_jobs.job_facts

    def with_size(row: JobRow, holds: Mapping[str, HeldBy]) -> dict[str, Any]:
        folder = server.settings.home / row_files.ROWS_FOLDER / row.dataset_id
        sizes = sum(file.stat().st_size for file in folder.glob("*.parquet"))
        return {**honest(row, holds), "name": str(sizes)}

    monkeypatch.setattr(show_jobs, "job_facts", with_size)
    worlds = [_world(server, "pure") for _ in range(2)]
    for world, rows in zip(worlds, (HEADER + ROWS, HEADER), strict=True):
        world.upload(rows)
        world.ended(
            world.ask("analyst", "POST", "/train", **_training(world.dataset, "pure"))
        )
        world.ask("analyst", "GET", "/jobs")
    assert [name.partition("/jobs")[1] for name in _differences(*worlds)] == [
        "/jobs",
        "/jobs",
    ]
