"""Tests loads over joint cells against brute force over every combination of cells, on
thousands of ledgers.

The functions of the proofs state the largest load (``test_checked_loads.py``). The cell
that has it, which is the first of equals, only the brute force here states.
"""

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.privacy import numbering
from grovekeeper_forests.privacy.joint_loads import cheapest_order
from grovekeeper_forests.privacy.partitions import (
    MISSING_CELL,
    OTHER_CELL,
    CellProblem,
    ColumnPartition,
    EpochPartition,
    HashPartition,
    Partition,
    Partitions,
    UnknownPartition,
)
from grovekeeper_forests.privacy.scope import Cell, Scope
from tests.support.loads import BoxAmount, load_at, loads_of
from tests.support.set_limits import SetLimit, limits_of

pytestmark = pytest.mark.property

EPOCHS = ("ep_1", "ep_2", "ep_3")
THOROUGH = settings(max_examples=60, deadline=None)


@st.composite
def declarations(draw: st.DrawFn) -> Partitions:
    """Up to four partitions of few cells, in any order."""
    pool: list[Partition] = [
        HashPartition("shard", draw(st.integers(1, 5))),
        ColumnPartition(
            "region",
            "region",
            False,
            tuple("ab"[: draw(st.integers(1, 2))]),
            has_missing=draw(st.booleans()),
        ),
        HashPartition("coin", 2),
        EpochPartition("batch", "one per month"),
    ]
    return Partitions(
        tuple(draw(st.lists(st.sampled_from(pool), unique=True, max_size=4)))
    )


def _all_cells(partition: Partition) -> tuple[Cell, ...]:
    return EPOCHS if partition.known_cells is None else partition.known_cells


@st.composite
def boxes_of(draw: st.DrawFn, partitions: Partitions) -> Scope:
    """A box, which always lists epochs, as the ledger's callers do."""
    cells = {}
    for partition in sorted(partitions.declared, key=lambda partition: partition.name):
        listed = draw(st.sets(st.sampled_from(_all_cells(partition)), min_size=1))
        if partition.kind == "epoch" or draw(st.booleans()):
            cells[partition.name] = listed
    return Scope(cells)


@st.composite
def ledgers(draw: st.DrawFn) -> tuple[Partitions, list[BoxAmount], Scope]:
    """A declaration, up to twelve amounts on boxes, and a box to query."""
    partitions = draw(declarations())
    largest = draw(st.sampled_from([3, 10**9, 10**18, 2**70]))
    amounts = st.builds(BoxAmount, boxes_of(partitions), st.integers(0, largest))
    return partitions, draw(st.lists(amounts, max_size=12)), draw(boxes_of(partitions))


def _joint_cells(partitions: Partitions, inside: Scope) -> list[dict[str, Cell]]:
    """Every joint cell of a box: declared categories before OTHER and MISSING, then in
    canonical order.
    """
    ordered = sorted(partitions.declared, key=lambda partition: partition.name)
    sides = [inside.get(partition.name, _all_cells(partition)) for partition in ordered]
    cells = sorted(
        product(*sides),
        key=lambda cell: [name in (OTHER_CELL, MISSING_CELL) for name in cell],
    )
    return [
        dict(zip([partition.name for partition in ordered], cell, strict=True))
        for cell in cells
    ]


def _covering(boxes: list[BoxAmount], cell: dict[str, Cell]) -> int:
    """The load of a joint cell by its definition, in code that differs from the
    product's.
    """
    total = 0
    for scope, amount in boxes:
        if not [name for name in scope if cell[name] not in scope[name]]:
            total += amount
    return total


@THOROUGH
@given(ledgers())
def test_the_tightest_joint_cell_equals_that_of_brute_force(
    ledger: tuple[Partitions, list[BoxAmount], Scope],
) -> None:
    partitions, boxes, inside = ledger
    cells = _joint_cells(partitions, inside)
    largest = max(_covering(boxes, cell) for cell in cells)
    loads = loads_of(partitions, boxes, inside=Scope(inside))
    tightest = loads.largest()
    assert (tightest.load, tightest.is_exact) == (largest, True)
    assert tightest.cell == next(
        cell for cell in cells if _covering(boxes, cell) == largest
    ), "the first of equals"
    assert [load_at(loads, boxes, cell) for cell in cells] == [
        _covering(boxes, cell) for cell in cells
    ]


@settings(max_examples=50, deadline=None)
@given(ledgers(), st.sampled_from([1, 3, 8]))
def test_results_do_not_depend_on_the_size_of_chunks(
    ledger: tuple[Partitions, list[BoxAmount], Scope], part: int
) -> None:
    partitions, boxes, inside = ledger
    whole = loads_of(partitions, boxes, inside=Scope(inside))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbering, "_CHUNK", part)
        in_parts = loads_of(partitions, boxes, inside=Scope(inside))
        assert in_parts.largest() == whole.largest()
        with limits_of(MAX_COMPOSITION_WORK=0):
            bounded = loads_of(partitions, boxes, inside=Scope(inside)).largest()
    with limits_of(MAX_COMPOSITION_WORK=0):
        assert loads_of(partitions, boxes, inside=Scope(inside)).largest() == bounded


@settings(max_examples=40, deadline=None)
@given(ledgers())
def test_every_cell_shows_its_tightest_joint_cell(
    ledger: tuple[Partitions, list[BoxAmount], Scope],
) -> None:
    partitions, boxes, inside = ledger
    loads = loads_of(partitions, boxes, inside=Scope(inside))
    for partition in partitions.declared:
        shown = loads.by_cell(partition.name)
        assert [tightest.cell[partition.name] for tightest in shown] == list(
            inside.get(partition.name, _all_cells(partition))
        )
        for tightest in shown:
            cells_inside = [
                cell
                for cell in _joint_cells(partitions, inside)
                if cell[partition.name] == tightest.cell[partition.name]
            ]
            assert (
                tightest.load
                == max(_covering(boxes, cell) for cell in cells_inside)
                == _covering(boxes, dict(tightest.cell))
            )


@settings(max_examples=40, deadline=None)
@given(ledgers(), st.sampled_from([0, 4, 20, 60]))
def test_beyond_the_work_limit_the_result_is_an_upper_bound(
    ledger: tuple[Partitions, list[BoxAmount], Scope], work: int
) -> None:
    partitions, boxes, inside = ledger
    with limits_of(MAX_COMPOSITION_WORK=work):
        loads = loads_of(partitions, boxes, inside=Scope(inside))
        bounded, by_cell = (
            loads.largest(),
            [loads.by_cell(partition.name) for partition in partitions.declared],
        )
    cells = _joint_cells(partitions, inside)
    largest = max(_covering(boxes, cell) for cell in cells)
    assert bounded.load == largest if bounded.is_exact else bounded.load >= largest
    for partition, shown in zip(partitions.declared, by_cell, strict=True):
        for tightest in shown:
            cells_inside = [
                cell
                for cell in cells
                if cell[partition.name] == tightest.cell[partition.name]
            ]
            largest = max(_covering(boxes, cell) for cell in cells_inside)
            assert (
                tightest.load == largest
                if tightest.is_exact
                else tightest.load >= largest
            )


@settings(max_examples=40, deadline=None)
@given(
    ledgers(),
    st.sampled_from([0, 20, 60, forest_limits.MAX_COMPOSITION_WORK]),
    st.data(),
)
def test_another_amount_never_lowers_the_largest_load(
    ledger: tuple[Partitions, list[BoxAmount], Scope], work: int, data: st.DataObject
) -> None:
    partitions, boxes, inside = ledger
    one_more = BoxAmount(
        Scope(data.draw(boxes_of(partitions))), data.draw(st.integers(0, 5))
    )
    with limits_of(MAX_COMPOSITION_WORK=work):
        before = loads_of(partitions, boxes, inside=Scope(inside)).largest()
        after = loads_of(partitions, [*boxes, one_more], inside=Scope(inside)).largest()
        narrower = loads_of(partitions, boxes, inside=one_more.scope).largest()
    assert after.load >= before.load
    if before.is_exact and narrower.is_exact:
        everywhere = loads_of(
            partitions,
            boxes,
            inside=Scope({name: EPOCHS for name in inside if name == "batch"}),
        ).largest()
        assert narrower.load <= everywhere.load


@pytest.mark.parametrize(("amount", "is_exact"), [(2**50, True), (2**54, False)])
def test_sums_beyond_64_bits_are_bounded_where_exact_ones_would_take_long(
    amount: int, is_exact: bool
) -> None:
    """Python's integers take five hundred times as long, and an admission may happen in
    the only writer.
    """
    partitions = Partitions(
        tuple(HashPartition(name, 40) for name in ("east", "north", "west"))
    )
    pairs = [("east", "north"), ("east", "west"), ("north", "west")]
    boxes = [
        BoxAmount(
            Scope({first: (cell, (cell + 1) % 40), second: (other,)}),
            amount + cell + other,
        )
        for first, second in pairs
        for cell, other in product(range(0, 40, 4), range(40))
    ]
    tightest = loads_of(partitions, boxes).largest()
    load = sum(
        amount
        for scope, amount in boxes
        if all(tightest.cell[name] in cells for name, cells in scope.items())
    )
    assert tightest.is_exact is is_exact
    assert tightest.load == load if is_exact else tightest.load > load


def test_boxes_on_different_partitions_add_up() -> None:
    """The maximum over single partitions would be 3."""
    partitions = Partitions((HashPartition("shard", 2), HashPartition("coin", 2)))
    boxes = [
        BoxAmount(Scope({"shard": (0,)}), 3),
        BoxAmount(Scope({"shard": (1,)}), 2),
        BoxAmount(Scope({"coin": (1,)}), 3),
    ]
    tightest = loads_of(partitions, boxes).largest()
    assert (tightest.load, tightest.cell) == (6, {"coin": 1, "shard": 0})


def test_the_bound_widens_a_box_to_its_narrowest_partition(
    set_limit: SetLimit,
) -> None:
    partitions = Partitions((HashPartition("shard", 4), HashPartition("coin", 2)))
    boxes = [
        BoxAmount(Scope({"shard": (0,), "coin": (0,)}), 5),
        BoxAmount(Scope({"shard": (1,), "coin": (1,)}), 4),
    ]
    assert loads_of(partitions, boxes).largest().load == 5
    set_limit("MAX_COMPOSITION_WORK", 1)
    bounded = loads_of(partitions, boxes).largest()
    assert (bounded.load, bounded.is_exact) == (5, False), (
        "the boxes stay disjoint on shard"
    )
    crossing = [*boxes, BoxAmount(Scope({"shard": (1, 2, 3), "coin": (0,)}), 3)]
    assert loads_of(partitions, crossing).largest().load == 5 + 3, (
        "a bound above the exact 5"
    )


def test_a_bound_on_some_partitions_makes_the_cells_of_all_partitions_bounds(
    set_limit: SetLimit,
) -> None:
    """Two uncoupled pairs of partitions: one pair exceeds the limit of work, and every
    sum contains its bound.
    """
    partitions = Partitions(
        tuple(HashPartition(name, 4) for name in ("east", "west", "north", "south"))
    )
    coupled = [
        BoxAmount(
            Scope({"east": (cell,), "west": (other,)}), 1 + cell + 2 * (other % 3)
        )
        for cell, other in product(range(4), repeat=2)
    ]
    boxes = [*coupled, BoxAmount(Scope({"north": (0,), "south": (0,)}), 5)]
    exact = {
        name: loads_of(partitions, boxes).by_cell(name) for name in ("east", "north")
    }
    set_limit("MAX_COMPOSITION_WORK", 12)
    for name, exact_cells in exact.items():
        bounded_cells = loads_of(partitions, boxes).by_cell(name)
        assert all(cell.is_exact for cell in exact_cells)
        assert not any(cell.is_exact for cell in bounded_cells)
        assert all(
            bound.load > cell.load
            for bound, cell in zip(bounded_cells, exact_cells, strict=True)
        )
    alone = loads_of(partitions, boxes[-1:]).by_cell("north")
    assert [(cell.load, cell.is_exact) for cell in alone] == [
        (5, True),
        (0, True),
        (0, True),
        (0, True),
    ]


def test_new_uploads_never_lower_a_bound(set_limit: SetLimit) -> None:
    """A box is widened to the same partition for any number of uploads."""
    partitions = Partitions(
        (HashPartition("shard", 4), EpochPartition("batch", "one per month"))
    )
    boxes = [
        BoxAmount(Scope({"shard": (0,), "batch": ("ep_1",)}), 5),
        BoxAmount(Scope({"shard": (0,), "batch": ("ep_2",)}), 3),
    ]
    set_limit("MAX_COMPOSITION_WORK", 0)
    seen = 0
    for number in range(2, 10):
        boxes.append(BoxAmount(Scope({"batch": (f"ep_{number}",)}), 0))
        bounded = loads_of(partitions, boxes).largest()
        assert bounded.load >= seen
        seen = bounded.load


def test_an_epoch_that_no_box_names_has_no_load() -> None:
    partitions = Partitions((EpochPartition("batch", "one per month"),))
    boxes = [BoxAmount(Scope({"batch": ("ep_1",)}), 7)]
    assert loads_of(partitions, []).largest().cell == {}
    assert loads_of(partitions, boxes).largest().cell == {"batch": "ep_1"}
    fresh = loads_of(partitions, boxes, inside=Scope({"batch": ("ep_2",)})).largest()
    assert (fresh.load, fresh.cell) == (0, {"batch": "ep_2"})


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.data())
def test_an_elimination_order_is_a_permutation_and_coupling_adds_work(
    sizes: list[int], data: st.DataObject
) -> None:
    variables = st.lists(st.integers(0, len(sizes) - 1), min_size=1, unique=True).map(
        lambda listed: tuple(sorted(listed))
    )
    volumes = data.draw(st.dictionaries(variables, st.integers(1, 9), max_size=6))
    last = data.draw(st.none() | st.integers(0, len(sizes) - 1))
    order = cheapest_order(sizes, volumes, last=last)
    assert sorted(order.variables) == list(range(len(sizes)))
    assert last is None or order.variables[-1] == last
    everything = math.prod(sizes) * (len(sizes) + len(volumes)) + sum(volumes.values())
    assert sum(sizes) <= order.work <= everything
    more = data.draw(variables)
    assert (
        cheapest_order(
            sizes, volumes | {more: volumes.get(more, 0) + 1}, last=last
        ).work
        > order.work
    )
    free = cheapest_order(sizes, volumes)
    assert free.work == min(
        cheapest_order(sizes, volumes, last=variable).work
        for variable in range(len(sizes))
    )


def test_the_work_of_a_chain_is_the_sum_over_its_pairs() -> None:
    chain = {(at, at + 1): 9 for at in range(5)}
    assert cheapest_order([100] * 6, chain).work == 5 * (100**2 + 3**2) + 100


@given(declarations(), st.data())
def test_reading_a_scope_in_normal_form_returns_it(
    partitions: Partitions, data: st.DataObject
) -> None:
    scope = data.draw(boxes_of(partitions))
    assert partitions.read_scope(scope) == scope
    assert (
        partitions.read_scope(
            {name: list(reversed(cells)) * 2 for name, cells in scope.items()}
        )
        == scope
    )
    inside, everything = partitions.share(Scope(scope), n_epochs=len(EPOCHS))
    everywhere = len(_joint_cells(partitions, {}))
    assert inside * everywhere == everything * len(_joint_cells(partitions, scope))


def test_declared_sizes_give_the_shares_of_cells() -> None:
    region = ColumnPartition(
        "region", "region", False, ("EU", "US"), has_missing=False, sizes=(70, 30, 0)
    )
    partitions = Partitions(
        (region, HashPartition("shard", 4), EpochPartition("batch", "one per month"))
    )
    scope: Scope = {"batch": ("ep_1",), "region": ("EU", "OTHER"), "shard": (0, 3)}
    assert partitions.share(Scope(scope), n_epochs=5) == (1 * 70 * 2, 5 * 100 * 4)
    assert partitions.share(Scope({"region": ("OTHER",)}), n_epochs=5) == (1, 100), (
        "never 0, because plans divide by the share"
    )
    assert Partitions.from_json(partitions.to_json()) == partitions
    for sizes in ((70, 30), (0, 0, 0)):
        with pytest.raises(ValueError, match="every cell has a size"):
            ColumnPartition(
                "region", "region", False, ("EU", "US"), has_missing=False, sizes=sizes
            )


@given(declarations(), st.integers(1, 1024))
def test_a_declaration_survives_its_json_form(
    partitions: Partitions, n_cells: int
) -> None:
    assert Partitions.from_json(partitions.to_json()) == partitions
    one = Partitions((HashPartition("shard", n_cells),))
    assert Partitions.from_json(one.to_json()) == one
    assert one.to_json() == [{"name": "shard", "kind": "hash", "cells": n_cells}]


PARTITIONS = Partitions(
    (
        HashPartition("shard", 4),
        ColumnPartition("region", "region", False, ("EU", "US"), has_missing=False),
        EpochPartition("batch", "one per month"),
    )
)
_not_a_number = (
    st.booleans() | st.none() | st.floats(allow_nan=False) | st.text(max_size=3)
)
_wrong = {
    "shard": _not_a_number | st.integers(4) | st.integers(max_value=-1),
    "region": st.sampled_from(["eu", "MISSING", "", 0, True, None, ["EU"]]),
    "batch": st.sampled_from(["", 1, None, True, "x" * 1_000]),
}
_right = {"shard": [0, 3], "region": ["EU", "OTHER"], "batch": ["ep_1"]}


@pytest.mark.parametrize("name", sorted(_wrong))
@given(data=st.data(), at=st.integers(0, 2))
def test_an_unknown_cell_is_refused_at_any_position(
    name: str, data: st.DataObject, at: int
) -> None:
    cells: list[object] = list(_right[name])
    with pytest.raises(CellProblem) as refused:
        PARTITIONS.read_scope(
            {name: [*cells[:at], data.draw(_wrong[name]), *cells[at:]]}
        )
    assert (refused.value.partition, refused.value.problem) == (name, "unknown-cell")


@pytest.mark.parametrize(
    ("listed", "problem"),
    [
        ([], "no-cell"),
        ((), "no-cell"),
        (2, "not-a-list"),
        ("01", "not-a-list"),
        ({0: 1}, "not-a-list"),
    ],
)
@pytest.mark.parametrize("name", sorted(_wrong))
def test_a_scope_lists_at_least_one_cell(
    name: str, listed: object, problem: str
) -> None:
    with pytest.raises(CellProblem) as refused:
        PARTITIONS.read_scope({name: listed})
    assert refused.value.problem == problem


@pytest.mark.parametrize("partitions", [Partitions(()), PARTITIONS])
def test_an_undeclared_partition_is_refused_and_not_quoted(
    partitions: Partitions,
) -> None:
    with pytest.raises(UnknownPartition) as refused:
        partitions.read_scope({"secret name": [0]})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ([HashPartition("a", 2), HashPartition("a", 3)], "same name"),
        (
            [
                HashPartition(str(at), 2)
                for at in range(forest_limits.MAX_PARTITIONS + 1)
            ],
            "at most",
        ),
        (
            [EpochPartition("a", "monthly"), EpochPartition("b", "monthly")],
            "one epoch partition",
        ),
    ],
)
def test_declarations_that_cannot_be_composed_are_refused(
    declared: list[Partition], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        Partitions(tuple(declared))


@pytest.mark.parametrize(
    "categories", [(), ("EU", "EU"), ("EU", "OTHER"), ("MISSING",)]
)
def test_a_column_partition_has_distinct_cells(categories: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="distinct"):
        ColumnPartition("region", "region", False, categories, has_missing=True)


@THOROUGH
@given(st.data())
def test_scopes_overlap_if_and_only_if_a_joint_cell_is_in_both(
    data: st.DataObject,
) -> None:
    partitions = data.draw(declarations())
    one, other = data.draw(boxes_of(partitions)), data.draw(boxes_of(partitions))
    names = [partition.name for partition in partitions.declared]
    joint = product(*map(_all_cells, partitions.declared))
    shared = any(
        all(
            cell in scope.get(name, (cell,))
            for name, cell in zip(names, cells, strict=True)
            for scope in (one, other)
        )
        for cells in joint
    )
    assert (
        Scope(one).overlaps(Scope(other)) is Scope(other).overlaps(Scope(one)) is shared
    )
