"""Joint cells against a brute force that shares no code, and the ledger's own examples."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.verifier.composition import MAX_JOINT_CELLS, JointCells, TooManyCells
from app.verifier.export import HashPartition

PARTITIONS = (HashPartition("b", 3), HashPartition("a", 2))
SIDE_A = st.sets(st.integers(0, 1), min_size=1).map(lambda cells: ("a", tuple(sorted(cells))))
SIDE_B = st.sets(st.integers(0, 2), min_size=1).map(lambda cells: ("b", tuple(sorted(cells))))
SCOPES = st.just(()) | SIDE_A.map(lambda a: (a,)) | SIDE_B.map(lambda b: (b,)) | st.tuples(SIDE_A, SIDE_B)
JOBS = st.lists(st.tuples(SCOPES, st.integers(1, 9), st.sampled_from(["reserve", "charge", "void"])), max_size=12)


@given(JOBS, SCOPES)
def test_the_tightest_cell_is_that_of_a_brute_force(jobs: list[tuple[tuple, int, str]], asked: tuple) -> None:
    cells = JointCells(PARTITIONS)
    charged = dict.fromkeys(product(range(2), range(3)), 0)
    reserved = dict(charged)
    for scope, amount, end in jobs:
        cells.reserve(scope, amount)
        box = dict(scope)
        touched = [(a, b) for a, b in charged if a in box.get("a", (0, 1)) and b in box.get("b", (0, 1, 2))]
        if end == "charge":
            cells.charge(scope, amount)
        elif end == "void":
            cells.reserve(scope, -amount)
        for cell in touched:
            charged[cell] += amount * (end == "charge")
            reserved[cell] += amount * (end == "reserve")
    box = dict(asked)
    inside = [(a, b) for a, b in sorted(charged) if a in box.get("a", (0, 1)) and b in box.get("b", (0, 1, 2))]
    expected = max(inside, key=lambda cell: charged[cell] + reserved[cell])
    found = cells.tightest(asked)
    assert (found.cell["a"], found.cell["b"]) == expected
    assert (found.charged, found.reserved) == (charged[expected], reserved[expected])


def test_jobs_on_two_partitions_add_up() -> None:
    cells = JointCells(PARTITIONS)
    cells.reserve((("a", (1,)),), 5)
    cells.reserve((("b", (2,)),), 7)
    assert cells.tightest(()).load == 12
    assert cells.tightest(()).cell == {"a": 1, "b": 2}


def test_without_partitions_there_is_one_cell() -> None:
    cells = JointCells(())
    cells.reserve((), 4)
    assert cells.tightest(()).load == 4
    assert cells.tightest(()).cell == {}


def test_more_joint_cells_than_are_counted_are_refused() -> None:
    JointCells([HashPartition("a", MAX_JOINT_CELLS)])
    with pytest.raises(TooManyCells):
        JointCells([HashPartition("a", MAX_JOINT_CELLS), HashPartition("b", 2)])
