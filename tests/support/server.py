"""Runs a real server on a free loopback port, workers as processes, and clients with
keys.

The server is that of ``grovekeeper serve``, in a thread of the test, so that a test can
lower a limit. A worker is a process, because its children must end with it. The logs of
servers and workers are kept for the tests.
"""

import io
import json
import logging
import os
import secrets
import ssl
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
from sqlalchemy import Select, func, inspect, select

from app.access.tables import KeyRow, is_working
from app.api.main import create_app
from app.api.streams import JobEvents
from app.cli.prepare import opened
from app.cli.serve import ApiThread, bound, worker_secrets
from app.core import limits, stamps
from app.core.logging import JsonFormatter
from app.core.settings import Settings
from app.db.base import Base
from app.db.database import Database
from app.jobs.states import UNFINISHED
from app.jobs.tables import JobRow
from app.services.installation import Installation
from app.services.jobs.show_jobs import Followed, look_at
from app.services.keys import create_admin
from app.wire.jobs import JobOut
from tests.support.forked_program import ForkedProgram, start

_ROOT = Path(__file__).parents[2]
_READY_WITHIN_S = 300
_JOB_WITHIN_S = 600
_ANSWER_WITHIN_S = 300
"""Much longer than needed, because the first job compiles kernels, and other tests run
at the same time.
"""

_NO_AUTHORITY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts nobody. A client that reads the authorities of the machine takes 20 ms of CPU
to make.
"""

_POLL_INTERVAL_S = "1.5"
"""The workers' poll interval. At 0.25 s, an idle worker uses a twentieth of a processor
for as long as its server runs. A test that waits for a job by :meth:`Server.ended`, or
by a stream of its events, does not wait for the interval: it wakes the workers.
"""

_EVENT_INTERVAL_S = 0.1
"""The interval of looks at jobs whose events a test follows."""

_UPKEEP_INTERVAL_S = 5.0
"""The interval of an API's periodic tasks, for which hardly a test waits. At the
product's intervals, an idle API uses twice the CPU, and every test process has up to
four.
"""

_WAKERS: dict[Path, list[int]] = defaultdict(list)
"""The pipes that wake the workers of an installation, by its home."""

SCHEMA: dict[str, Any] = {
    "features": [
        {
            "name": "age",
            "type": "integer",
            "lower": 0,
            "upper": 120,
            "bounds": "natural",
        },
        {
            "name": "height",
            "type": "numeric",
            "lower": 0.5,
            "upper": 2.5,
            "missing": True,
        },
        {
            "name": "sex",
            "type": "categorical",
            "categories": ["Female", "Male"],
            "missing": True,
        },
    ],
    "label": {"name": "income", "classes": ["<=50K", ">50K"]},
}
"""A declaration with every kind of column."""


@dataclass(frozen=True)
class Caller:
    """A caller with an access key; ``http`` sends the key."""

    id: str
    key: str
    http: httpx.Client


@dataclass
class Server:
    """A running installation, with an admin and access to its database and log."""

    url: str
    settings: Settings
    database: Database
    admin: Caller
    n_workers: int
    _log: io.StringIO = field(repr=False)
    _open: ExitStack = field(repr=False)

    def client(self, key: str | None) -> httpx.Client:
        """A client that sends a key, if any."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        client = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=_ANSWER_WITHIN_S,
            trust_env=False,
            verify=_NO_AUTHORITY,
        )
        return self._open.enter_context(client)

    def caller(self, *roles: str) -> Caller:
        """Creates a key with global roles."""
        answer = self.admin.http.post(
            "/keys", json={"name": "test", "roles": list(roles)}
        )
        assert answer.status_code == 201, answer.text
        return Caller(
            answer.json()["id"], answer.json()["key"], self.client(answer.json()["key"])
        )

    def granted(self, dataset: str, role: str) -> Caller:
        """Creates a key whose only role is a grant on a dataset."""
        caller = self.caller()
        answer = self.admin.http.put(
            f"/datasets/{dataset}/grants/{caller.id}", json={"role": role}
        )
        assert answer.status_code == 200, answer.text
        return caller

    def declared(self, **changes: object) -> dict[str, Any]:
        """Declares a dataset with a new name, as the admin."""
        answer = self.admin.http.post("/datasets", json=declaration(**changes))
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def uploaded(self, n_rows: int = 200, **changes: object) -> dict[str, Any]:
        """Declares a dataset and uploads rows."""
        dataset = self.declared(**changes)
        answer = self.admin.http.post(
            f"/datasets/{dataset['id']}/rows", content=csv_rows(n_rows), headers=CSV
        )
        assert answer.status_code == 201, answer.text
        return dataset

    def submitted(self, dataset: str, **changes: object) -> httpx.Response:
        """The answer to a training request with a new idempotency key."""
        return self.admin.http.post(
            "/train", json=training(dataset, **changes), headers=new_idempotency_key()
        )

    def ended(self, job_id: str) -> dict[str, Any]:
        """Waits until a job has ended, and returns the job."""
        self._wait_for_the_workers(
            select(JobRow.id).where(JobRow.state.in_(UNFINISHED), JobRow.id == job_id)
        )
        return dict(self.admin.http.get(f"/jobs/{job_id}").json())

    def trained(self, dataset: str, **changes: object) -> dict[str, Any]:
        """Trains a model and returns the job, which must succeed."""
        answer = self.submitted(dataset, **changes)
        assert answer.status_code == 202, answer.text
        job = self.ended(answer.json()["job_id"])
        assert job["state"] == "succeeded", job
        return job

    def cancel_what_waits(self) -> None:
        """Cancels all unfinished jobs, so that the worker of a later test finds only
        that test's jobs.
        """
        with self.database.read() as session:
            waiting = (
                session.execute(select(JobRow.id).where(JobRow.state.in_(UNFINISHED)))
                .scalars()
                .all()
            )
        for job_id in waiting:
            answer = self.admin.http.delete(f"/jobs/{job_id}")
            assert answer.status_code == 200, answer.text

    def log(self) -> str:
        """The server's log so far, at every level."""
        return self._log.getvalue()

    def sizes_of_spools(self) -> list[int]:
        """Sizes of the files in the home that this process, which serves, has open and
        that have no name.
        """
        home, sizes = self.settings.home.resolve(), []
        for link in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                target = link.readlink()
                if target.is_relative_to(home) and target.name.endswith(" (deleted)"):
                    sizes.append(link.stat().st_size)
        return sizes

    def footprint(self) -> dict[str, object]:
        """The stored state after all jobs have ended: rows per table, hashes of chains,
        and files.
        """
        # Jobs of earlier tests also change the stored state.
        changing = select(JobRow.id).where(JobRow.state.in_(UNFINISHED))
        if not self.n_workers:
            # without workers, only those that the upkeep ends with their key
            ended = select(KeyRow.id).where(~is_working(stamps.now()))
            changing = changing.where(
                JobRow.submitted_by.in_(ended), JobRow.charged_at.is_(None)
            )
        self._wait_for_the_workers(changing)
        accounts = Base.metadata.tables["accounts"]
        with self.database.read() as session:
            counts: dict[str, object] = dict(
                session.execute(self._counts).one()._mapping
            )
            heads = select(accounts.c.id, accounts.c.last_hash).order_by(accounts.c.id)
            counts["heads"] = [tuple(row) for row in session.execute(heads)]
        home = self.settings.home
        paths = (
            path
            for folder in ("rows", "artifacts")
            for path in (home / folder).rglob("*")
        )
        counts["files"] = sorted(
            str(path.relative_to(home)) for path in paths if path.is_file()
        )
        return counts

    @cached_property
    def _counts(self) -> Select[Any]:
        """A query for rows per table, in one statement because tests run it after every
        request.
        """
        present = set(inspect(self.database.engine).get_table_names())
        counted = present - {"workers"}  # which come and go
        tables = {
            name: table
            for name, table in Base.metadata.tables.items()
            if name in counted
        }
        counts = [
            select(func.count()).select_from(table).scalar_subquery()
            for table in tables.values()
        ]
        return select(
            *(count.label(name) for name, count in zip(tables, counts, strict=True))
        )

    def _wait_for_the_workers(self, unfinished: Select[Any]) -> None:
        """Waits until a query for unfinished jobs returns none.

        The query goes to the database, because frequent requests to the API would slow
        down the job.
        """
        wake_workers(self.settings)
        deadline = time.monotonic() + _JOB_WITHIN_S
        while time.monotonic() < deadline:
            with self.database.read() as session:
                if session.execute(unfinished.limit(1)).first() is None:
                    return
            time.sleep(0.1)
        raise TimeoutError("a job does not end")


CSV = {"Content-Type": "text/csv"}


def declaration(**changes: object) -> dict[str, Any]:
    """A valid declaration with a new name."""
    return {
        "name": f"people-{secrets.token_hex(6)}",
        "schema": deepcopy(SCHEMA),
        "budget": {"accountant": "pure", "epsilon": "100"},
        "public_size": 200,
    } | changes


def training(dataset: str, **changes: object) -> dict[str, Any]:
    """A small, valid training request."""
    return {
        "dataset": dataset,
        "algorithm": "rdt-ta",
        "epsilon": "1",
        "parameters": {"n_estimators": 2, "max_depth": 2},
    } | changes


def csv_rows(n_rows: int) -> str:
    """An upload for :data:`SCHEMA` in which age determines income."""
    rows = (
        f"{age},{1 + age / 120},{('Female', 'Male')[age % 2]},{('<=50K', '>50K')[age > 50]}"
        for age in _ages(n_rows)
    )
    return "\n".join(("age,height,sex,income", *rows, ""))


def _ages(n_rows: int) -> Iterator[int]:
    return (index * 37 % 100 for index in range(n_rows))


def new_idempotency_key() -> dict[str, str]:
    """Headers with a new idempotency key."""
    return {"Idempotency-Key": secrets.token_hex(8)}


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    """The data of all server-sent events of a complete answer."""
    return [
        json.loads(line.removeprefix("data: "))
        for line in response.text.splitlines()
        if line.startswith("data:")
    ]


@contextmanager
def running_server(
    database_url: str, home: Path, *, n_workers: int, path_prefix: str | None = None
) -> Iterator[Server]:
    """Runs a server and its workers on a migrated database, and stops them at the end."""
    settings = Settings(
        home=home, database_url=database_url, log_level="DEBUG", path_prefix=path_prefix
    )
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as stack:
        with opened(settings) as database:
            admin_key = create_admin(database, "test admin")
        log = stack.enter_context(_captured_log())
        listener = stack.enter_context(bound("127.0.0.1", 0))
        app = create_app(settings)
        app.state.job_events = JobEvents(
            app.state.capacities, partial(_look_at, settings), _EVENT_INTERVAL_S
        )
        stack.callback(app.state.installation.close)
        with (
            patch.object(limits, "WEBHOOK_INTERVAL_S", _UPKEEP_INTERVAL_S),
            patch.object(limits, "SWEEP_INTERVAL_S", _UPKEEP_INTERVAL_S),
        ):
            api = ApiThread(app, listener)
        stack.callback(api.join)
        stack.callback(api.begin_stop)
        api.start()
        for index in range(n_workers):
            stack.enter_context(
                worker(settings, log=home.with_name(f"{home.name}-worker-{index}.log"))
            )
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        admin_http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {admin_key.text}"},
            timeout=_ANSWER_WITHIN_S,
            trust_env=False,
        )
        admin = Caller(admin_key.id, admin_key.text, stack.enter_context(admin_http))
        clients = stack.enter_context(ExitStack())
        server = Server(
            url,
            settings,
            app.state.installation.database,
            admin,
            n_workers,
            log,
            clients,
        )
        _wait_until_ready(server)
        yield server


@contextmanager
def worker(
    settings: Settings, *, log: Path, module: str = "tests.support.forking_worker"
) -> Iterator[ForkedProgram]:
    """Runs a worker process whose jobs are forks; the worker and its child are killed
    at the end.

    A worker also ends when this process is killed, because its standard input closes.

    Args:
        settings: of the installation.
        log: the file of the worker's output.
        module: starts the worker, which a byte on descriptor 3 wakes;
            :mod:`tests.support.fixed_releases_worker` draws releases that no row
            influences.
    """
    woken, waker = os.pipe()
    try:
        process = start(
            module,
            folder=_ROOT,
            environ=_worker_environment(settings),
            log=log,
            descriptor=woken,
        )
    finally:
        os.close(woken)
    process.stdin.write(json.dumps(worker_secrets(settings)).encode() + b"\n")
    _WAKERS[settings.home].append(waker)
    try:
        yield process
    finally:
        _WAKERS[settings.home].remove(waker)
        os.close(waker)
        process.end()


def wake_workers(settings: Settings) -> None:
    """Makes the idle workers of an installation look for a job now."""
    for waker in _WAKERS[settings.home]:
        with suppress(BrokenPipeError):  # a test ended the worker
            os.write(waker, b"\n")


def _look_at(
    settings: Settings, installation: Installation, followed: Sequence[Followed]
) -> Mapping[Followed, JobOut]:
    wake_workers(settings)
    return look_at(installation, followed)


def _worker_environment(settings: Settings) -> Mapping[str, str]:
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GROVEKEEPER_")
    }
    return environ | {
        "GROVEKEEPER_HOME": str(settings.home),
        "GROVEKEEPER_POLL_INTERVAL_S": _POLL_INTERVAL_S,
        "GROVEKEEPER_LOG_LEVEL": settings.log_level,
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
    """Captures the log of this process, as the product's formatter writes it."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    level = root.level
    # the tests' clients are in the same process
    for name in ("httpx", "httpcore", "urllib3"):
        logging.getLogger(name).setLevel("WARNING")
    root.addHandler(handler)
    root.setLevel("DEBUG")
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
