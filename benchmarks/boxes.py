"""Measures the duration of a reservation as an account grows, by entries and by
distinct boxes with spend.

Run ``python -m benchmarks.boxes``. The account is cut by a hash of 64 cells, a column
of 12 and 24 uploads; boxes restrict one to three of them. The history is reserved in
groups; the measured code is ``reserve`` in a committed transaction of its own. The
output is the median time of reservations and of a plain one-row update on the same
engine, in brackets the CPU of this process, and last the ratio of a reservation's CPU
to that of one on an account with one box, in turns with it: the median of the pairs. A
balance finds the tightest cell of the dataset; a reservation that fits by a bound does
not.
"""

import random
import statistics
import time
from collections.abc import Callable

from app.db.database import Database
from app.ledger import accounts, statements
from app.ledger.reservations import NewReservation
from benchmarks.ledger import EVENT, add_one, databases, make_plain_table, new_account
from grovekeeper_forests.privacy.partitions import (
    ColumnPartition,
    EpochPartition,
    HashPartition,
    Partitions,
)
from grovekeeper_forests.privacy.scope import Cell, Scope
from tests.support import reserving

_REPEATS = 40
_BULK = 1_000
_GROWTH = ((1_000, 100), (10_000, 100), (10_000, 1_000), (10_000, 10_000))
"""Pairs of entries and distinct boxes."""

_PARTITIONS = Partitions(
    (
        HashPartition("shard", 64),
        ColumnPartition(
            "region",
            "land",
            False,
            tuple(f"land {at:02}" for at in range(10)),
            has_missing=True,
        ),
        EpochPartition("month", "one file per month"),
    )
)
_UPLOADS = tuple(f"ep_{at:02}" for at in range(24))


def boxes(count: int) -> list[Scope]:
    """Distinct boxes, the whole dataset first; equal in every run."""
    chance = random.Random(count)
    cells: dict[str, tuple[Cell, ...]] = {
        partition.name: partition.known_cells or _UPLOADS
        for partition in _PARTITIONS.declared
    }
    distinct: dict[str, Scope] = {"": {"month": _UPLOADS}}
    while len(distinct) < count:
        names = {
            "month",
            *chance.choice([("shard",), ("region",), ("month",), ("shard", "region")]),
        }
        box: Scope = {
            name: tuple(sorted(chance.sample(cells[name], chance.randint(1, 4))))
            if name in names
            else cells[name]
            for name in sorted(names)
        }
        distinct[repr(box)] = box
    return list(distinct.values())


def grown(
    database: Database, account: str, *, n_entries: int, n_boxes: int
) -> list[Scope]:
    """Opens an account and reserves 1 on each of its boxes in turn."""
    scopes = boxes(n_boxes)
    with database.write() as session:
        opening = new_account(account, cap=10**18, partitions=_PARTITIONS)
        accounts.open_account(session, opening, actor="key_owner")
    for first in range(0, n_entries, _BULK):
        with database.write() as session:
            for number in range(first, min(first + _BULK, n_entries)):
                part = NewReservation(
                    account,
                    1,
                    Scope(scopes[number % n_boxes]),
                    EVENT,
                    f"jb_old_{number}",
                )
                reserving.reserve(session, [part], actor="key_analyst")
    return scopes


class Account:
    """An account that has grown, and what is measured on it."""

    def __init__(self, database: Database, *, n_entries: int, n_boxes: int) -> None:
        self._database, self._id = database, f"ds_{n_entries}_{n_boxes}"
        self._scopes = grown(database, self._id, n_entries=n_entries, n_boxes=n_boxes)
        self._chance = random.Random(0)

    def reserve(self) -> None:
        """Reserves 1 on a box."""
        job_id = f"jb_{self._chance.getrandbits(64)}"
        reservation = NewReservation(
            self._id, 1, Scope(self._chance.choice(self._scopes)), EVENT, job_id
        )
        with self._database.write() as session:
            reserving.reserve(session, [reservation], actor="key_analyst")

    def balance(self) -> None:
        """Finds the tightest cell."""
        with self._database.read() as session:
            statements.balance(session, self._id)


def _measured(*works: Callable[[], None]) -> list[list[tuple[float, float]]]:
    """Milliseconds of several pieces of work, wall-clock time and CPU of this process,
    in turns.
    """
    times: list[list[tuple[float, float]]] = [[] for _ in works]
    for _ in range(_REPEATS):
        for work, of_work in zip(works, times, strict=True):
            start, started = time.perf_counter(), time.process_time()
            work()
            of_work.append(
                (
                    (time.perf_counter() - start) * 1_000,
                    (time.process_time() - started) * 1_000,
                )
            )
    return times


def _medians(times: list[tuple[float, float]]) -> str:
    clock, cpu = (statistics.median(side) for side in zip(*times, strict=True))
    return f"{clock:.1f} ({cpu:.1f})"


def main() -> None:
    """Prints the medians on both databases."""
    columns = "".join(
        f"{name:>16}" for name in ("reserve ms", "balance ms", "update ms")
    )
    print(
        f"{'database':<11} {'entries':>9} {'boxes':>7}{columns} {'CPU of reserve':>16}"
    )
    with databases() as urls:
        for name, url in urls:
            database = Database.open(url, pool_size=2)
            make_plain_table(database)

            def update(database: Database = database) -> None:
                with database.write() as session:
                    add_one(session)

            with_one_box = Account(database, n_entries=1_000, n_boxes=1)
            for n_entries, n_boxes in _GROWTH:
                account = Account(database, n_entries=n_entries, n_boxes=n_boxes)
                one, reserve = _measured(with_one_box.reserve, account.reserve)
                ratio = statistics.median(
                    ours[1] / its[1] for its, ours in zip(one, reserve, strict=True)
                )
                figures = "".join(
                    f"{_medians(times):>16}"
                    for times in (reserve, *_measured(account.balance, update))
                )
                print(
                    f"{name:<11} {n_entries:>9} {n_boxes:>7}{figures} {ratio:>15.1f}x",
                    flush=True,
                )
            database.close()


if __name__ == "__main__":
    main()
