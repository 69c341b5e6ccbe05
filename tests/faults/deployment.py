"""Runs a deployment of several processes, each of which can be killed, stopped,
restarted, disconnected and filled up.

On SQLite, the deployment is ``serve`` and two workers. On PostgreSQL, two API replicas
and two workers, each behind a proxy of its own, and a PostgreSQL server of its own.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeAlias

import httpx
import psutil
from sqlalchemy import make_url

from app.cli.prepare import register_configured_admin
from app.core.settings import Settings
from app.db import migrate
from tests.faults.processes import Role, Start, shift_clock
from tests.faults.proxy import Proxy, proxies
from tests.support.line_process import line_process
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer, restartable_server

LEASE_TTL_S = 3
ADMIN_KEY = "key_admin." + "k" * 43
_READY_WITHIN_S = 120.0

Fork: TypeAlias = Callable[[Start], int]
"""Starts a process and returns its id."""


@dataclass
class Part:
    """An API process or a worker of a deployment.

    Attributes:
        start: how the process is started.
        url: of an API process.
        proxy: between the process and PostgreSQL.
    """

    start: Start
    url: str | None
    proxy: Proxy | None
    process: psutil.Process | None = None

    @property
    def runs(self) -> bool:
        """Whether the process exists."""
        return self.process is not None and self.process.is_running()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal, unless the process has ended."""
        if self.process is not None:
            with suppress(psutil.NoSuchProcess):
                self.process.send_signal(number)

    def kill(self) -> None:
        """Kills the process, and waits for its end."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self) -> None:
        """Waits for the end of the process."""
        if self.process is not None:
            self.process.wait(timeout=_READY_WITHIN_S)

    def limit_file_size(self, n_bytes: int) -> None:
        """Makes every write of the process beyond an offset of its file fail, as on a
        full disk.
        """
        if self.process is not None:
            with suppress(psutil.NoSuchProcess):
                _, hard = self.process.rlimit(psutil.RLIMIT_FSIZE)
                self.process.rlimit(psutil.RLIMIT_FSIZE, (n_bytes, hard))

    def is_ready(self) -> bool:
        """Whether an API process answers that it is ready; a worker is ready while it
        runs.
        """
        if self.url is None:
            return self.runs
        with suppress(httpx.TransportError):
            return (
                httpx.get(f"{self.url}/readyz", timeout=10, trust_env=False).status_code
                == 200
            )
        return False


@dataclass
class Deployment:
    """The processes of one installation.

    Attributes:
        database_url: of the database, without a proxy.
        home: the folder of the installation.
        journal: one line per private read of a job.
        apis: the API processes.
        workers: the workers.
        postgres: the PostgreSQL server, if the installation uses one.
    """

    database_url: str
    home: Path
    journal: Path
    clock: Path
    apis: list[Part]
    workers: list[Part]
    postgres: PostgresServer | None
    _fork: Fork = field(repr=False)

    @property
    def parts(self) -> list[Part]:
        """All processes of the product."""
        return [*self.apis, *self.workers]

    def start(self, part: Part) -> None:
        """Starts the process of a part that does not run."""
        if not part.runs:
            part.process = psutil.Process(self._fork(part.start))

    def shift_clock(self, seconds: float) -> None:
        """Shifts the clocks of all processes of the product."""
        shift_clock(self.clock, seconds)

    def heal(self) -> None:
        """Ends every fault, starts what is missing, and waits until every part is
        ready.
        """
        self.shift_clock(0)
        if self.postgres is not None:
            self.postgres.start()
        for part in self.parts:
            if part.proxy is not None:
                part.proxy.heal()
            part.limit_file_size(psutil.RLIM_INFINITY)
            part.signal(signal.SIGCONT)
        deadline = time.monotonic() + _READY_WITHIN_S
        while not all(part.is_ready() for part in self.parts):
            assert time.monotonic() < deadline, "the deployment does not become ready"
            for part in self.parts:
                self.start(part)
            time.sleep(0.1)

    def stop(self) -> None:
        """Kills every process."""
        for part in self.parts:
            part.kill()


@contextmanager
def forking(errors: Path) -> Iterator[Fork]:
    """Runs the process that starts all processes of deployments."""
    with line_process("tests.faults.processes", errors=errors) as call:
        call(None)  # waits for its imports
        yield lambda start: int(call(asdict(start)))


@contextmanager
def embedded(folder: Path, fork: Fork) -> Iterator[Deployment]:
    """``serve`` and two workers on one SQLite file."""
    url = f"sqlite:///{folder / 'home' / 'grovekeeper.sqlite3'}"
    with ExitStack() as stack:
        yield stack.enter_context(
            _deployed(
                folder,
                fork,
                url=url,
                roles=("serve", "worker", "worker"),
                postgres=None,
            )
        )


@contextmanager
def replicated(folder: Path, fork: Fork) -> Iterator[Deployment]:
    """Two API replicas and two workers on a PostgreSQL server of their own."""
    with ExitStack() as stack:
        postgres = stack.enter_context(restartable_server())
        migrate.upgrade(postgres.url)
        register_configured_admin(
            Settings(
                home=folder / "home", database_url=postgres.url, admin_key=ADMIN_KEY
            )
        )
        roles: tuple[Role, ...] = ("api", "api", "worker", "worker")
        yield stack.enter_context(
            _deployed(folder, fork, url=postgres.url, roles=roles, postgres=postgres)
        )


@contextmanager
def _deployed(
    folder: Path,
    fork: Fork,
    *,
    url: str,
    roles: tuple[Role, ...],
    postgres: PostgresServer | None,
) -> Iterator[Deployment]:
    home, clock, journal = folder / "home", folder / "clock", folder / "journal"
    home.mkdir(mode=0o700)
    journal.touch()
    shift_clock(clock, 0)
    with ExitStack() as stack:
        routes = iter(
            stack.enter_context(proxies(make_url(url).port, len(roles)))
            if postgres
            else ()
        )
        parts = []
        for index, role in enumerate(roles):
            port, proxy = free_port(), next(routes, None)
            environ = {
                "GROVEKEEPER_HOME": str(home),
                "GROVEKEEPER_DATABASE_URL": _through(url, proxy),
                "GROVEKEEPER_ADMIN_KEY": ADMIN_KEY,
                "GROVEKEEPER_WORKERS": "0",
                "GROVEKEEPER_PORT": str(port),
                "GROVEKEEPER_LEASE_TTL_S": str(LEASE_TTL_S),
                "GROVEKEEPER_POLL_INTERVAL_S": "0.5",
            }
            log = folder / f"{role}-{index}.log"
            start = Start(
                role,
                environ,
                log=str(log),
                clock=str(clock),
                journal=str(journal),
                database_url=url,
            )
            parts.append(
                Part(
                    start,
                    None if role == "worker" else f"http://127.0.0.1:{port}",
                    proxy,
                )
            )
        apis, workers = (
            [part for part in parts if part.url],
            [part for part in parts if not part.url],
        )
        deployment = Deployment(
            url, home, journal, clock, apis, workers, postgres, fork
        )
        stack.callback(deployment.stop)
        deployment.heal()
        yield deployment


def _through(url: str, proxy: Proxy | None) -> str:
    """The address of a database behind a proxy."""
    if proxy is None:
        return url
    return make_url(url).set(port=proxy.port).render_as_string(hide_password=False)
