"""Joint cells against an independent brute force, and the ledger's examples.

The functions of the proofs state the largest load (``test_checked_loads.py``), but not
the cell that has it, nor what is charged and reserved there.
"""

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice, product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grovekeeper_forests.privacy.partitions import HashPartition, Partitions
from grovekeeper_forests.privacy.scope import Scope
from grovekeeper_verifier.dataset_export import Entry, Partition
from grovekeeper_verifier.joint_cells import JointCells, TooComplex
from grovekeeper_verifier.largest_load import Largest
from tests.support.loads import BoxAmount, loads_of
from tests.support.set_limits import SetLimit

PARTITIONS = (
    Partition("shard", "hash", range(3)),
    Partition("region", "column", ("EU", "OTHER", "US")),
    Partition("upload", "epoch", None),
)
CELLS: dict[str, tuple[Any, ...]] = {
    "region": ("EU", "OTHER", "US"), "shard": (0, 1, 2), "upload": ("ep_a", "ep_b", "ep_c"),
}  # fmt: skip
"""Cells by partition in canonical order; a scope of these tests may name these uploads."""


def _side(name: str) -> st.SearchStrategy[tuple[Any, ...] | None]:
    return st.none() | st.sets(st.sampled_from(CELLS[name]), min_size=1).map(
        lambda cells: tuple(sorted(cells))
    )


def _scope(
    sides: tuple[tuple[Any, ...] | None, ...],
) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    return tuple(
        (name, side)
        for name, side in zip(sorted(CELLS), sides, strict=True)
        if side is not None
    )


SCOPES = st.tuples(*(_side(name) for name in sorted(CELLS))).map(_scope)
JOBS = st.lists(
    st.tuples(
        SCOPES, st.integers(1, 9), st.sampled_from(["reserve", "charge", "void"])
    ),
    max_size=14,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(JOBS, SCOPES, st.integers(0, 40))
def test_the_tightest_cell_is_that_of_a_brute_force(
    jobs: Any, asked: Any, limit: int
) -> None:
    cells = JointCells(PARTITIONS)
    charged = dict.fromkeys(product(*(CELLS[name] for name in sorted(CELLS))), 0)
    reserved = dict(charged)
    for scope, amount, end in jobs:
        cells.reserve(scope, amount)
        if end == "charge":
            cells.charge(scope, amount)
        elif end == "void":
            cells.reserve(scope, -amount)
        for cell in charged:
            if _lies_in(cell, scope):
                charged[cell] += amount * (end == "charge")
                reserved[cell] += amount * (end == "reserve")
    named = {
        "upload": {
            cell for scope, _, _ in jobs for cell in dict(scope).get("upload", ())
        }
    }
    inside = [cell for cell in charged if _lies_in(cell, asked)]
    if "upload" not in dict(asked) and named["upload"]:
        inside = [cell for cell in inside if cell[2] in named["upload"]]
    best = max(charged[cell] + reserved[cell] for cell in inside)
    tightest = cells.tightest(asked)
    assert tightest.load == best
    assert cells.exceeds(asked, limit) is (best > limit)
    if "upload" in dict(asked) or named["upload"]:
        expected = next(
            cell for cell in inside if charged[cell] + reserved[cell] == best
        )
        assert tuple(tightest.cell.values()) == expected, "the first in canonical order"
        assert (tightest.charged, tightest.reserved) == (
            charged[expected],
            reserved[expected],
        )
    else:
        assert list(tightest.cell) == ["region", "shard"], "no upload is known"


def _lies_in(cell: tuple[Any, ...], scope: Any) -> bool:
    sides = dict(scope)
    return all(
        part in sides.get(name, (part,))
        for name, part in zip(sorted(CELLS), cell, strict=True)
    )


def test_jobs_on_two_partitions_add_up() -> None:
    cells = JointCells(PARTITIONS)
    cells.reserve((("shard", (1,)),), 5)
    cells.reserve((("region", ("US",)),), 7)
    assert cells.tightest(()).load == 12
    assert cells.tightest(()).cell == {"region": "US", "shard": 1}


def test_jobs_on_uploads_do_not_add_up_and_later_uploads_start_at_nothing() -> None:
    cells = JointCells(PARTITIONS)
    for upload in ("ep_1", "ep_2"):
        cells.reserve((("upload", (upload,)),), 5)
    assert cells.tightest(()).load == 5
    assert cells.tightest((("upload", ("ep_3",)),)).load == 0


def test_without_partitions_there_is_one_cell() -> None:
    cells = JointCells(())
    cells.reserve((), 4)
    assert cells.tightest(()).load == 4
    assert cells.tightest(()).cell == {}
    assert not cells.exceeds((), 4)
    assert cells.exceeds((), 3)


def test_a_load_past_the_limit_of_work_is_a_bound_and_says_so(
    set_limit: SetLimit,
) -> None:
    cells = JointCells(PARTITIONS)
    for shard, region in product(range(3), ("EU", "US")):
        cells.reserve((("region", (region,)), ("shard", (shard,))), 1 + shard)
    assert cells.tightest(()).load == 3
    set_limit("MAX_WORK", 10)
    assert (cells.tightest(()).load, cells.tightest(()).is_exact) == (3, True), (
        "an elimination is within its limit"
    )
    set_limit("MAX_ELIMINATION_WORK", 10)
    bound = cells.tightest(())
    assert (bound.load, bound.is_exact) == (6, False), (
        "two boxes of 3 reach one row of shards"
    )
    assert (bound.at_most(5).load, bound.at_most(7).load) == (5, 6)
    with pytest.raises(
        TooComplex, match="no bound shows that the load is within its limit"
    ):
        bound.require_exact()
    assert cells.exceeds((), 5), "not shown to be within"
    assert not cells.exceeds((), 6), "a bound is a proof"


def test_a_thousand_entangled_boxes_are_composed_as_the_service_composes_them() -> None:
    """Each box restricts two neighbouring partitions of six: a search would try every
    combination.
    """
    chance, n_cells = random.Random(5), 24
    partitions = [
        Partition(f"p{number}", "hash", range(n_cells)) for number in range(6)
    ]
    cells, amounts = JointCells(partitions), []
    for _ in range(1_000):
        first = chance.randrange(5)
        sides = [
            tuple(sorted(chance.sample(range(n_cells), chance.randint(1, 8))))
            for _ in range(2)
        ]
        scope = ((f"p{first}", sides[0]), (f"p{first + 1}", sides[1]))
        amounts.append(BoxAmount(Scope(dict(scope)), chance.randint(1, 10**7)))
        cells.reserve(scope, amounts[-1].amount)
    composed = loads_of(
        Partitions(
            tuple(HashPartition(partition.name, n_cells) for partition in partitions)
        ),
        amounts,
    ).largest()
    assert composed.is_exact
    tightest = cells.tightest(())
    assert (tightest.load, tightest.cell) == (composed.load, composed.cell)
    assert cells.exceeds((), tightest.load - 1)
    assert not cells.exceeds((), tightest.load)


def test_an_old_bound_refuses_nothing_after_a_reservation_is_given_back() -> None:
    cells = JointCells(PARTITIONS)
    for shard in range(3):
        cells.reserve((("shard", (shard,)),), 9)
        cells.reserve((("shard", (shard,)),), -9)
    cells.reserve((("shard", (0,)),), 1)
    assert not cells.exceeds((), 1)
    assert cells.exceeds((), 0)


@settings(max_examples=100, deadline=None)
@given(JOBS, st.data())
def test_the_largest_load_is_followed_through_any_history(
    jobs: Any, data: st.DataObject
) -> None:
    """Reservations are voided in any order; after every step the largest load equals
    that of a brute force.
    """
    cells = JointCells(PARTITIONS)
    largest = Largest(cells)
    carried = dict.fromkeys(product(*(CELLS[name] for name in sorted(CELLS))), 0)
    waiting = [(scope, amount, "reserve") for scope, amount, _ in jobs]
    held: list[tuple[Any, int]] = []
    while waiting or held:
        gives_back = bool(held) and (not waiting or data.draw(st.booleans()))
        if gives_back:
            scope, amount = held.pop(data.draw(st.integers(0, len(held) - 1)))
        else:
            scope, amount, _ = waiting.pop()
            held.append((scope, amount))
        cells.reserve(scope, -amount if gives_back else amount)
        largest.follow(_entry("void" if gives_back else "reserve", scope, amount))
        for cell in carried:
            if _lies_in(cell, scope):
                carried[cell] += -amount if gives_back else amount
        assert largest.load == max(carried.values())


def test_the_largest_load_is_a_bound_where_it_is_too_complex(
    monkeypatch: pytest.MonkeyPatch,
    set_limit: SetLimit,
) -> None:
    cells = JointCells(PARTITIONS)
    largest = Largest(cells)
    for shard, region in product(range(3), ("EU", "US")):
        scope = (("region", (region,)), ("shard", (shard,)))
        cells.reserve(scope, 1)
        largest.follow(_entry("reserve", scope, 1))
    assert (largest.load, largest.is_exact) == (1, True)
    largest.follow(_entry("charge", (), 1))
    assert largest.load == 1, "what was held is charged, and carries as much"
    set_limit("MAX_WORK", 3)
    set_limit("MAX_ELIMINATION_WORK", 3)
    cells.reserve((), 2)
    largest.follow(_entry("reserve", (), 2))
    assert (largest.load, largest.is_exact) == (5, False)
    cells.reserve((), -2)
    largest.follow(_entry("void", (), 2))
    assert (largest.load, largest.is_exact) == (5, False), "still a bound"
    largest.refine()
    assert (largest.load, largest.is_exact) == (3, False)
    monkeypatch.undo()
    largest.refine()
    assert (largest.load, largest.is_exact) == (1, True)


def _entry(kind: str, scope: Any, amount: int) -> Entry:
    return Entry(
        sequence=1, kind=kind, amount=amount, job_id="jb_1", at=datetime(2026, 11, 20, tzinfo=UTC),
        previous_hash="", hash="", details=None, scope=scope, event=None,
    )  # fmt: skip


class Wide(Sequence[int]):
    """The cells of a forged header: more than any program can list."""

    def __len__(self) -> int:
        return 2**40

    def __getitem__(self, index: Any) -> Any:
        return range(2**40)[index]

    def __iter__(self) -> Iterator[int]:
        yield from islice(range(2**40), 50)
        raise AssertionError("every cell is looked at")


def test_cells_that_no_entry_names_are_not_looked_at() -> None:
    """A header of a few bytes can name any number of cells."""
    names = ("a", "b", "c")
    wide = JointCells([Partition(name, "hash", Wide()) for name in names])
    narrow = JointCells([Partition(name, "hash", range(8)) for name in names])
    pick = random.Random(7)
    for _ in range(30):
        sides = {
            name: tuple(sorted(pick.sample(range(7), pick.randint(1, 5))))
            for name in pick.sample(names, 2)
        }
        scope, amount = tuple(sorted(sides.items())), pick.randint(1, 9)
        for cells in (wide, narrow):
            cells.reserve(scope, amount)
        requested = pick.choice([(), scope, scope[:1]])
        assert wide.tightest(requested) == narrow.tightest(requested)
    tightest = wide.tightest(())
    assert 0 < tightest.load < sum(box.load for box in wide._boxes.values())


def test_without_loads_the_first_cell_is_the_tightest() -> None:
    """The first of equal cells represents all of them, also a cell that precedes every
    named cell.
    """
    cells = JointCells([Partition(name, "hash", range(9)) for name in "ab"])
    cells.reserve((("a", (3, 4)), ("b", (0, 1))), 2)
    cells.reserve((("a", (3, 4)), ("b", (0, 1))), -2)
    cells.reserve((("a", (5,)), ("b", (5,))), 1)
    assert cells.tightest((("a", (0, 1, 2)),)).cell == {"a": 0, "b": 0}
    assert cells.tightest((("b", (7, 8)),)).cell == {"a": 0, "b": 7}
    assert cells.tightest(()).cell == {"a": 5, "b": 5}
