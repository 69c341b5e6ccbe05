"""Computes the utilities of sets of two splits, one split per level, on PRIVATE weighted rows.

One selection at the budget of two levels chooses among about M²/2 sets of M splits. Its error from noise is smaller
than the error of two selections of one split each, and it finds splits that separate the classes only together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.forests.algorithms.rpf.joint_limits import n_candidates
from app.forests.algorithms.rpf.reweighted_rows import ReweightedRows
from app.forests.data.encoding import Encoding
from app.forests.kernels import fourth_roots
from app.forests.trees import shapes


def utilities(rows: ReweightedRows, encoding: Encoding, columns: int, *, n_nodes: int) -> NDArray[np.int64]:
    """The utility of every two splits: the sum of the norms of the four parts of all nodes of the current level.

    Args:
        rows: PRIVATE.
        encoding: public or released bins.
        columns: public; see :func:`n_columns`.
        n_nodes: of the current level.

    Returns:
        PRIVATE int64 ``(n_candidates, n_candidates)``: at ``[r, s]`` the utility of candidates r < s; other places are
        undefined. An added row raises each utility by an integer from 0 to 256.
    """
    n_splits = n_candidates(encoding, columns)
    feature = encoding.candidates.feature[:n_splits]
    threshold = encoding.candidates.threshold[:n_splits]
    equals = encoding.candidates.equals[:n_splits]
    norms = np.zeros((n_splits, n_splits), dtype=np.int64)
    for one in np.unique(feature).tolist():
        first = slice(*np.searchsorted(feature, [one, one + 1]).tolist())
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
