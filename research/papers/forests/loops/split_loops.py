"""Grows one tree without privacy in compiled loops, by any of several rules that choose
columns and split points.

A column is a vector of codes: the place of every value among the distinct values of the
column. A split sends a row left if its code is at most the code of the split. Rows have
two weights: as a structure point, which chooses splits, and as an estimation point,
which fills leaves. The same row may be both.

A node tallies its rows by code and class where codes are few, and sorts them where
codes are many. The columns of one category share a tally by the category's values, in
which every column has one entry.
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

GREEDY, MULTINOMIAL, POOLED, BERNOULLI = 0, 1, 2, 3

Table: TypeAlias = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]
"""Codes, int32 ``(n_columns, n_rows)``; values of categories, int32 ``(n_categories,
n_rows)``; and of every row its class, structure weight and estimation weight, int32
``(3, n_rows)``.
"""

Node: TypeAlias = tuple[
    NDArray[np.int32], NDArray[np.int32], NDArray[np.float64], int, float
]
"""Rows of a node; their class and weights, int32 ``(3, …)``; structure weight by class;
number; estimation weight.
"""

Work: TypeAlias = tuple[
    NDArray[np.int64],
    NDArray[np.int32],
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.int32],
    NDArray[np.int64],
]
"""Memory for one node: sorted keys and a copy, int64 ``(2, n_rows)``; codes of its
rows; class weights of both sides, float64 ``(2, n_classes)``; gains of split points;
codes and next codes of split points; and tallies. The columns of a tally are rows,
structure weight, estimation weight, and structure weight by class.
"""

Shared: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Tallies of categories, int64 ``(n_values, 3 + n_classes)``; of every category its
first value, and the number of the node that was tallied last, int64 ``(2, n_categories
+ 1)``.
"""

Tree: TypeAlias = tuple[
    Table,
    NDArray[np.int32],
    tuple[NDArray[np.int64], NDArray[np.int64]],
    Shared,
    Work,
]
"""The table; the columns, as in :func:`grow_tree`; an order of the groups of columns, and
the first column of every group; tallies of categories; and memory.
"""


@compiled
def _sum_of_squares(counts: NDArray[np.float64]) -> float:
    total = 0.0
    for count in counts:
        total += count * count
    return total


@compiled
def _begin(
    left: NDArray[np.float64], right: NDArray[np.float64], total: NDArray[np.float64]
) -> None:
    """Puts the weight of all classes on the right side. A loop, because ``right[:] =
    total`` takes long to compile.
    """
    for label in range(total.size):
        left[label], right[label] = 0.0, total[label]


@compiled
def _tally(
    codes: NDArray[np.int32],
    low: int,
    points: NDArray[np.int32],
    tally: NDArray[np.int64],
    n_codes: int,
) -> None:
    """Tallies a node's rows by code, counted from ``low``."""
    for code in range(n_codes):
        for entry in range(tally.shape[1]):
            tally[code, entry] = 0
    for place in range(codes.size):
        code, weight = codes[place] - low, points[1, place]
        tally[code, 0] += 1
        tally[code, 1] += weight
        tally[code, 2] += points[2, place]
        tally[code, 3 + points[0, place]] += weight


@compiled
def _scan_value(tree: Tree, column: int, node: Node, min_leaf: float) -> int:
    """As :func:`_scan`, for a column that is 1 in rows with one value of a category and
    0 in others.
    """
    table, columns, _, (tallies, categories), work = tree
    rows, points, total, number, n_estimation = node
    category, value = columns[column, 0], columns[column, 1]
    first, last = categories[0, category], categories[0, category + 1]
    if categories[1, category] != number:
        categories[1, category] = number
        values, codes = table[1][category], work[1][: rows.size]
        for place in range(rows.size):
            codes[place] = values[rows[place]]
        _tally(codes, 0, points, tallies[first:last], last - first)
    tally = tallies[first + value]
    n_right, e_right = float(tally[1]), float(tally[2])
    n_left = total.sum() - n_right
    if (
        n_left <= 0.0
        or n_right <= 0.0
        or e_right < min_leaf
        or n_estimation - e_right < min_leaf
    ):
        return 0
    left_squares, right_squares = 0.0, 0.0
    for label in range(total.size):
        weight = float(tally[3 + label])
        right_squares += weight * weight
        left_squares += (total[label] - weight) ** 2
    work[3][0] = left_squares / n_left + right_squares / n_right
    work[4][0], work[4][1] = 0, 1
    return 1


@compiled
def _scan_tally(low: int, n_codes: int, node: Node, min_leaf: float, work: Work) -> int:
    """As :func:`_scan`, from a tally of the codes from ``low`` on."""
    total, e_right = node[2], node[4]
    left, right = work[2]
    gain, point, tally = work[3], work[4], work[5].reshape((-1, 3 + total.size))
    _begin(left, right, total)
    n_left, n_right, e_left = 0.0, total.sum(), 0.0
    n_points, before, has_new = 0, -1, False
    for code in range(n_codes):
        if tally[code, 0] == 0:
            continue
        if has_new and n_right > 0.0 and e_left >= min_leaf and e_right >= min_leaf:
            gain[n_points] = (
                _sum_of_squares(left) / n_left + _sum_of_squares(right) / n_right
            )
            point[2 * n_points] = low + before
            point[2 * n_points + 1] = low + code
            n_points += 1
            has_new = False
        weight = tally[code, 1]
        if weight > 0:
            has_new = True
            n_left += weight
            n_right -= weight
            for label in range(total.size):
                left[label] += tally[code, 3 + label]
                right[label] -= tally[code, 3 + label]
        e_left += tally[code, 2]
        e_right -= tally[code, 2]
        before = code
    return n_points


@compiled
def _sort(keys: NDArray[np.int64], spare: NDArray[np.int64], n_codes: int) -> None:
    """Sorts keys by the codes in their upper bits: in place where they are few, else by
    passes over eleven bits.
    """
    if keys.size < 512:
        keys.sort()
        return
    ends = np.empty(2048, dtype=np.int64)
    one, other, shift = keys, spare, 32
    while n_codes > 0:
        ends[:] = 0
        for key in one:
            ends[(key >> shift) & 2047] += 1
        total = 0
        for digit in range(2048):
            total += ends[digit]
            ends[digit] = total - ends[digit]
        for key in one:
            digit = (key >> shift) & 2047
            other[ends[digit]] = key
            ends[digit] += 1
        one, other, shift, n_codes = other, one, shift + 11, n_codes >> 11
    # a loop: ``keys[:] = one`` takes a second to compile
    for place in range(keys.size):
        keys[place] = one[place]


@compiled
def _scan_sorted(
    codes: NDArray[np.int32], n_codes: int, node: Node, min_leaf: float, work: Work
) -> int:
    """As :func:`_scan`, from sorted codes below ``n_codes``."""
    points, total, e_right = node[1], node[2], node[4]
    left, right = work[2]
    gain, point, ordered = work[3], work[4], work[0][0, : codes.size]
    for place in range(codes.size):
        ordered[place] = (np.int64(codes[place]) << 32) | place
    _sort(ordered, work[0][1, : codes.size], n_codes)
    _begin(left, right, total)
    n_left, n_right, e_left = 0.0, total.sum(), 0.0
    left_squares, right_squares = 0.0, _sum_of_squares(right)
    n_points, has_new = 0, False
    for at in range(codes.size - 1):
        place = ordered[at] & 0xFFFFFFFF
        weight = float(points[1, place])
        if weight > 0.0:
            label = points[0, place]
            left_squares += weight * (2.0 * left[label] + weight)
            right_squares += weight * (weight - 2.0 * right[label])
            left[label] += weight
            right[label] -= weight
            n_left += weight
            n_right -= weight
            has_new = True
        e_left += points[2, place]
        e_right -= points[2, place]
        code, following = ordered[at] >> 32, ordered[at + 1] >> 32
        if (
            code == following
            or not has_new
            or n_right <= 0.0
            or e_left < min_leaf
            or e_right < min_leaf
        ):
            continue
        gain[n_points] = left_squares / n_left + right_squares / n_right
        point[2 * n_points] = code
        point[2 * n_points + 1] = following
        n_points += 1
        has_new = False
    return n_points


@compiled
def _scan(tree: Tree, column: int, node: Node, min_leaf: float) -> int:
    """Lists the split points of a column: gains in ``gain``, codes and next codes in
    ``point``. Returns their number.

    A split point leaves structure points on both sides, and at least ``min_leaf``
    estimation points. Its gain is the weighted sum of squared class shares of both
    sides, which orders splits as the decrease of the Gini impurity does.
    """
    table, columns, _, _, work = tree
    if columns[column, 2] < 2:
        return 0
    if columns[column, 0] >= 0:
        return _scan_value(tree, column, node, min_leaf)
    rows, total = node[0], node[2]
    of_row, codes = table[0][column], work[1][: rows.size]
    for place in range(rows.size):
        codes[place] = of_row[rows[place]]
    low, n_entries = codes.min(), 3 + total.size
    n_codes = codes.max() - low + 1
    if n_codes == 1:
        return 0
    # A sort takes about as long as eight tallies of the row, and as many entries of a
    # tally.
    if n_codes * n_entries <= min(8 * rows.size, work[5].size):
        _tally(codes, low, node[1], work[5].reshape((-1, n_entries)), n_codes)
        return _scan_tally(low, n_codes, node, min_leaf, work)
    return _scan_sorted(codes, low + n_codes, node, min_leaf, work)


@compiled
def _drawn(gain: NDArray[np.float64], n_points: int, strength: float) -> int:
    """A place drawn with the softmax of ``strength`` / 2 times the gains, normalised to
    [0, 1]. Overwrites gains.
    """
    low, high = gain[:n_points].min(), gain[:n_points].max()
    scale = 0.5 * strength / (high - low) if high > low else 0.0
    total = 0.0
    for place in range(n_points):
        gain[place] = np.exp(scale * (gain[place] - high))
        total += gain[place]
    left = np.random.random() * total
    for place in range(n_points):
        left -= gain[place]
        if left < 0.0:
            return place
    return n_points - 1


@compiled
def _kept(
    gain: NDArray[np.float64],
    point: NDArray[np.int32],
    n_points: int,
    rate: float,
    low: int,
    high: int,
) -> int:
    """Keeps split points from code ``low`` to below ``high``, each with a probability."""
    n_kept = 0
    for place in range(n_points):
        if low <= point[2 * place] < high and (
            rate >= 1.0 or np.random.random() < rate
        ):
            gain[n_kept] = gain[place]
            point[2 * n_kept] = point[2 * place]
            point[2 * n_kept + 1] = point[2 * place + 1]
            n_kept += 1
    return n_kept


@compiled
def _next(columns: NDArray[np.int32] | NDArray[np.int64], place: int) -> int:
    """The next column of a random order."""
    other = np.random.randint(place, columns.size)
    column = int(columns[other])
    columns[place], columns[other] = column, columns[place]
    return column


@compiled
def _sampled_structure(node: Node, size: int) -> NDArray[np.int32]:
    """At most ``size`` of the node's structure points, without replacement; none if the
    node has no more of them.
    """
    found = node[0][node[1][1, : node[0].size] > 0]
    if found.size <= size:
        return found[:0]
    for place in range(size):
        _next(found, place)
    return found[:size]


@compiled
def _multinomial_split(
    tree: Tree, numbers: NDArray[np.float64], node: Node
) -> tuple[int, int, int]:
    """A group of columns drawn by the best gains of groups, then a split point drawn by
    the gains of the group.

    Coins leave out groups and points. Where no group or point is left, one is taken
    at random. A group of several columns, which has one point for each, keeps all.
    """
    min_leaf, _, first_strength, second_strength, first_rate, second_rate = numbers[:6]
    (order, firsts), gain, point = tree[2], tree[4][3], tree[4][4]
    gains, splittable, n_splittable = (
        np.empty(firsts[-1]),
        np.empty(firsts[-1], dtype=np.int64),
        0,
    )
    for attempt in range(2 if first_rate < 1.0 else 1):
        for place in range(order.size):
            group = _next(order, place) if attempt == 1 else place
            if n_splittable > 0 if attempt == 1 else np.random.random() >= first_rate:
                continue
            best = -1.0
            for column in range(firsts[group], firsts[group + 1]):
                n_points = _scan(tree, column, node, min_leaf)
                if n_points > 0:
                    best = max(best, gain[:n_points].max())
            if best >= 0.0:
                gains[n_splittable] = best
                splittable[n_splittable] = group
                n_splittable += 1
    if n_splittable == 0:
        return -1, -1, -1
    group = splittable[_drawn(gains, n_splittable, first_strength)]
    column = firsts[group]
    if firsts[group + 1] > column + 1:
        n_splittable = 0
        for column in range(firsts[group], firsts[group + 1]):
            if _scan(tree, column, node, min_leaf) > 0:
                gains[n_splittable] = gain[0]
                splittable[n_splittable] = column
                n_splittable += 1
        return splittable[_drawn(gains, n_splittable, second_strength)], 0, 1
    n_points = _scan(tree, column, node, min_leaf)
    at = np.random.randint(0, n_points)
    one, following = point[2 * at], point[2 * at + 1]
    n_kept = _kept(gain, point, n_points, second_rate, 0, 2**31)
    if n_kept > 0:
        at = _drawn(gain, n_kept, second_strength)
        one, following = point[2 * at], point[2 * at + 1]
    return column, one, following


@compiled
def _split(
    tree: Tree, rule: tuple[int, NDArray[np.float64]], node: Node
) -> tuple[int, int, int]:
    """The column, the code and the next code of a node's split; column −1 if the node
    cannot be split.
    """
    kind, numbers = rule
    if kind == MULTINOMIAL:
        return _multinomial_split(tree, numbers, node)
    min_leaf, mtry, _, _, first_rate, second_rate, pool_size = numbers[:7]
    redraws = numbers[9] > 0.0
    codes, (order, firsts), gain, point = tree[0][0], tree[2], tree[4][3], tree[4][4]
    n_wanted, is_random_point = int(mtry), False
    if kind == POOLED:
        n_wanted = min(1 + np.random.poisson(mtry - 1.0), order.size)
    elif kind == BERNOULLI:
        n_wanted = 1 if np.random.random() < first_rate else n_wanted
        is_random_point = np.random.random() < second_rate
    pool = _sampled_structure(node, int(pool_size)) if kind == POOLED else node[0][:0]
    best_gain, best_column, best_code, best_next = -1.0, -1, -1, -1
    for place in range(order.size):
        if place >= n_wanted and (best_column >= 0 or not redraws):
            break
        group = _next(order, place)
        for column in range(firsts[group], firsts[group + 1]):
            n_points = _scan(tree, column, node, min_leaf)
            if pool.size > 0 and n_points > 0:
                pooled = codes[column][pool]
                n_points = _kept(gain, point, n_points, 1.0, pooled.min(), pooled.max())
            if n_points == 0:
                continue
            at = (
                np.random.randint(0, n_points)
                if is_random_point
                else gain[:n_points].argmax()
            )
            score = np.random.random() if is_random_point else gain[at]
            if score > best_gain:
                best_gain, best_column, best_code, best_next = (
                    score,
                    column,
                    point[2 * at],
                    point[2 * at + 1],
                )
    return best_column, best_code, best_next


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


@compiled
def _copied(to: NDArray[np.float64], of: NDArray[np.float64]) -> None:
    """Copies class weights by a loop, as :func:`_begin` does."""
    for label in range(to.size):
        to[label] = of[label]


@compiled
def _groups(columns: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The groups of columns, and the first column of each, with their number behind."""
    n_groups = columns[-1, 3] + 1 if columns.shape[0] > 0 else 0
    firsts = np.zeros(n_groups + 1, dtype=np.int64)
    for column in range(columns.shape[0]):
        firsts[columns[column, 3] + 1] = column + 1
    return np.arange(n_groups), firsts


@compiled
def _weight(weights: NDArray[np.int32], rows: NDArray[np.int32]) -> float:
    total = 0.0
    for row in rows:
        total += weights[row]
    return total


_MATRIX = read("int32", 2)


@compiled_for(
    triple(_MATRIX, _MATRIX, _MATRIX),
    _MATRIX,
    pair(integer, read("float64", 1)),
    integer,
    pair(written("int32", 2), written("float64", 2)),
)
def grow_tree(
    table: Table,
    columns: NDArray[np.int32],
    rule: tuple[int, NDArray[np.float64]],
    seed: int,
    grown: tuple[NDArray[np.int32], NDArray[np.float64]],
) -> int:
    """Grows a tree in preorder and returns its number of nodes.

    Args:
        table: codes, categories and points; rows without weight are ignored.
        columns: of every column its category, or −1; its value of the category; its
            number of codes; and its group, ascending without gaps, of which rules draw
            one; int32 ``(n_columns, 4)``.
        rule: the kind of rule, and its numbers: ``min_leaf, mtry, first_strength,
            second_strength, first_rate, second_rate, pool_size, max_depth,
            smallest_node, redraws, smallest_child``. A node with less than
            ``smallest_node`` estimation points is a leaf, and so are both children of a
            split if one has less than ``smallest_child``. If ``redraws`` is not 0,
            columns are drawn until one has a split.
        seed: of the pseudo-random generator.
        grown: arrays for at least twice as many nodes as rows with weight: column (−1:
            leaf), code of the split, next code, right child, int32 ``(…, 4)``; and
            weights of estimation points by class, float64 ``(…, n_classes)``; those of
            the parent where a node has no estimation points.
    """
    np.random.seed(seed)
    codes, categories, points = table
    (nodes, counts), max_depth = grown, rule[1][7]
    smallest, smallest_child = rule[1][8], rule[1][10]
    used = np.flatnonzero((points[1] > 0) | (points[2] > 0)).astype(np.int32)
    n_classes, n_categories = counts.shape[1], categories.shape[0]
    n_entries = 3 + n_classes
    work = (
        np.empty((2, used.size), dtype=np.int64),
        np.empty(used.size, dtype=np.int32),
        np.empty((2, n_classes)),
        np.empty(used.size + 1),
        np.empty(2 * used.size + 2, dtype=np.int32),
        np.empty(max(used.size // n_entries, 1) * n_entries, dtype=np.int64),
    )
    firsts = np.zeros((2, n_categories + 1), dtype=np.int64)
    for column in range(columns.shape[0]):
        if columns[column, 0] >= 0:
            for following in range(columns[column, 0] + 1, n_categories + 1):
                firsts[0, following] += 1
    firsts[1] = -1
    shared = (np.empty((firsts[0, -1], n_entries), dtype=np.int64), firsts)
    tree = (table, columns, _groups(columns), shared, work)
    local, total = np.empty((3, used.size), dtype=np.int32), np.empty(n_classes)
    # Nodes that wait: start and end of their rows, the parent whose right child they
    # are, and their depth; −1: a leaf.
    waiting = [(0, used.size, -1, 0)]
    n_nodes = 0
    while len(waiting) > 0:
        start, end, parent, depth = waiting.pop()
        rows, number, n_nodes = used[start:end], n_nodes, n_nodes + 1
        if parent >= 0:
            nodes[parent, 3] = number
        counts[number] = 0.0
        total[:] = 0.0
        for place in range(rows.size):
            row = rows[place]
            label = points[0, row]
            local[0, place], local[1, place], local[2, place] = (
                label,
                points[1, row],
                points[2, row],
            )
            total[label] += points[1, row]
            counts[number, label] += points[2, row]
        n_estimation = counts[number].sum()
        nodes[number, 0] = -1
        if n_estimation == 0.0 and number > 0:
            # the node before a left child is its parent
            above = parent if parent >= 0 else number - 1
            _copied(counts[number], counts[above])
        if (
            depth < 0
            or 0 < max_depth <= depth
            or n_estimation < smallest
            or np.count_nonzero(total) < 2
        ):
            continue
        node = (rows, local, total, number, n_estimation)
        column, code, following = _split(tree, rule, node)
        if column < 0:
            continue
        nodes[number, 0], nodes[number, 1], nodes[number, 2] = column, code, following
        n_left = _divided(codes[column], rows, code)
        below = depth + 1
        if smallest_child > 0.0:
            of_left = _weight(points[2], rows[:n_left])
            if min(of_left, n_estimation - of_left) < smallest_child:
                below = -1
        waiting.append((start + n_left, end, number, below))
        waiting.append((start, start + n_left, -1, below))
    return n_nodes
