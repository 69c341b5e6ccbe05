"""Releases noisy counts of disjoint cells, and the cuts of bins at private quantiles of
PRIVATE rows.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Protocol

import numpy as np

from grovekeeper_forests.array_types import (
    Float64Array,
    Int32Array,
    Int64Array,
    UInt16Array,
)
from grovekeeper_forests.bins import number_targets, quantile_bins
from grovekeeper_forests.bins.noisy_counts import SCALE_BITS, per_row
from grovekeeper_forests.bins.quantile_bins import (
    Grid,
    ReusedProfile,
    grid_edges,
    grid_of,
    handicaps,
    medians_of,
    n_cells,
    no_cuts,
    private_features,
)
from grovekeeper_forests.data.coded_rows import TrainingRows
from grovekeeper_forests.data.encoding import to_numbers
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.noise.randomness import Randomness, forfeit
from grovekeeper_forests.privacy.events import (
    DiscreteLaplace,
    Event,
    PermuteAndFlip,
    RoundedGaussian,
    UnknownPrivacyEvent,
)


def release_counts(
    exact: Int64Array, event: Event, randomness: Randomness
) -> Int64Array:
    """Releases the table with noise, in units of 1 / :func:`per_row`. One call is one
    release.

    Args:
        exact: PRIVATE int64 counts of any shape; every row is counted in at most one
            cell.
        event: priced by :func:`priced` for this number of cells.

    Raises:
        UnknownPrivacyEvent: the event is not one of a table of noisy numbers.
    """
    # Multiplied before the noise: q + 2²⁴ Z rounded is post-processing of the normal
    # mechanism only for an integer q (docs/proofs/gaussian.md, G1).
    return release_sums(per_row(event) * exact, event, randomness)


def release_sums(exact: Int64Array, event: Event, randomness: Randomness) -> Int64Array:
    """Releases sums of integers with noise. One call is one release.

    Args:
        exact: PRIVATE int64 sums of any shape; every row adds at most
            :func:`per_row` in absolute value, to at most one cell.
        event: priced by :func:`priced` for this number of cells.

    Raises:
        UnknownPrivacyEvent: the event is not one of a table of noisy numbers.
    """
    if not isinstance(event, DiscreteLaplace | RoundedGaussian):
        raise UnknownPrivacyEvent("not the event of a table of noisy numbers")
    # The noise is on every cell of the public table; cells that are left out, because
    # they are empty, would show that they are (docs/proofs/lemmas.md, L3).
    if event.coordinates != exact.size:
        raise UnknownPrivacyEvent("the event of a table of another size")
    if isinstance(event, DiscreteLaplace):
        return exact + randomness.discrete_laplace(
            exact.shape, inverse_scale=event.inverse_scale
        )
    return exact + randomness.rounded_gaussian(exact.shape, scale_bits=SCALE_BITS)


def release_cuts(
    schema: Schema,
    event: Event,
    *,
    cell_counts: Callable[[int, Grid], Int64Array],
    randomness: Randomness,
) -> UInt16Array:
    """Releases the cuts of every feature with private bins. One call is one release.

    Args:
        schema: public.
        event: the priced event, which holds the noise scale and names the grid.
        cell_counts: PRIVATE exact counts of the cells of a feature, given its number
            and the grid: :func:`cell_counts`, summed over all parts of the rows.

    Returns:
        uint16 ``(n_private_features, MAX_CUTS)``: released positions on the public
        grid, ascending, then :data:`NO_CUT`. A cut at c separates the cells below c
        from those from c on.

    Privacy:
        ``pure.loss(event)``-DP under add/remove, twice that under replace-one; with the
        exponential mechanism also the losses that the other accountants compute from
        the event. The candidates of an interval are its inner edges, a function of the
        public grid and of earlier released cuts. Their utility −|left − right|, less a
        public handicap, changes by +1 or −1 when a row enters the interval, so its
        range sensitivity is 2 and a selection at inverse scale ε₀/2 is ε₀-DP: by
        permute-and-flip (lemma L2), or by the exponential mechanism, whose loss is
        ε₀-bounded-range (lemma L1). The intervals of one level of one feature hold
        disjoint rows (lemma L4); four levels of every feature compose in sequence.
        Dropping rows without a value is record-wise (lemma L6). *Not covered:* running
        time.

    Source:
        Kaplan, Schnapp and Stemmer, "Differentially Private Approximate Quantiles",
        2022, for the recursion; Theorem 1 of docs/proofs/bins.md.
    """
    median, depth = medians_of(event)
    grid = grid_of(event)
    if isinstance(median, PermuteAndFlip):
        draw = randomness.permute_and_flip
    else:
        draw = randomness.select_exponential
    cuts = no_cuts(schema)
    for row, index in enumerate(private_features(schema)):
        feature_cuts = _cuts_of(
            cell_counts(index, grid),
            handicaps(schema.features[index], grid, median.inverse_scale),
            partial(draw, inverse_scale=median.inverse_scale),
            depth,
        )
        cuts[row, : len(feature_cuts)] = feature_cuts
        # intervals of one cell, and those below them, have no median
        n_narrow = 2**depth - 1 - len(feature_cuts)
        forfeit(
            randomness, type(median), inverse_scale=median.inverse_scale, count=n_narrow
        )
    return cuts


def _cuts_of(
    counts: Int64Array,
    of_edges: Int64Array,
    select: Callable[[Int64Array], int],
    depth: int,
) -> list[int]:
    below = np.concatenate(([0], counts.cumsum()))  # rows in the cells below a position
    intervals, cuts = [(0, len(counts))], list[int]()
    for _ in range(depth):
        halves = []
        for start, stop in intervals:
            # Too narrow for a cut, however many rows it holds: rows must not decide where
            # a path ends.
            if stop - start < 2:
                continue
            inner = below[start + 1 : stop]
            utilities = -np.abs((inner - below[start]) - (below[stop] - inner))
            # Public and equal for neighbours, so the range of the changes stays.
            utilities -= of_edges[start : stop - 1]
            cut = start + 1 + select(utilities)
            cuts.append(cut)
            halves += [(start, cut), (cut, stop)]
        intervals = halves
    return sorted(cuts)


def cell_counts(
    feature: Feature, column: Float64Array | Int32Array, grid: Grid
) -> Int64Array:
    """Exact number of rows in every cell of one column, without empty values, which are
    dropped record-wise (lemma L6).

    Args:
        feature: public.
        column: PRIVATE, sanitised, ``(n_rows,)``.
        grid: public.

    Returns:
        PRIVATE int64 ``(n_cells,)``. Counts of parts of the rows add up to the counts
        of all.
    """
    values = to_numbers(feature, column)
    present = values[~np.isnan(values)]
    cells = np.searchsorted(grid_edges(feature, grid), present, side="left")
    return np.bincount(cells, minlength=n_cells(feature, grid)).astype(np.int64)


def cuts(
    bins: Event | None,
    schema: Schema,
    rows: TrainingRows,
    randomness: Randomness,
    *,
    reused: ReusedProfile | None = None,
) -> UInt16Array:
    """The cuts that a forest grows on: reused cuts, or cuts released here if they are
    priced, or no cuts.

    Args:
        bins: the priced event of the bins, if any; one call is one release.
        schema: public.
        rows: PRIVATE; not read where no bins are priced.
        reused: cuts of an earlier release; public.
    """
    if bins is not None:
        return release_cuts(
            schema,
            bins,
            cell_counts=lambda index, grid: _cell_counts_of(
                schema.features[index], rows, index, grid
            ),
            randomness=randomness,
        )
    return quantile_bins.no_cuts(schema) if reused is None else reused.cut_array


def _cell_counts_of(
    feature: Feature, rows: TrainingRows, index: int, grid: Grid
) -> Int64Array:
    """The counts of :func:`cell_counts`, from values, or from codes by the grid."""
    if isinstance(rows, SanitisedRows):
        return cell_counts(feature, rows.features.columns[index], grid)
    return rows.code_counts(index)[: n_cells(feature, grid)]


class Select(Protocol):
    """A selection by permute-and-flip or by the exponential mechanism."""

    def __call__(self, utilities: Int64Array, *, inverse_scale: Fraction) -> int: ...


class TargetCounts(Protocol):
    """Counts rows between edges; see
    :func:`grovekeeper_forests.bins.number_targets.target_counts`.
    """

    def __call__(self, edges: Int32Array, middle: int | None = None) -> Int64Array: ...


def release_start(
    label: Label,
    scales: tuple[Fraction, Fraction],
    *,
    target_counts: TargetCounts,
    select: Select,
) -> Int64Array:
    """Releases a median and a spread of a label that is a number, in two selections.

    Args:
        label: public.
        scales: inverse scales of the two selections, as priced.
        target_counts: of the PRIVATE rows.
        select: the priced mechanism.

    Returns:
        int64 ``(2,)``: the median and the spread, as codes.
    """
    of_middle, of_spread = scales
    edges = number_targets.edges_of(label)
    by_edge = target_counts(edges)
    utilities = number_targets.middle_utilities(by_edge)
    chosen = select(utilities, inverse_scale=of_middle)
    middle = int(edges[chosen])
    # Distances are from the released median: a median of the rows would tell of them.
    distances = number_targets.distances()
    by_distance = target_counts(distances, middle)
    utilities = number_targets.spread_utilities(by_distance, of_spread)
    chosen = select(utilities, inverse_scale=of_spread)
    spread = int(number_targets.spreads()[chosen])
    return np.array([middle, spread], dtype=np.int64)
