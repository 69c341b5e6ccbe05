"""Grows one tree without privacy in compiled loops, by any of several rules that choose columns and split points.

A column is a vector of codes: the place of every value among the distinct values of the column. A split sends a row
left if its code is at most the code of the split. Rows have two weights: as a structure point, which chooses splits,
and as an estimation point, which fills leaves. The same row may be both.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.forests.compilation.compiler import compiled, compiled_for, integer, pair, read, written

GREEDY, MULTINOMIAL, POOLED, BERNOULLI = 0, 1, 2, 3
FEW_CODES = 16
"""A column with fewer codes is scanned by a histogram."""

Rows: TypeAlias = tuple[NDArray[np.int32], NDArray[np.int32]]
"""Structure and estimation weight of every row, int32 ``(n_rows,)``."""

Table: TypeAlias = tuple[NDArray[np.int32], NDArray[np.int32]]
"""Codes, int32 ``(n_columns, n_rows)``, and the class of every row, int32 ``(1, n_rows)``."""

Work: TypeAlias = tuple[
    NDArray[np.int64],
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.int32],
    NDArray[np.bool_],
]
"""Memory for one node: row numbers under their codes, class weights of both sides, gains and codes of split points.
The last array says which columns have few codes."""

Grown: TypeAlias = tuple[NDArray[np.int32], NDArray[np.float64]]
"""Of every node: column (−1: leaf), code of the split, next code, right child, int32 ``(n_nodes, 4)``; and the weights
of estimation points by class, float64 ``(n_nodes, n_classes)``."""


@compiled
def _sum_of_squares(counts: NDArray[np.float64]) -> float:
    total = 0.0
    for count in counts:
        total += count * count
    return total


@compiled
def _ordered(
    codes: NDArray[np.int32], rows: NDArray[np.int32], keys: NDArray[np.int64], counter: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Row numbers under their codes (upper 32 bits), ascending by code; empty if all codes are equal."""
    low, high = codes[rows[0]], codes[rows[0]]
    for row in rows:
        low, high = min(low, codes[row]), max(high, codes[row])
    ordered = keys[: rows.size]
    if low == high:
        return keys[:0]
    if high - low + 1 < counter.size and high - low < 4 * rows.size:  # a counting sort
        counter[: high - low + 2] = 0
        for row in rows:
            counter[codes[row] - low + 1] += 1
        for code in range(high - low):
            counter[code + 1] += counter[code]
        for row in rows:
            at = codes[row] - low
            ordered[counter[at]] = (np.int64(codes[row]) << 32) | row
            counter[at] += 1
        return ordered
    for place in range(rows.size):
        ordered[place] = (np.int64(codes[rows[place]]) << 32) | rows[place]
    ordered.sort()
    return ordered


@compiled
def _scan_of_few_codes(
    codes: NDArray[np.int32], y: NDArray[np.int32], rows: NDArray[np.int32], weights: Rows, min_leaf: float, work: Work
) -> int:
    """As :func:`_scan`, by a histogram: for columns whose codes are below ``FEW_CODES``."""
    structure, estimation = weights
    _, left, right, gain, point, _ = work
    n_classes = left.size
    by_class = np.zeros((FEW_CODES, n_classes), dtype=np.int64)
    by_code = np.zeros((FEW_CODES, 3), dtype=np.int64)  # rows, structure and estimation weight
    for row in rows:
        code, weight = codes[row], structure[row]
        by_class[code, y[row]] += weight
        by_code[code, 0] += 1
        by_code[code, 1] += weight
        by_code[code, 2] += estimation[row]
    left[:] = 0.0
    right[:] = 0.0
    n_left, e_left, n_right, e_right = 0.0, 0.0, 0.0, 0.0
    for code in range(FEW_CODES):
        n_right += by_code[code, 1]
        e_right += by_code[code, 2]
        for label in range(n_classes):
            right[label] += by_class[code, label]
    n_points, before, has_new = 0, -1, False
    for code in range(FEW_CODES):
        if by_code[code, 0] == 0:
            continue
        if has_new and n_left > 0.0 and n_right > 0.0 and e_left >= min_leaf and e_right >= min_leaf:
            gain[n_points] = _sum_of_squares(left) / n_left + _sum_of_squares(right) / n_right
            point[2 * n_points] = before
            point[2 * n_points + 1] = code
            n_points += 1
            has_new = False
        has_new = has_new or by_code[code, 1] > 0
        n_left += by_code[code, 1]
        n_right -= by_code[code, 1]
        e_left += by_code[code, 2]
        e_right -= by_code[code, 2]
        for label in range(n_classes):
            left[label] += by_class[code, label]
            right[label] -= by_class[code, label]
        before = code
    return n_points


@compiled
def _scan(table: Table, column: int, rows: NDArray[np.int32], weights: Rows, min_leaf: float, work: Work) -> int:
    """Lists the split points of a column: gains in ``gain``, codes and next codes in ``point``. Returns their number.

    A split point leaves structure points on both sides, and at least ``min_leaf`` estimation points. Its gain is the
    weighted sum of squared class shares of both sides, which orders splits as the decrease of the Gini impurity does.
    """
    codes, y = table[0][column], table[1][0]
    if work[5][column] and rows.size >= FEW_CODES * work[1].size:
        return _scan_of_few_codes(codes, y, rows, weights, min_leaf, work)
    structure, estimation = weights
    keys, left, right, gain, point, _ = work
    n = rows.size
    ordered = _ordered(codes, rows, keys, point)
    if ordered.size == 0:
        return 0
    left[:] = 0.0
    right[:] = 0.0
    n_left, n_right, e_left, e_right = 0.0, 0.0, 0.0, 0.0
    for place in range(n):
        row = rows[place]
        right[y[row]] += structure[row]
        n_right += structure[row]
        e_right += estimation[row]
    left_squares, right_squares = 0.0, _sum_of_squares(right)
    n_points = 0
    has_new = False
    for place in range(n - 1):
        row = ordered[place] & 0xFFFFFFFF
        weight = float(structure[row])
        if weight > 0.0:
            label = y[row]
            left_squares += weight * (2.0 * left[label] + weight)
            right_squares += weight * (weight - 2.0 * right[label])
            left[label] += weight
            right[label] -= weight
            n_left += weight
            n_right -= weight
            has_new = True
        e_left += estimation[row]
        e_right -= estimation[row]
        code, following = ordered[place] >> 32, ordered[place + 1] >> 32
        if code == following or not has_new or n_right <= 0.0 or n_left <= 0.0:
            continue
        if e_left < min_leaf or e_right < min_leaf:
            continue
        gain[n_points] = left_squares / n_left + right_squares / n_right
        point[2 * n_points] = code
        point[2 * n_points + 1] = following
        n_points += 1
        has_new = False
    return n_points


@compiled
def _drawn(gain: NDArray[np.float64], n_points: int, strength: float) -> int:
    """A place drawn with the softmax of ``strength`` / 2 times the gains, normalised to [0, 1]."""
    low, high = gain[:n_points].min(), gain[:n_points].max()
    scale = 0.5 * strength / (high - low) if high > low else 0.0
    total = 0.0
    for place in range(n_points):
        total += np.exp(scale * (gain[place] - high))
    left = np.random.random() * total
    for place in range(n_points):
        left -= np.exp(scale * (gain[place] - high))
        if left < 0.0:
            return place
    return n_points - 1


@compiled
def _kept(gain: NDArray[np.float64], point: NDArray[np.int32], n_points: int, probability: float) -> int:
    """Keeps each split point with a probability; all of them if none would be left."""
    if probability >= 1.0:
        return n_points
    n_kept = 0
    for place in range(n_points):
        if np.random.random() < probability:
            gain[n_kept] = gain[place]
            point[2 * n_kept] = point[2 * place]
            point[2 * n_kept + 1] = point[2 * place + 1]
            n_kept += 1
    return n_kept


@compiled
def _pool(
    codes: NDArray[np.int32],
    chosen: NDArray[np.int32],
    gain: NDArray[np.float64],
    point: NDArray[np.int32],
    n_points: int,
) -> int:
    """Keeps the split points between the smallest and the largest value of the chosen rows."""
    low, high = codes[chosen[0]], codes[chosen[0]]
    for row in chosen:
        low, high = min(low, codes[row]), max(high, codes[row])
    n_kept = 0
    for place in range(n_points):
        if low <= point[2 * place] < high:
            gain[n_kept] = gain[place]
            point[2 * n_kept] = point[2 * place]
            point[2 * n_kept + 1] = point[2 * place + 1]
            n_kept += 1
    return n_kept


@compiled
def _shuffled(columns: NDArray[np.int32], n_first: int) -> None:
    """Moves a random selection of columns to the front, in random order."""
    for place in range(min(n_first, columns.size - 1)):
        other = np.random.randint(place, columns.size)
        columns[place], columns[other] = columns[other], columns[place]


@compiled
def _sampled_structure(rows: NDArray[np.int32], structure: NDArray[np.int32], size: int) -> NDArray[np.int32]:
    """At most ``size`` of the node's structure points, without replacement."""
    found = rows[structure[rows] > 0]
    _shuffled(found, min(size, found.size))
    return found[:size]


@compiled
def _split(
    table: Table,
    weights: Rows,
    rows: NDArray[np.int32],
    rule: tuple[int, NDArray[np.float64]],
    columns: NDArray[np.int32],
    work: Work,
) -> tuple[int, int, int]:
    """The column, the code and the next code of a node's split; column −1 if the node cannot be split."""
    kind, numbers = rule
    min_leaf, mtry, first_strength, second_strength, first_rate, second_rate, pool_size = numbers
    codes = table[0]
    gain, point = work[3], work[4]
    n_columns = columns.size
    n_wanted = n_columns if kind == MULTINOMIAL else int(mtry)
    is_random_point = False
    if kind == POOLED:
        n_wanted = min(1 + np.random.poisson(mtry - 1.0), n_columns)
    if kind == BERNOULLI:
        n_wanted = 1 if np.random.random() < first_rate else int(mtry)
        is_random_point = np.random.random() < second_rate
    _shuffled(columns, n_columns)
    chosen = _sampled_structure(rows, weights[0], int(pool_size)) if kind == POOLED else rows[:0]
    best_gain, best_column, best_code, best_next, n_tried = -1.0, -1, -1, -1, 0
    gains = np.empty(n_columns)
    splittable = np.empty(n_columns, dtype=np.int32)
    n_splittable = 0
    for place in range(n_columns):
        column = columns[place]
        if n_tried >= n_wanted and (best_column >= 0 or n_splittable > 0):
            break
        n_tried += 1
        if kind == MULTINOMIAL and np.random.random() >= first_rate:
            continue
        n_points = _scan(table, column, rows, weights, min_leaf, work)
        if kind == POOLED and n_points > 0:
            n_points = _pool(codes[column], chosen, gain, point, n_points)
        if n_points == 0:
            continue
        if kind == MULTINOMIAL:
            gains[n_splittable] = gain[gain[:n_points].argmax()]
            splittable[n_splittable] = column
            n_splittable += 1
            continue
        at = np.random.randint(0, n_points) if is_random_point else gain[:n_points].argmax()
        score = np.random.random() if is_random_point else gain[at]
        if score > best_gain:
            best_gain, best_column, best_code, best_next = score, column, point[2 * at], point[2 * at + 1]
    if n_splittable > 0:
        best_column = splittable[_drawn(gains, n_splittable, first_strength)]
        n_points = _scan(table, best_column, rows, weights, min_leaf, work)
        n_kept = _kept(gain, point, n_points, second_rate)
        if n_kept == 0:
            n_kept = _scan(table, best_column, rows, weights, min_leaf, work)
        at = _drawn(gain, n_kept, second_strength)
        best_code, best_next = point[2 * at], point[2 * at + 1]
    return best_column, best_code, best_next


@compiled
def _is_open(y: NDArray[np.int32], weights: Rows, rows: NDArray[np.int32], min_leaf: float) -> bool:
    """Whether a node has structure points of two classes and estimation points for two leaves."""
    structure, estimation = weights
    label, is_mixed, n_estimation = -1, False, 0.0
    for row in rows:
        n_estimation += estimation[row]
        if structure[row] > 0:
            is_mixed = is_mixed or (label >= 0 and y[row] != label)
            label = y[row]
    return is_mixed and n_estimation >= 2.0 * min_leaf


@compiled
def _divided(codes: NDArray[np.int32], rows: NDArray[np.int32], code: int) -> int:
    """Moves the rows that go left to the front, and returns their number."""
    low, high = 0, rows.size - 1
    while low <= high:
        if codes[rows[low]] <= code:
            low += 1
        else:
            rows[low], rows[high] = rows[high], rows[low]
            high -= 1
    return low


_READ_MATRIX, _READ_WEIGHTS = read("int32", 2), read("int32", 1)


@compiled_for(
    pair(_READ_MATRIX, _READ_MATRIX),
    pair(_READ_WEIGHTS, _READ_WEIGHTS),
    pair(integer, read("float64", 1)),
    integer,
    pair(written("int32", 2), written("float64", 2)),
)
def grow_tree(table: Table, weights: Rows, rule: tuple[int, NDArray[np.float64]], seed: int, grown: Grown) -> int:
    """Grows a tree in preorder and returns its number of nodes.

    Args:
        table: codes and classes.
        weights: of the rows; rows without weight are ignored.
        rule: the kind of rule, and its numbers: ``min_leaf, mtry, first_strength, second_strength, first_rate,
            second_rate, pool_size``.
        seed: of the pseudo-random generator.
        grown: arrays for at least twice as many nodes as rows with weight.
    """
    np.random.seed(seed)
    codes, y = table[0], table[1][0]
    structure, estimation = weights
    nodes, counts = grown
    used = np.flatnonzero((structure > 0) | (estimation > 0)).astype(np.int32)
    n_classes = counts.shape[1]
    work = (
        np.empty(used.size, dtype=np.int64),
        np.empty(n_classes),
        np.empty(n_classes),
        np.empty(used.size),
        np.empty(2 * used.size, dtype=np.int32),
        np.array([column.max() < FEW_CODES for column in codes]),
    )
    columns = np.arange(codes.shape[0], dtype=np.int32)
    # Nodes that wait: start and end of their rows, and the parent whose right child they are.
    waiting = [(0, used.size, -1)]
    n_nodes = 0
    while len(waiting) > 0:
        start, end, parent = waiting.pop()
        node = n_nodes
        n_nodes += 1
        if parent >= 0:
            nodes[parent, 3] = node
        rows = used[start:end]
        nodes[node, 0] = -1
        counts[node, :] = 0.0
        for row in rows:
            counts[node, y[row]] += estimation[row]
        if not _is_open(y, weights, rows, rule[1][0]):
            continue
        column, code, following = _split(table, weights, rows, rule, columns, work)
        if column < 0:
            continue
        n_left = _divided(codes[column], rows, code)
        nodes[node, 0], nodes[node, 1], nodes[node, 2] = column, code, following
        waiting.append((start + n_left, end, node))
        waiting.append((start, start + n_left, -1))
    return n_nodes
