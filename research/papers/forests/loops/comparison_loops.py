"""Grows one tree without privacy in compiled loops, whose nodes divide rows by the
closer one of two pivots.

Rows have two weights, 0 or 1: as a structure point, which can be a pivot, and as an
estimation point, which fills leaves. In Euclidean distance, a row x is at least as
close to a as to b iff (b − a) · x ≤ (b − a) · (a + b) / 2. The weights b − a are
rounded to float32 and equal values are left out, as in the artifact.
"""

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


@compiled
def _nth(
    points: NDArray[np.int32],
    rows: NDArray[np.int32],
    label: int,
    is_of_label: bool,
    wanted: int,
) -> int:
    """A structure point by its number among those of a class, or of all other classes;
    −1 as class: all classes.
    """
    for row in rows:
        if points[1, row] > 0 and (
            label < 0 or (points[0, row] == label) == is_of_label
        ):
            if wanted == 0:
                return int(row)
            wanted -= 1
    return -1


@compiled
def _draw_pivots(
    points: NDArray[np.int32],
    rows: NDArray[np.int32],
    counts: NDArray[np.int64],
    are_opposed: bool,
) -> tuple[int, int]:
    """Two structure points of a node: any two, or any two of different classes, each
    such pair with equal chance.
    """
    n_points = counts.sum()
    if not are_opposed:
        first, second = (
            np.random.randint(0, n_points),
            np.random.randint(0, n_points - 1),
        )
        second += second >= first
        return _nth(points, rows, -1, True, first), _nth(points, rows, -1, True, second)
    left = np.random.randint(0, (counts * (n_points - counts)).sum())
    label = 0
    while left >= counts[label] * (n_points - counts[label]):
        left -= counts[label] * (n_points - counts[label])
        label += 1
    first, second = (
        np.random.randint(0, counts[label]),
        np.random.randint(0, n_points - counts[label]),
    )
    return _nth(points, rows, label, True, first), _nth(
        points, rows, label, False, second
    )


@compiled
def _weighted_sum(
    row: NDArray[np.float32],
    columns: NDArray[np.int32],
    weights: NDArray[np.float64],
    n_terms: int,
) -> float:
    total = 0.0
    for term in range(n_terms):
        total += np.float64(row[columns[term]]) * weights[term]
    return total


@compiled
def _plane(
    one: NDArray[np.float32],
    other: NDArray[np.float32],
    columns: NDArray[np.int32],
    weights: NDArray[np.float64],
) -> tuple[int, float]:
    """Writes the terms of the plane between two pivots; returns their number and the
    threshold.
    """
    n_terms, threshold = 0, 0.0
    for column in range(one.size):
        if one[column] != other[column]:
            weight = np.float64(
                np.float32(np.float64(other[column]) - np.float64(one[column]))
            )
            threshold += (
                (np.float64(one[column]) + np.float64(other[column])) / 2.0 * weight
            )
            columns[n_terms], weights[n_terms] = column, weight
            n_terms += 1
    return n_terms, threshold


@compiled
def _divided(rows: NDArray[np.int32], goes_left: NDArray[np.bool_]) -> int:
    """Moves the rows that go left to the front, and returns their number."""
    low, high = 0, rows.size - 1
    while low <= high:
        if goes_left[low]:
            low += 1
        else:
            rows[low], rows[high] = rows[high], rows[low]
            goes_left[low], goes_left[high] = goes_left[high], goes_left[low]
            high -= 1
    return low


@compiled_for(
    pair(read("float32", 2), read("int32", 2)),
    pair(read("int64", 1), integer),
    triple(written("int32", 2), written("float64", 1), written("float64", 2)),
)
def grow_tree(
    table: tuple[NDArray[np.float32], NDArray[np.int32]],
    rule: tuple[NDArray[np.int64], int],
    grown: tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]],
) -> int:
    """Grows a tree in preorder and returns its number of nodes.

    Args:
        table: columns, float32 ``(n_rows, n_columns)``; and of every row its class,
            structure weight and estimation weight, int32 ``(3, n_rows)``.
        rule: ``min_leaf`` (fewest estimation points of a side), ``max_leaf`` (most
            structure points of a node that is not split), ``n_tries`` (pairs of pivots
            before a node becomes a leaf), ``are_opposed`` (whether pivots have
            different classes); and the seed of the pseudo-random generator.
        grown: arrays for at least twice as many nodes as rows: first pivot (−1: leaf),
            second pivot and right child, int32 ``(…, 3)``; threshold; and estimation
            points by class, float64 ``(…, n_classes)``.
    """
    (X, points), (nodes, thresholds, counts) = table, grown
    (min_leaf, max_leaf, n_tries, are_opposed), n_classes = rule[0], counts.shape[1]
    np.random.seed(rule[1])
    used = np.flatnonzero((points[1] > 0) | (points[2] > 0)).astype(np.int32)
    columns, weights = np.empty(X.shape[1], dtype=np.int32), np.empty(X.shape[1])
    sides, structure = (
        np.empty(used.size, dtype=np.bool_),
        np.empty(n_classes, dtype=np.int64),
    )
    waiting = [(0, used.size, -1)]
    n_nodes = 0
    while len(waiting) > 0:
        start, end, parent = waiting.pop()
        rows, goes_left, node, n_nodes = (
            used[start:end],
            sides[start:end],
            n_nodes,
            n_nodes + 1,
        )
        if parent >= 0:
            nodes[parent, 2] = node
        counts[node] = 0.0
        structure[:] = 0
        for row in rows:
            structure[points[0, row]] += points[1, row]
            counts[node, points[0, row]] += points[2, row]
        nodes[node, 0], n_points, n_estimation = -1, structure.sum(), counts[node].sum()
        if (
            n_points <= max_leaf
            or n_estimation < 2 * min_leaf
            or np.count_nonzero(structure) < 2
        ):
            continue
        for _ in range(n_tries):
            first, second = _draw_pivots(points, rows, structure, are_opposed > 0)
            n_terms, threshold = _plane(X[first], X[second], columns, weights)
            left, e_left = 0, 0
            for place in range(rows.size):
                row = rows[place]
                goes_left[place] = (
                    _weighted_sum(X[row], columns, weights, n_terms) <= threshold
                )
                if goes_left[place]:
                    left += points[1, row]
                    e_left += points[2, row]
            if 0 < left < n_points and min_leaf <= e_left <= n_estimation - min_leaf:
                nodes[node, 0], nodes[node, 1], thresholds[node] = (
                    first,
                    second,
                    threshold,
                )
                middle = start + _divided(rows, goes_left)
                waiting.append((middle, end, node))
                waiting.append((start, middle, -1))
                break
    return n_nodes


@compiled_for(
    read("float32", 2),
    read("int32", 2),
    triple(written("int64", 1), written("int32", 1), written("float32", 1)),
)
def write_terms(
    X: NDArray[np.float32],
    pivots: NDArray[np.int32],
    terms: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]],
) -> None:
    """Writes the planes between pairs of pivots.

    Args:
        X: columns.
        pivots: rows of the pairs, int32 ``(n_planes, 2)``.
        terms: the place after the last term of every plane; and, unless they are empty,
            columns and weights of terms.
    """
    ends, column, weight = terms
    columns, weights = np.empty(X.shape[1], dtype=np.int32), np.empty(X.shape[1])
    end = 0
    for plane in range(pivots.shape[0]):
        n_terms, _ = _plane(X[pivots[plane, 0]], X[pivots[plane, 1]], columns, weights)
        for term in range(n_terms if column.size > 0 else 0):
            column[end + term], weight[end + term] = columns[term], weights[term]
        end += n_terms
        ends[plane] = end
