"""Attacks on parallel composition: the loss that an analyst extracts if boxes are
composed by a wrong rule.

Each job releases the count of its box with discrete Laplace noise. That law is exact
here: adding a record to the box moves the count by one, so for every outcome above all
counts the log-ratio is exactly the job's ε, and over all jobs it is the sum over the
boxes that contain the record. An admission rule is sound iff no record's sum exceeds
the cap.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest

from grovekeeper_forests.privacy.partitions import (
    EpochPartition,
    HashPartition,
    Partitions,
)
from grovekeeper_forests.privacy.scope import Cell, Scope
from tests.support.loads import BoxAmount, loads_of

CAP = 6
PARTITIONS = Partitions(
    (
        HashPartition("shard", 2),
        HashPartition("coin", 2),
        EpochPartition("month", "monthly"),
    )
)
CELLS: dict[str, tuple[Cell, ...]] = {
    "shard": (0, 1),
    "coin": (0, 1),
    "month": ("ep_1", "ep_2"),
}
Record = dict[str, Cell]
Rule = Callable[[Sequence[BoxAmount], Scope], int]
"""A function that returns the largest loss so far inside a box."""


def exact(charged: Sequence[BoxAmount], box: Scope) -> int:
    """The production rule: the maximum over joint cells."""
    return loads_of(PARTITIONS, charged, inside=Scope(box)).largest().load


def by_partition(charged: Sequence[BoxAmount], box: Scope) -> int:
    """Flaw: one account per partition, in which a job counts only if it names cells of
    the partition.
    """
    result = [0]
    for name in box or CELLS:
        for cell in box.get(name, CELLS[name]):
            result.append(
                sum(amount for scope, amount in charged if cell in scope.get(name, ()))
            )
    return max(result)


def same_box_only(charged: Sequence[BoxAmount], box: Scope) -> int:
    """Flaw: one account per box, as if different boxes were disjoint."""
    return sum(amount for scope, amount in charged if scope == box)


def forgets_unrestricted(charged: Sequence[BoxAmount], box: Scope) -> int:
    """Flaw: jobs on the whole dataset and jobs on cells are counted in separate
    accounts.
    """
    return (
        loads_of(
            PARTITIONS,
            [item for item in charged if bool(item.scope) == bool(box)],
            inside=Scope(box),
        )
        .largest()
        .load
    )


def _programs(seed: int) -> list[BoxAmount]:
    """Random requests, with amounts that are likely to be admitted."""
    chance = random.Random(seed)
    queries = []
    for _ in range(12):
        names = chance.sample(sorted(CELLS), chance.randint(0, 2))
        box = {
            name: tuple(sorted(chance.sample(CELLS[name], chance.choice([1, 1, 2]))))
            for name in sorted(names)
        }
        queries.append(BoxAmount(Scope(box), chance.randint(1, CAP)))
    return queries


def _admitted(rule: Rule, requested: Sequence[BoxAmount]) -> list[BoxAmount]:
    charged: list[BoxAmount] = []
    for item in requested:
        if rule(charged, item.scope) + item.amount <= CAP:
            charged.append(item)
    return charged


def _loss(charged: Sequence[BoxAmount], record: Record) -> Fraction:
    """ln P(o | D) / P(o | D + record) for an outcome above all counts, in steps of ε:
    exact, from the counts alone.
    """
    others = [
        {"shard": 0, "coin": 1, "month": "ep_1"},
        {"shard": 1, "coin": 1, "month": "ep_2"},
    ]
    outcome = 10

    def exponent(dataset: Sequence[Record]) -> int:
        counts = (
            sum(_holds(scope, record) for record in dataset) for scope, _ in charged
        )
        return sum(
            amount * (outcome - count)
            for (_, amount), count in zip(charged, counts, strict=True)
        )

    return Fraction(exponent(others) - exponent([*others, record]))


def _holds(scope: Scope, record: Record) -> bool:
    return all(record[name] in cells for name, cells in scope.items())


def _worst(rule: Rule, seed: int) -> Fraction:
    charged = _admitted(rule, _programs(seed))
    records = [
        dict(zip(CELLS, cells, strict=True))
        for cells in itertools.product(*CELLS.values())
    ]
    return max(_loss(charged, record) for record in records)


def test_no_sequence_of_jobs_makes_a_record_lose_more_than_the_cap() -> None:
    losses = [_worst(exact, seed) for seed in range(300)]
    assert max(losses) == CAP, "the cap is reached, and never passed"


@pytest.mark.parametrize("flawed", [by_partition, same_box_only, forgets_unrestricted])
def test_a_wrong_composition_is_seen(flawed: Rule) -> None:
    assert any(_worst(flawed, seed) > CAP for seed in range(300))


def test_shards_and_regions_add_up_to_twice_the_cap_under_the_maximum_over_partitions() -> (
    None
):
    """The published shortcut in its smallest form: one job per partition, each at the
    cap.
    """
    requested = [
        BoxAmount(Scope({"shard": (0,)}), CAP),
        BoxAmount(Scope({"coin": (0,)}), CAP),
    ]
    victim: Record = {"shard": 0, "coin": 0, "month": "ep_1"}
    assert _loss(_admitted(by_partition, requested), victim) == 2 * CAP
    assert _loss(_admitted(exact, requested), victim) == CAP


def test_batches_of_a_fixed_number_of_rows_are_no_partition() -> None:
    """A new file every two rows: one more row shifts the others, so that a job per file
    sees many rows change.
    """

    def counts(rows: Sequence[str]) -> list[int]:
        files = [rows[at : at + 2] for at in range(0, len(rows), 2)]
        return [sum(row == "sick" for row in file) for file in files]

    before = ["well", "sick", "sick", "well", "well", "sick", "sick", "well"]
    after = ["well", *before]
    moved = itertools.zip_longest(counts(before), counts(after), fillvalue=0)
    loss = sum(CAP * abs(old - new) for old, new in moved)
    assert loss > CAP, (
        "each file's job costs its cap, but the row is in the account of one file only"
    )
