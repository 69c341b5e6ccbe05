"""The bounds of the verifier equal those of the service, whose code they do not share,
and hold by brute force.
"""

import random
from itertools import product
from typing import Any

import pytest

from app.ledger.state import State
from grovekeeper_forests.privacy import joint_loads
from grovekeeper_forests.privacy.partitions import (
    ColumnPartition,
    EpochPartition,
    HashPartition,
    Partitions,
)
from grovekeeper_forests.privacy.scope import Scope
from grovekeeper_verifier import joint_bounds, joint_cells
from grovekeeper_verifier.dataset_export import Partition
from grovekeeper_verifier.joint_cells import JointCells
from tests.support.loads import BoxAmount, loads_of
from tests.support.set_limits import SetLimit

DECLARED = Partitions(
    (
        HashPartition("a", 4),
        HashPartition("b", 3),
        ColumnPartition(
            "c", "c", is_feature=False, categories=("x", "y"), has_missing=True
        ),
        EpochPartition("d", "monthly"),
    )
)
CELLS: dict[str, tuple[Any, ...]] = {
    **{partition.name: partition.known_cells or () for partition in DECLARED.declared}, "d": ("ep_1", "ep_2", "ep_3"),
}  # fmt: skip
READ = tuple(
    Partition(each.name, each.kind, each.known_cells) for each in DECLARED.declared
)


def _scope(chance: random.Random, n_names: int) -> dict[str, tuple[Any, ...]]:
    names = sorted(chance.sample(sorted(CELLS), n_names))
    return {
        name: tuple(
            sorted(chance.sample(CELLS[name], chance.randint(1, len(CELLS[name]))))
        )
        for name in names
    }


def _cells_of(boxes: list[BoxAmount]) -> JointCells:
    cells = JointCells(READ)
    cells.reserve(tuple({"d": ("ep_4",)}.items()), 5)
    for scope, amount in boxes:
        cells.reserve(tuple(scope.items()), amount)
    # no box has an amount there, as in the service
    cells.reserve(tuple({"d": ("ep_4",)}.items()), -5)
    return cells


def _brute_force(boxes: list[BoxAmount], inside: dict[str, tuple[Any, ...]]) -> int:
    every = product(*(inside.get(name, listed) for name, listed in CELLS.items()))
    loads = []
    for listed in every:
        cell = dict(zip(CELLS, listed, strict=True))
        loads.append(
            sum(
                amount
                for scope, amount in boxes
                if all(cell[name] in scope[name] for name in scope)
            )
        )
    return max(loads)


@pytest.mark.covering("seed", "limit")
@pytest.mark.parametrize("limit", [0, 30, 100, 2**23])
@pytest.mark.parametrize("seed", range(60))
def test_a_bound_is_that_of_the_service_and_no_cell_is_above_it(
    set_limit: SetLimit, limit: int, seed: int
) -> None:
    set_limit("MAX_COMPOSITION_WORK", limit)
    set_limit("MAX_ELIMINATION_WORK", limit)
    set_limit("MAX_WORK", 0)
    chance = random.Random(seed)
    boxes = [
        BoxAmount(Scope(_scope(chance, chance.randint(0, 3))), chance.randint(1, 9))
        for _ in range(chance.randint(1, 9))
    ]
    cells = _cells_of(boxes)
    for inside in ({}, _scope(chance, 1), _scope(chance, 2)):
        service = loads_of(DECLARED, boxes, inside=Scope(inside)).largest()
        bound = cells.largest(tuple(inside.items()), above=-1)
        assert bound is not None
        assert (bound.load, bound.is_exact) == (service.load, service.is_exact)
        known = {**inside, **({} if "d" in inside else {"d": _named(boxes)})}
        largest = _brute_force(boxes, known)
        assert bound.load == largest if bound.is_exact else bound.load >= largest
        tightest = cells.tightest(tuple(inside.items()))
        assert (tightest.load, tightest.is_exact) == (bound.load, bound.is_exact)
        assert tightest.cell.keys() == bound.cell.keys()


def _named(boxes: list[BoxAmount]) -> tuple[Any, ...]:
    return tuple(
        sorted({cell for scope, _ in boxes for cell in scope.get("d", ())})
    ) or ("ep_1",)


@pytest.mark.parametrize("seed", range(40))
def test_the_work_of_an_elimination_is_that_of_the_service(seed: int) -> None:
    """So a load is exact here wherever the service states an exact load."""
    chance = random.Random(seed)
    sizes = [chance.randint(1, 40) for _ in range(chance.randint(2, 6))]
    sets = [
        tuple(sorted(chance.sample(range(len(sizes)), chance.randint(2, len(sizes)))))
        for _ in range(4)
    ]
    volumes = {axes: chance.randint(1, 500) for axes in sets}
    names = [f"p{number}" for number in range(len(sizes))]
    named = {
        tuple(names[axis] for axis in axes): volume for axes, volume in volumes.items()
    }
    work, _ = joint_bounds.cheapest_order(dict(zip(names, sizes, strict=True)), named)
    assert work == joint_loads.cheapest_order(sizes, volumes).work


def test_the_bound_of_all_admissions_is_that_of_the_service() -> None:
    """Every box counts in the partition of which it covers the smallest share, uploads
    as the finest partition.
    """

    for seed in range(40):
        chance = random.Random(seed)
        state, cells = (
            State("ds_1", facts={"partitions": DECLARED.to_json()}),
            JointCells(READ),
        )
        for _ in range(chance.randint(1, 12)):
            scope, amount = _scope(chance, chance.randint(0, 3)), chance.randint(1, 9)
            state._add(Scope(scope), reserved=amount)
            cells.reserve(tuple(scope.items()), amount)
        assert cells._everywhere + sum(cells._peaks.values()) == state.bound


def test_all_searches_of_an_account_together_have_a_limit_of_work(
    set_limit: SetLimit,
) -> None:
    """A ledger of thousands of jobs is verified in minutes, whatever their scopes are."""
    limits_of_searches: list[int] = []
    search = joint_cells._Search

    def noted(*arguments: Any, max_work: int) -> Any:
        limits_of_searches.append(max_work)
        return search(*arguments, max_work=max_work)

    set_limit("_Search", noted)
    set_limit("MAX_WORK", 2**12)
    set_limit("MAX_WORK_TOGETHER", 60)
    cells = _cells_of(
        [
            BoxAmount(Scope({"a": (0,), "b": (0,)}), 1),
            BoxAmount(Scope({"a": (1,), "b": (1,)}), 1),
        ]
    )
    for _ in range(20):
        assert (cells.tightest(()).load, cells.tightest(()).is_exact) == (1, True), (
            "an elimination takes its place"
        )
    assert limits_of_searches[0] == 60
    assert limits_of_searches == sorted(limits_of_searches, reverse=True)
    assert limits_of_searches[-1] == 4
