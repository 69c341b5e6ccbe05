"""Duration of a reservation as an account grows, by entries and by distinct boxes with spend.

Run ``python -m benchmarks.boxes``. The account is cut by a hash of 64 cells, a column of 12 and 24 uploads; boxes
restrict one to three of them. History is written into the tables in bulk; the measured code is ``ledger.reserve``
in a committed transaction of its own, as in the product. The median of some reservations is printed beside that
of a plain one-row update on the same engine in the same run, in brackets the CPU of this process, and last how much
more CPU a reservation takes than with one box. A balance is the answer for the whole dataset, which is harder than that
for a box.
"""

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import insert, text

from app.db.unit_of_work import Database
from app.ledger import service as ledger
from app.ledger import state
from app.ledger.tables import AccountRow, EntryRow, ReservationRow
from app.privacy.composition import Cell, ColumnPartition, EpochPartition, HashPartition, Partitions, Scope
from benchmarks.ledger import databases

_REPEATS = 40
_BULK = 10_000
_EVENT = {
    "type": "discrete-laplace/1",
    "adjacency": "add_remove",
    "l1_sensitivity": "1",
    "inverse_scale": "1/4294967296",
    "coordinates": 1,
}
_GROWTH = ((1_000, 1), (1_000, 100), (100_000, 100), (10_000, 1_000), (10_000, 10_000))
"""(entries, distinct boxes)."""

_PARTITIONS = Partitions(
    (
        HashPartition("shard", 64),
        ColumnPartition("region", "land", False, tuple(f"land {at:02}" for at in range(10)), has_missing=True),
        EpochPartition("month", "one file per month"),
    )
)
_UPLOADS = tuple(f"ep_{at:02}" for at in range(24))


def boxes(count: int) -> list[Scope]:
    """Distinct boxes, the whole dataset first; the same ones in every run."""
    chance = random.Random(count)
    cells: dict[str, tuple[Cell, ...]] = {
        partition.name: partition.known_cells or _UPLOADS for partition in _PARTITIONS.declared
    }
    found: dict[str, Scope] = {"": {"month": _UPLOADS}}
    while len(found) < count:
        names = {"month", *chance.choice([("shard",), ("region",), ("month",), ("shard", "region")])}
        box: Scope = {
            name: tuple(sorted(chance.sample(cells[name], chance.randint(1, 4)))) if name in names else cells[name]
            for name in sorted(names)
        }
        found[repr(box)] = box
    return list(found.values())


def grown(database: Database, account: str, *, n_entries: int, n_boxes: int) -> list[Scope]:
    """Opens an account and gives it a past."""
    new = ledger.NewAccount(
        id=account,
        name=account,
        accountant="pure",
        adjacency="add_remove",
        cap=10**18,
        delta=None,
        privacy_unit={"column": None, "max_rows": 1},
        partitions=_PARTITIONS,
    )
    found = boxes(n_boxes)
    with database.write() as session:
        ledger.open_account(session, new, actor="key_owner")
        for box in found:
            state.move(session, account, box, charged=n_entries // (2 * n_boxes) or 1)
        for first in range(2, n_entries, _BULK):
            numbers = range(first, min(first + _BULK, n_entries + 1))
            session.execute(insert(EntryRow), [_entry(account, number, found) for number in numbers])
            session.execute(insert(ReservationRow), [_reservation(account, number, found) for number in numbers])
        row = session.get(AccountRow, account)
        assert row is not None
        row.last_sequence = n_entries
    return found


@dataclass(frozen=True)
class Medians:
    """Milliseconds: of the clock, and of the CPU of this process."""

    clock: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.clock:.1f} ({self.cpu:.1f})"


def measure(database: Database, *, n_entries: int, n_boxes: int) -> dict[str, Medians]:
    """Medians of a reservation, a balance and a plain update."""
    account = f"ds_{n_entries}_{n_boxes}"
    found = grown(database, account, n_entries=n_entries, n_boxes=n_boxes)
    chance = random.Random(0)

    def reserve(turn: int) -> None:
        wanted = ledger.NewReservation(account, 1, chance.choice(found), _EVENT, f"jb_new_{turn}")
        with database.write() as session:
            ledger.reserve(session, wanted, actor="key_analyst")

    def balance(_turn: int) -> None:
        with database.read() as session:
            ledger.balance(session, account)

    def update(_turn: int) -> None:
        with database.write() as session:
            session.execute(text("UPDATE plain SET value = value + 1 WHERE id = 1"))

    return {work.__name__: _medians(work) for work in (reserve, balance, update)}


def _medians(work: Callable[[int], None]) -> Medians:
    times, cpu = [], []
    for turn in range(_REPEATS):
        start, started = time.perf_counter(), time.process_time()
        work(turn)
        times.append(time.perf_counter() - start)
        cpu.append(time.process_time() - started)
    return Medians(statistics.median(times) * 1_000, statistics.median(cpu) * 1_000)


def _entry(account: str, number: int, found: list[Scope]) -> dict[str, object]:
    return {
        "account_id": account,
        "sequence": number,
        "kind": "reserve" if number % 2 == 0 else "charge",
        "amount": 1,
        "scope": _written(found[number // 2 % len(found)]),
        "event": _EVENT,
        "job_id": f"jb_{number // 2}",
        "actor": "key_analyst",
        "at": "2026-11-20T09:30:00.000000Z",
        "previous_hash": "0" * 64,
        "hash": "0" * 64,
        "details": None,
    }


def _reservation(account: str, number: int, found: list[Scope]) -> dict[str, object]:
    return {
        "id": f"rs_{account}_{number}",
        "account_id": account,
        "job_id": f"jb_old_{number}",
        "part": 0,
        "amount": 1,
        "scope": _written(found[number // 2 % len(found)]),
        "event": _EVENT,
        "state": "charged",
        "details": None,
    }


def _written(scope: Scope) -> dict[str, list[Cell]]:
    return {name: list(cells) for name, cells in scope.items()}


def main() -> None:
    """Measures both databases."""
    columns = "".join(f"{name:>16}" for name in ("reserve ms", "balance ms", "update ms"))
    print(f"{'database':<11} {'entries':>9} {'boxes':>7}{columns} {'CPU of reserve':>16}")
    with databases() as found:
        for name, url in found:
            database = Database.open(url, pool_size=2)
            with database.write() as session:
                session.execute(text("CREATE TABLE plain (id INTEGER PRIMARY KEY, value BIGINT)"))
                session.execute(text("INSERT INTO plain VALUES (1, 0)"))
            of_one_box = None
            for n_entries, n_boxes in _GROWTH:
                medians = measure(database, n_entries=n_entries, n_boxes=n_boxes)
                of_one_box = of_one_box or medians["reserve"].cpu
                shown = "".join(f"{each!s:>16}" for each in medians.values())
                ratio = medians["reserve"].cpu / of_one_box
                print(f"{name:<11} {n_entries:>9} {n_boxes:>7}{shown} {ratio:>15.1f}x", flush=True)
            database.close()


if __name__ == "__main__":
    main()
