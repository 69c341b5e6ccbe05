"""Measures admissions and refusals on members of a population, compared with an account
alone.

Run ``python -m benchmarks.population_entries``. An account alone, a member of a
population of one, and a member of one of a hundred take turns, a batch each, on the
same database; all have eight hash cells and the same history, and the other members
have spend on every second cell. Then the same requests are refused, by the account
where it is alone and by the population otherwise. The output is the median over batches
of wall-clock time and of the CPU of this process for one request, and the median of the
paired ratios to the account alone, because absolute times of a shared machine mean
little.
"""

import itertools
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from app.core import stamps
from app.core.errors import BudgetExceeded
from app.db.database import Database
from app.ledger import accounts, populations
from app.ledger import reservations as ledger
from benchmarks.ledger import EVENT, databases, new_account
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import Scope
from tests.support import reserving

_BATCHES = 30
_PER_BATCH = 40
_CELLS = 8
_CAP = 10**15
_PARTITIONS = Partitions.from_json([{"name": "shard", "kind": "hash", "cells": _CELLS}])


class Cost(NamedTuple):
    """The cost of one request, in milliseconds."""

    wall_ms: float
    cpu_ms: float


def main() -> None:
    """Prints the costs on both databases."""
    columns = f"{'wall ms':>8} {'cpu ms':>8} {'wall ratio':>11} {'cpu ratio':>10}"
    print(f"{'database':<11} {'members':>8} {'answer':>9} {columns}")
    with databases() as urls:
        for name, url in urls:
            database = Database.open(url, pool_size=2)
            requests = {
                n_members: _requests_to(database, n_members)
                for n_members in (0, 1, 100)
            }
            for answer, amount in (("admitted", 1), ("refused", 2 * _CAP)):
                for n_members, costs in _measured(requests, amount).items():
                    print(f"{name:<11} {n_members:>8} {answer:>9} {costs}", flush=True)
            database.close()


def _measured(
    requests: dict[int, Callable[[int], None]], amount: int
) -> dict[int, str]:
    """Cost of one request, by number of members (0: an account alone)."""
    costs: dict[int, list[Cost]] = {n_members: [] for n_members in requests}
    for _ in range(_BATCHES):
        for n_members, request in requests.items():
            costs[n_members].append(_cost(partial(request, amount)))
    return {
        n_members: _line(costs[n_members], alone=costs[0]) for n_members in requests
    }


def _requests_to(database: Database, n_members: int) -> Callable[[int], None]:
    """Opens accounts and returns a function that makes a request to the first account,
    on one of its cells.
    """
    account_ids = [f"ds_{n_members}_{number}" for number in range(max(n_members, 1))]
    serial = itertools.count()
    with database.write() as session:
        for account in account_ids:
            opening = new_account(account, cap=2 * _CAP, partitions=_PARTITIONS)
            accounts.open_account(session, opening, actor="key_owner")
        if n_members:
            people = populations.NewPopulation(
                f"pop_{n_members}", f"of {n_members}", "pure", _CAP, None, "key_owner"
            )
            populations.open_population(session, people, at=stamps.now())
        for account in account_ids[:n_members]:
            populations.join(
                session, f"pop_{n_members}", account, actor="key_owner", at=stamps.now()
            )
        for account in account_ids[1:]:
            for number, cells in enumerate(itertools.combinations(range(_CELLS), 2)):
                reservation = ledger.NewReservation(
                    account, 1, Scope({"shard": cells}), EVENT, f"jb_{account}_{number}"
                )
                reserving.reserve(session, [reservation], actor="key_analyst")

    def request(amount: int) -> None:
        number = next(serial)
        scope = {"shard": (number % _CELLS,)}
        reservation = ledger.NewReservation(
            account_ids[0], amount, Scope(scope), EVENT, f"jb_{n_members}_{number}"
        )
        with suppress(BudgetExceeded), database.write() as session:
            reserving.reserve(session, [reservation], actor="key_analyst")

    return request


def _cost(reserve: Callable[[], None]) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(_PER_BATCH):
        reserve()
    spent = time.perf_counter() - wall, time.process_time() - cpu
    return Cost(*(seconds * 1_000 / _PER_BATCH for seconds in spent))


def _line(costs: list[Cost], *, alone: list[Cost]) -> str:
    wall, cpu = (statistics.median(cost[part] for cost in costs) for part in (0, 1))
    ratios = [
        statistics.median(
            one[part] / other[part] for one, other in zip(costs, alone, strict=True)
        )
        for part in (0, 1)
    ]
    return f"{wall:>8.2f} {cpu:>8.2f} {ratios[0]:>11.2f} {ratios[1]:>10.2f}"


if __name__ == "__main__":
    main()
