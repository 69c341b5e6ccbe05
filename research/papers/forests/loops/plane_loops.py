"""Sums, searches and divides the rows of many nodes in compiled loops, for trees whose
splits are planes.

The rows of all nodes lie one after another in ``order``; node i has ``order[bounds[i,
0] : bounds[i, 1]]`` and looks at the columns ``columns[i]``. A row counts as often as
its weight says. A plane sends a row left if the weighted sum of its columns is at most
the threshold; terms of weight zero are left out, as in the artifact.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.compiler import (
    compiled,
    compiled_for,
    pair,
    read,
    triple,
    written,
)

SMALLEST_COVARIANCE = 1e-5
"""Takes the place of covariances of zero, in the authors' code of the proximal forests."""

Table: TypeAlias = tuple[NDArray[np.float32], NDArray[np.int32]]
"""Columns, float32 ``(n_columns, n_rows)``; and of every row its class and weight,
int32 ``(2, n_rows)``.
"""

Nodes: TypeAlias = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]
"""Order of the rows, int32; bounds of nodes, int64 ``(n_nodes, 2)``; their columns,
int32 ``(n_nodes, n_drawn)``.
"""

_TABLE = pair(read("float32", 2), read("int32", 2))
_NODES = triple(read("int32", 1), read("int64", 2), read("int32", 2))


@compiled_for(
    read("int32", 2), pair(read("int32", 1), read("int64", 2)), written("float64", 2)
)
def count_classes(
    points: NDArray[np.int32],
    nodes: tuple[NDArray[np.int32], NDArray[np.int64]],
    counts: NDArray[np.float64],
) -> None:
    """Adds the weights of every node's rows by class: float64 ``(n_nodes, n_classes)``."""
    order, bounds = nodes
    for node in range(bounds.shape[0]):
        for place in range(bounds[node, 0], bounds[node, 1]):
            row = order[place]
            counts[node, points[0, row]] += points[1, row]


@compiled
def _gathered(
    table: Table,
    nodes: Nodes,
    node: int,
    local: NDArray[np.float64],
    points: NDArray[np.int32],
) -> int:
    """Copies the columns, classes and weights of a node's rows, and returns their
    number.
    """
    X, of_row = table
    order, bounds, columns = nodes
    rows = order[bounds[node, 0] : bounds[node, 1]]
    for place in range(rows.size):
        points[0, place], points[1, place] = (
            of_row[0, rows[place]],
            of_row[1, rows[place]],
        )
    for drawn in range(columns.shape[1]):
        column, values = X[columns[node, drawn]], local[drawn]
        for place in range(rows.size):
            values[place] = column[rows[place]]
    return int(rows.size)


@compiled
def _largest(bounds: NDArray[np.int64]) -> int:
    """The number of rows of the largest node."""
    largest = 0
    for node in range(bounds.shape[0]):
        largest = max(largest, bounds[node, 1] - bounds[node, 0])
    return largest


@compiled
def _centre(
    values: NDArray[np.float64],
    points: NDArray[np.int32],
    counts: NDArray[np.float64],
    means: NDArray[np.float64],
) -> None:
    """Adds the means of a column by class to zeros, and subtracts from every value the
    mean of its class.
    """
    for place in range(values.size):
        means[points[0, place]] += points[1, place] * values[place]
    for label in range(counts.size):
        if counts[label] > 0.0:
            means[label] /= counts[label]
    for place in range(values.size):
        values[place] -= means[points[0, place]]


@compiled_for(
    _TABLE,
    _NODES,
    read("float64", 2),
    pair(written("float64", 3), written("float64", 4)),
)
def class_moments(
    table: Table,
    nodes: Nodes,
    counts: NDArray[np.float64],
    moments: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> None:
    """Writes mean and scatter of every class in every node. A column that is constant
    in a node has no scatter.

    Args:
        table: the rows.
        nodes: the nodes.
        counts: weights by class, ``(n_nodes, n_classes)``.
        moments: zeros for the means, ``(n_nodes, n_classes, n_drawn)``, and for the
            sums of outer products of the rows less their mean, ``(n_nodes, n_classes,
            n_drawn, n_drawn)``.
    """
    means, scatters = moments
    n_drawn, largest = nodes[2].shape[1], _largest(nodes[1])
    all_local, points = (
        np.empty((n_drawn, largest)),
        np.empty((2, largest), dtype=np.int32),
    )
    varying = np.empty(n_drawn, dtype=np.int64)
    for node in range(counts.shape[0]):
        size = _gathered(table, nodes, node, all_local, points)
        local, n_varying = all_local[:, :size], 0
        for drawn in range(n_drawn):
            values = local[drawn]
            if values.min() == values.max():
                for label in range(counts.shape[1]):
                    if counts[node, label] > 0.0:
                        means[node, label, drawn] = values[0]
                continue
            varying[n_varying] = drawn
            n_varying += 1
            _centre(values, points, counts[node], means[node, :, drawn])
        for first in range(n_varying):
            for second in range(first + 1):
                drawn, other = varying[first], varying[second]
                one, two = local[drawn], local[other]
                for place in range(size):
                    scatters[node, points[0, place], drawn, other] += (
                        points[1, place] * one[place] * two[place]
                    )
                for label in range(counts.shape[1]):
                    scatters[node, label, other, drawn] = scatters[
                        node, label, drawn, other
                    ]


@compiled
def _pivot(matrix: NDArray[np.float64], right: NDArray[np.float64], step: int) -> bool:
    """Moves the row with a column's largest number to the diagonal. True if the sign of
    the determinant turns.
    """
    pivot = step
    for row in range(step + 1, right.size):
        if abs(matrix[row, step]) > abs(matrix[pivot, step]):
            pivot = row
    if pivot != step:
        right[step], right[pivot] = right[pivot], right[step]
        for column in range(right.size):
            matrix[step, column], matrix[pivot, column] = (
                matrix[pivot, column],
                matrix[step, column],
            )
    return bool((pivot != step) != (matrix[step, step] < 0.0))


@compiled
def _eliminated(
    matrix: NDArray[np.float64], vector: NDArray[np.float64]
) -> tuple[float, float]:
    """Solves matrix · x = vector in place. Returns the logarithm of the determinant,
    and vector · x.

    The logarithm is NaN where the determinant is not positive or the matrix is singular
    up to rounding.
    """
    size = vector.size
    right = vector.copy()
    log_determinant, is_negative, largest = 0.0, False, 0.0
    for step in range(size):
        is_negative = is_negative != _pivot(matrix, right, step)
        largest = max(largest, abs(matrix[step, step]))
        if abs(matrix[step, step]) <= largest * size * 2.2e-16:
            return np.nan, np.nan
        log_determinant += np.log(abs(matrix[step, step]))
        for row in range(step + 1, size):
            factor = matrix[row, step] / matrix[step, step]
            if factor != 0.0:
                right[row] -= factor * right[step]
                for column in range(step, size):
                    matrix[row, column] -= factor * matrix[step, column]
    for step in range(size - 1, -1, -1):
        for column in range(step + 1, size):
            right[step] -= matrix[step, column] * right[column]
        right[step] /= matrix[step, step]
    return np.nan if is_negative else log_determinant, (vector * right).sum()


@compiled
def _distance(
    means: NDArray[np.float64],
    covariances: NDArray[np.float64],
    logarithms: NDArray[np.float64],
    one: int,
    other: int,
) -> float:
    """The Bhattacharyya distance of two classes' normal laws; the distance of their
    means where it does not exist.
    """
    gap = means[one] - means[other]
    if gap.size > 1 and not np.isnan(logarithms[one] + logarithms[other]):
        middle, product = _eliminated(
            (covariances[one] + covariances[other]) / 2.0, gap
        )
        if not np.isnan(middle):
            return float(
                abs(
                    product / 8.0
                    + (middle - (logarithms[one] + logarithms[other]) / 2.0) / 2.0
                )
            )
    return float(np.sqrt((gap * gap).sum()))


@compiled_for(
    read("float64", 2),
    pair(read("float64", 3), read("float64", 4)),
    written("bool_", 2),
)
def choose_groups(
    counts: NDArray[np.float64],
    moments: tuple[NDArray[np.float64], NDArray[np.float64]],
    in_first: NDArray[np.bool_],
) -> None:
    """Marks the classes of the first group of every node.

    The two classes with the largest Bhattacharyya distance lead the groups; every other
    class joins the nearer one. Where all distances are zero, the first half of the
    classes is the first group.

    Args:
        counts: weights by class, ``(n_nodes, n_classes)``, of at least two classes in
            every node.
        moments: as :func:`class_moments` writes them.
        in_first: falses, ``(n_nodes, n_classes)``.
    """
    means, scatters = moments
    n_nodes, n_classes, n_drawn = means.shape
    covariances, logarithms = (
        np.empty((n_classes, n_drawn, n_drawn)),
        np.empty(n_classes),
    )
    distances = np.zeros((n_classes, n_classes))
    for node in range(n_nodes):
        labels = np.flatnonzero(counts[node])
        if labels.size == 2:
            in_first[node, labels[0]] = True
            continue
        for label in labels:
            for drawn in range(n_drawn):
                for other in range(n_drawn):
                    covariance = scatters[node, label, drawn, other] / max(
                        counts[node, label] - 1.0, 1.0
                    )
                    covariances[label, drawn, other] = (
                        SMALLEST_COVARIANCE if covariance == 0.0 else covariance
                    )
            logarithms[label] = _eliminated(
                covariances[label].copy(), means[node, label].copy()
            )[0]
        first, second, largest = -1, -1, 0.0
        for place in range(labels.size):
            for following in range(place + 1, labels.size):
                one, other = labels[place], labels[following]
                distance = _distance(means[node], covariances, logarithms, one, other)
                distances[one, other] = distances[other, one] = distance
                if distance > largest:
                    first, second, largest = one, other, distance
        for place in range(labels.size):
            label = labels[place]
            if first < 0:
                in_first[node, label] = place < (labels.size + 1) // 2
            elif label in (first, second):
                in_first[node, label] = label == first
            else:
                in_first[node, label] = (
                    distances[first, label] < distances[second, label]
                )


@compiled
def _sort(keys: NDArray[np.uint64], spare: NDArray[np.uint64]) -> None:
    """Sorts keys by their upper 32 bits: in place where they are few, else by three
    passes over 11 bits.
    """
    if keys.size < 512:
        keys.sort()
        return
    ends = np.empty(2048, dtype=np.int64)
    one, other = keys, spare
    for shift in (32, 43, 54):
        ends[:] = 0
        for key in one:
            ends[(key >> np.uint64(shift)) & np.uint64(2047)] += 1
        total = 0
        for digit in range(2048):
            total += ends[digit]
            ends[digit] = total - ends[digit]
        for key in one:
            digit = (key >> np.uint64(shift)) & np.uint64(2047)
            other[ends[digit]] = key
            ends[digit] += 1
        one, other = other, one
    # a loop: ``keys[:] = one`` takes a second to compile
    for place in range(keys.size):
        keys[place] = one[place]


@compiled
def _projected(
    local: NDArray[np.float64],
    direction: NDArray[np.float64],
    values: NDArray[np.float64],
) -> bool:
    """Writes weighted sums of a node's columns; ``local`` has a row for each of them.
    False if all sums are equal.
    """
    values[:] = 0.0
    for drawn in range(direction.size):
        weight = direction[drawn]
        if weight != 0.0:
            for place in range(values.size):
                values[place] += local[drawn, place] * weight
    return bool(values.min() < values.max())


@compiled
def _best_cut(
    keys: NDArray[np.uint64],
    points: NDArray[np.int32],
    counts: NDArray[np.float64],
    min_leaf: float,
) -> tuple[float, int]:
    """The largest gain of a split between two keys, and the place of the last key on
    its left; −1 if none is legal.
    """
    left, right = np.zeros(counts.size), counts.copy()
    n_left, n_right, left_squares, right_squares = (
        0.0,
        counts.sum(),
        0.0,
        (counts * counts).sum(),
    )
    best, at = -1.0, -1
    for index in range(keys.size - 1):
        place = keys[index] & np.uint64(0xFFFFFFFF)
        label, weight = points[0, place], np.float64(points[1, place])
        left_squares += weight * (2.0 * left[label] + weight)
        right_squares += weight * (weight - 2.0 * right[label])
        left[label] += weight
        right[label] -= weight
        n_left += weight
        n_right -= weight
        if (
            keys[index] >> np.uint64(32) == keys[index + 1] >> np.uint64(32)
            or n_left < min_leaf
            or n_right < min_leaf
        ):
            continue
        gain = left_squares / n_left + right_squares / n_right
        if gain > best:
            best, at = gain, index
    return best, at


@compiled_for(
    _TABLE,
    _NODES,
    triple(read("float64", 2), read("float64", 3), read("float64", 1)),
    written("float64", 2),
)
def best_cuts(
    table: Table,
    nodes: Nodes,
    search: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
    found: NDArray[np.float64],
) -> None:
    """Searches the split with the largest gain among all splits along several
    directions.

    A gain is the weighted sum of squared class shares of both sides, which orders
    splits as the decrease of the Gini impurity does. Rows whose sums are equal in
    float32 are not separated.

    Args:
        table: the rows.
        nodes: the nodes.
        search: weights by class, ``(n_nodes, n_classes)``; directions, ``(n_nodes,
            n_directions, n_drawn)``; and the smallest weight of a side, ``(1,)``.
        found: for the results, ``(n_nodes, 3)``: direction (−1: no legal split),
            threshold and gain.
    """
    counts, directions, min_leaf = search
    n_drawn, largest = nodes[2].shape[1], _largest(nodes[1])
    all_keys, spare = (
        np.empty(largest, dtype=np.uint64),
        np.empty(largest, dtype=np.uint64),
    )
    local, points = np.empty((n_drawn, largest)), np.empty((2, largest), dtype=np.int32)
    all_values, all_rounded = np.empty(largest), np.empty(largest, dtype=np.float32)
    for node in range(counts.shape[0]):
        found[node, 0], found[node, 2] = -1.0, -1.0
        size = _gathered(table, nodes, node, local, points)
        values, rounded, keys = all_values[:size], all_rounded[:size], all_keys[:size]
        for direction in range(directions.shape[1]):
            if not _projected(local, directions[node, direction], values):
                continue
            for place in range(size):
                rounded[place] = values[place] + 0.0
            bits = rounded.view(np.uint32)
            for place in range(size):
                mask = (
                    np.uint32(0xFFFFFFFF)
                    if bits[place] >> np.uint32(31)
                    else np.uint32(0x80000000)
                )
                keys[place] = (
                    np.uint64(bits[place] ^ mask) << np.uint64(32)
                ) | np.uint64(place)
            _sort(keys, spare[:size])
            gain, at = _best_cut(keys, points, counts[node], min_leaf[0])
            if at >= 0 and gain > found[node, 2]:
                boundary = keys[at] >> np.uint64(32)
                low, high = -np.inf, np.inf
                for index in range(size):
                    value = values[keys[index] & np.uint64(0xFFFFFFFF)]
                    if keys[index] >> np.uint64(32) <= boundary:
                        low = max(low, value)
                    else:
                        high = min(high, value)
                # of neighbouring doubles it may be ``high``, which must stay on the
                # right
                middle = (low + high) / 2.0
                found[node, 0], found[node, 1], found[node, 2] = (
                    direction,
                    middle if middle < high else low,
                    gain,
                )


@compiled
def _value(
    X: NDArray[np.float32],
    row: int,
    columns: NDArray[np.int32],
    weights: NDArray[np.float64],
) -> float:
    total = 0.0
    for drawn in range(columns.size):
        if weights[drawn] != 0.0:
            total += np.float64(X[columns[drawn], row]) * weights[drawn]
    return total


@compiled_for(
    _TABLE,
    _NODES,
    triple(read("float64", 2), read("float64", 3), read("float64", 1)),
    written("float64", 2),
)
def plane_gains(
    table: Table,
    nodes: Nodes,
    search: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
    gains: NDArray[np.float64],
) -> None:
    """Writes the gain of every plane of every node, −1 for a plane that is not legal.

    Args:
        table: the rows.
        nodes: the nodes.
        search: weights by class; planes, ``(n_nodes, n_planes, n_drawn + 1)``, whose
            last number is the threshold (NaN: no plane); and the smallest weight of a
            side, ``(1,)``.
        gains: for the results, ``(n_nodes, n_planes)``.
    """
    X, points = table
    order, bounds, columns = nodes
    counts, planes, min_leaf = search
    left = np.empty(counts.shape[1])
    for node in range(bounds.shape[0]):
        for plane in range(planes.shape[1]):
            gains[node, plane] = -1.0
            weights, threshold = planes[node, plane, :-1], planes[node, plane, -1]
            if np.isnan(threshold):
                continue
            left[:] = 0.0
            for place in range(bounds[node, 0], bounds[node, 1]):
                row = order[place]
                if _value(X, row, columns[node], weights) <= threshold:
                    left[points[0, row]] += points[1, row]
            n_left = left.sum()
            n_right = counts[node].sum() - n_left
            if n_left >= min_leaf[0] and n_right >= min_leaf[0]:
                right = counts[node] - left
                gains[node, plane] = (left * left).sum() / n_left + (
                    right * right
                ).sum() / n_right


@compiled_for(
    read("float32", 2),
    triple(written("int32", 1), read("int64", 2), read("int32", 2)),
    pair(read("float64", 2), read("float64", 1)),
    written("int64", 1),
)
def divide(
    X: NDArray[np.float32],
    nodes: Nodes,
    planes: tuple[NDArray[np.float64], NDArray[np.float64]],
    n_left: NDArray[np.int64],
) -> None:
    """Moves the rows that go left to the front of every node, and writes their number."""
    order, bounds, columns = nodes
    directions, thresholds = planes
    for node in range(bounds.shape[0]):
        low, high = bounds[node, 0], bounds[node, 1] - 1
        while low <= high:
            if (
                _value(X, order[low], columns[node], directions[node])
                <= thresholds[node]
            ):
                low += 1
            else:
                order[low], order[high] = order[high], order[low]
                high -= 1
        n_left[node] = low - bounds[node, 0]
