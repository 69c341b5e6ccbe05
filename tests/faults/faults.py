"""Breaks parts of a deployment, one way per function.

A fault is a context: it strikes when the context is entered and ends when the context
is left; other faults may strike in between. Its value says whether it struck: there may
be no child to kill, or no commit to cut. :meth:`Deployment.heal` then repairs what
faults leave behind, such as dead processes.
"""

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TypeAlias

import psutil
import psycopg

from tests.faults.deployment import LEASE_TTL_S, Deployment, Part
from tests.faults.proxy import Cut
from tests.support.postgres import PostgresServer, driver_url
from tests.support.waiting import wait_for

Fault: TypeAlias = Callable[[Deployment, random.Random], AbstractContextManager[bool]]

_HOUR_S = 3_600.0
_CUT_WITHIN_S = 2.0


def api_is_killed(
    deployment: Deployment, chance: random.Random
) -> AbstractContextManager[bool]:
    return _is_killed(deployment, chance.choice(deployment.apis))


def worker_is_killed(
    deployment: Deployment, chance: random.Random
) -> AbstractContextManager[bool]:
    return _is_killed(deployment, chance.choice(deployment.workers))


@contextmanager
def _is_killed(deployment: Deployment, part: Part) -> Iterator[bool]:
    part.kill()
    yield True
    deployment.start(part)


@contextmanager
def child_is_killed(deployment: Deployment, chance: random.Random) -> Iterator[bool]:
    """Kills the process that has private rows, if a worker runs a job within a second."""
    deadline = time.monotonic() + 1.0
    while not (children := _children(deployment)) and time.monotonic() < deadline:
        time.sleep(0.005)
    for child in children[:1]:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    yield bool(children)


@contextmanager
def everything_is_killed(
    deployment: Deployment, chance: random.Random
) -> Iterator[bool]:
    """A power cut of the machine that runs the product."""
    for part in deployment.parts:
        part.signal(signal.SIGKILL)
    deployment.stop()
    yield True
    for part in deployment.parts:
        deployment.start(part)


@contextmanager
def part_is_restarted(deployment: Deployment, chance: random.Random) -> Iterator[bool]:
    """An orderly stop (SIGTERM)."""
    part = chance.choice(deployment.parts)
    part.signal(signal.SIGCONT)
    part.signal(signal.SIGTERM)
    part.wait()
    yield True
    deployment.start(part)


@contextmanager
def worker_sleeps_beyond_its_lease(
    deployment: Deployment, chance: random.Random
) -> Iterator[bool]:
    part = chance.choice(deployment.workers)
    part.signal(signal.SIGSTOP)
    time.sleep(LEASE_TTL_S + 0.5)
    yield True
    part.signal(signal.SIGCONT)


@contextmanager
def api_sleeps(deployment: Deployment, chance: random.Random) -> Iterator[bool]:
    part = chance.choice(deployment.apis)
    part.signal(signal.SIGSTOP)
    yield True
    part.signal(signal.SIGCONT)


@contextmanager
def disk_of_part_is_full(
    deployment: Deployment, chance: random.Random
) -> Iterator[bool]:
    """Every write of one process beyond a small offset fails; so do those of its
    children.
    """
    part = chance.choice(deployment.parts)
    part.limit_file_size(chance.choice((0, 4_096, 65_536)))
    yield True
    part.limit_file_size(psutil.RLIM_INFINITY)


def folder_is_lost(name: str) -> Fault:
    """The fault of a folder in the home that cannot be used: a file is in its place."""

    @contextmanager
    def strike(deployment: Deployment, chance: random.Random) -> Iterator[bool]:
        folder = deployment.home / name
        away = folder.with_name(f"{name}.away")
        if away.exists() or not folder.exists():
            yield False  # the fault lasts already
            return
        folder.rename(away)
        folder.touch()
        yield True
        folder.unlink()
        away.rename(folder)

    strike.__name__ = f"{name}_are_lost"
    return strike


@contextmanager
def clock_jumps(deployment: Deployment, chance: random.Random) -> Iterator[bool]:
    deployment.shift_clock(chance.choice((-_HOUR_S, -2.0, 2.0, _HOUR_S)))
    yield True
    deployment.shift_clock(0)


@contextmanager
def part_is_disconnected(
    deployment: Deployment, chance: random.Random
) -> Iterator[bool]:
    """One process loses its connections to PostgreSQL and gets no other."""
    part = chance.choice(deployment.parts)
    assert part.proxy is not None
    part.proxy.disconnect()
    yield True
    part.proxy.heal()


def commit_is_cut(cut: Cut) -> Fault:
    """The fault of a connection that is lost inside the next commit of each process."""

    @contextmanager
    def strike(deployment: Deployment, chance: random.Random) -> Iterator[bool]:
        proxies = [part.proxy for part in deployment.parts if part.proxy is not None]
        for proxy in proxies:
            proxy.cut_at_commit(cut)
        deadline = time.monotonic() + _CUT_WITHIN_S
        while (
            not any(proxy.has_cut for proxy in proxies) and time.monotonic() < deadline
        ):
            time.sleep(0.01)
        yield any(proxy.has_cut for proxy in proxies)
        for proxy in proxies:
            proxy.heal()

    strike.__name__ = f"connection_is_lost_{cut}_commit"
    return strike


@contextmanager
def sessions_are_terminated(
    deployment: Deployment, chance: random.Random
) -> Iterator[bool]:
    with suppress(psycopg.Error):
        _execute(
            deployment,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'grovekeeper' AND random() < 0.5",
        )
    yield True


@contextmanager
def database_is_restarted(
    deployment: Deployment, chance: random.Random
) -> Iterator[bool]:
    _postgres(deployment).stop()
    yield True
    _postgres(deployment).start()


@contextmanager
def database_is_killed(deployment: Deployment, chance: random.Random) -> Iterator[bool]:
    _postgres(deployment).kill()
    yield True
    _postgres(deployment).start()


@contextmanager
def session_of_database_is_killed(
    deployment: Deployment, chance: random.Random
) -> Iterator[bool]:
    """PostgreSQL ends every session and recovers when one of its processes dies."""
    processes = _postgres(deployment).processes()[1:]
    if processes:
        with suppress(psutil.NoSuchProcess):
            chance.choice(processes).kill()
    yield bool(processes)


@contextmanager
def disk_of_database_is_full(
    deployment: Deployment, chance: random.Random
) -> Iterator[bool]:
    _postgres(deployment).limit_file_size("0")
    yield True
    _postgres(deployment).limit_file_size("unlimited")
    _postgres(deployment).start()


@contextmanager
def database_is_read_only(
    deployment: Deployment, chance: random.Random
) -> Iterator[bool]:
    """PostgreSQL accepts no writes, as after a failover to a standby."""
    has_struck = _set_read_only(deployment, "on")
    yield has_struck
    # or the configuration could not be written
    _postgres(deployment).limit_file_size("unlimited")
    wait_for("PostgreSQL recovers", lambda: _set_read_only(deployment, "off"))


ON_ANY_DATABASE: tuple[Fault, ...] = (
    api_is_killed, worker_is_killed, child_is_killed, everything_is_killed, part_is_restarted,
    worker_sleeps_beyond_its_lease, api_sleeps, disk_of_part_is_full, clock_jumps,
    folder_is_lost("rows"), folder_is_lost("artifacts"), folder_is_lost("checkpoints"), folder_is_lost("jobs"),
)  # fmt: skip
ON_POSTGRESQL: tuple[Fault, ...] = (
    part_is_disconnected, commit_is_cut("before"), commit_is_cut("after"), sessions_are_terminated,
    database_is_restarted, database_is_killed, session_of_database_is_killed, disk_of_database_is_full,
    database_is_read_only,
)  # fmt: skip


def possible_in(deployment: Deployment) -> tuple[Fault, ...]:
    """Every kind of fault that a deployment can have."""
    return (
        ON_ANY_DATABASE
        if deployment.postgres is None
        else ON_ANY_DATABASE + ON_POSTGRESQL
    )


def _children(deployment: Deployment) -> list[psutil.Process]:
    return [child for part in deployment.workers for child in _children_of(part)]


def _children_of(part: Part) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        if part.process is not None:
            return part.process.children()
    return []


def _postgres(deployment: Deployment) -> PostgresServer:
    assert deployment.postgres is not None
    return deployment.postgres


def _set_read_only(deployment: Deployment, value: str) -> bool:
    _postgres(deployment).start()  # another fault may have ended it
    try:
        _execute(
            deployment, f"ALTER SYSTEM SET default_transaction_read_only = {value}"
        )
        _execute(deployment, "SELECT pg_reload_conf()")
    except psycopg.Error:
        return False
    return True


def _execute(deployment: Deployment, statement: str) -> None:
    url = driver_url(deployment.database_url)
    options = "-c default_transaction_read_only=off"
    with psycopg.connect(
        url, autocommit=True, options=options, connect_timeout=10
    ) as connection:
        connection.execute(statement)
