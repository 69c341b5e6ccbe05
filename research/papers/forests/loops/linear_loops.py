"""Fits two linear classifiers to the rows of many nodes in compiled loops: logistic
regression and a linear SVM.

Both minimise a penalty of the weights plus a loss of every row by Newton steps. Nodes,
rows and weights are those of ``plane_loops``. The columns of a node are standardised
first: the penalties depend on scales. A column that is constant in the node has no
weight.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.compiler import (
    compiled,
    compiled_for,
    integer,
    pair,
    read,
    triple,
    written,
)

LOGISTIC, SQUARED_HINGE = 0, 1
MOST_STEPS = 50

Table: TypeAlias = tuple[NDArray[np.float32], NDArray[np.int32]]
Nodes: TypeAlias = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]


@compiled
def _standardised(
    table: Table,
    nodes: Nodes,
    node: int,
    local: NDArray[np.float64],
    scales: NDArray[np.float64],
) -> tuple[int, int]:
    """Writes the varying columns of a node's rows, less their mean and by their
    deviation, and 1 as the last column.

    ``scales`` gets of every varying column its number in the node, mean and deviation.
    Returns the number of rows and of varying columns. The last two rows of ``local``
    are the weights and the classes of the rows.
    """
    (X, points), (order, bounds, columns) = table, nodes
    rows = order[bounds[node, 0] : bounds[node, 1]]
    n_drawn, n_varying, total = columns.shape[1], 0, 0.0
    weights, labels = local[n_drawn + 1], local[n_drawn + 2]
    for place in range(rows.size):
        weights[place], labels[place] = points[1, rows[place]], points[0, rows[place]]
        total += weights[place]
    for drawn in range(n_drawn):
        column, values = X[columns[node, drawn]], local[n_varying]
        mean, square = 0.0, 0.0
        for place in range(rows.size):
            values[place] = column[rows[place]]
            mean += weights[place] * values[place]
        if values[: rows.size].min() == values[: rows.size].max():
            continue
        mean /= total
        for place in range(rows.size):
            values[place] -= mean
            square += weights[place] * values[place] ** 2
        deviation = np.sqrt(square / total)
        for place in range(rows.size):
            values[place] /= deviation
        scales[0, n_varying], scales[1, n_varying], scales[2, n_varying] = (
            drawn,
            mean,
            deviation,
        )
        n_varying += 1
    local[n_varying, : rows.size] = 1.0
    return rows.size, n_varying


@compiled
def _solved(matrix: NDArray[np.float64], vector: NDArray[np.float64]) -> None:
    """Solves matrix · x = vector for a positive definite matrix by Cholesky's factors,
    in place.
    """
    for row in range(vector.size):
        for column in range(row + 1):
            total = matrix[row, column]
            for inner in range(column):
                total -= matrix[row, inner] * matrix[column, inner]
            matrix[row, column] = (
                np.sqrt(max(total, 1e-12))
                if row == column
                else total / matrix[column, column]
            )
    for row in range(vector.size):
        for inner in range(row):
            vector[row] -= matrix[row, inner] * vector[inner]
        vector[row] /= matrix[row, row]
    for row in range(vector.size - 1, -1, -1):
        for inner in range(row + 1, vector.size):
            vector[row] -= matrix[inner, row] * vector[inner]
        vector[row] /= matrix[row, row]


@compiled
def _loss(margin: float, kind: int) -> tuple[float, float, float]:
    """The loss of a row by its margin t · f(x), and the first two derivatives."""
    if kind == SQUARED_HINGE:
        gap = 1.0 - margin
        return (gap * gap, -2.0 * gap, 2.0) if gap > 0.0 else (0.0, 0.0, 0.0)
    small = np.exp(-abs(margin))
    share = (1.0 if margin < 0.0 else small) / (1.0 + small)
    return np.log1p(small) + max(-margin, 0.0), -share, share * (1.0 - share)


@compiled
def _objective(
    local: NDArray[np.float64],
    sides: NDArray[np.float64],
    solution: NDArray[np.float64],
    kind: int,
    strength: float,
) -> float:
    """Penalty and losses. The logistic regression does not penalise the last weight,
    the intercept; the SVM does.
    """
    n_terms = solution.size
    n_penalised = n_terms if kind == SQUARED_HINGE else n_terms - 1
    total = 0.5 * (solution[:n_penalised] ** 2).sum()
    weights = local[local.shape[0] - 2]
    for place in range(sides.size):
        value = 0.0
        for term in range(n_terms):
            value += local[term, place] * solution[term]
        total += strength * weights[place] * _loss(sides[place] * value, kind)[0]
    return float(total)


@compiled
def _derivatives(
    local: NDArray[np.float64],
    sides: NDArray[np.float64],
    solution: NDArray[np.float64],
    rule: tuple[int, float],
    hessian: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Writes the lower half of the Hessian, and returns the gradient."""
    kind, strength = rule
    n_terms = solution.size
    n_penalised = n_terms if kind == SQUARED_HINGE else n_terms - 1
    gradient, row, weights = (
        np.zeros(n_terms),
        np.empty(n_terms),
        local[local.shape[0] - 2],
    )
    hessian[:] = 0.0
    for term in range(n_penalised):
        gradient[term], hessian[term, term] = solution[term], 1.0
    for place in range(sides.size):
        value = 0.0
        for term in range(n_terms):
            row[term] = local[term, place]
            value += row[term] * solution[term]
        _, first, second = _loss(sides[place] * value, kind)
        if first == 0.0:
            continue
        slope, bend = (
            strength * weights[place] * first * sides[place],
            strength * weights[place] * second,
        )
        for term in range(n_terms):
            gradient[term] += slope * row[term]
            scaled = bend * row[term]
            for other in range(term + 1):
                hessian[term, other] += scaled * row[other]
    return gradient


@compiled
def _fit(
    local: NDArray[np.float64],
    sides: NDArray[np.float64],
    n_terms: int,
    rule: tuple[int, float],
) -> NDArray[np.float64]:
    """The minimum, by Newton steps that are halved until they lower the objective."""
    solution, hessian = np.zeros(n_terms), np.empty((n_terms, n_terms))
    value = _objective(local, sides, solution, rule[0], rule[1])
    for _ in range(MOST_STEPS):
        step = _derivatives(local, sides, solution, rule, hessian)
        slope = (step * step).sum()
        gradient = step.copy()
        _solved(hessian, step)
        decrease = (gradient * step).sum()
        if slope == 0.0 or decrease <= 1e-10 * abs(value):
            break
        length, lower = 1.0, value
        for _ in range(30):
            lower = _objective(local, sides, solution - length * step, rule[0], rule[1])
            if lower <= value - 1e-4 * length * decrease:
                break
            length /= 2.0
        if lower >= value:
            break
        solution, value = solution - length * step, lower
    return solution


@compiled_for(
    pair(read("float32", 2), read("int32", 2)),
    triple(read("int32", 1), read("int64", 2), read("int32", 2)),
    read("bool_", 3),
    pair(integer, read("float64", 1)),
    written("float64", 3),
)
def fit_planes(
    table: Table,
    nodes: Nodes,
    in_first: NDArray[np.bool_],
    rule: tuple[int, NDArray[np.float64]],
    planes: NDArray[np.float64],
) -> None:
    """Fits a classifier to every partition of the classes of every node.

    Args:
        table: columns by rows, and points.
        nodes: order, bounds and columns.
        in_first: the classes of the first group, ``(n_nodes, n_partitions,
            n_classes)``. A partition without classes is left out.
        rule: ``LOGISTIC`` or ``SQUARED_HINGE``; and the strength C of the losses,
            ``(1,)``.
        planes: NaNs for the results, ``(n_nodes, n_partitions, n_drawn + 1)``: weights
            and threshold. The first group is where the weighted sum is above the
            threshold.
    """
    bounds, n_drawn, largest = nodes[1], nodes[2].shape[1], 0
    for node in range(bounds.shape[0]):
        largest = max(largest, bounds[node, 1] - bounds[node, 0])
    all_local, all_sides, scales = (
        np.empty((n_drawn + 3, largest)),
        np.empty(largest),
        np.empty((3, n_drawn)),
    )
    for node in range(bounds.shape[0]):
        size, n_varying = _standardised(table, nodes, node, all_local, scales)
        local, sides = all_local[:, :size], all_sides[:size]
        for partition in range(in_first.shape[1]):
            if n_varying == 0 or not in_first[node, partition].any():
                continue
            for place in range(size):
                sides[place] = (
                    1.0
                    if in_first[node, partition, int(local[n_drawn + 2, place])]
                    else -1.0
                )
            solution = _fit(local, sides, n_varying + 1, (rule[0], rule[1][0]))
            plane, threshold = planes[node, partition], -solution[n_varying]
            plane[:] = 0.0
            for term in range(n_varying):
                weight = solution[term] / scales[2, term]
                plane[int(scales[0, term])] = weight
                threshold += weight * scales[1, term]
            plane[n_drawn] = threshold
