"""A real server on a free port of the loopback, workers as processes of their own, and callers with keys.

The server is the one that ``grovekeeper serve`` runs, in a thread of the test, so that a test may lower a public limit;
a worker is a process, because it starts children that die with it. What a server or a worker says goes to a file.
"""

import io
import json
import logging
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import Select, func, inspect, select

from app.api.main import create_app
from app.cli.prepare import opened
from app.cli.serve import ApiThread, bound
from app.cli.worker_pool import WORKER_COMMAND
from app.core.logging import JsonFormatter
from app.core.settings import Settings
from app.db.base import Base
from app.db.unit_of_work import Database
from app.jobs.states import UNFINISHED
from app.jobs.tables import JobRow
from app.services.keys import create_admin

_READY_WITHIN_S = 300
_JOB_WITHIN_S = 600
_ANSWER_WITHIN_S = 300
"""Far more than any of them takes: the first of a kind compiles kernels, and other tests run beside it."""

SCHEMA: dict[str, Any] = {
    "features": [
        {"name": "age", "type": "integer", "lower": 0, "upper": 120, "bounds": "natural"},
        {"name": "height", "type": "numeric", "lower": 0.5, "upper": 2.5, "missing": True},
        {"name": "sex", "type": "categorical", "categories": ["Female", "Male"], "missing": True},
    ],
    "label": {"name": "income", "classes": ["<=50K", ">50K"]},
}
"""A declaration with every kind of column."""


@dataclass(frozen=True)
class Caller:
    """Somebody with a key: ``http`` sends it."""

    id: str
    key: str
    http: httpx.Client


@dataclass
class Server:
    """A running installation and what a test needs to look at it from outside."""

    url: str
    settings: Settings
    database: Database
    admin: Caller
    n_workers: int
    _log: io.StringIO = field(repr=False)
    _open: ExitStack = field(repr=False)

    def client(self, key: str | None) -> httpx.Client:
        """A client that sends this key, or none."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        client = httpx.Client(base_url=self.url, headers=headers, timeout=_ANSWER_WITHIN_S, trust_env=False)
        return self._open.enter_context(client)

    def caller(self, *roles: str) -> Caller:
        """A new key with these global roles."""
        made = self.admin.http.post("/keys", json={"name": "test", "roles": list(roles)})
        assert made.status_code == 201, made.text
        return Caller(made.json()["id"], made.json()["key"], self.client(made.json()["key"]))

    def granted(self, dataset: str, role: str) -> Caller:
        """A new key with one grant and nothing else."""
        caller = self.caller()
        answer = self.admin.http.put(f"/datasets/{dataset}/grants/{caller.id}", json={"role": role})
        assert answer.status_code == 200, answer.text
        return caller

    def declared(self, **changes: object) -> dict[str, Any]:
        """A new dataset of its own name, declared by the admin."""
        answer = self.admin.http.post("/datasets", json=declaration(**changes))
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def uploaded(self, n_rows: int = 200, **changes: object) -> dict[str, Any]:
        """A new dataset with rows."""
        dataset = self.declared(**changes)
        answer = self.admin.http.post(f"/datasets/{dataset['id']}/rows", content=csv_rows(n_rows), headers=CSV)
        assert answer.status_code == 201, answer.text
        return dataset

    def submitted(self, dataset: str, **changes: object) -> httpx.Response:
        """The answer to a training request with a key of its own."""
        return self.admin.http.post("/train", json=training(dataset, **changes), headers=new_idempotency_key())

    def ended(self, job_id: str) -> dict[str, Any]:
        """The job, once it has ended."""
        deadline = time.monotonic() + _JOB_WITHIN_S
        while time.monotonic() < deadline:
            job: dict[str, Any] = self.admin.http.get(f"/jobs/{job_id}").json()
            if job["state"] not in ("queued", "running"):
                return job
            time.sleep(0.05)
        raise TimeoutError(f"the job is {job['state']}")

    def trained(self, dataset: str, **changes: object) -> dict[str, Any]:
        """A job that succeeded."""
        answer = self.submitted(dataset, **changes)
        assert answer.status_code == 202, answer.text
        job = self.ended(answer.json()["job_id"])
        assert job["state"] == "succeeded", job
        return job

    def cancel_what_waits(self) -> None:
        """So that a worker of a later test finds that test's jobs alone."""
        with self.database.read() as session:
            waiting = session.execute(select(JobRow.id).where(JobRow.state.in_(UNFINISHED))).scalars().all()
        for job_id in waiting:
            answer = self.admin.http.delete(f"/jobs/{job_id}")
            assert answer.status_code == 200, answer.text

    def log(self) -> str:
        """Everything that the server logged so far, at every level."""
        return self._log.getvalue()

    def footprint(self) -> dict[str, object]:
        """What is stored, once the workers have nothing left to do.

        Returns:
            Rows per table, sums of balances, heads of chains, files of rows, models and uploads.
        """
        if self.n_workers:
            self._wait_for_the_workers()
        accounts = Base.metadata.tables["accounts"]
        with self.database.read() as session:
            counts: dict[str, object] = dict(session.execute(self._counts).one()._mapping)
            heads = select(accounts.c.id, accounts.c.last_hash).order_by(accounts.c.id)
            counts["heads"] = [tuple(row) for row in session.execute(heads)]
        home = self.settings.home
        kept = (path for folder in ("rows", "artifacts", "spool") for path in (home / folder).rglob("*"))
        counts["files"] = sorted(str(path.relative_to(home)) for path in kept if path.is_file())
        return counts

    @cached_property
    def _counts(self) -> Select[Any]:
        """Rows per table and sums of balances in one statement, because tests ask for them after every request."""
        present = set(inspect(self.database.engine).get_table_names())
        tables = {name: table for name, table in Base.metadata.tables.items() if name in present}
        cells = tables["account_boxes"].c
        sums = [select(func.sum(each)).scalar_subquery().label(each.name) for each in (cells.charged, cells.reserved)]
        counts = [select(func.count()).select_from(table).scalar_subquery() for table in tables.values()]
        return select(*(count.label(name) for name, count in zip(tables, counts, strict=True)), *sums)

    def _wait_for_the_workers(self) -> None:
        """Jobs of earlier tests end in their own time, and would look like a trace of a later request."""
        deadline = time.monotonic() + _JOB_WITHIN_S
        unfinished = select(JobRow.id).where(JobRow.state.in_(UNFINISHED)).limit(1)
        while time.monotonic() < deadline:
            with self.database.read() as session:
                if session.execute(unfinished).first() is None:
                    return
            time.sleep(0.05)
        raise TimeoutError("a job does not end")


CSV = {"Content-Type": "text/csv"}


def declaration(**changes: object) -> dict[str, Any]:
    """A legal declaration with a name that nobody has yet."""
    return {
        "name": f"people-{secrets.token_hex(6)}",
        "schema": SCHEMA,
        "budget": {"accountant": "pure", "epsilon": "100"},
        "public_size": 200,
    } | changes


def training(dataset: str, **changes: object) -> dict[str, Any]:
    """A small legal training request."""
    return {
        "dataset": dataset,
        "algorithm": "rdt-ta",
        "epsilon": "1",
        "parameters": {"n_estimators": 2, "max_depth": 2},
    } | changes


def csv_rows(n_rows: int) -> str:
    """An upload for :data:`SCHEMA` in which age decides income."""
    rows = (
        f"{age},{1 + age / 120},{('Female', 'Male')[age % 2]},{('<=50K', '>50K')[age > 50]}" for age in _ages(n_rows)
    )
    return "\n".join(("age,height,sex,income", *rows, ""))


def _ages(n_rows: int) -> Iterator[int]:
    return (index * 37 % 100 for index in range(n_rows))


def new_idempotency_key() -> dict[str, str]:
    """A header that no request had before."""
    return {"Idempotency-Key": secrets.token_hex(8)}


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    """The data of all server-sent events of an answer that has ended."""
    return [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line.startswith("data:")]


@contextmanager
def running_server(database_url: str, home: Path, *, n_workers: int) -> Iterator[Server]:
    """A server and its workers on a migrated database; all of them are gone afterwards."""
    settings = Settings(home=home, database_url=database_url)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as stack:
        with opened(settings) as database:
            made = create_admin(database, "test admin")
        log = stack.enter_context(_captured_log())
        listener = stack.enter_context(bound("127.0.0.1", 0))
        app = create_app(settings)
        stack.callback(app.state.installation.close)
        api = ApiThread(app, listener)
        stack.callback(api.join)
        stack.callback(api.begin_stop)
        api.start()
        for index in range(n_workers):
            stack.enter_context(worker(settings, log=home.with_name(f"{home.name}-worker-{index}.log")))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        admin_http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {made.text}"}, timeout=_ANSWER_WITHIN_S, trust_env=False
        )
        admin = Caller(made.id, made.text, stack.enter_context(admin_http))
        clients = stack.enter_context(ExitStack())
        server = Server(url, settings, app.state.installation.database, admin, n_workers, log, clients)
        _wait_until_ready(server)
        yield server


@contextmanager
def worker(settings: Settings, *, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """One worker process of an installation, as ``serve`` starts it; it and its child are killed at the end.

    It also ends when this process is killed, because its standard input closes.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            WORKER_COMMAND,
            env=dict(_worker_environment(settings)),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _worker_environment(settings: Settings) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GROVEKEEPER_")}
    return kept | {
        "GROVEKEEPER_HOME": str(settings.home),
        "GROVEKEEPER_DATABASE_URL": settings.database_url,
        "GROVEKEEPER_POLL_INTERVAL_S": "0.05",
    }


def _wait_until_ready(server: Server) -> None:
    deadline = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < deadline:
        try:
            if server.admin.http.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.02)
    raise TimeoutError("the server did not become ready")


@contextmanager
def _captured_log() -> Iterator[io.StringIO]:
    """Everything that this process logs, as the product's own formatter writes it."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    before = root.level
    for name in ("httpx", "httpcore"):  # the client of the tests lives in the same process
        logging.getLogger(name).setLevel("WARNING")
    root.addHandler(handler)
    root.setLevel("DEBUG")
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
