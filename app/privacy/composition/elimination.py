"""Maximizes a sum of tables over combinations of a few variables, by max-sum variable elimination.

The variables are partitions; the values of a variable are groups of cells that every box covers wholly or not at all.
Finding the largest sum over boxes is MAX-2-CSP, hence NP-hard in general. Elimination is exact; its cost is exponential
only in how densely boxes connect the partitions (the treewidth). :func:`plan` computes the cost in advance, so that a
caller can decline.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.privacy.composition.cover import Table

Factor: TypeAlias = tuple[tuple[int, ...], Table]
"""Variables in order, and an amount at every combination of their values, with one axis per variable."""


@dataclass(frozen=True)
class Order:
    """An order of elimination and its work: the number of table entries and of added amounts."""

    variables: tuple[int, ...]
    work: int


def plan(sizes: Sequence[int], volumes: Mapping[tuple[int, ...], int], *, last: int | None = None) -> Order:
    """Finds the cheapest order by dynamic programming over sets of eliminated variables.

    The result is the optimum, because the work of the optimum never falls when amounts on boxes are added. The work
    of a greedy order could fall.

    Args:
        sizes: number of values of each variable; few variables (the cost is 2ⁿ).
        volumes: for each set of coupled variables, the number of amounts to add.
        last: the variable to eliminate last, if any.
    """
    best: dict[int, Order] = {0: Order((), 0)}
    for done in range(2 ** len(sizes) - 1):
        if done not in best:
            continue
        so_far = best[done]
        for variable in range(len(sizes)):
            is_too_early = variable == last and len(so_far.variables) < len(sizes) - 1
            if done >> variable & 1 or is_too_early:
                continue
            work = so_far.work + _work(variable, done, sizes=sizes, volumes=volumes)
            reached = done | 1 << variable
            if reached not in best or work < best[reached].work:
                best[reached] = Order((*so_far.variables, variable), work)
    return best[2 ** len(sizes) - 1]


def _work(variable: int, done: int, *, sizes: Sequence[int], volumes: Mapping[tuple[int, ...], int]) -> int:
    """The work to eliminate a variable after ``done``: the entries of its table, once per table that is added to it,
    and the amounts that those tables sum."""
    entries = math.prod(sizes[axis] for axis in {variable, *_reached(variable, done, volumes)})
    coupled = [
        volume
        for variables, volume in volumes.items()
        if variable in variables and not any(done >> other & 1 for other in variables)
    ]
    return entries * max(len(coupled), 1) + sum(coupled)


def _reached(variable: int, done: int, cliques: Iterable[tuple[int, ...]]) -> set[int]:
    """The other variables of the table in which ``variable`` is eliminated after ``done``."""
    met, grows = {variable}, True
    cliques = list(cliques)
    while grows:
        inner = {variable, *(other for other in met if done >> other & 1)}
        more = {other for clique in cliques if inner.intersection(clique) for other in clique} - met
        met, grows = met | more, bool(more)
    return {other for other in met if other != variable and not done >> other & 1}


class Elimination:
    """Maximizes over all variables of an order but the last, and finds the values that attain a maximum."""

    def __init__(self, unary: Sequence[Table], coupled: Sequence[Factor], order: Sequence[int]) -> None:
        """Runs the elimination.

        Args:
            unary: for each variable, the amount that depends on this variable alone, by value; fixes the dtype of all
                tables.
            coupled: amounts at combinations of values.
            order: every variable once.
        """
        self._order = tuple(order)
        self._choices: list[tuple[tuple[int, ...], NDArray[np.intp]]] = []
        waiting = list(coupled)
        for variable in order[:-1]:
            arrived = [factor for factor in waiting if variable in factor[0]]
            waiting = [factor for factor in waiting if variable not in factor[0]]
            scope, table = _joined(variable, arrived, unary)
            self._choices.append((scope, np.argmax(table, axis=0)))
            waiting.append((scope, np.max(table, axis=0)))
        _, self.last = _joined(order[-1], waiting, unary)

    def assignment(self, value: int) -> dict[int, int]:
        """The values of all variables that attain the maximum with the last variable at ``value``."""
        values = {self._order[-1]: value}
        for variable, (scope, choices) in zip(self._order[-2::-1], reversed(self._choices), strict=True):
            values[variable] = int(choices[tuple(values[other] for other in scope)])
        return values


def _joined(variable: int, factors: Sequence[Factor], unary: Sequence[Table]) -> Factor:
    """Adds all tables that involve a variable: the axis of the variable comes first, then the axes of the scope."""
    others = {other for scope, _ in factors for other in scope}
    scope = tuple(sorted(others - {variable}))
    axes = (variable, *scope)
    table = np.zeros([len(unary[axis]) for axis in axes], dtype=unary[variable].dtype)
    table += _spread(unary[variable], (variable,), axes)
    for factor_scope, factor in factors:
        table += _spread(factor, factor_scope, axes)
    return scope, table


def _spread(factor: Table, scope: Sequence[int], axes: Sequence[int]) -> Table:
    """Reshapes a factor over ``scope`` so that it broadcasts over ``axes``."""
    ordered = np.transpose(factor, [scope.index(axis) for axis in axes if axis in scope])
    sides = iter(ordered.shape)
    return ordered.reshape([next(sides) if axis in scope else 1 for axis in axes])
