"""Reads released quantiles: the cells that were selected, in order, as values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grovekeeper_forests.array_types import Int64Array
from grovekeeper_forests.releases.statistics.tables import Table


@dataclass(frozen=True)
class Cell:
    """The values of a cell of the grid: from ``low`` to ``high``, and the one in the
    middle.
    """

    value: float
    low: float
    high: float


def cells_of(table: Table) -> list[Cell]:
    """The cells of a table's grid, ascending."""
    assert table.grid is not None
    assert table.value is not None
    lower, upper = table.grid.bounds
    edges = [lower, *table.grid.edges]
    ends = [*table.grid.edges, upper]
    if table.value.type == "numeric":
        return [
            Cell(low / 2 + high / 2, low, high)
            for low, high in zip(edges, ends, strict=True)
        ]
    # a value on an edge belongs to the cell above it
    last = len(edges) - 1
    cells = []
    for number, (edge, end) in enumerate(zip(edges, ends, strict=True)):
        low = math.ceil(edge)
        high = max(low, math.floor(end) if number == last else math.ceil(end) - 1)
        cells.append(Cell((low + high) // 2, low, high))
    return cells


def resolution(table: Table) -> float:
    """The largest distance from the low to the high end of a cell of the grid."""
    return max(cell.high - cell.low for cell in cells_of(table))


def is_selection(table: Table, selected: Sequence[Int64Array]) -> bool:
    """Whether every number names a cell of the grid."""
    return all(
        bool(((numbers >= 0) & (numbers < table.n_candidates)).all())
        for numbers in selected
    )


def are_edges(table: Table, starts: Int64Array) -> bool:
    """Whether numbers can be the cells where the bins of a table begin: ascending, with
    a cell below the first.
    """
    limits = np.concatenate(([0], starts, [table.n_candidates]))
    return bool((np.diff(limits) > 0).all())


def in_order(table: Table, selected: Sequence[Int64Array]) -> list[tuple[Cell, ...]]:
    """The quantiles of each group, ascending.

    Sorting is post-processing (lemma L7). If no selection has a larger error in rank
    than t, no sorted one has (docs/proofs/statistics.md, Theorem 2).
    """
    cells = cells_of(table)
    by_group = np.sort(np.stack(list(selected), axis=1), axis=1)
    return [tuple(cells[number] for number in numbers) for numbers in by_group.tolist()]
