"""Tests that saturation makes no process grow, and that a hostile analyst does not shut
out honest ones.

``TEST_SOAK_S`` is the duration of the long test on each database. Bounds are numbers of
requests and jobs; durations are reported only.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import select

from app.api.capacity import THREADS
from app.db.database import Database
from app.jobs.tables import JobRow
from tests.faults import load
from tests.faults.deployment import Deployment, Fork, embedded, replicated
from tests.faults.load import Answers, Keys, Meter, Sample

_DEPLOYMENTS = {"sqlite": embedded, "postgresql": replicated}
_N_CLIENTS = 64
_LONG_S = float(os.environ.get("TEST_SOAK_S", "180"))

_OTHER_THREADS = 10
"""Threads of an API process that run no requests: its loop, and what it does at
intervals.
"""
_MORE_DESCRIPTORS, _MORE_CONNECTIONS = 8, 4
_MORE_BYTES = 12 * 1024 * 1024
"""Bounds of growth from the second third of a run to the last; the first third is the
warm-up.

The bytes are those of the jobs in the queue, which grows in a run, and of statements
that a connection sees for the first time. Connections that keep 2 MiB of pages of a
SQLite file, and an arena for every thread, exceed them.
"""


def test_a_few_clients_get_answers_beside_a_hostile_one(
    tmp_path: Path, fork: Fork
) -> None:
    with embedded(tmp_path, fork) as deployment:
        keys, answers, meter = soaked(
            deployment, n_clients=12, until=_an_honest_job_succeeded
        )
        meter.sample()
        check_answers(answers, n_clients=12)
        check_turns(deployment, keys, answers)


def _an_honest_job_succeeded(answers: Answers) -> bool:
    """Whether there are some answers, and one is a prediction by the model of an honest
    job.
    """
    return len(answers.all) > 120 and any(
        answer.operation == "POST predict" for answer in answers.all
    )


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_saturation_makes_nothing_grow(
    database: str, tmp_path: Path, fork: Fork
) -> None:
    over_at = time.monotonic() + _LONG_S
    with _DEPLOYMENTS[database](tmp_path, fork) as deployment:
        keys, answers, meter = soaked(
            deployment, n_clients=_N_CLIENTS, until=lambda _: time.monotonic() > over_at
        )
        print(f"{database}: {report(answers)}", flush=True)
        for part, samples in zip(deployment.parts, meter.samples, strict=True):
            megabytes = [
                sample.rss_bytes // 2**20
                for sample in samples[:: max(len(samples) // 12, 1)]
            ]
            print(
                f"{part.start.role}: {samples[len(samples) // 3]} … {samples[-1]}, MiB {megabytes}",
                flush=True,
            )
        check_answers(answers, n_clients=_N_CLIENTS)
        check_turns(deployment, keys, answers)
        for samples in meter.samples:
            check_growth(samples)


def soaked(
    deployment: Deployment, *, n_clients: int, until: load.Until
) -> tuple[Keys, Answers, Meter]:
    """Saturates a deployment and measures its processes."""
    urls = [part.url for part in deployment.apis if part.url]
    keys, meter = load.prepared(urls[0]), Meter(deployment)
    with meter.running():
        answers = load.saturate(urls, keys, n_clients=n_clients, until=until)
    return keys, answers, meter


def report(answers: Answers) -> str:
    """Durations of the answers in seconds, and their numbers by status."""
    lines = []
    for who, is_hostile in (("honest", False), ("hostile", True)):
        seconds = answers.seconds(is_hostile=is_hostile)
        shown = ", ".join(
            f"p{part} {quantile(seconds, part):.2f}" for part in (50, 95, 99)
        )
        lines.append(
            f"{who}: {len(seconds)} answers, {shown}; {dict(answers.statuses(is_hostile=is_hostile))}"
        )
    overtaken = answers.overtaken()
    lines.append(
        ", ".join(
            f"overtaken p{part} {quantile(overtaken, part)}"
            for part in (50, 95, 99, 100)
        )
    )
    return "\n".join(lines)


def quantile(values: Sequence[float], percent: int) -> float:
    """The value below which a part of sorted values lies."""
    return values[min(len(values) * percent // 100, len(values) - 1)]


def check_answers(answers: Answers, *, n_clients: int) -> None:
    """Honest requests are answered, and few hostile requests overtake them."""
    assert not answers.wrong, answers.wrong[:9]
    honest = answers.statuses(is_hostile=False)
    assert honest[429] + honest[503] == 0, honest
    # Requests wait in order of arrival: for the check of their key, a thread of their
    # kind, and SQLite's write lock.
    assert quantile(answers.overtaken(), 95) <= 4 * n_clients


def check_turns(deployment: Deployment, keys: Keys, answers: Answers) -> None:
    """While an honest job waits, every worker begins the hostile job that it has, and
    one of them another one.
    """
    database = Database.open(deployment.database_url, pool_size=1)
    with database.read() as session:
        rows = (
            session.execute(select(JobRow).where(JobRow.charged_at.is_not(None)))
            .scalars()
            .all()
        )
    database.close()
    hostile, _ = keys.hostile
    begun = [row.charged_at for row in rows if row.submitted_by == hostile]
    honest = [row for row in rows if row.id in answers.accepted_at]
    assert honest, "no honest job ran"
    for row in honest:
        n_between = sum(
            answers.accepted_at[row.id] < at < row.charged_at for at in begun
        )
        assert n_between <= len(deployment.workers) + 1, (
            f"{n_between} hostile jobs began while an honest job waited"
        )


def check_growth(samples: Sequence[Sample]) -> None:
    """In the last third of a run, a process uses no more of anything than in the second
    third, nor too many threads.
    """
    third = len(samples) // 3
    assert third > 0
    before, after = samples[third : 2 * third], samples[2 * third :]

    def growth(name: str) -> int:
        return max(getattr(sample, name) for sample in after) - max(
            getattr(sample, name) for sample in before
        )

    # Threads start when requests need them and end when idle, so their number rises and
    # falls below its limit.
    assert (
        max(sample.n_threads for sample in samples)
        <= sum(THREADS.values()) + _OTHER_THREADS
    )
    assert growth("n_descriptors") <= _MORE_DESCRIPTORS
    assert growth("n_connections") <= _MORE_CONNECTIONS
    assert growth("rss_bytes") <= _MORE_BYTES
