"""Splits of several levels that are chosen at once: which of them compete, and what they gain on PRIVATE weighted rows.

One selection at the budget of m levels finds its choice among about M^m/m! sets of M splits: its noise costs less than
that of one selection among the splits themselves, and there are an m-th as many selections. It also sees what splits
tell together and none of them tells alone.
"""

from __future__ import annotations

from math import comb

import numpy as np
from numpy.typing import NDArray

from app.forests.algorithms.rpf.joint_limits import n_candidates
from app.forests.algorithms.rpf.reweighted_rows import ReweightedRows
from app.forests.data.encoding import Encoding
from app.forests.kernels import fourth_roots
from app.forests.trees import boxes, shapes


def set_utilities(
    rows: ReweightedRows,
    encoding: Encoding,
    columns: int,
    competing: NDArray[np.int64],
    *,
    n_splits: int,
    n_nodes: int,
) -> NDArray[np.int64]:
    """What every set of splits gains over all nodes of the current level: the norms of all its parts, summed up.

    Args:
        rows: PRIVATE.
        encoding: public or released bins.
        columns: public; see :func:`n_columns`.
        competing: public or released; candidates on these columns, ascending, at least ``n_splits`` of them.
        n_splits: of a set; two or more.
        n_nodes: of the current level.

    Returns:
        PRIVATE int64 ``(n_sets,)``, the sets in the order of :func:`set_at`. An added row raises each of them by an
        integer from 0 to 256.
    """
    if n_splits == 2:
        gains = utilities(rows, encoding, columns, n_nodes=n_nodes, begin=int(competing[0]))
        first, second = np.triu_indices(len(competing), 1)
        return gains[competing[first], competing[second]]
    found = []
    for place in range(len(competing) - n_splits + 1):
        feature, threshold, equals = boxes.splits(encoding.candidates, [int(competing[place])] * n_nodes)
        below = rows.below(feature=feature, threshold=threshold, equals=equals)
        later = competing[place + 1 :]
        found.append(set_utilities(below, encoding, columns, later, n_splits=n_splits - 1, n_nodes=2 * n_nodes))
    return np.concatenate(found)


def sums_over_sets(values: NDArray[np.int64], n_splits: int) -> NDArray[np.int64]:
    """What every set's values add up to, int64 ``(n_sets,)``, in the order of :func:`set_at`; without a row."""
    if n_splits == 1:
        return values
    places = range(len(values) - n_splits + 1)
    return np.concatenate([values[place] + sums_over_sets(values[place + 1 :], n_splits - 1) for place in places])


def set_at(index: int, competing: NDArray[np.int64], n_splits: int) -> tuple[int, ...]:
    """The set of splits with a given number: ascending sets in the order of their first splits, then of the next."""
    chosen: list[int] = []
    for place, candidate in enumerate(competing.tolist()):
        still = n_splits - len(chosen)
        if still == 0:
            break
        n_with_it = comb(len(competing) - place - 1, still - 1)
        if index < n_with_it:
            chosen.append(candidate)
        else:
            index -= n_with_it
    return tuple(chosen)


def utilities(
    rows: ReweightedRows, encoding: Encoding, columns: int, *, n_nodes: int, begin: int = 0
) -> NDArray[np.int64]:
    """What every two splits gain over all nodes of the current level: the norms of the four parts of each, summed up.

    Args:
        rows: PRIVATE.
        encoding: public or released bins.
        columns: public; see :func:`n_columns`.
        n_nodes: of the current level.
        begin: the first candidate that is looked at.

    Returns:
        PRIVATE int64 ``(n_candidates, n_candidates)``; those of candidates r < s, from ``begin`` on, stand at ``[r,
        s]``, and what stands elsewhere is of no meaning. An added row raises each of them by an integer from 0 to 256.
    """
    own = n_candidates(encoding, columns)
    feature = encoding.candidates.feature[:own]
    threshold = encoding.candidates.threshold[:own]
    equals = encoding.candidates.equals[:own]
    found = np.zeros((own, own), dtype=np.int64)
    for one in np.unique(feature[begin:]).tolist():
        start, stop = np.searchsorted(feature, [one, one + 1]).tolist()
        first = slice(max(start, begin), stop)
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
