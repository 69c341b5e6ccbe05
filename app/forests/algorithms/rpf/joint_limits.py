"""Sets public limits on the number of levels whose splits one selection chooses."""

from itertools import accumulate
from math import comb
from typing import Final

import numpy as np

from app.forests.algorithms.rpf.path_event import stages
from app.forests.data.encoding import Encoding
from app.forests.trees import shapes

MOST_AT_ONCE: Final = 3
"""Most levels whose splits one selection chooses; four and five are no more accurate (docs/results/rpf.md)."""

MAX_WITH_PAIRS: Final = 500
"""Most public splits, including those on sums and differences, for which joint selections use all columns."""

MAX_CANDIDATES: Final = 1_000
"""Most public splits that may compete in joint selections."""

MAX_COLUMNS: Final = 64
"""Most columns for which every two columns are tabulated against each other."""

MAX_SETS: Final = 3_000_000
"""Most sets of three or more splits in one selection; all their utilities are in memory at once."""

MAX_TABLES: Final = 2**18
"""Most tables of two columns for a tree's selections of three splits."""

MAX_FOREST_TABLES: Final = 2**20
"""Most tables of two columns for all trees together."""

MAX_ADDITIONS: Final = 300_000_000
"""Most tables × public size for all trees by the rule of :func:`default`: one or two seconds of one core."""

MAX_WORK: Final = 2**31
"""Most sets of splits × nodes × classes in a tree's largest selection: bounds the time to evaluate the utilities."""

MAX_FOREST_WORK: Final = 2**35
"""Most sets of splits × nodes × classes for all trees together: ten to fifteen minutes of one core. The rule for the
number of trees stays below this limit."""

WORK_PER_ROW: Final = 10_000
"""Most sets of splits × nodes × classes for all trees, per row of the public size, by the rule of :func:`default`."""


def n_columns(widest: Encoding) -> int:
    """The number of columns, counted from the first of an encoding, whose splits compete in joint selections.

    All columns, or only the declared columns if there are many splits. Splits on sums and differences still compete in
    selections of a single level.

    Args:
        widest: public; the encoding with the largest possible number of bins, so that the result depends on the plan
            only.
    """
    return len(widest.n_codes) if len(widest.candidates) <= MAX_WITH_PAIRS else len(widest.edges)


def n_candidates(encoding: Encoding, columns: int) -> int:
    """The number of an encoding's splits on its first ``columns`` columns."""
    return int(np.searchsorted(encoding.candidates.feature, columns))


def is_affordable(widest: Encoding, depth: int, at_once: int) -> bool:
    """Whether a joint selection has enough splits and stays within all limits; a function of public facts."""
    n_splits, columns = n_candidates(widest, n_columns(widest)), n_columns(widest)
    largest = max(stages(depth, at_once), default=0)
    return (
        2 <= largest <= n_splits <= MAX_CANDIDATES
        and columns <= MAX_COLUMNS
        and (largest == 2 or _three_are_affordable(widest, depth, at_once))
        and _work(widest, depth, at_once) <= MAX_WORK
        and _table_cells(widest, depth) <= shapes.MAX_TABLE_CELLS
    )


def _three_are_affordable(widest: Encoding, depth: int, at_once: int) -> bool:
    """Whether selections of three splits stay within the limits. Any sums and differences must be among their columns,
    because no level is left that is chosen alone."""
    n_candidates_of_widest = len(widest.candidates)
    return (
        n_columns(widest) == len(widest.n_codes)
        and comb(n_candidates_of_widest, max(stages(depth, at_once))) <= MAX_SETS
        and _tables(widest, depth, at_once) <= MAX_TABLES
    )


def most_trees(widest: Encoding, depth: int, at_once: int) -> int:
    """The most trees that may choose splits jointly if one tree may; most of the work does not depend on the rows."""
    by_tables = MAX_FOREST_TABLES // max(_tables(widest, depth, at_once), 1)
    return min(MAX_FOREST_WORK // _work(widest, depth, at_once), by_tables)


def default(widest: Encoding, depth: int, *, n_trees: int, size: int) -> int:
    """The default number of levels per selection, from the declaration, the depth, the trees and the public size.

    The rule takes the smallest number of levels that gives the fewest affordable selections. Many deep trees on few
    rows choose one level at a time, because evaluating sets of splits takes the same time for few rows as for many.
    Such trees have enough budget per selection to find splits one by one.
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
    n_splits_of_widest, sizes = n_candidates(widest, n_columns(widest)), stages(depth, at_once)
    above = accumulate((0, *sizes[:-1]))
    sets = (comb(n_splits_of_widest, n_splits) << level for n_splits, level in zip(sizes, above, strict=True))
    return max(sets) * widest.schema.n_classes


def _tables(widest: Encoding, depth: int, at_once: int) -> int:
    """The most tables of two columns in a tree's selections of three or more splits; each table reads all rows once."""
    n_splits_of_widest, columns = n_candidates(widest, n_columns(widest)), n_columns(widest)
    below = sum(comb(n_splits_of_widest, n_splits - 2) for n_splits in stages(depth, at_once) if n_splits > 2)
    return below * comb(columns + 1, 2)


def _table_cells(widest: Encoding, depth: int) -> int:
    """The number of cells of the largest table of two columns, which is in a tree's deepest selection."""
    n_codes = int(widest.n_codes[: n_columns(widest)].max())
    return n_codes**2 * widest.schema.n_classes << (depth - 2)
