"""Serves the API in this process and runs workers in other processes, until signals end
all of them.

At the first signal the workers finish their jobs while the API still answers; then
everything ends. The second signal ends everything at once. The main thread starts
processes, restarts dead ones and waits for signals. The API runs in another thread, so
that the signal handlers of its server are not installed.
"""

import http.client
import json
import logging
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import uvicorn

from app.api.http_protocol import BoundedHttp
from app.api.main import create_app
from app.api.middleware import Application
from app.cli.prepare import prepare
from app.cli.worker_pool import WorkerPool
from app.core import limits
from app.core.errors import InstallationError, Unavailable
from app.core.logging import configure
from app.core.memory import (
    ONE_BLAS_THREAD,
    forbid_core_dumps,
    share_arenas,
    without_collection,
)
from app.core.processes import Periodic, Stop, stop_signals
from app.core.settings import PREFIX, SETTINGS, Settings
from app.services.datasets.erase import erase_due
from app.services.execution.sweep import settle_overdue
from app.services.installation import Installation, require_writable
from app.services.keys import record_uses
from app.services.ledger.heads import Heads, HeadWriter
from app.services.predict import prepare_newest
from app.services.webhooks import deliver_due
from grovekeeper_forests import code_cache

READY_WITHIN_S = 60.0
API_GRACE_S = 4
WORKER_GRACE_S = 5.0
_TICK_S = 0.1
_TELL_AFTER_S = 1.0
"""Idle workers have ended after this time."""
_log = logging.getLogger(__name__)


class ApiThread:
    """Threads: uvicorn on a bound socket, the writer of heads, comparisons of balances,
    and erasures that are due.
    """

    def __init__(self, application: Application, listener: socket.socket) -> None:
        self._server = uvicorn.Server(server_config(application))
        self._heads = HeadWriter(application.state.heads)
        self._installation: Installation = application.state.installation
        self._upkeep = upkeep(self._installation, application.state.heads)
        self._gone_at = 0.0
        self._thread = threading.Thread(
            target=self._server.run, args=([listener],), name="api", daemon=True
        )

    @property
    def lives(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Starts the threads."""
        self._thread.start()
        self._heads.start()
        for task in self._upkeep:
            task.start()

    def begin_stop(self) -> None:
        """Accepts no new requests; running requests have :data:`API_GRACE_S` seconds."""
        self._server.should_exit = True
        self._gone_at = time.monotonic() + API_GRACE_S + 2

    def join(self) -> None:
        """Waits for the end of the threads, but not for a request that does not end."""
        self._thread.join(timeout=max(self._gone_at - time.monotonic(), 0))
        for task in self._upkeep:
            task.stop()
        self._heads.stop()


def server_config(application: Application) -> uvicorn.Config:
    """The options of the HTTP server."""
    # A thread that computes gives way ten times as often as usual, because a request
    # changes threads several times.
    sys.setswitchinterval(0.0005)
    # The library declares a class, and calls it.
    layer = application.every_request
    protocol: Any = partial(BoundedHttp, at_once=layer.at_once, key_of=layer.key_of)
    return uvicorn.Config(
        application,
        log_config=None,
        access_log=False,
        server_header=False,
        http=protocol,
        proxy_headers=False,  # nothing reads the address of the client or the scheme
        ws="none",
        timeout_graceful_shutdown=API_GRACE_S,
    )


def upkeep(installation: Installation, heads: Heads) -> list[Periodic]:
    """The periodic tasks of a serving process; none runs before the database is at this
    program's revision.
    """

    def periodic(
        name: str,
        task: Callable[[threading.Event], object],
        interval_s: float,
        *,
        confirms: bool = False,
    ) -> Periodic:
        def run(stopping: threading.Event) -> None:
            if heads.is_current:
                # nothing is erased or told on the word of a database that was rewound
                if confirms:
                    heads.confirm()
                task(stopping)

        return Periodic(name, run, interval_s=interval_s)

    def deliver(stopping: threading.Event) -> None:
        deliver_due(installation, heads=heads, stopping=stopping)

    return [
        periodic(
            "preparation",
            lambda _: prepare_newest(installation),
            limits.PREPARATION_INTERVAL_S,
        ),
        periodic("webhooks", deliver, limits.WEBHOOK_INTERVAL_S, confirms=True),
        periodic(
            "last uses",
            lambda _: record_uses(installation),
            limits.LAST_USES_INTERVAL_S,
        ),
        periodic(
            "copies", lambda _: installation.files.tidy(), limits.COPIES_INTERVAL_S
        ),
        periodic(
            "overdue jobs",
            lambda _: settle_overdue(installation),
            limits.SWEEP_INTERVAL_S,
            confirms=True,
        ),
        periodic(
            "erasures",
            lambda _: erase_due(installation),
            limits.ERASURE_INTERVAL_S,
            confirms=True,
        ),
    ]


def serve(settings: Settings, *, announce: Callable[[str], None]) -> None:
    """Prepares an installation on one machine and serves it until signals end it;
    leaves no process running.

    Args:
        announce: called with the address when requests are answered.

    Raises:
        InstallationError: the address is in use, the installation is unsafe, cannot be
            written or did not become ready, its ledger was rewound, or the API ended by
            itself.
    """
    configure(settings.log_level)
    code_cache.choose()  # workers and their children inherit the folder
    _limit_memory()
    with stop_signals() as stop, bound(settings.host, settings.port) as listener:
        require_writable(settings)
        prepare(settings)
        _require_space(settings)
        pool = WorkerPool(
            settings.workers,
            environ=worker_environment(settings),
            secrets=worker_secrets(settings),
        )
        api = _api(settings, listener)
        try:
            pool.tend()
            api.start()
            if _became_ready(api, listener, stop):
                announce(address(settings.host, listener))
            while api.lives and not stop.begun.wait(_TICK_S):
                pool.tend()
            _drain(pool, api, stop)
        finally:
            api.begin_stop()
            pool.stop(grace_s=WORKER_GRACE_S)
            api.join()
    if not stop.begun.is_set():
        raise InstallationError("the API ended by itself; see the log")


def _drain(pool: WorkerPool, api: ApiThread, stop: Stop) -> None:
    pool.drain()
    told_at = time.monotonic() + _TELL_AFTER_S
    while pool.lives and api.lives and not stop.now.wait(_TICK_S):
        if time.monotonic() > told_at:
            told_at = float("inf")
            _log.warning(
                "finishing the running job; press Ctrl-C again to stop now, which loses what the job spent"
            )


def serve_api(settings: Settings, *, announce: Callable[[str], None]) -> None:
    """Serves the API alone; workers run as other processes. It is not ready until ``db
    upgrade`` was run.

    Args:
        announce: called with the address when requests are answered.

    Raises:
        InstallationError: the address is in use, the disk is nearly full or cannot be
            written, the ledger was rewound, or the API ended by itself.
    """
    configure(settings.log_level)
    _limit_memory()
    with stop_signals() as stop, bound(settings.host, settings.port) as listener:
        require_writable(settings)
        api = _api(settings, listener)
        _require_space(settings)
        api.start()
        is_ready = False
        while api.lives and not stop.begun.wait(_TICK_S):
            if not is_ready and _readiness(listener)[0] == http.client.OK:
                is_ready = True
                announce(address(settings.host, listener))
        api.begin_stop()
        api.join()
    if not stop.begun.is_set():
        raise InstallationError("the API ended by itself; see the log")


@contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """A bound socket that does not listen yet, so that the real port is known before
    anything starts.

    Raises:
        InstallationError: the address is not of this machine, or in use.
    """
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError:
        raise InstallationError(f"{host} is not an address of this machine") from None
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(target)
        except OSError as error:
            raise InstallationError(
                f"cannot listen on {host}, port {port}: {error.strerror}"
            ) from None
        yield listener


def address(host: str, listener: socket.socket) -> str:
    """The URL of a bound socket, with its real port."""
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def _limit_memory() -> None:
    """Forbids core dumps, and limits what threads of this process take, before the
    second thread starts.
    """
    forbid_core_dumps()
    share_arenas(2)
    os.environ.update(ONE_BLAS_THREAD)


def worker_environment(settings: Settings) -> dict[str, str]:
    """The environment of a worker: this process's, with the settings that a worker
    needs and without secrets.
    """
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(PREFIX)
    }
    values = {
        it.variable: getattr(settings, it.name)
        for it in SETTINGS
        if it.worker and not it.secret
    }
    return environ | {
        variable: str(value) for variable, value in values.items() if value is not None
    }


def worker_secrets(settings: Settings) -> dict[str, str]:
    """The settings that a worker reads from its standard input, because other processes
    may see an environment.
    """
    values = {
        it.name: getattr(settings, it.name)
        for it in SETTINGS
        if it.worker and it.secret
    }
    return {name: value for name, value in values.items() if value is not None}


def _api(settings: Settings, listener: socket.socket) -> ApiThread:
    with without_collection():
        application = create_app(settings)
    heads: Heads = application.state.heads
    # a database that cannot be reached yet is compared before the first answer
    with suppress(Unavailable):
        if heads.is_current:
            heads.confirm()
    return ApiThread(application, listener)


def _became_ready(api: ApiThread, listener: socket.socket, stop: Stop) -> bool:
    """Whether ``/readyz`` answered 200 before a stop.

    Raises:
        InstallationError: the API did not answer 200 within :data:`READY_WITHIN_S`
            seconds.
    """
    reason = "nothing answers"
    for _ in range(int(READY_WITHIN_S / _TICK_S)):
        if not api.lives or stop.begun.is_set():
            return False
        status, answer = _readiness(listener)
        if status == http.client.OK:
            return True
        reason = answer or reason
        stop.begun.wait(_TICK_S)
    raise InstallationError(f"the service did not become ready: {reason}; see the log")


def _require_space(settings: Settings) -> None:
    """Checks the disk of the home before the first request, as ``/readyz`` does at
    every request; warns if it is too full for uploads.

    Raises:
        InstallationError: the disk is nearly full.
    """
    free = shutil.disk_usage(settings.home).free
    if free < limits.MIN_FREE_DISK_BYTES:
        needed = limits.MIN_FREE_DISK_BYTES // 2**20
        raise InstallationError(
            f"{free // 2**20} MiB are free on the disk of {settings.home}, and the service needs {needed} MiB: "
            "make room, or name another home with GROVEKEEPER_HOME"
        )
    if free < limits.MIN_FREE_UPLOAD_BYTES:
        _log.warning(
            "uploads will be refused: the disk of the home has less free space than "
            "MIN_FREE_UPLOAD_BYTES (256 MiB)"
        )


def _readiness(listener: socket.socket) -> tuple[int | None, str | None]:
    """The status of ``/readyz``, and why the service is not ready."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # all addresses: loopback is one
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()).get("detail")
    except (OSError, http.client.HTTPException, ValueError):
        return None, None
    finally:
        connection.close()
