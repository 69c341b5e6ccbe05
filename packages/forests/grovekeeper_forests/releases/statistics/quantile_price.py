"""Prices the quantiles of a number, and states their error in rank before they are paid
for. No row is read.

A quantile of one group is a selection among the cells of a public grid. The score of a
cell is the distance, in rows and negated, of q · n from the ranks of the cell (from the
number of rows below it to the number of rows below or in it), where n is the number of
rows of the group. The ranks of all cells cover 0 to n, so the best score is 0, whatever
ties there are. See docs/proofs/statistics.md, Theorem 2.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

from grovekeeper_forests import limits
from grovekeeper_forests.bins.noisy_counts import draw_scale
from grovekeeper_forests.bins.quantile_bins import Selection
from grovekeeper_forests.contract.algorithm import PublicFacts
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.calibration import Budget, fitted
from grovekeeper_forests.privacy.events import (
    Adjacency,
    Event,
    ExponentialMechanism,
    Parallel,
    Part,
    PermuteAndFlip,
    Sequential,
    UnknownPrivacyEvent,
)
from grovekeeper_forests.releases.statistics.tables import QUANTILE_STEPS, Table

_GROUPS: Final = "groups"
_GROUPS_OF_A_CHANGE: Final = ("group before the change", "group after the change")
"""What selections are disjoint over, in events. A label that changes can move a row
from one group to another, so both pay.
"""


def range_sensitivity(quantile: Fraction) -> int:
    """The largest spread of the changes that one row makes in the scores of a group, in
    units of 1 / ``quantile.denominator`` of a row.

    A row moves each score by at most max(q, 1 − q) rows, and can move one score up and
    another one down.
    """
    part = quantile.numerator
    whole = quantile.denominator
    return 2 * max(part, whole - part)


def n_changed_groups(table: Table, adjacency: Adjacency) -> int:
    """The largest number of groups in which neighbours differ by a row."""
    labels_move = adjacency is Adjacency.LABEL and table.groups_by_label
    return 2 if labels_move else 1


def quantile_parts(table: Table, facts: PublicFacts) -> list[Part]:
    """The events of the quantiles of a table, which share its price equally.

    On accounts that count ε, a selection is permute-and-flip, else the exponential
    mechanism (docs/proofs/accounting.md, A4).

    Args:
        table: public; of quantiles.
        facts: of the table's share, stated under the adjacency of the account.

    Raises:
        ParameterInvalid: the share is too small for any selection.
    """
    budget = facts.budget
    adjacency = facts.budget.adjacency
    ranges = tuple(map(range_sensitivity, table.quantiles))
    n_changed = n_changed_groups(table, adjacency)
    mechanism: type[Selection] = PermuteAndFlip
    if budget.accountant == pure.NAME:
        loss = facts.epsilon / (len(ranges) * n_changed)
        scales = tuple(draw_scale(loss, sensitivity) for sensitivity in ranges)
    else:
        mechanism = ExponentialMechanism
        scales = _exponential_scales(budget, ranges, n_changed)
    selections = [
        mechanism(adjacency, Fraction(sensitivity), scale, table.n_candidates)
        for sensitivity, scale in zip(ranges, scales, strict=True)
    ]
    return [Part(1, _of_all_groups(selection, table)) for selection in selections]


@lru_cache(maxsize=1_024)
def _exponential_scales(
    budget: Budget, ranges: tuple[int, ...], n_changed: int
) -> tuple[Fraction, ...]:
    """The inverse scales at which selections in sequence use a budget up.

    Their loss depends neither on the number of candidates nor on that of groups, so
    many tables of a request, and many steps of a search, share a solution.

    Args:
        ranges: the range sensitivity of each selection.
        n_changed: how many groups pay for each selection.
    """

    def event_at(loss: Fraction) -> Sequential:
        selections = [
            ExponentialMechanism(
                budget.adjacency,
                Fraction(sensitivity),
                draw_scale(loss, sensitivity),
                1,
            )
            for sensitivity in ranges
        ]
        return Sequential(tuple(Part(n_changed, each) for each in selections))

    priced = fitted(budget, event_at, start=Fraction(1))
    assert isinstance(priced, Sequential)
    scales = []
    for part in priced.parts:
        assert isinstance(part.event, ExponentialMechanism)
        scales.append(part.event.inverse_scale)
    return tuple(scales)


def _of_all_groups(selection: Selection, table: Table) -> Event:
    groups = (Part(table.n_cells, selection),)
    if n_changed_groups(table, selection.adjacency) == 1:
        return Parallel(_GROUPS, groups)
    return Sequential(
        tuple(Part(1, Parallel(over, groups)) for over in _GROUPS_OF_A_CHANGE)
    )


def selection_of(event: Event, quantile: Fraction, table: Table) -> Selection:
    """The priced selection of one group.

    Raises:
        UnknownPrivacyEvent: the event is not one of this quantile of this table.
    """
    leaf = event
    while isinstance(leaf, Sequential | Parallel) and leaf.parts:
        leaf = leaf.parts[0].event
    if (
        isinstance(leaf, Selection)
        and leaf.range_sensitivity == range_sensitivity(quantile)
        and leaf.inverse_scale > 0
        and leaf.max_candidates == table.n_candidates
        and event == _of_all_groups(leaf, table)
    ):
        return leaf
    raise UnknownPrivacyEvent("not the event of a quantile")


def selections_of(table: Table, events: Sequence[Event]) -> list[Selection]:
    """The priced selections of the quantiles of a table.

    Raises:
        UnknownPrivacyEvent: as :func:`selection_of`.
    """
    return [
        selection_of(event, quantile, table)
        for quantile, event in zip(table.quantiles, events, strict=True)
    ]


def rank_error(table: Table, events: Sequence[Event], level: float) -> float:
    """The smallest t, in rows, of which the plan knows that all quantiles of a group
    together have an error in rank of at most t, with probability ``level``.

    The error in rank of a released cell is the distance of q · n from the ranks of the
    cell. The bound holds for every dataset.

    Args:
        events: of the quantiles of the table.
        level: below 1.
    """
    selections = selections_of(table, events)

    def is_kept(steps: int) -> bool:
        missed = 0.0
        for quantile, selection in zip(table.quantiles, selections, strict=True):
            # the smallest gap of scores that is above the bound
            gap = steps * quantile.denominator // QUANTILE_STEPS + 1
            missed += miss_probability(selection, gap)
        return missed <= 1.0 - level

    most = QUANTILE_STEPS * limits.MAX_ROWS_PER_DATASET
    return bisect_left(range(most), True, key=is_kept) / QUANTILE_STEPS


def miss_probability(selection: Selection, gap: int) -> float:
    """The largest probability that a selection takes a candidate whose score is lower
    than the best one by ``gap`` or more: one candidate is the best, and all others are
    lower by ``gap``.

    Args:
        gap: above zero, in units of the score.
    """
    accepted = math.exp(-float(selection.inverse_scale * gap))
    n_low = selection.max_candidates - 1
    if isinstance(selection, ExponentialMechanism):
        return n_low * accepted / (1.0 + n_low * accepted)
    # Of N accepted low candidates and the best one, each is taken with the same
    # probability: E[N / (N + 1)], N binomial.
    expected = (n_low + 1) * accepted
    if expected < _NEGLIGIBLE:
        return expected / 2.0
    all_refused = (n_low + 1) * math.log1p(-accepted)
    return 1.0 + math.expm1(all_refused) / expected


_NEGLIGIBLE: Final = 1e-9
"""Where fewer low candidates than this are accepted, E[N / (N + 1)] ≤ E[N] / 2 is
exact enough.
"""
