"""Sets public limits on the splits of two levels that one selection chooses."""

from math import comb
from typing import Final

import numpy as np

from app.forests.data.encoding import Encoding
from app.forests.trees import shapes

MOST_AT_ONCE: Final = 2
"""Most levels whose splits one selection chooses; three are no more accurate on most tables (docs/results/rpf.md)."""

MOST_STORED: Final = 3
"""Most levels that one selection chose in forests of versions before; such forests still predict."""

MAX_WITH_PAIRS: Final = 500
"""Most public splits, including those on sums and differences, for which joint selections use all columns."""

MAX_CANDIDATES: Final = 1_000
"""Most public splits that may compete in joint selections."""

MAX_COLUMNS: Final = 64
"""Most columns for which every two columns are tabulated against each other."""

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


def is_affordable(widest: Encoding, depth: int) -> bool:
    """Whether a tree of at least two levels may choose two at once; a function of public facts."""
    columns = n_columns(widest)
    return (
        2 <= n_candidates(widest, columns) <= MAX_CANDIDATES
        and columns <= MAX_COLUMNS
        and _work(widest, depth) <= MAX_WORK
        and _table_cells(widest, depth) <= shapes.MAX_TABLE_CELLS
    )


def most_trees(widest: Encoding, depth: int) -> int:
    """The most trees that may choose splits jointly if one tree may; most of the work does not depend on the rows."""
    return MAX_FOREST_WORK // _work(widest, depth)


def default(widest: Encoding, depth: int, *, n_trees: int, size: int) -> int:
    """The default number of levels per selection, from the declaration, the depth, the trees and the public size.

    Many deep trees on few rows choose one level at a time, because evaluating sets of splits takes the same time for
    few rows as for many. Such trees have enough budget per selection to find splits one by one.
    """
    most_work = min(WORK_PER_ROW * size, MAX_FOREST_WORK)
    is_cheap = depth >= 2 and is_affordable(widest, depth) and n_trees * _work(widest, depth) <= most_work
    return 2 if is_cheap else 1


def _work(widest: Encoding, depth: int) -> int:
    """Sets of two splits × nodes × classes in the deepest selection of a tree."""
    return comb(n_candidates(widest, n_columns(widest)), 2) * widest.schema.n_classes << (depth - 2)


def _table_cells(widest: Encoding, depth: int) -> int:
    """The number of cells of the largest table of two columns, which is in a tree's deepest selection."""
    n_codes = int(widest.n_codes[: n_columns(widest)].max())
    return n_codes**2 * widest.schema.n_classes << (depth - 2)
