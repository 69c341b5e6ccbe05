"""Selects the quantiles of groups of rows. Only the child process of a job imports this
module.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from grovekeeper_forests.array_types import Int64Array
from grovekeeper_forests.noise.randomness import Randomness, forfeit
from grovekeeper_forests.privacy.events import Event
from grovekeeper_forests.releases.statistics.quantile_price import (
    n_changed_groups,
    selections_of,
)
from grovekeeper_forests.releases.statistics.tables import Table
from grovekeeper_forests.trees import tree_growth


def select_quantiles(
    table: Table,
    events: Sequence[Event],
    counts: Int64Array,
    randomness: Randomness,
) -> list[Int64Array]:
    """Selects a cell of the grid for each quantile of each group. One call is one
    release and costs what was priced.

    Args:
        table: public; of quantiles.
        events: the priced events of its quantiles.
        counts: PRIVATE exact numbers of rows, int64, ``(n_groups, n_candidates)``. A
            row is counted once at most.
        randomness: of the job.

    Returns:
        For each quantile, int64 ``(n_groups,)``: numbers of cells.

    Privacy:
        The sum of the losses of ``events``. A row is in one group at most, and moves
        the scores of that group against each other by at most the range sensitivity of
        the event (docs/proofs/statistics.md, Theorem 2), so a selection is ε-DP by
        lemma L2, or ε-bounded-range by lemma L1. Groups are disjoint (lemma L5); a
        changed label changes two groups where it decides the group, and both are paid
        for. Quantiles compose in sequence (Theorem L). An empty group has equal scores.
        *Not covered:* running time.

    Source:
        Smith, "Privacy-preserving Statistical Estimation with Optimal Convergence
        Rates", 2011, for the score; docs/proofs/statistics.md, Theorem 2.
    """
    selected = []
    for quantile, selection in zip(
        table.quantiles, selections_of(table, events), strict=True
    ):
        cells = [
            tree_growth.select(selection, scores(of_group, quantile), randomness)
            for of_group in counts
        ]
        # Neighbours differ in one group or two, and all groups are drawn once.
        n_spared = (n_changed_groups(table, selection.adjacency) - 1) * len(counts)
        forfeit(
            randomness,
            type(selection),
            inverse_scale=selection.inverse_scale,
            count=n_spared,
        )
        selected.append(np.array(cells, dtype=np.int64))
    return selected


def select_edges(
    table: Table,
    events: Sequence[Event],
    by_cell: Int64Array,
    randomness: Randomness,
) -> Int64Array:
    """Selects the edges of private bins. One call is one release and costs what was
    priced.

    Args:
        table: public; the quantiles that become edges.
        events: the priced events of these quantiles.
        by_cell: PRIVATE exact numbers of rows, int64, ``(n_candidates,)``. A row is
            counted once at most.
        randomness: of the job.

    Returns:
        int64, ascending, each at least 1: the cells of the grid where bins begin. Where
        several quantiles are in one cell, or in the lowest, edges are moved apart, so
        that every bin has a cell.

    Privacy:
        As :func:`select_quantiles`, of one group; moving edges apart is post-processing
        (lemma L7). *Not covered:* running time.

    Source:
        docs/proofs/statistics.md, Theorem 3.
    """
    [*selected] = select_quantiles(table, events, by_cell[np.newaxis], randomness)
    places = np.arange(len(selected))
    cells = np.maximum(np.sort(np.concatenate(selected)), 1)
    ascending = np.maximum.accumulate(cells - places) + places
    starts: Int64Array = np.minimum(
        ascending, table.n_candidates - len(selected) + places
    )
    return starts


def scores(counts: Int64Array, quantile: Fraction) -> Int64Array:
    """PRIVATE scores of the cells of one group: zero where the ranks of the cell hold
    q · n, else the distance to them, negated.

    Args:
        counts: PRIVATE; int64, ``(n_candidates,)``.
        quantile: public.

    Returns:
        int64 ``(n_candidates,)``, in units of 1 / ``quantile.denominator`` of a row.
    """
    part = quantile.numerator
    whole = quantile.denominator
    up_to = counts.cumsum()
    below = up_to - counts
    target = part * counts.sum()
    too_high = whole * below - target
    too_low = target - whole * up_to
    distances: Int64Array = np.maximum(np.maximum(too_high, too_low), 0)
    return -distances
