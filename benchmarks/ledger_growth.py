"""Measures a ledger of up to a million entries: balance, admission, checkpoint, proof,
export, verification.

Run ``python -m benchmarks.ledger_growth`` (about ten minutes on two cores; ``--sizes
10000 100000`` for a look). One account with eight hash cells is filled with jobs that
were reserved and charged, on the whole dataset and on boxes. The filler writes rows in
bulk, because a million commits measure the disk; all timed code is the product's, and
the verifier checks complete exports (the largest one of SQLite only, because the time
is the same).

An admission is a complete transaction with its commit. For comparison, the table shows
an UPDATE of one row through the same engine, lock and pool, run alternately with the
admissions, and on PostgreSQL pgbench's rate for the same statement. Every figure is
wall-clock time, and in brackets the CPU of this process, which is more reliable on a
busy machine: SQLite works inside the process, PostgreSQL does not. SQLite syncs every
commit to the disk. The PostgreSQL server of the tests does not (``fsync`` is off), so
its lines show CPU work only.

``python -m benchmarks.ledger_growth --uploads 4000`` measures an account whose cells
are hourly uploads instead: a job on each upload, and every 24th time a job on all
uploads.
"""

import argparse
import json
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from app.core import stamps
from app.db import migrate
from app.db.database import Database
from app.ledger import chain, checkpoints, kept_states, statements, tables
from app.ledger import reservations as ledger
from app.ledger.checkpoints import STEP, Log
from app.ledger.tables import (
    AccountRow,
    BlockRow,
    Entry,
    EntryKind,
    EntryRow,
    ReservationRow,
)
from app.services.datasets.declare import register_dataset
from app.services.installation import Installation
from app.services.ledger import history
from app.services.ledger.heads import checkpoint_of
from app.wire.datasets import DatasetIn
from benchmarks.ledger import EVENT, add_one, make_plain_table
from grovekeeper_forests.privacy.scope import Scope
from grovekeeper_verifier.checkpoints import ORIGIN, Checkpoint
from grovekeeper_verifier.dataset_replay import verify
from tests.support import reserving
from tests.support.crash_scene import OWNER, open_installation
from tests.support.postgres import (
    client_program,
    driver_url,
    fresh_database,
    running_server,
)

N_CELLS = 8
BATCH = 10_000
PAIRS = 100
SCOPES: tuple[dict[str, list[int]], ...] = (
    {},
    *({"shard": [cell, cell + 1]} for cell in range(0, N_CELLS, 2)),
)


@dataclass(frozen=True)
class Ledger:
    """An installation with one dataset, whose account is filled."""

    installation: Installation
    account: str

    @property
    def database(self) -> Database:
        return self.installation.database


class Filler:
    """Appends reserved and charged jobs in bulk, with the rows that the service would
    write job by job.
    """

    def __init__(self, grown: Ledger) -> None:
        self._database, self._account = grown.database, grown.account
        with self._database.read() as session:
            row = tables.account(session, self._account)
            self.size, self._last_hash = row.last_sequence, row.last_hash
            self._state = kept_states.state_of(session, row)
            # The incomplete subtrees: leaves, then stored hashes of each height.
            started = self.size >> STEP << STEP
            tail = tables.entries(
                session, self._account, after=started, limit=1 << STEP
            )
            self._nodes = {STEP: [checkpoints.leaf(entry.hash) for entry in tail]}
            for height in range(2 * STEP, 5 * STEP, STEP):
                lower = select(BlockRow.hash).where(
                    BlockRow.account_id == self._account,
                    BlockRow.height == height - STEP,
                )
                lower = lower.where(
                    BlockRow.position >= self.size >> height << STEP
                ).order_by(BlockRow.position)
                self._nodes[height] = [
                    bytes.fromhex(digest) for digest in session.execute(lower).scalars()
                ]

    def fill(self, size: int) -> None:
        """Fills the account up to a number of entries, two for each job."""
        while self.size < size:
            self._batch(min(size - self.size, BATCH))

    def _batch(self, count: int) -> None:
        entries: list[dict[str, Any]] = []
        blocks: list[dict[str, Any]] = []
        reservations: list[dict[str, Any]] = []
        at = stamps.to_text(stamps.now())
        for _ in range((count + 1) // 2):
            job, which = f"jb_{self.size}", self.size // 2 % len(SCOPES)
            reservations.append(
                {"id": f"rs_{self.size}", "account_id": self._account, "job_id": job, "part": 0, "amount": 1,
                 "scope": SCOPES[which], "event": EVENT, "state": "charged", "details": None,
                 "reserved_by": OWNER.key_id}
            )  # fmt: skip
            for kind in (EntryKind.RESERVE, EntryKind.CHARGE):
                for entry in self._entries(kind, job, SCOPES[which], at):
                    entries.append(entry)
                    blocks += self._completed(entry["sequence"], entry["hash"])
        with self._database.write() as session:
            session.execute(insert(EntryRow), entries)
            session.execute(insert(ReservationRow), reservations)
            if blocks:
                session.execute(insert(BlockRow), blocks)
            head = {
                "last_sequence": self.size,
                "last_hash": self._last_hash,
                "last_at": at,
            }
            session.execute(
                update(AccountRow).where(AccountRow.id == self._account).values(**head)
            )

    def _entries(
        self, kind: EntryKind, job: str, scope: dict[str, list[int]], at: str
    ) -> list[dict[str, Any]]:
        """The next entry and, at its turn, the entry with the state after it."""
        made = [
            self._sealed(
                Entry(
                    self.size + 1,
                    kind,
                    1,
                    scope,
                    EVENT,
                    job,
                    "worker",
                    at,
                    self._last_hash,
                    9,
                )
            )
        ]
        if (self.size + 1) % chain.STATE_EVERY == 0:
            details = {"state": self._state.to_json()}
            stated = Entry(
                self.size + 1,
                EntryKind.STATE,
                0,
                {},
                None,
                None,
                "worker",
                at,
                self._last_hash,
                9,
                details=details,
            )
            made.append(self._sealed(stated))
        return made

    def _sealed(self, entry: Entry) -> dict[str, Any]:
        entry = entry.sealed()
        self._state = self._state.advanced([entry])
        self.size, self._last_hash = entry.sequence, entry.hash
        fields = vars(entry) | {"kind": entry.kind.value, "account_id": self._account}
        del fields["places"]
        return fields

    def _completed(self, size: int, last_hash: str) -> list[dict[str, Any]]:
        self._nodes[STEP].append(checkpoints.leaf(last_hash))
        height, completed = STEP, []
        while len(self._nodes[height]) == 1 << STEP:
            digest = checkpoints.fold(self._nodes[height])
            position = (size >> height) - 1
            block = {
                "account_id": self._account,
                "height": height,
                "position": position,
                "hash": digest.hex(),
            }
            completed.append(block)
            self._nodes[height] = []
            height += STEP
            self._nodes[height].append(digest)
        return completed


@dataclass(frozen=True)
class Cost:
    """Seconds of wall-clock time, and of this process's CPU."""

    wall: float
    cpu: float

    def text(self, unit: float, digits: int = 1) -> str:
        """Both times, in ``1 / unit`` of a second."""
        return f"{self.wall * unit:.{digits}f} ({self.cpu * unit:.{digits}f})"


def measure(name: str, grown: Ledger, *, folder: Path, verified: bool) -> str:
    """A table row of all costs at the present size."""
    database = grown.database
    database.kept.clear()  # as in a new process
    first = _timed(
        partial(_in_transaction, database, lambda opened: _balance(opened, grown))
    ).text(1000, 0)
    admission, plain = _in_turns(grown)
    with database.read() as session:
        size = statements.size(session, grown.account)
        checkpoint = checkpoint_of(session, grown.account, size)
    balance = _median(
        lambda: _in_transaction(database, lambda opened: _balance(opened, grown))
    )
    head = _median(
        lambda: _in_transaction(
            database, lambda opened: checkpoint_of(opened, grown.account, size)
        )
    )
    proofs = _median(
        lambda: _in_transaction(database, lambda opened: _proofs(opened, grown, size))
    )
    export = folder / f"{name}.jsonl"
    exported = _timed(lambda: _export(grown, export)).text(1, 0)
    checked = "-"
    if verified:
        signed = Checkpoint(
            f"{ORIGIN}{grown.account}", size, checkpoint.root, checkpoint.at
        )
        with export.open("rb") as stream:
            checked = _timed(lambda: verify(stream, [signed])).text(1, 0)
    costs = [cost.text(1000) for cost in (balance, admission, plain, head, proofs)]
    cells = [
        name,
        f"{size:,}",
        first,
        *costs,
        exported,
        checked,
        f"{export.stat().st_size / size:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


HOURS = 24
_EVERY_UPLOAD = [{"name": "upload", "kind": "epoch", "how": "by the hour"}]


def hourly(name: str, grown: Ledger, n_uploads: int) -> list[str]:
    """Table rows of the costs of jobs on hourly uploads, four of them, the last with
    all uploads.
    """
    uploads: list[str] = []
    rows, admissions = [], list[Cost]()
    for number in range(1, n_uploads + 1):
        uploads.append(stamps.new(stamps.EPOCH))
        admissions.append(_admission(grown, (uploads[-1],), f"jb_{number}"))
        if number % HOURS == 0:
            admissions.append(
                _admission(grown, tuple(sorted(uploads)), f"jb_all_{number}")
            )
        if number % (n_uploads // 4) == 0:
            rows.append(_uploads_row(name, grown, tuple(sorted(uploads)), admissions))
            admissions = []
    return rows


def _admission(grown: Ledger, uploads: tuple[str, ...], job_id: str) -> Cost:
    """Reserves and charges a job on uploads; returns the cost of the reservation with
    its commit.
    """
    part = ledger.NewReservation(
        grown.account, 1, Scope({"upload": uploads}), EVENT, job_id
    )
    reserve = partial(reserving.reserve, parts=[part], actor="key_analyst")
    cost = _timed(partial(_in_transaction, grown.database, reserve, write=True))
    with grown.database.write() as session:
        ledger.charge_job(session, job_id, actor="worker")
    return cost


def _uploads_row(
    name: str, grown: Ledger, uploads: tuple[str, ...], admissions: list[Cost]
) -> str:
    largest = max(admissions, key=lambda cost: cost.wall)
    grown.database.kept.clear()  # as in a new process
    first = _admission(grown, uploads, f"jb_first_{len(uploads)}")
    lines = list(history.export_json_lines(grown.installation, OWNER, grown.account))
    checked = _timed(lambda: verify(iter(lines))).text(1, 0)
    of_states = max(
        (len(line) for line in lines if b'"kind":"state"' in line), default=0
    )
    costs = [
        _medians(admissions).text(1000),
        largest.text(1000, 0),
        first.text(1000, 0),
    ]
    sizes = [
        f"{max(map(len, lines)) / 1000:.0f}",
        f"{of_states / 1000:.0f}",
        f"{sum(map(len, lines)) / 10**6:.1f}",
    ]
    return f"| {' | '.join([name, f'{len(uploads):,}', f'{len(lines) - 1:,}', *costs, *sizes, checked])} |"


def _in_turns(grown: Ledger) -> tuple[Cost, Cost]:
    """Medians of an admission and of a plain UPDATE, each with its commit, run
    alternately.
    """
    database = grown.database
    ours, plain = [], []
    for number in range(PAIRS):
        with database.read() as session:
            job_id = f"jb_x{statements.size(session, grown.account)}_{number}"
        reserve = partial(_reserve, grown=grown, job_id=job_id)
        ours.append(_timed(partial(_in_transaction, database, reserve, write=True)))
        plain.append(_timed(partial(_in_transaction, database, add_one, write=True)))
        with database.write() as session:
            ledger.void_jobs(session, [job_id], actor="key_analyst")
    return _medians(ours), _medians(plain)


def _in_transaction(
    database: Database, work: Callable[[Session], object], *, write: bool = False
) -> None:
    with database.write() if write else database.read() as session:
        work(session)


def _reserve(session: Session, grown: Ledger, job_id: str) -> None:
    reservation = ledger.NewReservation(
        grown.account, 1, Scope({"shard": (2, 3)}), EVENT, job_id
    )
    reserving.reserve(session, [reservation], actor="key_analyst")


def _balance(session: Session, grown: Ledger) -> None:
    statements.balance(session, grown.account, Scope({"shard": (3,)}))


def _proofs(session: Session, grown: Ledger, size: int) -> None:
    log = Log(session, grown.account)
    log.inclusion(size // 3, size)
    log.consistency(size // 3, size)


def _export(grown: Ledger, file: Path) -> None:
    """Writes the lines of ``GET /ledger/{dataset}/export`` to a file."""
    with file.open("wb") as stream:
        for line in history.export_json_lines(grown.installation, OWNER, grown.account):
            stream.write(line)


def _median(work: Callable[[], object], *, times: int = 30) -> Cost:
    return _medians([_timed(work) for _ in range(times)])


def _medians(costs: list[Cost]) -> Cost:
    return Cost(
        statistics.median(cost.wall for cost in costs),
        statistics.median(cost.cpu for cost in costs),
    )


def _timed(work: Callable[[], object]) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def pgbench(url: str, folder: Path) -> str:
    """Transactions per second of the plain UPDATE according to pgbench, with one
    client.
    """
    script = folder / "plain.sql"
    script.write_text("UPDATE plain SET value = value + 1 WHERE id = 1;\n")
    command = [
        client_program("pgbench"),
        "--no-vacuum",
        "--time=5",
        f"--file={script}",
        driver_url(url),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rate = re.search(r"tps = ([0-9.]+)", done.stdout)
    assert rate is not None, "pgbench prints a rate"
    return f"pgbench, the same UPDATE, one client: {float(rate[1]):.0f} transactions per second."


def main() -> None:
    """Prints the costs on both databases at every size."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000]
    )
    parser.add_argument(
        "--uploads", type=int, help="uploads, one an hour; a multiple of four"
    )
    parser.add_argument(
        "--databases",
        nargs="+",
        choices=["sqlite", "postgresql"],
        default=["sqlite", "postgresql"],
    )
    options = parser.parse_args()
    if options.uploads is not None:
        print("| database | uploads | entries | admission ms | largest ms | first of a process ms | longest entry KB "
              "| longest state KB | export MB | verify s |\n" + "|---" * 10 + "|", flush=True)  # fmt: skip
        for name, url, home in _places(options.databases):
            grown = opened(url, home, _EVERY_UPLOAD)
            print("\n".join(hourly(name, grown, options.uploads)), flush=True)
            grown.installation.close()
        return
    print("| database | entries | first read ms | balance ms | admission ms | UPDATE ms | checkpoint ms "
          "| two proofs ms | export s | verify s | bytes an entry |\n" + "|---" * 11 + "|", flush=True)  # fmt: skip
    for name, url, home in _places(options.databases):
        grown = opened(url, home)
        for size in options.sizes:
            Filler(grown).fill(size)
            verified = name == "sqlite" or size < max(options.sizes)
            print(
                measure(name, grown, folder=home.parent, verified=verified), flush=True
            )
        grown.installation.close()
        if name == "postgresql":
            print(f"\n{pgbench(url, home.parent)}")


def _places(databases: list[str]) -> Iterator[tuple[str, str, Path]]:
    """The name, the address and the home of an empty database of each kind."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in databases:
            url = f"sqlite:///{folder / 'grovekeeper.sqlite3'}"
            if name == "postgresql":
                url = stack.enter_context(
                    fresh_database(stack.enter_context(running_server()))
                )
            yield name, url, folder / name


_SHARDS: list[dict[str, Any]] = [{"name": "shard", "kind": "hash", "cells": N_CELLS}]


def opened(
    url: str, home: Path, partitions: Sequence[dict[str, Any]] = _SHARDS
) -> Ledger:
    """An installation with one dataset."""
    migrate.upgrade(url)
    installation = open_installation(url, home, pool_size=2)
    declaration = DatasetIn.model_validate(
        {
            "name": "growing",
            "schema": {
                "features": [
                    {"name": "age", "type": "integer", "lower": 0, "upper": 120}
                ],
                "label": {"name": "income", "classes": ["low", "high"]},
            },
            "budget": {"accountant": "pure", "epsilon": "1000000"},
            "partitions": partitions,
        }
    )
    dataset = json.loads(
        register_dataset(installation, OWNER, declaration, request=None).body
    )["id"]
    make_plain_table(installation.database)
    return Ledger(installation, dataset)


if __name__ == "__main__":
    main()
