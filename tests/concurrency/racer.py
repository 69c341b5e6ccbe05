"""Processes that begin at the same moment and want the same thing.

``python -m tests.concurrency.racer <race> <processes> <options>`` imports everything once, forks, lets the processes
wait for one another after each has opened its own connections, and prints what each one did as one line of JSON.
The options are a JSON object: ``url`` and ``home`` of the installation, and what the race needs. A process that fails
prints its traceback, and the exit code says so.

Where what the others left decides what a process may do, they also wait for one another between rounds: on a busy
machine one of them could otherwise have run its whole race, and filled every account, before another one begins.
"""

import itertools
import json
import multiprocessing
import os
import random
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from sqlalchemy import select

from app.core.errors import BudgetExceeded, JobFinished, LeaseLost, ReservationSettled
from app.jobs.queue import Claim
from app.jobs.tables import JobRow
from app.ledger import caps, external
from app.ledger import service as ledger
from app.services.installation import Installation
from app.services.jobs import run_job, show_jobs
from tests.support import people
from tests.support.crash_scene import CELLS, EVENT, OWNER, Scene, open_installation

Options = dict[str, Any]
"""Of the race, and ``meet``: a call that returns once every process has made it."""

_PATIENCE_S = 600.0
_ENDS = {"charge": ledger.charge, "void": ledger.void, "expire": ledger.expire}


def until_refused(ask: Callable[..., object], *wanted: object) -> int:
    """Asks for the same until it is refused; how often it was granted."""
    answers = (ask(*wanted) for _ in itertools.count())
    return sum(1 for _ in itertools.takewhile(bool, answers))


def reserve(installation: Installation, number: int, options: Options) -> list[list[Any]]:
    """Random reservations and ends, then the smallest amount in every cell until nothing fits.

    Returns:
        ``[job, amount, cells, end or None]`` of every reservation that was admitted.
    """
    chance = random.Random(options["seed"] + number)
    admitted: list[list[Any]] = []

    def ask(amount: int, cells: list[int]) -> str | None:
        job_id = f"jb_{number}_{len(admitted)}"
        scope = {"shard": tuple(cells)} if len(cells) < CELLS else {}
        new = ledger.NewReservation(options["account"], amount, scope, EVENT, job_id)
        try:
            with installation.database.write() as session:
                reservation_id = ledger.reserve(session, [new], actor="key_analyst")[0]
        except BudgetExceeded:
            return None
        admitted.append([job_id, amount, cells, None])
        return reservation_id

    for _ in range(options["rounds"]):
        options["meet"]()
        cells = sorted(chance.sample(range(CELLS), chance.randint(1, CELLS)))
        reservation_id = ask(chance.randint(options["smallest"], options["largest"]), cells)
        end = chance.choice([*_ENDS, None])
        if reservation_id is not None and end is not None:
            with installation.database.write() as session:
                _ENDS[end](session, reservation_id, actor="worker")
            admitted[-1][3] = end
    options["meet"]()
    for cell in chance.sample(range(CELLS), CELLS):
        until_refused(ask, options["smallest"], [cell])
    return admitted


def reserve_boxes(installation: Installation, number: int, options: Options) -> list[list[Any]]:
    """Random reservations of boxes over several partitions, some of them ended, then small ones in single joint cells.

    Returns:
        ``[job, amount, box, end or None]`` of every reservation that was admitted.
    """
    chance, cells = random.Random(options["seed"] + number), options["cells"]
    admitted: list[list[Any]] = []

    def ask(amount: int, box: dict[str, tuple[Any, ...]]) -> str | None:
        job_id = f"jb_{number}_{len(admitted)}"
        new = ledger.NewReservation(options["account"], amount, box, EVENT, job_id)
        try:
            with installation.database.write() as session:
                reservation_id = ledger.reserve(session, [new], actor="key_analyst")[0]
        except BudgetExceeded:
            return None
        admitted.append([job_id, amount, box, None])
        return reservation_id

    for _ in range(options["rounds"]):
        options["meet"]()
        names = sorted({options["uploads"], *chance.sample(sorted(cells), chance.randint(0, len(cells)))})
        box = {name: tuple(sorted(chance.sample(cells[name], chance.randint(1, len(cells[name]))))) for name in names}
        reservation_id = ask(chance.randint(options["smallest"], options["largest"]), box)
        end = chance.choice([*_ENDS, None])
        if reservation_id is not None and end is not None:
            with installation.database.write() as session:
                _ENDS[end](session, reservation_id, actor="worker")
            admitted[-1][3] = end
    options["meet"]()  # nobody gives back any more, so what is found full stays full
    joint = [dict(zip(cells, ((cell,) for cell in found), strict=True)) for found in itertools.product(*cells.values())]
    for box in chance.sample(joint, len(joint))[number % 4 :: 4]:
        until_refused(ask, options["smallest"], box)
    return admitted


def reserve_under_moving_caps(installation: Installation, number: int, options: Options) -> list[list[Any]]:
    """Every fourth process moves the cap up and down; the others reserve and charge in random cells.

    Returns:
        ``[job, amount]`` of every reservation that was admitted, or ``["cap", amount]`` of every cap that was set.
    """
    chance = random.Random(options["seed"] + number)
    done: list[list[Any]] = []
    for turn in range(options["rounds"]):
        options["meet"]()
        if number % 4 == 0:
            cap = chance.randint(0, options["cap"])
            with installation.database.write() as session:
                caps.change(session, options["account"], cap, reason="a race", actor="key_owner")
            done.append(["cap", cap])
            continue
        cells = sorted(chance.sample(range(CELLS), chance.randint(1, CELLS)))
        amount, job_id = chance.randint(1, options["largest"]), f"jb_{number}_{turn}"
        new = ledger.NewReservation(options["account"], amount, {"shard": tuple(cells)}, EVENT, job_id)
        with suppress(BudgetExceeded):
            with installation.database.write() as session:
                reservation_id = ledger.reserve(session, [new], actor="key_analyst")[0]
            done.append([job_id, amount])
            if chance.random() < 0.5:
                with installation.database.write() as session:
                    ledger.charge(session, reservation_id, actor="worker")
    return done


def charge_delta(installation: Installation, number: int, options: Options) -> list[list[Any]]:
    """Charges of random δ in random cells, then the smallest in every cell until nothing fits; what was charged."""
    chance = random.Random(options["seed"] + number)
    charged: list[list[Any]] = []

    def ask(delta: int, cells: list[int]) -> bool:
        new = ledger.NewReservation(options["account"], 1, {"shard": tuple(cells)}, EVENT, None)
        try:
            with installation.database.write() as session:
                external.charge(session, new, delta=delta, actor="key_attester")
        except BudgetExceeded:
            return False
        charged.append([delta, cells])
        return True

    for _ in range(options["rounds"]):
        ask(chance.randint(options["smallest"], options["largest"]), sorted(chance.sample(range(CELLS), 2)))
    for cell in chance.sample(range(CELLS), CELLS):
        until_refused(ask, options["smallest"], [cell])
    return charged


def settle(installation: Installation, number: int, options: Options) -> list[str]:
    """Every process wants to end every reservation, each in an order and a way of its own."""
    chance = random.Random(options["seed"] + number)
    won = []
    for reservation_id in chance.sample(options["reservations"], len(options["reservations"])):
        end = chance.choice(list(_ENDS))
        try:
            with installation.database.write() as session:
                _ENDS[end](session, reservation_id, actor="worker")
        except ReservationSettled:
            continue
        won.append(f"{end} {reservation_id}")
    return won


def submit(installation: Installation, number: int, options: Options) -> list[str]:
    """Submissions of random size and scope; the bodies of those that were accepted."""
    chance = random.Random(options["seed"] + number)
    scene, accepted = Scene(installation, options["dataset"]), []
    for turn in range(options["rounds"]):
        scope = {"shard": chance.sample(range(CELLS), chance.randint(1, CELLS))}
        try:
            answer = scene.submit(key=f"{number}-{turn}", epsilon=f"0.{chance.randint(1, 9)}", scope=scope)
        except BudgetExceeded:
            continue
        accepted.append(answer.body.decode())
    return accepted


def submit_same(installation: Installation, number: int, options: Options) -> list[Any]:
    """The same request with the same key from everybody."""
    answer = Scene(installation, options["dataset"]).submit(key="the same key")
    return [answer.status, answer.location, answer.body.decode()]


def claim(installation: Installation, number: int, options: Options) -> list[list[str]]:
    """Claims until nothing waits; what was claimed."""
    claimed = []
    while (found := run_job.claim_next(installation)) is not None:
        claimed.append([found.job_id, found.token])
    return claimed


def charge_or_cancel(installation: Installation, number: int, options: Options) -> list[str]:
    """Half of the processes charge every claimed job, half cancel it, each in an order of its own."""
    mine = random.Random(options["seed"] + number).sample(options["claims"], len(options["claims"]))
    won = []
    for job_id, token in mine:
        try:
            if number % 2:
                show_jobs.cancel_job(installation, OWNER, job_id)
            else:
                run_job.charge_job(installation, Claim(job_id, token))
        except (JobFinished, LeaseLost):
            continue
        won.append(f"{'cancel' if number % 2 else 'charge'} {job_id}")
    return won


def reserve_members(installation: Installation, number: int, options: Options) -> list[list[Any]]:
    """Random reservations on one or several members of a population and their ends, until the smallest fits nowhere.

    Where the options name ``caps``, by population, those move too: each change puts at most that much in force.

    Returns:
        ``[job, amount, accounts, end or None]`` of every job that was admitted.
    """
    chance = random.Random(options["seed"] + number)
    accounts, admitted = options["accounts"], list[list[Any]]()

    def ask(amount: int, wanted: list[str]) -> bool:
        job_id = f"jb_{number}_{len(admitted)}"
        new = [ledger.NewReservation(account, amount, {}, EVENT, job_id) for account in wanted]
        try:
            with installation.database.write() as session:
                ledger.reserve(session, new, actor="key_analyst")
        except BudgetExceeded:
            return False
        admitted.append([job_id, amount, wanted, None])
        return True

    for _ in range(options["rounds"]):
        options["meet"]()
        for population, highest in sorted(options.get("caps", {}).items()):
            if chance.random() < 0.3:
                with installation.database.write() as session:
                    cap = chance.randint(highest // 3, highest)
                    caps.change(session, population, cap, reason="a race", actor="key_owner")
        if not ask(chance.randint(1, options["largest"]), chance.sample(accounts, chance.randint(1, 2))):
            continue
        end = chance.choice(["charge", "void", None])
        if end is not None:
            with installation.database.write() as session:
                if end == "charge":
                    ledger.charge_job(session, admitted[-1][0], actor="worker")
                else:
                    ledger.void_jobs(session, [admitted[-1][0]], actor="key_analyst")
            admitted[-1][3] = end
    options["meet"]()
    until_refused(lambda: ask(1, [chance.choice(accounts)]))
    return admitted


def upload_units(installation: Installation, number: int, options: Options) -> list[Any]:
    """Everybody uploads a row of every patient, twice; what the owner was told was dropped."""
    told = []
    for turn in range(2):
        rows = [(f"patient-{each}", number * 10 + turn) for each in range(options["patients"])]
        told.append(people.upload(installation, options["dataset"], people.visits(rows))["dropped"])
    return told


def upload_same(installation: Installation, number: int, options: Options) -> dict[str, Any]:
    """The same upload with the same key from everybody."""
    return people.upload(installation, options["dataset"], people.visits([("ann", 1), ("ben", 2)]), key="the same key")


RACES: dict[str, Callable[[Installation, int, Options], Any]] = {
    each.__name__: each
    for each in (
        reserve,
        reserve_boxes,
        reserve_under_moving_caps,
        charge_delta,
        settle,
        submit,
        submit_same,
        claim,
        charge_or_cancel,
        upload_units,
        upload_same,
        reserve_members,
    )
}


def main(race: str, n_processes: int, options: Options) -> int:
    """Forks the racers, who begin when all stand there, and prints their results in order."""
    _load_what_the_first_use_loads(options)
    barrier = multiprocessing.get_context("fork").Barrier(n_processes, timeout=_PATIENCE_S)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / str(number) for number in range(n_processes)]
        racers = []
        for number, file in enumerate(files):
            pid = os.fork()
            if pid == 0:
                _race(RACES[race], number, options, barrier=barrier, file=file)
            racers.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in racers]
        if any(codes):
            return 1
        for file in files:
            print(file.read_text(encoding="utf-8"))
    return 0


def _load_what_the_first_use_loads(options: Options) -> None:
    """Drivers and mappers, once for all: a racer that loads them after the gate is late, and finds nobody to race."""
    installation = open_installation(options["url"], Path(options["home"]), pool_size=2)
    with installation.database.read() as session:
        session.execute(select(JobRow).limit(1)).first()
    installation.close()


def _race(run: Callable[..., Any], number: int, options: Options, *, barrier: Barrier, file: Path) -> None:
    code = 1
    try:
        installation = open_installation(options["url"], Path(options["home"]), pool_size=2)
        with installation.database.read() as session:
            session.connection()
        barrier.wait()
        file.write_text(json.dumps(run(installation, number, options | {"meet": barrier.wait})), encoding="utf-8")
        code = 0
    except BaseException:  # noqa: BLE001 - a forked process must not go on with its parent's program
        traceback.print_exc()
        barrier.abort()  # nobody waits for one that does not come
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])))
