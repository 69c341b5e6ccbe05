"""Measures reservations per second on one busy account, as ratios to a plain
transaction on the same engine.

Run ``python -m benchmarks.ledger``. The plain transaction adds one to one row, with the
same engine, pool, write lock and commit, but without the ledger. Both sides of a pair
run alternately on the same database, and the output is the median of the paired ratios,
because absolute rates of a shared machine mean little. 1 would mean that a reservation
(two locks, a balance in every cell, a hashed entry) costs nothing.

SQLite syncs every commit to the disk, as in the product. The PostgreSQL server of the
tests does not (``fsync`` is off), so its lines show the CPU work of a transaction only.
"""

import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.db import migrate
from app.db.database import Database
from app.ledger import accounts
from app.ledger import reservations as ledger
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import WHOLE
from tests.support import reserving
from tests.support.postgres import fresh_database, running_server

_PAIRS = 5
_SECONDS = 1.0
_ACCOUNT = "ds_hot"
_CAP = 10**18
_N_CELLS = (1, 256)
EVENT = {
    "type": "discrete-laplace/1",
    "adjacency": "add_remove",
    "l1_sensitivity": "1",
    "inverse_scale": "1/4294967296",
    "coordinates": 1,
}
"""A release that costs less than one step of ``pure``, so that any amount pays for it."""


def new_account(
    account: str, *, cap: int, partitions: Partitions
) -> accounts.NewAccount:
    """A ``pure`` account whose privacy unit is a row; ``cap`` in steps."""
    return accounts.NewAccount(
        id=account,
        name=account,
        accountant="pure",
        adjacency="add_remove",
        cap=cap,
        delta=None,
        privacy_unit={"column": None, "max_rows": 1},
        partitions=partitions,
    )


def make_plain_table(database: Database) -> None:
    """Makes a table of one row, for the transaction that reservations are compared
    with.
    """
    with database.write() as session:
        session.execute(
            text("CREATE TABLE plain (id INTEGER PRIMARY KEY, value BIGINT)")
        )
        session.execute(text("INSERT INTO plain VALUES (1, 0)"))


def add_one(session: Session) -> None:
    """Updates the row of the plain table."""
    session.execute(text("UPDATE plain SET value = value + 1 WHERE id = 1"))


def rate(work: Callable[[], None], *, n_threads: int) -> float:
    """Calls of ``work`` per second, by ``n_threads`` threads during :data:`_SECONDS`."""
    counts = [0] * n_threads
    gate = threading.Barrier(n_threads)

    def run(thread: int) -> None:
        gate.wait()
        end = time.perf_counter() + _SECONDS
        while time.perf_counter() < end:
            work()
            counts[thread] += 1

    threads = [
        threading.Thread(target=run, args=(thread,)) for thread in range(n_threads)
    ]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - start)


def measure(name: str, database: Database, *, n_cells: int, n_threads: int) -> None:
    """Prints one line: median rates of both sides, and the median, smallest and largest
    of the paired ratios.
    """
    account = f"{_ACCOUNT}_{n_cells}_{n_threads}"
    serial = itertools.count()
    declared = (
        [] if n_cells == 1 else [{"name": "shard", "kind": "hash", "cells": n_cells}]
    )
    with database.write() as session:
        opening = new_account(
            account, cap=_CAP, partitions=Partitions.from_json(declared)
        )
        accounts.open_account(session, opening, actor="key_owner")

    def reserve() -> None:
        with database.write() as session:
            reservation = ledger.NewReservation(
                account, 1, WHOLE, EVENT, f"jb_{next(serial)}"
            )
            reserving.reserve(session, [reservation], actor="key_analyst")

    def update() -> None:
        with database.write() as session:
            add_one(session)

    reserve()
    update()
    pairs = [
        (rate(reserve, n_threads=n_threads), rate(update, n_threads=n_threads))
        for _ in range(_PAIRS)
    ]
    ratios = sorted(ours / plain for ours, plain in pairs)
    ours, plain = (statistics.median(side) for side in zip(*pairs, strict=True))
    line = f"{name:<11} {n_threads:>7} {n_cells:>6} {ours:>14.0f} {plain:>14.0f} {statistics.median(ratios):>8.2f}"
    print(f"{line}   ({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)


@contextmanager
def databases() -> Iterator[list[tuple[str, str]]]:
    """Name and address of a migrated database of each dialect."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server() as server,
        fresh_database(server) as postgresql,
    ):
        urls = [
            ("sqlite", f"sqlite:///{Path(folder) / 'grovekeeper.sqlite3'}"),
            ("postgresql", postgresql),
        ]
        for _, url in urls:
            migrate.upgrade(url)
        yield urls


def main() -> None:
    """Prints the rates on both databases, with one and with eight threads."""
    print(
        f"{'database':<11} {'threads':>7} {'cells':>6} {'reservations/s':>14} {'updates/s':>14} {'ratio':>8}"
    )
    with databases() as urls:
        for name, url in urls:
            database = Database.open(url, pool_size=8)
            make_plain_table(database)
            for n_cells, n_threads in itertools.product(_N_CELLS, (1, 8)):
                measure(name, database, n_cells=n_cells, n_threads=n_threads)
            database.close()


if __name__ == "__main__":
    main()
