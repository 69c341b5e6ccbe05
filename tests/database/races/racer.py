"""Runs races: forked processes that start at the same moment and compete for the same
rows.

``python -m tests.database.races.racer`` imports the product once and reads ``[race,
processes, options]`` per line of standard input. For each line it forks the processes,
which open their connections, wait for one another and run the race; it prints their
results as one line of JSON. The options are a JSON object: ``url`` and ``home`` of the
installation, and the options of the race. A process that fails prints its traceback,
and the result is ``null``.

If processes compete for budget, they also wait for one another between rounds.
Otherwise, on a busy machine, one process could fill every account before another
process begins.
"""

import gc
import importlib
import json
import multiprocessing
import os
import random
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count, product, takewhile
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from sqlalchemy import select

from app.core.errors import BudgetExceeded, JobFinished, LeaseLost, ReservationSettled
from app.jobs.queue import Claim
from app.jobs.tables import JobRow
from app.ledger import accounts as ledger_accounts
from app.ledger import reservations
from app.ledger import reservations as ledger
from app.services.execution import charge, run_job
from app.services.installation import Installation
from app.services.jobs import show_jobs
from grovekeeper_forests.privacy.scope import WHOLE, Scope
from tests.database.races.rule_races import RULE_RACES
from tests.support import people, reserving
from tests.support.crash_scene import CELLS, EVENT, OWNER, Scene, open_installation
from tests.support.settling import ENDS

Options = dict[str, Any]
"""Options of a race, and ``meet``: a function that returns when every process has
called it.
"""

_PATIENCE_S = 600.0


def until_refused(request: Callable[..., object], *arguments: object) -> int:
    """Repeats a request until it is refused, and returns the number of granted
    requests.
    """
    answers = (request(*arguments) for _ in count())
    return sum(1 for _ in takewhile(bool, answers))


class _Reservations:
    """The reservations that one process makes on an account: ``[job, amount, scope, end
    or None]`` of the admitted.
    """

    def __init__(self, installation: Installation, number: int, account: str) -> None:
        self._database, self._number, self._account = (
            installation.database,
            number,
            account,
        )
        self.admitted: list[list[Any]] = []

    def reserve(self, amount: int, scope: Mapping[str, Sequence[Any]]) -> str | None:
        """The id of a new reservation; ``None`` if it was refused."""
        job_id = f"jb_{self._number}_{len(self.admitted)}"
        reservation = ledger.NewReservation(
            self._account, amount, Scope(scope), EVENT, job_id
        )
        try:
            with self._database.write() as session:
                reservation_id = reserving.reserve(
                    session, [reservation], actor="key_analyst"
                )[0]
        except BudgetExceeded:
            return None
        self.admitted.append([job_id, amount, scope, None])
        return reservation_id

    def reserve_and_settle(
        self, chance: random.Random, amount: int, scope: Mapping[str, Sequence[Any]]
    ) -> None:
        """Makes a reservation and, unless it is refused, settles it or not by chance."""
        reservation_id = self.reserve(amount, scope)
        end = chance.choice([*ENDS, None])
        if reservation_id is not None and end is not None:
            with self._database.write() as session:
                ENDS[end](session, reservation_id, actor="worker")
            self.admitted[-1][3] = end


def reserve(
    installation: Installation, number: int, options: Options
) -> list[list[Any]]:
    """Makes random reservations and settles some, then reserves the smallest amount in
    every cell until nothing fits.

    Returns:
        ``[job, amount, scope, end or None]`` of every reservation that was admitted.
    """
    chance = random.Random(options["seed"] + number)
    reservations = _Reservations(installation, number, options["account"])
    for _ in range(options["rounds"]):
        options["meet"]()
        cells = tuple(sorted(chance.sample(range(CELLS), chance.randint(1, CELLS))))
        scope = {"shard": cells} if len(cells) < CELLS else {}
        reservations.reserve_and_settle(
            chance, chance.randint(options["smallest"], options["largest"]), scope
        )
    options["meet"]()
    for cell in chance.sample(range(CELLS), CELLS):
        until_refused(reservations.reserve, options["smallest"], {"shard": (cell,)})
    return reservations.admitted


def reserve_boxes(
    installation: Installation, number: int, options: Options
) -> list[list[Any]]:
    """Reserves on random boxes over several partitions and settles some, then fills
    single joint cells.

    Returns:
        ``[job, amount, box, end or None]`` of every reservation that was admitted.
    """
    chance, cells = random.Random(options["seed"] + number), options["cells"]
    reservations = _Reservations(installation, number, options["account"])
    for _ in range(options["rounds"]):
        options["meet"]()
        names = sorted(
            {
                options["uploads"],
                *chance.sample(sorted(cells), chance.randint(0, len(cells))),
            }
        )
        box = {
            name: tuple(
                sorted(chance.sample(cells[name], chance.randint(1, len(cells[name]))))
            )
            for name in names
        }
        reservations.reserve_and_settle(
            chance, chance.randint(options["smallest"], options["largest"]), box
        )
    # after this, no amount is voided, so a full joint cell stays full
    options["meet"]()
    single = [
        {name: (cell,) for name, cell in zip(cells, joint, strict=True)}
        for joint in product(*cells.values())
    ]
    for box in chance.sample(single, len(single))[number % 4 :: 4]:
        until_refused(reservations.reserve, options["smallest"], box)
    return reservations.admitted


def reserve_under_moving_caps(
    installation: Installation, number: int, options: Options
) -> list[list[Any]]:
    """Changes the cap in every fourth process; reserves and charges in random cells in
    the others.

    Returns:
        ``[job, amount]`` of every reservation that was admitted, or ``["cap", amount]``
        of every cap that was set.
    """
    chance = random.Random(options["seed"] + number)
    done: list[list[Any]] = []
    for turn in range(options["rounds"]):
        options["meet"]()
        if number % 4 == 0:
            cap = chance.randint(0, options["cap"])
            with installation.database.write() as session:
                ledger_accounts.change_cap(
                    session, options["account"], cap, reason="a race", actor="key_owner"
                )
            done.append(["cap", cap])
            continue
        cells = sorted(chance.sample(range(CELLS), chance.randint(1, CELLS)))
        amount, job_id = chance.randint(1, options["largest"]), f"jb_{number}_{turn}"
        new_reservation = ledger.NewReservation(
            options["account"], amount, Scope({"shard": tuple(cells)}), EVENT, job_id
        )
        with suppress(BudgetExceeded):
            with installation.database.write() as session:
                reservation_id = reserving.reserve(
                    session, [new_reservation], actor="key_analyst"
                )[0]
            done.append([job_id, amount])
            if chance.random() < 0.5:
                with installation.database.write() as session:
                    ledger.charge(session, reservation_id, actor="worker")
    return done


def charge_delta(
    installation: Installation, number: int, options: Options
) -> list[list[Any]]:
    """Charges random δ in random cells, then the smallest δ in every cell until nothing
    fits; returns the charges.
    """
    chance = random.Random(options["seed"] + number)
    charged: list[list[Any]] = []

    def ask(delta: int, cells: list[int]) -> bool:
        new_reservation = ledger.NewReservation(
            options["account"], 1, Scope({"shard": tuple(cells)}), EVENT, None
        )
        try:
            with installation.database.write() as session:
                reservations.charge_external(
                    session, new_reservation, delta=delta, actor="key_attester"
                )
        except BudgetExceeded:
            return False
        charged.append([delta, cells])
        return True

    for _ in range(options["rounds"]):
        ask(
            chance.randint(options["smallest"], options["largest"]),
            sorted(chance.sample(range(CELLS), 2)),
        )
    for cell in chance.sample(range(CELLS), CELLS):
        until_refused(ask, options["smallest"], [cell])
    return charged


def settle(installation: Installation, number: int, options: Options) -> list[str]:
    """Settles every reservation, in a random order and with random ends; returns the
    settlements that succeeded.
    """
    chance = random.Random(options["seed"] + number)
    settled = []
    for reservation_id in chance.sample(
        options["reservations"], len(options["reservations"])
    ):
        end = chance.choice(list(ENDS))
        try:
            with installation.database.write() as session:
                ENDS[end](session, reservation_id, actor="worker")
        except ReservationSettled:
            continue
        settled.append(f"{end} {reservation_id}")
    return settled


def submit(installation: Installation, number: int, options: Options) -> list[str]:
    """Submits trainings of random ε and scope; returns the bodies of the accepted
    requests' answers.
    """
    chance = random.Random(options["seed"] + number)
    scene, accepted = Scene(installation, options["dataset"]), []
    for turn in range(options["rounds"]):
        scope = {"shard": chance.sample(range(CELLS), chance.randint(1, CELLS))}
        try:
            answer = scene.submit(
                key=f"{number}-{turn}", epsilon=f"0.{chance.randint(1, 9)}", scope=scope
            )
        except BudgetExceeded:
            continue
        accepted.append(answer.body.decode())
    return accepted


def submit_same(installation: Installation, number: int, options: Options) -> list[Any]:
    """Submits the same request with the same key in every process."""
    answer = Scene(installation, options["dataset"]).submit(key="the same key")
    return [answer.status, answer.location, answer.body.decode()]


def claim_all(
    installation: Installation, number: int, options: Options
) -> list[list[str]]:
    """Claims jobs until the queue is empty; returns the claims."""
    claims = []
    while (claim := run_job.claim_next(installation)) is not None:
        claims.append([claim.job_id, claim.token])
    return claims


def charge_or_cancel(
    installation: Installation, number: int, options: Options
) -> list[str]:
    """Charges every claimed job in half of the processes, and cancels it in the other
    half, in random orders.
    """
    claims = random.Random(options["seed"] + number).sample(
        options["claims"], len(options["claims"])
    )
    succeeded = []
    for job_id, token in claims:
        try:
            if number % 2:
                show_jobs.cancel_job(installation, OWNER, job_id)
            else:
                charge.charge_claimed(installation, Claim(job_id, token))
        except (JobFinished, LeaseLost):
            continue
        succeeded.append(f"{'cancel' if number % 2 else 'charge'} {job_id}")
    return succeeded


def reserve_members(
    installation: Installation, number: int, options: Options
) -> list[list[Any]]:
    """Reserves on random members of populations and settles some, then fills the
    accounts.

    If the options have ``caps`` by population, the race also changes caps, to at most
    these values.

    Returns:
        ``[job, amount, accounts, end or None]`` of every job that was admitted.
    """
    chance = random.Random(options["seed"] + number)
    accounts, admitted = options["accounts"], list[list[Any]]()

    def ask(amount: int, account_ids: list[str]) -> bool:
        job_id = f"jb_{number}_{len(admitted)}"
        new_reservations = [
            ledger.NewReservation(account, amount, WHOLE, EVENT, job_id)
            for account in account_ids
        ]
        try:
            with installation.database.write() as session:
                reserving.reserve(session, new_reservations, actor="key_analyst")
        except BudgetExceeded:
            return False
        admitted.append([job_id, amount, account_ids, None])
        return True

    for _ in range(options["rounds"]):
        options["meet"]()
        for population, highest in sorted(options.get("caps", {}).items()):
            if chance.random() < 0.3:
                with installation.database.write() as session:
                    cap = chance.randint(highest // 3, highest)
                    ledger_accounts.change_cap(
                        session, population, cap, reason="a race", actor="key_owner"
                    )
        if not ask(
            chance.randint(1, options["largest"]),
            chance.sample(accounts, chance.randint(1, 2)),
        ):
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


def upload_units(
    installation: Installation, number: int, options: Options
) -> list[Any]:
    """Uploads a row of every patient, twice; returns the numbers of dropped rows that
    the owner's reports state.
    """
    dropped = []
    for turn in range(2):
        rows = [
            (f"patient-{patient}", number * 10 + turn)
            for patient in range(options["patients"])
        ]
        dropped.append(
            people.upload(installation, options["dataset"], people.visits(rows))[
                "dropped"
            ]
        )
    return dropped


def upload_same(
    installation: Installation, number: int, options: Options
) -> dict[str, Any]:
    """Makes the same upload with the same key in every process."""
    return people.upload(
        installation,
        options["dataset"],
        people.visits([("ann", 1), ("ben", 2)]),
        key="the same key",
    )


RACES: dict[str, Callable[[Installation, int, Options], Any]] = {
    race.__name__: race
    for race in (
        reserve,
        reserve_boxes,
        reserve_under_moving_caps,
        charge_delta,
        settle,
        submit,
        submit_same,
        claim_all,
        charge_or_cancel,
        upload_units,
        upload_same,
        reserve_members,
    )
} | RULE_RACES


def main() -> None:
    """Runs one race per line of standard input."""
    # otherwise, each fork that uploads loads it
    importlib.import_module("app.datasets.ingest")
    gc.freeze()  # a collection in a fork would copy what it visits
    for line in sys.stdin:
        name, n_processes, options = json.loads(line)
        print(json.dumps(run_race(RACES[name], n_processes, options)), flush=True)


def run_race(
    race: Callable[..., Any], n_processes: int, options: Options
) -> list[Any] | None:
    """Forks the processes, which start together; returns their results in order, or
    ``None`` if a process failed.
    """
    _load_drivers(options)
    barrier = multiprocessing.get_context("fork").Barrier(
        n_processes, timeout=_PATIENCE_S
    )
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / str(number) for number in range(n_processes)]
        racers = []
        for number, file in enumerate(files):
            pid = os.fork()
            if pid == 0:
                _race(race, number, options, barrier=barrier, file=file)
            racers.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in racers]
        return (
            None
            if any(codes)
            else [json.loads(file.read_text(encoding="utf-8")) for file in files]
        )


def _load_drivers(options: Options) -> None:
    """Loads drivers and mappers before the fork, because a process that loads them
    later starts too late to compete.
    """
    installation = open_installation(options["url"], Path(options["home"]), pool_size=2)
    with installation.database.read() as session:
        session.execute(select(JobRow).limit(1)).first()
    installation.close()


def _race(
    run: Callable[..., Any],
    number: int,
    options: Options,
    *,
    barrier: Barrier,
    file: Path,
) -> None:
    code = 1
    try:
        installation = open_installation(
            options["url"], Path(options["home"]), pool_size=2
        )
        with installation.database.read() as session:
            session.connection()
        barrier.wait()
        file.write_text(
            json.dumps(run(installation, number, options | {"meet": barrier.wait})),
            encoding="utf-8",
        )
        code = 0
    except BaseException:  # noqa: BLE001 - a forked process must not continue its parent's program
        traceback.print_exc()
        barrier.abort()  # the other processes must not wait for this process
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
