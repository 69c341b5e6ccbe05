"""Runs workers, children and requests of the product that are killed (SIGKILL) at a
named point.

The arguments ``worker <point> <journal>`` run the product's worker with the settings of
the environment. ``app/`` has no hook for tests: this module wraps public functions
before the worker starts. The worker ends after one job, unless it is killed at its
point. With the points ``never`` and ``for-ever`` it is not killed; with ``for-ever`` it
continues with the next job.

``workers <folder> <point> …`` forks such a worker per point, a few at a time, and
writes ``exit <code>`` into the journal of each point.

The child of such a worker is a fork that runs ``app.worker.child`` with wrapped
functions.

``python -m tests.support.crash requests`` reads ``[point, database, home, dataset]``
per line of standard input. A fork serves one request, or sweeps once, and is killed at
its point; its exit code is printed.

The journal is a file with one line per fact: ``claimed <job>``, ``child <pid>`` when a
child was started, and ``read <job> <kinds of the job's committed entries>`` before
private rows are opened.
"""

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import configure_mappers

from tests.support.waiting import PATIENCE_S

WORKER_POINTS = (
    "claimed",
    "charge-not-committed",
    "charged",
    "child-started",
    "artifact-grown",
    "artifact-half-stored",
    "artifact-stored",
    "success-not-committed",
    "success-repeated",
    "success-committed",
    "job-ended",
)
"""Points at which the worker is killed, in the order of a job; its child, if there is
one, must end, too.
"""

STORE_POINTS = ("rows-half-copied", "artifact-put")
"""Points at which a worker is killed whose files are in an object store."""

CHILD_POINTS = (
    "child-began",
    "rows-opened",
    "artifact-not-written",
    "artifact-written",
)
"""Points at which the child is killed, alone or (``<point>-both``) with its worker."""

ABANDONED = "abandoned"
"""The child kills its worker and sleeps for ten minutes unless it is ended."""

SLOW = "slow"
"""The child opens the rows and waits for :func:`released`, at most for ten minutes."""

REQUEST_POINTS = (
    "answer-stored", "reserved", "enqueued", "accepted", "rows-written", "epoch-added", "admitted", "book-closed",
    "expired-not-committed",
)  # fmt: skip
"""Points at which a process is killed that serves a submission or an upload, or expires
a job.
"""

ACT_POINTS = (
    "external-reserved",
    "external-charged",
    "external-answered",
    "cap-written",
    "cap-answered",
)
"""Where a process is killed that charges for an external mechanism, or changes a cap."""

HEAD_POINTS = ("head-not-written", "head-half-written", "head-written")
"""Points at which a process is killed that serves a submission and then writes the
ledger's head to a file.
"""

WEBHOOK_POINTS = ("delivery-not-sent", "delivery-accepted")
"""Points at which a process is killed that serves a submission and delivers its event
to a webhook.
"""

_OF_REQUESTS = ("member_scene", "people", "receiver", "sweeping")
_SLOW_S = 2.0 * PATIENCE_S
"""No test waits as long for the end of a process that nobody kills."""
_WORKERS_AT_ONCE = 3


POPULATION_POINTS = (
    "member-entry-written", "load-written", "void-written", "void-load-written", "population-cap-written",
    "population-cap-answered",
)  # fmt: skip
"""Points at which a process is killed between entries of a member and of its
population, or at a change of a cap.
"""


def released(journal: Path) -> Path:
    """The file whose existence lets a slow child go on."""
    return journal.with_suffix(".released")


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + _SLOW_S
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def kill_myself() -> None:
    """Kills this process without warning, as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(_SLOW_S)


def after(owner: object, name: str, then: Callable[..., None]) -> None:
    """Wraps ``owner.name``: ``then(result)`` runs between the call and the return of
    its result.
    """
    original = getattr(owner, name)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        then(result)
        return result

    setattr(owner, name, wrapped)


def before(owner: object, name: str, first: Callable[[], None]) -> None:
    """Wraps ``owner.name``: ``first()`` runs before the call."""
    original = getattr(owner, name)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        first()
        return original(*arguments, **named)

    setattr(owner, name, wrapped)


def run_worker(point: str, journal: Path) -> int:
    """Runs the product's worker with wrapped functions."""
    import app.worker.main
    from app.core.processes import code_digest
    from app.core.settings import Settings

    main: Any = app.worker.main
    settings = Settings.from_environment(os.environ)
    _fork_wrapped_children(point, journal, settings.database_url)
    after(
        main,
        "claim_next",
        lambda claim: (
            note(journal, f"claimed {claim.job_id}") if claim is not None else None
        ),
    )
    if point != "for-ever":

        def claim_nothing(_: object) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

        # One job only, and no sweeps, because the test's healthy worker settles the
        # killed jobs.
        before(main, "run_job", lambda: setattr(main, "claim_next", claim_nothing))
        main.settle_overdue = main.tidy_jobs = main.tidy_rows = lambda *_: None
    _kill_worker_at(point)
    exit_code: int = main.run(settings, code=code_digest())
    return exit_code


def run_workers(folder: Path, points: list[str]) -> None:
    """Runs one forked worker per point and records the exit codes."""
    waiting, running = list(points), dict[int, str]()
    while waiting or running:
        while waiting and len(running) < _WORKERS_AT_ONCE:
            point = waiting.pop(0)
            process_id = os.fork()
            if process_id == 0:
                _run_fork(run_worker, point, folder / f"{point}.journal")
            running[process_id] = point
        process_id, status = os.wait()
        note(
            folder / f"{running.pop(process_id)}.journal",
            f"exit {os.waitstatus_to_exitcode(status)}",
        )


def _run_fork(run: Callable[..., int | None], *arguments: Any) -> None:
    code = 1
    try:
        code = run(*arguments) or 0
    except BaseException:  # noqa: BLE001 - a fork must not continue with its parent's program
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _kill_worker_at(point: str) -> None:
    import shutil

    from app.ledger import reservations as ledger
    from app.registry import releases
    from app.services.execution import run_job
    from app.worker import main, supervise

    def kill(_: object = None) -> None:
        kill_myself()

    places: dict[str, Callable[[], None]] = {
        "claimed": lambda: after(
            main, "claim_next", lambda claim: kill() if claim is not None else None
        ),
        "charge-not-committed": lambda: after(ledger, "charge_job", kill),
        "charged": lambda: after(run_job, "charge_claimed", kill),
        "child-started": lambda: after(supervise.CHILDREN, "take", kill),
        "artifact-grown": lambda: before(run_job, "keep", kill),
        "artifact-half-stored": lambda: before(
            run_job, "keep", lambda: before(os, "fsync", kill)
        ),
        "artifact-stored": lambda: after(run_job, "keep", kill),
        "success-not-committed": lambda: after(releases, "add", kill),
        "success-repeated": lambda: before(releases, "add", _unavailable_then(kill)),
        "success-committed": lambda: before(shutil, "rmtree", kill),
        "job-ended": lambda: after(main, "run_job", kill),
    }
    assert tuple(places) == WORKER_POINTS
    if point in STORE_POINTS:
        places = _store_places(kill)
    if point in places:
        places[point]()


def _unavailable_then(kill: Callable[[], None]) -> Callable[[], None]:
    """Refuses three transactions as a database does that is out of reach, then kills
    the worker.
    """
    from app.core.errors import Unavailable

    n_calls = iter(range(4))

    def act() -> None:
        if next(n_calls) < 3:
            raise Unavailable("the database does not answer")
        kill()

    return act


def _store_places(kill: Callable[..., None]) -> dict[str, Callable[[], None]]:
    import obstore

    from app.core import object_store
    from app.services.execution import run_job
    from app.worker import main

    places: dict[str, Callable[[], None]] = {
        "rows-half-copied": lambda: before(
            main, "run_job", lambda: after(object_store._RemoteReader, "read", kill)
        ),
        "artifact-put": lambda: before(
            run_job, "keep", lambda: after(obstore, "put", kill)
        ),
    }
    assert tuple(places) == STORE_POINTS
    return places


def _fork_wrapped_children(point: str, journal: Path, database_url: str) -> None:
    """Makes the worker fork children whose functions are wrapped, and notes their
    process ids.
    """
    from app.worker import supervise
    from tests.support.forked_child import fork_children

    child_point = point if point not in (*WORKER_POINTS, *STORE_POINTS) else "never"
    fork_children(partial(run_child, child_point, journal, database_url))
    after(supervise.CHILDREN, "take", lambda child: note(journal, f"child {child.pid}"))


def run_child(point: str, journal: Path, database_url: str, supervisor: int) -> None:
    """Runs the product's child with wrapped functions."""
    from app.datasets import private_rows
    from app.services.drawing import perform as service
    from app.worker import child
    from grovekeeper_forests.releases.forest import draw as forest_draw

    def kill(_: object = None) -> None:
        if point.endswith("-both"):
            os.kill(supervisor, signal.SIGKILL)
        kill_myself()

    def abandon(_: object) -> None:
        os.kill(supervisor, signal.SIGKILL)
        time.sleep(_SLOW_S)

    original = service.perform

    def witnessed(task: Any, **named: Any) -> None:
        before(
            private_rows,
            "read",
            lambda: note(
                journal,
                f"read {task.job_id} {visible_kinds(database_url, task.job_id)}",
            ),
        )
        original(task, **named)

    service.perform = witnessed
    places: dict[str, Callable[[], None]] = {
        "child-began": lambda: before(service, "perform", kill),
        "rows-opened": lambda: after(private_rows, "read", kill),
        "artifact-not-written": lambda: after(forest_draw, "dumps", kill),
        "artifact-written": lambda: after(service, "perform", kill),
        ABANDONED: lambda: after(private_rows, "read", abandon),
        SLOW: lambda: after(
            private_rows, "read", lambda _: _wait_for(released(journal))
        ),
    }
    place = places.get(point.removesuffix("-both"))
    if place is not None:
        place()
    child.main(supervisor)


def _act_places(
    scene: Any, point: str, kill: Callable[..., None]
) -> dict[str, tuple[Callable[[], None], Callable[[], object]]]:
    """Charges for external mechanisms, and changes of caps."""
    from app.ledger import chain
    from app.ledger import reservations as ledger

    def charge() -> object:
        return scene.charge_external(key=point)

    def lower() -> object:
        return scene.lower_cap("1", key=point)

    places: dict[str, tuple[Callable[[], None], Callable[[], object]]] = {
        "external-reserved": (lambda: after(ledger, "write", kill), charge),
        "external-charged": (lambda: after(ledger, "charge", kill), charge),
        "external-answered": (lambda: None, lambda: kill(charge())),
        "cap-written": (lambda: after(chain, "append", kill), lower),
        "cap-answered": (lambda: None, lambda: kill(lower())),
    }
    assert tuple(places) == ACT_POINTS
    return places


def _population_places(
    scene: Any, point: str, kill: Callable[..., None]
) -> dict[str, tuple[Callable[[], None], Callable[[], object]]]:
    """A submission to a member of a population, the cancellation of its job, and a
    change of the population's cap.
    """
    from app.ledger import chain, tables
    from tests.support.member_scene import MemberScene

    member = MemberScene(scene)

    def submit() -> object:
        return scene.submit(key=point)

    def lower() -> object:
        return member.lower_cap("1", key=point)

    places: dict[str, tuple[Callable[[], None], Callable[[], object]]] = {
        "member-entry-written": (lambda: after(tables, "insert_entries", kill), submit),
        "load-written": (lambda: after(chain, "complete_subtrees", kill), submit),
        "void-written": (
            lambda: after(tables, "insert_entries", kill),
            member.cancel_newest_job,
        ),
        "void-load-written": (
            lambda: after(chain, "write", kill),
            member.cancel_newest_job,
        ),
        "population-cap-written": (lambda: after(chain, "append", kill), lower),
        "population-cap-answered": (lambda: None, lambda: kill(lower())),
    }
    assert tuple(places) == POPULATION_POINTS
    return places


def run_requests() -> None:
    """Runs one fork per line of standard input and prints its exit code."""
    # Once, for all requests: an upload's modules alone take a fork 0.4 s of CPU.
    for name in (
        "app.datasets.ingest",
        "psycopg",
        *(f"tests.support.{helper}" for helper in _OF_REQUESTS),
    ):
        importlib.import_module(name)
    configure_mappers()
    gc.freeze()
    for line in sys.stdin:
        point, database_url, home, dataset_id = json.loads(line)
        process_id = os.fork()
        if process_id == 0:
            _run_fork(run_request, point, database_url, Path(home), dataset_id)
        print(os.waitstatus_to_exitcode(os.waitpid(process_id, 0)[1]), flush=True)


def run_request(point: str, database_url: str, home: Path, dataset_id: str) -> None:
    """Runs one use case in a process that is killed at a point."""
    from datetime import UTC, datetime, timedelta

    from app.access import idempotency
    from app.datasets import catalog, ingest
    from app.datasets.admission import AdmissionBook
    from app.jobs import queue
    from app.ledger import reservations
    from app.ledger import reservations as ledger
    from tests.support import people
    from tests.support.crash_scene import Scene, open_installation
    from tests.support.sweeping import expired_at

    def kill(_: object = None) -> None:
        kill_myself()

    scene = Scene(open_installation(database_url, home), dataset_id)

    def visit() -> None:
        people.upload(
            scene.installation, dataset_id, people.visits([("ann", 1), ("ben", 2)])
        )

    def sweep() -> None:
        expired_at(scene.installation, datetime.now(UTC) + timedelta(days=2))

    places: dict[str, tuple[Callable[[], None], Callable[[], object]]] = {
        "answer-stored": (
            lambda: after(idempotency, "put", kill),
            lambda: scene.submit(key=point),
        ),
        "reserved": (
            lambda: after(reservations, "write", kill),
            lambda: scene.submit(key=point),
        ),
        "enqueued": (
            lambda: after(queue, "enqueue", kill),
            lambda: scene.submit(key=point),
        ),
        "accepted": (lambda: None, lambda: kill(scene.submit(key=point))),
        "rows-written": (lambda: after(ingest, "ingest_rows", kill), scene.upload),
        "epoch-added": (lambda: after(catalog, "add_epoch", kill), scene.upload),
        "admitted": (lambda: after(AdmissionBook, "admit", kill), visit),
        "book-closed": (lambda: after(AdmissionBook, "commit", kill), visit),
        "expired-not-committed": (lambda: after(ledger, "expire_job", kill), sweep),
    }
    assert tuple(places) == REQUEST_POINTS
    if point in HEAD_POINTS:
        places = _head_places(scene, kill)
    if point in ACT_POINTS:
        places = _act_places(scene, point, kill)
    if point in POPULATION_POINTS:
        places = _population_places(scene, point, kill)
    if point in WEBHOOK_POINTS:
        places = _webhook_places(scene, kill)
    place, run = places[point]
    place()
    run()


def _head_places(
    scene: Any, kill: Callable[..., None]
) -> dict[str, tuple[Callable[[], None], Callable[[], object]]]:
    from app.ledger.checkpoints import HeadFolder
    from app.services.ledger.heads import Heads

    heads = Heads(scene.installation)
    heads.publish()

    def run() -> None:
        scene.submit(key="head")
        heads.publish()

    places: dict[str, tuple[Callable[[], None], Callable[[], object]]] = {
        "head-not-written": (lambda: before(HeadFolder, "write", kill), run),
        "head-half-written": (lambda: before(os, "fsync", kill), run),
        "head-written": (lambda: after(HeadFolder, "write", kill), run),
    }
    assert tuple(places) == HEAD_POINTS
    return places


def _webhook_places(
    scene: Any, kill: Callable[..., None]
) -> dict[str, tuple[Callable[[], None], Callable[[], object]]]:
    from app.jobs import outbox
    from app.services import webhook_sender
    from app.services.webhooks import deliver_due
    from tests.support.receiver import may_reach_loopback

    def run() -> None:
        scene.submit(key="told")
        deliver_due(may_reach_loopback(scene.installation))

    places: dict[str, tuple[Callable[[], None], Callable[[], object]]] = {
        "delivery-not-sent": (lambda: before(webhook_sender, "send", kill), run),
        "delivery-accepted": (lambda: before(outbox, "finish_delivery", kill), run),
    }
    assert tuple(places) == WEBHOOK_POINTS
    return places


def visible_kinds(database_url: str, job_id: str) -> str:
    """The kinds of the job's committed entries.

    SQLite is read in a new process, because a fork must not open a database that its
    parent has open.
    """
    if database_url.startswith("sqlite"):
        command = [
            sys.executable,
            "-ISc",
            _PRINT_KINDS,
            database_url.removeprefix("sqlite:///"),
            job_id,
        ]
        return subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.strip()
    from app.db.database import Database
    from app.ledger.tables import EntryRow

    database = Database.open(database_url, pool_size=1)
    try:
        with database.read() as session:
            query = (
                select(EntryRow.kind)
                .where(EntryRow.job_id == job_id)
                .order_by(EntryRow.sequence)
            )
            return ",".join(session.execute(query).scalars())
    finally:
        database.close()


_PRINT_KINDS = """
import sqlite3, sys
query = "SELECT kind FROM entries WHERE job_id = ? ORDER BY sequence"
print(",".join(kind for (kind,) in sqlite3.connect(sys.argv[1]).execute(query, sys.argv[2:])))
"""


def note(journal: Path, line: str) -> None:
    """Appends a line in one write, so that lines of several processes do not mix."""
    descriptor = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def main() -> int:
    """Runs the command of this process's arguments and returns its exit code."""
    match sys.argv[1:]:
        case ["worker", point, journal]:
            return run_worker(point, Path(journal))
        case ["workers", folder, *points]:
            run_workers(Path(folder), points)
        case ["requests"]:
            run_requests()
        case _:
            sys.exit(
                "usage: worker, workers or requests with their arguments; see the module's docstring"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
