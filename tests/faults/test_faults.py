"""Tests that a deployment under mixed traffic survives every kind of fault, in random
order and overlapping.

``TEST_SEED`` seeds the choices of faults and requests; the interleaving of processes
differs from run to run. ``TEST_FAULT_ROUNDS`` is the number of rounds of the long test
on each database.
"""

import os
import random
import time
from collections import Counter, deque
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from tests.faults import checks, traffic
from tests.faults.deployment import Deployment, Fork, embedded, replicated
from tests.faults.faults import Fault, possible_in

_DEPLOYMENTS = {"sqlite": embedded, "postgresql": replicated}
_AT_ONCE = 2
_PAUSE_S = 0.6
_MOST = 0.7
"""A part of the faults that certainly finds what it breaks."""

_LONG_ROUNDS = int(os.environ.get("TEST_FAULT_ROUNDS", "32"))


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_deployment_survives_every_kind_of_fault(
    database: str, tmp_path: Path, fork: Fork
) -> None:
    survive(database, tmp_path, fork, n_rounds=1)


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_deployment_survives_a_thousand_faults(
    database: str, tmp_path: Path, fork: Fork
) -> None:
    survive(database, tmp_path, fork, n_rounds=_LONG_ROUNDS)


def survive(database: str, folder: Path, fork: Fork, *, n_rounds: int) -> None:
    """Strikes a deployment with every possible fault once per round, and checks it
    after each round.
    """
    chance = random.Random(os.environ["TEST_SEED"])
    struck: Counter[str] = Counter()
    answers: Counter[tuple[str, int]] = Counter()
    with _DEPLOYMENTS[database](folder, fork) as deployment:
        for number in range(n_rounds):
            record = _round(deployment, chance, struck)
            answers += record.tally
            print(
                f"round {number + 1}: {struck.total()} faults, {answers.total()} requests",
                flush=True,
            )
    print(f"{database}: {dict(struck)}\n{dict(answers)}", flush=True)
    assert struck.total() > n_rounds * len(possible_in(deployment)) * _MOST


def _round(
    deployment: Deployment, chance: random.Random, struck: Counter[str]
) -> traffic.Record:
    urls = [part.url for part in deployment.apis if part.url]
    objects = traffic.declared_objects(urls[0])
    with traffic.clients(urls, objects, seed=str(chance.random())) as record:
        _strike_all(deployment, chance, struck)
        deployment.heal()
    traffic.send_all_pending(urls, objects, record)
    checks.wait_for_jobs(deployment)
    checks.check(deployment, objects, record)
    return record


def _strike_all(
    deployment: Deployment, chance: random.Random, struck: Counter[str]
) -> None:
    """Strikes with every possible fault in random order; at most a few last at the same
    time.
    """
    kinds: list[Fault] = list(possible_in(deployment))
    chance.shuffle(kinds)
    with ExitStack() as at_the_end:
        open_faults: deque[AbstractContextManager[bool]] = deque()
        at_the_end.callback(
            lambda: [fault.__exit__(None, None, None) for fault in open_faults]
        )
        for kind in kinds:
            fault = kind(deployment, chance)
            struck[kind.__name__] += fault.__enter__()
            open_faults.append(fault)
            time.sleep(chance.uniform(0, _PAUSE_S))
            while len(open_faults) > chance.randrange(_AT_ONCE):
                open_faults.popleft().__exit__(None, None, None)
