"""The races about rules and approvals that :mod:`tests.database.races.racer` runs."""

import random
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from unittest.mock import patch

from app.access.grants import Principal
from app.core import stamps
from app.core.errors import Frozen, JobFinished, LeaseLost, NotWaiting, QuotaExceeded
from app.jobs import queue
from app.jobs.queue import Claim
from app.services.datasets.erase import delete_dataset, erase_due
from app.services.execution import charge
from app.services.installation import Installation
from app.services.jobs import show_jobs
from tests.support.clocks import database_tells
from tests.support.crash_scene import ADMIN, OWNER, Scene
from tests.support.ruled import SECOND, decided, set_rules
from tests.support.sweeping import expired_at

Options: TypeAlias = Mapping[str, Any]


def submit_ruled(
    installation: Installation, number: int, options: Options
) -> list[list[str]]:
    """Submits trainings by two keys until all are refused; returns ``[key, ε]`` of the
    accepted ones.
    """
    chance = random.Random(options["seed"] + number)
    scene = Scene(installation, options["dataset"])
    by, accepted = (OWNER, SECOND)[number % 2], []
    for turn in range(options["rounds"]):
        epsilon = f"0.{chance.randint(1, 3)}" if turn < options["rounds"] - 3 else "0.1"
        try:
            scene.submit(key=f"{number}-{turn}", epsilon=epsilon, by=by)
        except QuotaExceeded:
            continue
        accepted.append([by.key_id, epsilon])
    return accepted


def end_waiting_jobs(
    installation: Installation, number: int, options: Options
) -> list[str]:
    """Approves, rejects, cancels or expires every waiting job, in random orders;
    returns what succeeded.
    """
    scene, jobs = Scene(installation, options["dataset"]), options["jobs"]
    name, end = list(_ENDS.items())[number % len(_ENDS)]
    succeeded = []
    for job_id in random.Random(options["seed"] + number).sample(jobs, len(jobs)):
        try:
            has_ended = end(scene, job_id)
        except (NotWaiting, JobFinished):
            continue
        if has_ended:
            succeeded.append(f"{name} {job_id}")
    return succeeded


def _decide(decision: str, by: Principal) -> Callable[[Scene, str], bool]:
    return lambda scene, job_id: bool(decided(scene, job_id, decision, by=by))


def _expire(scene: Scene, job_id: str) -> bool:
    """Sweeps one job as if a week had passed; an approved job is left alone."""
    submitted_at: datetime = scene.job(job_id).submitted_at
    with patch.object(queue, "overdue", lambda *_, **__: [job_id]):
        return bool(
            expired_at(scene.installation, submitted_at + timedelta(days=7, seconds=1))
        )


_ENDS: Mapping[str, Callable[[Scene, str], bool]] = {
    "approve": _decide("approve", OWNER),
    "reject": _decide("reject", ADMIN),
    "cancel": lambda scene, job_id: bool(
        show_jobs.cancel_job(scene.installation, OWNER, job_id)
    ),
    "approve too": _decide("approve", ADMIN),
    "expire": _expire,
}


def charge_or_freeze(installation: Installation, number: int, options: Options) -> int:
    """Charges claimed jobs; the first process freezes the dataset and returns the
    number of charges thereafter.
    """
    scene = Scene(installation, options["dataset"])
    if number == 0:
        set_rules(scene, frozen=True)
        return sum(entry.kind == "charge" for entry in scene.entries())
    for job_id, token in random.Random(options["seed"] + number).sample(
        options["claims"], len(options["claims"])
    ):
        try:
            charge.charge_claimed(installation, Claim(job_id, token))
        except (Frozen, LeaseLost):
            continue
    return 0


def erase_due_dataset(
    installation: Installation, number: int, options: Options
) -> list[str]:
    """Searches for due datasets as if the date had come; an owner deletes the dataset
    in every fourth process.
    """
    if number % 4 == 3:
        delete_dataset(installation, OWNER, options["dataset"])
        return []
    with database_tells(stamps.from_text(options["at"])):
        return erase_due(installation)


RULE_RACES: dict[str, Callable[[Installation, int, Options], Any]] = {
    race.__name__: race
    for race in (submit_ruled, end_waiting_jobs, charge_or_freeze, erase_due_dataset)
}
