"""Public limits and rules of splits of several levels that are chosen at once."""

from itertools import accumulate
from math import comb
from typing import Final

import numpy as np

from app.forests.algorithms.rpf.path_event import stages
from app.forests.data.encoding import Encoding
from app.forests.trees import shapes

MOST_AT_ONCE: Final = 3
"""Levels that one selection may choose; four and five were tried and found no better (docs/results/rpf.md)."""

MAX_WITH_PAIRS: Final = 500
"""Public splits, those on sums and differences included, up to which all of them are chosen several at once."""

MAX_CANDIDATES: Final = 1_000
"""Public splits on the columns themselves up to which several are chosen at once."""

MAX_COLUMNS: Final = 64
"""Columns up to which every two are tabulated against each other."""

MAX_SETS: Final = 3_000_000
"""Sets of three splits or more that compete in one selection: their utilities are held together."""

MAX_TABLES: Final = 2**18
"""Times that two columns are tabulated against each other for a tree's selections of three splits."""

MAX_FOREST_TABLES: Final = 2**20
"""The same for all trees together."""

MAX_ADDITIONS: Final = 300_000_000
"""Tables × rows of the public size, all trees together, by the rule of :func:`default`: a second or two of one core."""

MAX_WORK: Final = 2**31
"""Sets of splits × nodes × classes of a tree's largest selection: what it may cost to evaluate them."""

MAX_FOREST_WORK: Final = 2**35
"""The same for all trees together: ten to fifteen minutes of one core. No number of trees that the rule chooses passes
it."""

WORK_PER_ROW: Final = 10_000
"""The same for all trees together and for each row of the public size, by the rule of :func:`default`."""


def n_columns(widest: Encoding) -> int:
    """How many columns, the first ones of an encoding, splits are chosen on several at once.

    All of them, or where there are many splits only the columns of the declaration; sums and differences keep their
    place in what competes for a single level.

    Args:
        widest: public; as many bins as there can be, so that the answer is the plan's.
    """
    return len(widest.n_codes) if len(widest.candidates) <= MAX_WITH_PAIRS else len(widest.edges)


def n_candidates(encoding: Encoding, columns: int) -> int:
    """How many of an encoding's splits are on its first ``columns`` columns."""
    return int(np.searchsorted(encoding.candidates.feature, columns))


def is_affordable(widest: Encoding, depth: int, at_once: int) -> bool:
    """Whether there are splits enough to choose, but few enough: by the declaration and the depth alone."""
    own, columns = n_candidates(widest, n_columns(widest)), n_columns(widest)
    largest = max(stages(depth, at_once), default=0)
    return (
        2 <= largest <= own <= MAX_CANDIDATES
        and columns <= MAX_COLUMNS
        and (largest == 2 or _three_are_affordable(widest, depth, at_once))
        and _work(widest, depth, at_once) <= MAX_WORK
        and _table_cells(widest, depth) <= shapes.MAX_TABLE_CELLS
    )


def _three_are_affordable(widest: Encoding, depth: int, at_once: int) -> bool:
    """Sums and differences, if there are any, must compete: no level is left over where they could."""
    own = len(widest.candidates)
    return (
        n_columns(widest) == len(widest.n_codes)
        and comb(own, max(stages(depth, at_once))) <= MAX_SETS
        and _tables(widest, depth, at_once) <= MAX_TABLES
    )


def most_trees(widest: Encoding, depth: int, at_once: int) -> int:
    """How many trees may choose several splits at once, where one is affordable: much work does not fall with rows."""
    by_tables = MAX_FOREST_TABLES // max(_tables(widest, depth, at_once), 1)
    return min(MAX_FOREST_WORK // _work(widest, depth, at_once), by_tables)


def default(widest: Encoding, depth: int, *, n_trees: int, size: int) -> int:
    """How many levels are chosen at once by rule: by the declaration, the depth, the trees and the public size.

    As few selections as can be afforded, and of the numbers that lead to as few the smallest. Work that does not grow
    with the rows is spared where trees are many and deep for their rows. Their selections have budget enough there to
    find splits one by one.
    """
    chosen, work = 1, min(WORK_PER_ROW * size, MAX_FOREST_WORK)
    for at_once in range(2, MOST_AT_ONCE + 1):
        if (
            len(stages(depth, at_once)) < len(stages(depth, chosen))
            and is_affordable(widest, depth, at_once)
            and n_trees * _work(widest, depth, at_once) <= work
            and n_trees * _tables(widest, depth, at_once) <= min(MAX_ADDITIONS // size, MAX_FOREST_TABLES)
        ):
            chosen = at_once
    return chosen


def _work(widest: Encoding, depth: int, at_once: int) -> int:
    own, sizes = n_candidates(widest, n_columns(widest)), stages(depth, at_once)
    above = accumulate((0, *sizes[:-1]))
    sets = (comb(own, n_splits) << level for n_splits, level in zip(sizes, above, strict=True))
    return max(sets) * widest.schema.n_classes


def _tables(widest: Encoding, depth: int, at_once: int) -> int:
    """At most, of two columns, in a tree's selections of three splits or more: each is as much work as its rows."""
    own, columns = n_candidates(widest, n_columns(widest)), n_columns(widest)
    below = sum(comb(own, n_splits - 2) for n_splits in stages(depth, at_once) if n_splits > 2)
    return below * comb(columns + 1, 2)


def _table_cells(widest: Encoding, depth: int) -> int:
    """Of the largest table of two columns that a tree's deepest selection holds, with all its splits but two made."""
    n_codes = int(widest.n_codes[: n_columns(widest)].max())
    return n_codes**2 * widest.schema.n_classes << (depth - 2)
