"""Scopes and joint cells against brute force over single records."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.privacy.composition import CellProblem, Partitions, Scope, UnknownPartition

NAME = "shard"


def _partitions(n_cells: int) -> Partitions:
    """``n_cells`` hash cells, or nothing declared where that is 0."""
    return Partitions.from_json([{"name": NAME, "kind": "hash", "cells": n_cells}] if n_cells else [])


@st.composite
def declarations_and_scopes(draw: st.DrawFn) -> tuple[Partitions, list[Scope]]:
    n_cells = draw(st.integers(0, 6))
    partitions = _partitions(n_cells)
    written: st.SearchStrategy[dict[str, Any]] = st.just({})
    if n_cells:
        listed = st.lists(st.integers(0, n_cells - 1), min_size=1, max_size=9)
        written |= listed.map(lambda cells: {NAME: cells})
    scopes = draw(st.lists(written, max_size=8))
    return partitions, [partitions.read_scope(scope) for scope in scopes]


def _covers(scope: Scope, cell: int) -> bool:
    """Whether a job of this scope may read a record whose hash falls into ``cell``: the definition, nothing clever."""
    return NAME not in scope or cell in scope[NAME]


@given(declarations_and_scopes(), st.data())
def test_the_largest_joint_cell_is_the_largest_loss_of_any_record(
    declared: tuple[Partitions, list[Scope]], data: st.DataObject
) -> None:
    partitions, scopes = declared
    prices = data.draw(st.lists(st.integers(1, 100), min_size=len(scopes), max_size=len(scopes)))
    by_cell = [0] * partitions.n_joint_cells
    for scope, price in zip(scopes, prices, strict=True):
        cells = partitions.joint_cells(scope)
        for cell in range(partitions.n_joint_cells) if cells is None else cells:
            by_cell[cell] += price
    by_record = [
        sum(price for scope, price in zip(scopes, prices, strict=True) if _covers(scope, record))
        for record in range(partitions.n_joint_cells)
    ]
    assert by_cell == by_record


@given(declarations_and_scopes())
def test_a_scope_in_normal_form_reads_as_itself_and_holds_the_same_records(
    declared: tuple[Partitions, list[Scope]],
) -> None:
    partitions, scopes = declared
    for scope in scopes:
        assert partitions.read_scope(scope) == scope
        assert partitions.read_scope({name: list(reversed(cells)) * 2 for name, cells in scope.items()}) == scope
        inside, everything = partitions.share(scope)
        assert everything == partitions.n_joint_cells
        assert inside == sum(_covers(scope, record) for record in range(everything))


@given(st.integers(0, 1024))
def test_a_declaration_survives_its_own_form(n_cells: int) -> None:
    partitions = _partitions(n_cells)
    assert Partitions.from_json(partitions.to_json()) == partitions
    assert partitions.n_joint_cells == max(n_cells, 1)
    named = [partitions.describe(cell) for cell in range(partitions.n_joint_cells)]
    assert named == ([{NAME: cell} for cell in range(n_cells)] or [{}])


_not_cells = (
    st.booleans()
    | st.none()
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.integers(4)
    | st.integers(max_value=-1)
)


@given(st.lists(st.integers(0, 3), max_size=3), _not_cells, st.integers(0, 3))
def test_an_entry_that_is_no_cell_is_refused_wherever_it_stands(cells: list[int], wrong: object, at: int) -> None:
    with pytest.raises(CellProblem) as refused:
        _partitions(4).read_scope({NAME: [*cells[:at], wrong, *cells[at:]]})
    assert (refused.value.partition, refused.value.problem) == (NAME, "unknown-cell")


@pytest.mark.parametrize(
    ("listed", "problem"),
    [([], "no-cell"), ((), "no-cell"), (2, "not-a-list"), ("01", "not-a-list"), ({0: 1}, "not-a-list")],
)
def test_a_scope_lists_at_least_one_cell(listed: object, problem: str) -> None:
    with pytest.raises(CellProblem) as refused:
        _partitions(4).read_scope({NAME: listed})
    assert refused.value.problem == problem


@pytest.mark.parametrize("n_cells", [0, 4])
def test_a_partition_that_was_not_declared_is_refused_and_not_repeated(n_cells: int) -> None:
    with pytest.raises(UnknownPartition) as refused:
        _partitions(n_cells).read_scope({"secret name": [0]})
    assert "secret" not in str(refused.value)


def test_several_partitions_are_not_composed_in_this_version() -> None:
    with pytest.raises(ValueError, match="several partitions"):
        Partitions.from_json([{"name": name, "kind": "hash", "cells": 2} for name in "ab"])
