"""Computes the utilities of sets of splits, one split per level, on PRIVATE weighted rows.

One selection at the budget of m levels chooses among about M^m/m! sets of M splits. Its error from noise is smaller
than the error of m selections of one split each, and it finds splits that separate the classes only together.
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
    """The utility of every set of splits: the sum of the norms of all parts of all nodes of the current level.

    Args:
        rows: PRIVATE.
        encoding: public or released bins.
        columns: public; see :func:`n_columns`.
        competing: public or released; candidates on the first ``columns`` columns, ascending, at least ``n_splits``.
        n_splits: number of splits in a set; two or more.
        n_nodes: of the current level.

    Returns:
        PRIVATE int64 ``(n_sets,)``, in the order of :func:`set_at`. An added row raises each utility by an integer
        from 0 to 256.
    """
    if n_splits == 2:
        gains = utilities(rows, encoding, columns, n_nodes=n_nodes, begin=int(competing[0]))
        first, second = np.triu_indices(len(competing), 1)
        return gains[competing[first], competing[second]]
    parts = []
    for place in range(len(competing) - n_splits + 1):
        feature, threshold, equals = boxes.splits(encoding.candidates, [int(competing[place])] * n_nodes)
        below = rows.below(feature=feature, threshold=threshold, equals=equals)
        later = competing[place + 1 :]
        parts.append(set_utilities(below, encoding, columns, later, n_splits=n_splits - 1, n_nodes=2 * n_nodes))
    return np.concatenate(parts)


def sums_over_sets(values: NDArray[np.int64], n_splits: int) -> NDArray[np.int64]:
    """The sum of the values of every set, int64 ``(n_sets,)``, in the order of :func:`set_at`; reads no row."""
    if n_splits == 1:
        return values
    places = range(len(values) - n_splits + 1)
    return np.concatenate([values[place] + sums_over_sets(values[place + 1 :], n_splits - 1) for place in places])


def set_at(index: int, competing: NDArray[np.int64], n_splits: int) -> tuple[int, ...]:
    """The set of splits at an index. Each set is ascending; the sets are in lexicographic order."""
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
    """The utility of every two splits: the sum of the norms of the four parts of all nodes of the current level.

    Args:
        rows: PRIVATE.
        encoding: public or released bins.
        columns: public; see :func:`n_columns`.
        n_nodes: of the current level.
        begin: the first candidate whose utilities are computed.

    Returns:
        PRIVATE int64 ``(n_candidates, n_candidates)``: at ``[r, s]`` the utility of candidates r < s, for r from
        ``begin`` on; other places are undefined. An added row raises each utility by an integer from 0 to 256.
    """
    n_splits = n_candidates(encoding, columns)
    feature = encoding.candidates.feature[:n_splits]
    threshold = encoding.candidates.threshold[:n_splits]
    equals = encoding.candidates.equals[:n_splits]
    norms = np.zeros((n_splits, n_splits), dtype=np.int64)
    for one in np.unique(feature[begin:]).tolist():
        start, stop = np.searchsorted(feature, [one, one + 1]).tolist()
        first = slice(max(start, begin), stop)
        for others in _blocks(encoding, slice(one, columns), n_nodes):
            of_others = slice(*np.searchsorted(feature, [others.start, others.stop]).tolist())
            norms[first, of_others] = fourth_roots.pair_norms(
                rows.joint_histogram(one, others),
                first=(threshold[first], equals[first]),
                n_codes=encoding.n_codes[others],
                splits=((feature[of_others] - others.start).astype(np.int32), threshold[of_others], equals[of_others]),
            )
    return norms


def _blocks(encoding: Encoding, others: slice, n_nodes: int) -> list[slice]:
    """Blocks of columns whose tables against the first column fit in working memory; at least one column per block."""
    tables = n_nodes * int(encoding.n_codes[others.start])
    blocks = shapes.blocks(encoding.n_codes[others], cells=tables * encoding.schema.n_classes)
    return [slice(others.start + block.start, others.start + block.stop) for block in blocks]
