"""Tests jobs on two Dask workers: each row of a job's own scope is counted once,
whoever holds, repeats or loses it.
"""

import math
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from threading import Event, Semaphore, Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from distributed import Client

from app.datasets import private_rows
from app.datasets.private_rows import Selection
from app.services.drawing import dask_fleet, perform
from app.services.drawing.dask_fleet import ClusterFailed, Connection, DaskFleet
from app.services.jobs.task import PartRows
from grovekeeper_forests.contract.plan import Forest, Plan
from grovekeeper_forests.data.coded_rows import ColumnRequest, TrainingRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.privacy.partitions import HashPartition, Partitions
from grovekeeper_forests.privacy.scope import Scope
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.forest.draw import code_request, grow
from grovekeeper_forests.releases.forest.price import plan
from grovekeeper_forests.releases.statistics import draw as statistics_draw
from grovekeeper_forests.releases.statistics import price as statistics_price
from tests.privacy.noiseless import REQUESTS, Noiseless
from tests.support.plans import request_for
from tests.support.stored_part import NUMBERS, SCHEMA, codes_of, stored_part
from tests.support.uploads import store_table, stored_table
from tests.support.workers_here import WorkersHere, wait_for, workers_here

FORESTS = ("rpf, one at a time", "nbrt", "nbrt, fine grid", "mrf, sharded and apart")


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkersHere]:
    with workers_here(tmp_path_factory.mktemp("dask"), n_workers=2) as running:
        yield running


@pytest.fixture
def connection(workers: WorkersHere) -> Iterator[Connection]:
    with workers.connected() as connection:
        yield connection


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_fleet, "SHARD_ROWS", 250)


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> PartRows:
    """Rows in four shards."""
    return stored_part(tmp_path_factory.mktemp("rows"))


def here(
    part: PartRows, priced: Plan, *, keep_unlabelled: bool = False
) -> TrainingRows:
    """The rows of a part, read in this process."""
    schema, partitions = (
        Schema.from_json(part.schema),
        Partitions.from_json(part.partitions),
    )
    selection = Selection(
        schema, partitions, part.scope, keep_unlabelled=keep_unlabelled
    )
    return private_rows.read(part.files, selection, codes=code_request(priced, schema))


def exact(
    priced: Plan,
    rows: TrainingRows,
    unlabelled: TrainingRows | None = None,
    *,
    schema: Schema = SCHEMA,
) -> Forest:
    """The forest without noise, whose numbers are exact counts."""
    return grow(
        priced,
        schema,
        rows,
        Noiseless(),
        on_tree_done=lambda: None,
        unlabelled=unlabelled,
    )


def require_equal(forest: Forest, expected: Forest) -> None:
    assert forest.arrays.keys() == expected.arrays.keys()
    for array, values in expected.arrays.items():
        np.testing.assert_array_equal(forest.arrays[array], values)


def fleet_of(rows: Any) -> DaskFleet:
    fleet = rows._parts.fleet
    assert isinstance(fleet, DaskFleet)
    return fleet


def before_question(
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[int], None],
    *,
    is_divided: bool = True,
) -> None:
    """Calls a function with the number of each question, after or before the question
    is divided among workers.
    """
    divided, numbers = DaskFleet._groups, iter(range(10**6))

    def groups(fleet: DaskFleet, ends_at: float) -> list[tuple[str, list[str]]]:
        if not is_divided:
            act(next(numbers))
        by_worker = divided(fleet, ends_at)
        if is_divided:
            act(next(numbers))
        return by_worker

    monkeypatch.setattr(DaskFleet, "_groups", groups)


@pytest.mark.parametrize("name", FORESTS)
def test_a_forest_on_two_workers_is_the_forest_of_one_process(
    name: str, workers: WorkersHere, connection: Connection, part: PartRows
) -> None:
    priced = plan(REQUESTS[name], SCHEMA)
    rows = connection.rows(part, codes_of(priced), keep_unlabelled=False)
    assert sorted(len(shards) for shards in workers.memories.of.values()) == [1, 2], (
        "both workers have rows"
    )
    require_equal(exact(priced, rows), exact(priced, here(part, priced)))


@pytest.mark.parametrize(
    ("algorithm", "accountant"), [("rpf", "pure"), ("nbrt", "gdp")]
)
def test_a_forest_of_numbers_on_two_workers_is_that_of_one_process(
    algorithm: str, accountant: str, connection: Connection, tmp_path: Path
) -> None:
    part = stored_part(tmp_path, schema=NUMBERS)
    delta = None if accountant == "pure" else Fraction(1, 10**6)
    request = request_for(
        algorithm, {}, Fraction(4), 800, accountant=accountant, delta=delta
    )
    priced = plan(request, NUMBERS)
    codes = codes_of(priced, NUMBERS)
    rows = connection.rows(part, codes, keep_unlabelled=False)
    on_workers = exact(priced, rows, schema=NUMBERS)
    assert (on_workers.arrays["start"] > 0).all()
    require_equal(on_workers, exact(priced, here(part, priced), schema=NUMBERS))


@pytest.mark.parametrize("name", FORESTS)
def test_a_shard_whose_receipt_two_workers_hold_is_counted_once(
    name: str, connection: Connection, part: PartRows
) -> None:
    """Dask makes second holders by itself, because tasks may run where their inputs are
    not.
    """
    priced = plan(REQUESTS[name], SCHEMA)
    rows = connection.rows(part, codes_of(priced), keep_unlabelled=False)
    receipts = list(fleet_of(rows)._receipts.values())
    connection.client.replicate(receipts, n=2)
    assert {
        len(holders) for holders in connection.client.who_has(receipts).values()
    } == {2}
    require_equal(exact(priced, rows), exact(priced, here(part, priced)))


def test_two_jobs_at_once_count_the_rows_of_their_own_scopes(
    workers: WorkersHere, part: PartRows
) -> None:
    priced, scopes = plan(REQUESTS["mrf"], SCHEMA), ((0,), (1, 2))
    parts = [replace(part, scope=Scope({"shard": cells})) for cells in scopes]
    counted = [here(one, priced).code_counts(0) for one in parts]
    assert counted[0].sum() != counted[1].sum()
    with workers.connected("one") as first, workers.connected("two") as second:
        jobs = [
            connection.rows(one, codes_of(priced), keep_unlabelled=False)
            for connection, one in zip((first, second), parts, strict=True)
        ]
        for rows, expected in zip(
            (*jobs, *reversed(jobs)), (*counted, *reversed(counted)), strict=True
        ):
            np.testing.assert_array_equal(rows.code_counts(0), expected)
        for rows, one in zip(jobs, parts, strict=True):
            require_equal(exact(priced, rows), exact(priced, here(one, priced)))


class Turns:
    """Lets two threads take turns, the first one first."""

    def __init__(self) -> None:
        self._turns = [Semaphore(1), Semaphore(0)]

    def wait(self, mine: int) -> None:
        assert self._turns[mine].acquire(timeout=60)

    def give(self, mine: int) -> None:
        self._turns[1 - mine].release()


class Seeded(Noiseless):
    """Other public draws for another seed."""

    def __init__(self, seed: int) -> None:
        self._stream = random.Random(seed)


@pytest.mark.parametrize("name", FORESTS)
def test_two_jobs_at_once_on_equal_rows_move_rows_of_their_own(
    name: str, workers: WorkersHere, part: PartRows
) -> None:
    """Trees of one job and trees of the other by turns: the rows of one are in nodes
    that the other has not split.
    """
    priced, turns = plan(REQUESTS[name], SCHEMA), Turns()

    def grown(mine: int) -> Forest:
        def done() -> None:
            turns.give(mine)
            turns.wait(mine)

        with workers.connected(f"job-{mine}") as connection:
            turns.wait(mine)
            rows = connection.rows(part, codes_of(priced), keep_unlabelled=False)
            forest = grow(priced, SCHEMA, rows, Seeded(mine), on_tree_done=done)
            turns.give(mine)
            return forest

    with ThreadPoolExecutor(2) as threads:
        forests = list(threads.map(grown, range(2)))
    for mine, forest in enumerate(forests):
        require_equal(
            forest,
            grow(
                priced,
                SCHEMA,
                here(part, priced),
                Seeded(mine),
                on_tree_done=lambda: None,
            ),
        )


def test_jobs_whose_answers_dask_still_has_get_answers_of_their_own(
    workers: WorkersHere,
    part: PartRows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dask answers a task with a key that it knows from memory: keys name job, part and
    question.
    """
    kept, submit = list[Any](), Client.submit
    monkeypatch.setattr(
        Client,
        "submit",
        lambda *args, **named: kept.append(submit(*args, **named)) or kept[-1],
    )
    priced, other = plan(REQUESTS["mrf"], SCHEMA), stored_part(tmp_path, n_rows=300)
    with workers.connected("one") as first, workers.connected("two") as second:
        parts = [part, replace(part, scope=Scope({"shard": [2]})), other]
        for connection, order in ((first, parts), (second, reversed(parts))):
            for one in order:
                rows = connection.rows(one, codes_of(priced), keep_unlabelled=False)
                for index in range(len(SCHEMA.features)):
                    np.testing.assert_array_equal(
                        rows.code_counts(index), here(one, priced).code_counts(index)
                    )
        kept.clear()


@pytest.mark.parametrize("scopes", [((0, 1), (2, 3)), ((3,), (0, 1, 2))])
def test_two_parts_of_one_dataset_are_each_read_in_their_own_scope(
    connection: Connection, part: PartRows, scopes: tuple[tuple[int, ...], ...]
) -> None:
    """``sspe-1`` may take splits and counts from disjoint cells of one dataset; each
    cell pays for one of the two.
    """
    request = request_for(
        "sspe-1", {"n_estimators": 3, "max_depth": 3}, Fraction(1), 600
    )
    priced = plan(request, SCHEMA)
    labelled, unlabelled = (
        replace(part, scope=Scope({"shard": cells})) for cells in scopes
    )
    on_workers = [
        connection.rows(labelled, codes_of(priced), keep_unlabelled=False),
        connection.rows(unlabelled, codes_of(priced), keep_unlabelled=True),
    ]
    expected = exact(
        priced, here(labelled, priced), here(unlabelled, priced, keep_unlabelled=True)
    )
    require_equal(exact(priced, *on_workers), expected)


@pytest.mark.parametrize("name", FORESTS)
def test_a_worker_that_is_behind_answers_the_whole_question(
    name: str,
    workers: WorkersHere,
    connection: Connection,
    part: PartRows,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    priced = plan(REQUESTS[name], SCHEMA)
    rows = connection.rows(part, codes_of(priced), keep_unlabelled=False)

    def forget(number: int) -> None:
        """Every third time one worker has lost its rows, with the states that brief
        questions go on from.
        """
        memories = list(workers.memories.of.values())
        if number % 3 == 1:
            memories[number % len(memories)].clear()

    before_question(monkeypatch, forget)
    require_equal(exact(priced, rows), exact(priced, here(part, priced)))


@pytest.mark.parametrize("name", FORESTS)
def test_workers_that_answer_by_turns_each_answer_in_the_state_of_the_question(
    name: str, connection: Connection, part: PartRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both hold all receipts, so that the one that is not asked does not move its rows."""
    priced = plan(REQUESTS[name], SCHEMA)
    rows = connection.rows(part, codes_of(priced), keep_unlabelled=False)
    addresses, numbers = sorted(connection.client.nthreads()), iter(range(10**6))
    connection.client.replicate(list(fleet_of(rows)._receipts.values()), n=2)

    def by_turns(fleet: DaskFleet, _ends_at: float) -> list[tuple[str, list[str]]]:
        return [(addresses[next(numbers) // 3 % 2], list(fleet._orders))]

    monkeypatch.setattr(DaskFleet, "_groups", by_turns)
    require_equal(exact(priced, rows), exact(priced, here(part, priced)))


def test_a_scope_in_two_partitions_is_read_in_the_cells_of_both(
    connection: Connection, tmp_path: Path
) -> None:
    priced, partitions = (
        plan(REQUESTS["mrf"], SCHEMA),
        Partitions((HashPartition("half", 2), HashPartition("shard", 4))),
    )
    whole = stored_part(tmp_path, partitions=partitions)
    counts = []
    for scope in (
        {"half": (0,), "shard": (0, 1, 3)},
        {"half": (0,)},
        {"shard": (0, 1, 3)},
    ):
        boxed = replace(whole, scope=Scope(scope))
        counts.append(
            connection.rows(boxed, codes_of(priced), keep_unlabelled=False).code_counts(
                0
            )
        )
        np.testing.assert_array_equal(counts[-1], here(boxed, priced).code_counts(0))
    assert 0 < counts[0].sum() < min(counts[1].sum(), counts[2].sum())


def test_a_job_reads_every_upload_of_its_scope(
    connection: Connection, part: PartRows, tmp_path: Path
) -> None:
    priced, other = plan(REQUESTS["mrf"], SCHEMA), stored_part(tmp_path, n_rows=300)
    both = replace(part, row_files=(*part.row_files, *other.row_files))
    counted = connection.rows(
        both, codes_of(priced), keep_unlabelled=False
    ).code_counts(0)
    np.testing.assert_array_equal(counted, here(both, priced).code_counts(0))
    assert counted.sum() > here(part, priced).code_counts(0).sum()


def test_a_question_that_one_worker_cannot_answer_fails_the_job(
    workers: WorkersHere, connection: Connection, part: PartRows
) -> None:
    """The sum of the others would leave rows out."""
    priced = plan(REQUESTS["mrf"], SCHEMA)
    rows = connection.rows(part, codes_of(priced), keep_unlabelled=False)
    for shards in workers.memories.of.values():
        for states in shards.values():
            states._states.clear()
            states._read = None  # as if the file could not be read again
        break
    with pytest.raises(ClusterFailed):
        rows.code_counts(0)


def test_an_answer_that_is_late_fails_the_job_and_says_no_more(
    connection: Connection, part: PartRows
) -> None:
    rows = connection.rows(
        part, codes_of(plan(REQUESTS["mrf"], SCHEMA)), keep_unlabelled=False
    )
    fleet_of(rows)._deadline_s = 0
    with pytest.raises(ClusterFailed) as caught:
        rows.code_counts(0)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


class Counting(Noiseless):
    """Counts draws."""

    n_draws = 0

    def permute_and_flip(
        self, utilities: np.ndarray, *, inverse_scale: Fraction
    ) -> int:
        self.n_draws += 1
        return super().permute_and_flip(utilities, inverse_scale=inverse_scale)

    select_exponential = permute_and_flip

    def discrete_laplace(
        self, shape: tuple[int, ...], *, inverse_scale: Fraction
    ) -> np.ndarray:
        self.n_draws += 1
        return super().discrete_laplace(shape, inverse_scale=inverse_scale)


@pytest.mark.parametrize("is_divided", [True, False])
@pytest.mark.parametrize("name", FORESTS)
def test_a_worker_that_dies_costs_a_recount_and_no_draw(
    name: str,
    is_divided: bool,
    part: PartRows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    priced, alone, together = plan(REQUESTS[name], SCHEMA), Counting(), Counting()
    expected = grow(
        priced, SCHEMA, here(part, priced), alone, on_tree_done=lambda: None
    )
    with (
        workers_here(tmp_path, n_workers=2) as workers,
        workers.connected() as connection,
    ):
        rows = connection.rows(part, codes_of(priced), keep_unlabelled=False)
        lost = sorted(workers.memories.of)[0]
        before_question(
            monkeypatch,
            lambda number: workers.lose(lost) if number == 4 else None,
            is_divided=is_divided,
        )
        forest = grow(priced, SCHEMA, rows, together, on_tree_done=lambda: None)
        assert workers.memories.of.keys() != {lost}
        assert lost not in workers.memories.of
    assert together.n_draws == alone.n_draws
    require_equal(forest, expected)


@pytest.mark.parametrize("reads_again", [False, True])
def test_a_job_that_ends_while_workers_read_leaves_no_rows_with_them(
    reads_again: bool, part: PartRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child of a job is killed while rows are read, or read again in a question; a
    task cannot be interrupted.
    """
    begun, goes_on, honest = Event(), Event(), private_rows.read_shard
    priced, is_slow = plan(REQUESTS["mrf"], SCHEMA), not reads_again

    def read(*args: Any, **named: Any) -> Any:
        if is_slow:
            begun.set()
            assert goes_on.wait(timeout=60)
        return honest(*args, **named)

    def ask(connection: Connection) -> None:
        nonlocal is_slow
        with suppress(ClusterFailed):
            rows = connection.rows(part, codes_of(priced), keep_unlabelled=False)
            for shards in workers.memories.of.values():
                shards.clear()
            is_slow = True
            rows.code_counts(0)

    monkeypatch.setattr(private_rows, "read_shard", read)
    with workers_here(tmp_path, n_workers=2) as workers:
        with workers.connected() as connection:
            job = Thread(target=ask, args=(connection,))
            job.start()
            assert begun.wait(timeout=60)
        job.join(timeout=60)
        tasks = [worker.state.tasks for worker in workers.cluster.workers.values()]
        wait_for(
            lambda: any(
                task.state == "cancelled"
                for of_worker in tasks
                for task in list(of_worker.values())
            )
        )
        goes_on.set()
        wait_for(lambda: not any(tasks))
        assert not any(workers.memories.of.values())


TABLES: list[dict[str, Any]] = [
    {"statistic": "count"},
    {"statistic": "crosstab", "columns": ["sex", "income"], "by": ["age"], "bins": {"age": [20, 60]}},
    {"statistic": "quantiles", "column": "height", "quantiles": ["0.25", "0.5"], "by": ["sex"]},
    {"statistic": "histogram", "column": "age", "by": ["sex"], "bins": {"age": {"quantiles": 5}}},
    {"statistic": "sum", "column": "height", "by": ["income"]},
    {"statistic": "mean", "column": "age", "where": [{"column": "income", "in": [">50K", None]}]},
    {"statistic": "variance", "column": "height", "where": [{"column": "sex", "in": ["Male", None]}]},
]  # fmt: skip
PRICED = statistics_price.plan(
    TABLES, public_facts(Terms(Fraction(9)), None, SCHEMA, Adjacency.ADD_REMOVE_ONE)
)


def numbers_of(rows: Any) -> list[list[int]]:
    released = statistics_draw.release(PRICED, rows, Noiseless())
    return [numbers.tolist() for table in released.measured for numbers in table]


def in_columns(connection: Connection, part: PartRows) -> Any:
    asked = ColumnRequest(SCHEMA, PRICED.columns)
    return connection.columns(part, asked, keep_unlabelled=True)


def here_in_columns(part: PartRows) -> Any:
    asked = ColumnRequest(SCHEMA, PRICED.columns)
    return perform._ReaderHere().columns(part, asked, keep_unlabelled=True)


def hostile(part: PartRows) -> None:
    """Numbers, codes and labels that no upload leaves in a file, in every seventh row."""
    [file] = part.files
    table = stored_table(file)
    odd = {
        "f0": [1e308, -1e308, math.nan, 1e-320],
        "f1": [math.inf, -math.inf, None, -0.0],
        "f2": [7, -3, 2**31 - 1, -(2**31)],
        "label": [5, -9, -1, 2**31 - 1],
    }
    for name, values in odd.items():
        place = table.schema.get_field_index(name)
        cells = table.column(name).to_pylist()
        for number, value in enumerate(values):
            cells[7 * number :: 28] = [value] * len(cells[7 * number :: 28])
        table = table.set_column(
            place, table.schema.field(name), pa.array(cells, table.schema.types[place])
        )
    file.file.store.delete(file.file.name)
    store_table(table, file, group_rows=100)


def test_statistics_of_two_workers_are_those_of_one_process(
    workers: WorkersHere, connection: Connection, tmp_path: Path
) -> None:
    part = stored_part(tmp_path)
    counted = numbers_of(here_in_columns(part))
    hostile(part)
    expected = numbers_of(here_in_columns(part))
    rows = in_columns(connection, part)
    assert all(workers.memories.of.values()), "both workers have shards"
    assert numbers_of(rows) == expected
    [n_rows], *_ = expected
    assert [n_rows] == counted[0]
    assert expected != counted


@pytest.mark.parametrize("cells", [(0,), (1, 2)])
def test_statistics_of_two_workers_are_those_of_a_scope(
    connection: Connection, part: PartRows, cells: tuple[int, ...]
) -> None:
    scoped = replace(part, scope=Scope({"shard": cells}))
    numbers = numbers_of(in_columns(connection, scoped))
    assert numbers == numbers_of(here_in_columns(scoped))
    assert 0 < numbers[0][0] < numbers_of(here_in_columns(part))[0][0]


def test_statistics_of_a_lost_worker_are_counted_by_the_other(
    part: PartRows, tmp_path: Path
) -> None:
    with (
        workers_here(tmp_path, n_workers=2) as workers,
        workers.connected() as connection,
    ):
        rows = in_columns(connection, part)
        workers.lose(sorted(workers.memories.of)[0])
        assert numbers_of(rows) == numbers_of(here_in_columns(part))


def test_statistics_of_a_file_that_was_replaced_fail(
    connection: Connection, tmp_path: Path
) -> None:
    """The new file may have other row groups, in which a row could be counted twice."""
    part = stored_part(tmp_path)
    rows = in_columns(connection, part)
    hostile(part)
    with pytest.raises(ClusterFailed):
        numbers_of(rows)
