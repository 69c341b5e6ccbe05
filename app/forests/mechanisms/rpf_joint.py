"""Splits of two levels that are chosen at once: which of them compete, and what they gain on PRIVATE weighted rows.

One selection at twice the budget finds its choice among half the square of the candidates: its noise is that of one
selection among the candidates themselves, and there are half as many selections. It also sees what two splits tell
together and neither tells alone.
"""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from app.forests.encoding import Encoding
from app.forests.kernels import fourth_roots
from app.forests.mechanisms import shapes

if TYPE_CHECKING:
    from app.forests.reweighted import ReweightedRows

AT_ONCE: Final = 2

MAX_WITH_PAIRS: Final = 500
"""Public splits, those on sums and differences included, up to which all of them are chosen two at once."""

MAX_CANDIDATES: Final = 1_000
"""Public splits on the columns themselves up to which two are chosen at once."""

MAX_COLUMNS: Final = 64
"""Columns up to which every two are tabulated against each other."""

MAX_WORK: Final = 2**31
"""Pairs of splits × nodes × classes of a tree's deepest selection: what it may cost to evaluate them."""

MAX_FOREST_WORK: Final = 2**35
"""The same for all trees together: ten to fifteen minutes of one core. No number of trees that the rule chooses passes
it."""

WORK_PER_ROW: Final = 10_000
"""The same for all trees together and for each row of the public size, by the rule of :func:`is_worth_it`."""


def n_columns(widest: Encoding) -> int:
    """How many columns, the first ones of an encoding, splits are chosen on two at once.

    All of them, or where there are many splits only the columns of the declaration; sums and differences keep their
    place in what competes for a single level.

    Args:
        widest: public; as many bins as there can be, so that the answer is the plan's.
    """
    return len(widest.n_codes) if len(widest.candidates) <= MAX_WITH_PAIRS else len(widest.edges)


def n_candidates(encoding: Encoding, columns: int) -> int:
    """How many of an encoding's splits are on its first ``columns`` columns."""
    return int(np.searchsorted(encoding.candidates.feature, columns))


def is_affordable(widest: Encoding, depth: int) -> bool:
    """Whether there are two splits to choose, but few enough: by the declaration and the depth alone."""
    own = n_candidates(widest, n_columns(widest))
    return (
        AT_ONCE <= own <= MAX_CANDIDATES
        and n_columns(widest) <= MAX_COLUMNS
        and depth >= AT_ONCE
        and _work(widest, depth) <= MAX_WORK
        and _table_cells(widest, depth) <= shapes.MAX_TABLE_CELLS
    )


def most_trees(widest: Encoding, depth: int) -> int:
    """How many trees may choose two splits at once, where one is affordable: their work does not fall with the rows."""
    return MAX_FOREST_WORK // _work(widest, depth)


def is_worth_it(widest: Encoding, depth: int, *, n_trees: int, size: int) -> bool:
    """Whether the rule chooses two splits at once: by the declaration, the depth, the trees and the public size.

    Work that does not grow with the rows is spared where trees are many and deep for their rows. Their selections have
    budget enough there to find splits one by one.
    """
    allowed = min(WORK_PER_ROW * size, MAX_FOREST_WORK)
    return is_affordable(widest, depth) and n_trees * _work(widest, depth) <= allowed


def _work(widest: Encoding, depth: int) -> int:
    own = n_candidates(widest, n_columns(widest))
    return comb(own, AT_ONCE) * widest.schema.n_classes << (depth - AT_ONCE)


def _table_cells(widest: Encoding, depth: int) -> int:
    """Of the largest table of two columns that a tree's deepest selection holds."""
    n_codes = int(widest.n_codes[: n_columns(widest)].max())
    return n_codes**AT_ONCE * widest.schema.n_classes << (depth - AT_ONCE)


def utilities(rows: ReweightedRows, encoding: Encoding, columns: int, *, n_nodes: int) -> NDArray[np.int64]:
    """What every two splits gain over all nodes of the current level: the norms of the four parts of each, summed up.

    Args:
        rows: PRIVATE.
        encoding: public or released bins.
        columns: public; see :func:`n_columns`.
        n_nodes: of the current level.

    Returns:
        PRIVATE int64 ``(n_candidates, n_candidates)``; those of candidates r < s stand at ``[r, s]``, and what stands
        elsewhere is of no meaning. An added row raises each of them by an integer from 0 to 256.
    """
    own = n_candidates(encoding, columns)
    feature = encoding.candidates.feature[:own]
    threshold = encoding.candidates.threshold[:own]
    equals = encoding.candidates.equals[:own]
    found = np.zeros((own, own), dtype=np.int64)
    for one in np.unique(feature).tolist():
        first = slice(*np.searchsorted(feature, [one, one + 1]).tolist())
        for others in _blocks(encoding, slice(one, columns), n_nodes):
            mine = slice(*np.searchsorted(feature, [others.start, others.stop]).tolist())
            found[first, mine] = fourth_roots.pair_norms(
                rows.joint_histogram(one, others),
                first=(threshold[first], equals[first]),
                n_codes=encoding.n_codes[others],
                splits=((feature[mine] - others.start).astype(np.int32), threshold[mine], equals[mine]),
            )
    return found


def _blocks(encoding: Encoding, others: slice, n_nodes: int) -> list[slice]:
    """Columns whose tables against the first of them fit in working memory together, at least one at a time."""
    tables = n_nodes * int(encoding.n_codes[others.start])
    blocks = shapes.blocks(encoding.n_codes[others], cells=tables * encoding.schema.n_classes)
    return [slice(others.start + block.start, others.start + block.stop) for block in blocks]
