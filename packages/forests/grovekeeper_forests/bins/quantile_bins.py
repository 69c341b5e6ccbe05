"""Prices and reads private quantile bins: sixteen bins per number, cut by recursive
noisy medians on a public grid.

Small declarations need no private bins: the cells of a number with at most 32 cells on
its public grid are its bins, an integer with at most 128 cells has 32 equal groups of
cells as bins, and each category is a bin. The other numbers are cut privately, in four
levels: each interval of cells is cut at a noisy median, selected among the grid's inner
edges.

The public grid is fixed before rows are read. A numeric feature with public bounds
[lower, upper] of width R has the union of 255 equally spaced inner edges and of a
geometric set R · 2^(−k/2), k = 2 … 40: measured from ``lower`` where the range is not
negative, from ``upper`` where it is not positive, else upward and downward from 0 (with
the bounds in place of R), and an edge at 0. The geometric part resolves skewed columns,
such as amounts of money, whose values concentrate at one end. An integer feature with R
≤ 255 has one cell per value; the edges of a wider integer feature are moved to halves.
A grid has at most 335 cells. MISSING is not a cell. Ordered categories count as
integers.

Where bounds are far wider than most values, one cell of this *coarse* grid may hold
nearly all rows, and no cut of it separates them. So features with private bins also
have a *fine* grid: the coarse edges and those of 65,280 equal cells. A public prior
gives seven eighths of the mass to the coarse edges: the other edges have a handicap in
their utility. The event names the grid. The fine grid is chosen where a median can find
a bulk of a thousandth of the range, which follows from the declaration, the public size
and the price.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Final, TypeAlias

import numpy as np

from grovekeeper_forests import amounts
from grovekeeper_forests.array_types import Float64Array, Int64Array, UInt16Array
from grovekeeper_forests.data.encoding import Encoding, as_number, public_edges
from grovekeeper_forests.data.schema import Feature, Schema
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.json_types import JsonObject
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
    quantised,
)

MAX_CELLS = 335
"""256 equal steps, 39 geometric edges on either side of 0, and 0 itself."""


class Grid(StrEnum):
    """The public grid among whose edges private cuts are selected."""

    COARSE = "coarse"
    FINE = "fine"


_EQUAL_STEPS = 256
_WIDEST_LISTED_RANGE = 255
_GEOMETRIC_STEPS = range(2, 41)
_FINE_STEPS = 255 * _EQUAL_STEPS
"""A multiple of the coarse steps, so that no fine edge is next to a coarse one, and few
enough for codes of 16 bits.
"""

_MAX_FINE_CELLS = _FINE_STEPS - _EQUAL_STEPS + MAX_CELLS
"""Public, and known without the edges, which take milliseconds to compute."""

_COARSE_MASS = 7
"""Mass of the coarse edges under the prior of the fine grid; the other edges have 1."""

STRENGTH_OF_A_FINE_GRID = 20
"""Public size × ε of a selection from which the fine grid is used. An edge outside of
nearly all rows then has e⁻¹⁰ of the chance of a median; the edges inside a thousandth
of the range have 1/8,000 of the mass.
"""

FEWEST_ROWS_OF_A_FINE_GRID = 1_000
"""Smallest public size with a fine grid: of fewer rows, a bin has at most sixty."""

MOST_FEATURES_OF_A_FINE_GRID = 50
"""Largest number of features with private bins on a fine grid: the edges of each take
half a megabyte, also in each message that lets another machine read rows.
"""

SIZES: Final = {Grid.COARSE: 0, Grid.FINE: 2**64 * STRENGTH_OF_A_FINE_GRID}
"""A public size at which :func:`event` uses a grid, whatever the price is: a stored
event names its grid, and is priced again without the size.
"""

_SHARE_BITS = 64  # geometric shares of the width are rounded down to multiples of 2⁻⁶⁴


def grid_edges(feature: Feature, grid: Grid = Grid.COARSE) -> Float64Array:
    """The inner edges of a feature's grid, ascending; cell c holds the values above
    edge c − 1 and up to edge c.

    Args:
        feature: public; a number or an ordered category.
        grid: the edges of the fine grid include those of the coarse grid.

    Returns:
        Float64; of the coarse grid at most :data:`MAX_CELLS` − 1 edges; empty where the
        bounds are equal.
    """
    number = as_number(feature)
    whole = number.type != "numeric"
    coarse = _cached_edges(number.lower, number.upper, whole=whole)
    if grid is Grid.COARSE or not len(coarse):
        return coarse
    return _fine_edges(number, coarse)


def _fine_edges(number: Feature, coarse: Float64Array) -> Float64Array:
    # Without those where an equal step of the coarse grid ends, whose edge may be
    # rounded differently.
    steps = np.arange(_FINE_STEPS).reshape(_EQUAL_STEPS, -1)[:, 1:].ravel()
    # Single operations on doubles, which are exactly rounded on every machine. Without
    # the difference of the bounds, nothing overflows.
    shares = steps / _FINE_STEPS
    equal = number.lower * (1.0 - shares) + number.upper * shares
    if number.type != "numeric":
        equal = np.floor(equal) + 0.5
    inside = equal[(equal >= number.lower) & (equal < number.upper)]
    sorted_edges = np.sort(np.concatenate((coarse, inside)), kind="stable")
    is_new = np.append(True, sorted_edges[1:] > sorted_edges[:-1])
    edges: Float64Array = sorted_edges[is_new]
    return edges


def handicaps(feature: Feature, grid: Grid, inverse_scale: Fraction) -> Int64Array:
    """What each edge of a grid loses in utility, in rows: the public prior.

    On the fine grid, exp(−inverse_scale · handicap) gives the coarse edges
    :data:`_COARSE_MASS` times the mass of the others, up to rounding to rows. On the
    coarse grid no edge has a handicap.

    Args:
        feature: public; its grid has an edge.
        inverse_scale: of the selections; public.
    """
    coarse, edges = grid_edges(feature), grid_edges(feature, grid)
    n_others = len(edges) - len(coarse)
    odds = max(_COARSE_MASS * n_others / len(coarse), 1.0)
    handicap = round(math.log(odds) / float(inverse_scale))
    of_edges = np.full(len(edges), handicap, dtype=np.int64)
    of_edges[np.searchsorted(edges, coarse)] = 0
    return of_edges


@lru_cache(maxsize=4_096)
def _cached_edges(lower: float, upper: float, *, whole: bool) -> Float64Array:
    return public_edges(
        lower,
        upper,
        whole=whole,
        widest_listed=_WIDEST_LISTED_RANGE,
        positions=_positions,
    )


def n_cells(feature: Feature, grid: Grid = Grid.COARSE) -> int:
    """Number of cells of a feature, MISSING not counted."""
    return len(grid_edges(feature, grid)) + 1


def _positions(low: int, high: int) -> Iterator[tuple[int, int]]:
    width, one = high - low, 2**_SHARE_BITS
    for step in range(1, _EQUAL_STEPS):
        yield low * _EQUAL_STEPS + width * step, _EQUAL_STEPS
    if low < 0 < high:
        yield 0, 1
    for share in _shares():
        if low >= 0:
            yield low * one + width * share, one
        elif high <= 0:
            yield high * one - width * share, one
        else:
            yield low * share, one
            yield high * share, one


def _shares() -> list[int]:
    """2^(−k/2) for every geometric step k, in units of 2⁻⁶⁴, rounded down."""
    # In integers, because powers of floats differ between machines, and a stored cut is
    # a position on the grid.
    return [isqrt(2 ** (2 * _SHARE_BITS - k)) for k in _GEOMETRIC_STEPS]


Selection: TypeAlias = PermuteAndFlip | ExponentialMechanism
"""The mechanism that selects a median. Permute-and-flip is better at the same ε. Where
ρ or μ² is counted, the exponential mechanism is better at the same price, because its
loss is bounded-range.
"""

LEVELS = 4
"""Levels of medians above a bin: 2⁴ bins."""

MAX_CUTS = 2**LEVELS - 1
NO_CUT = 0
"""Pads the list of a feature's cuts where an interval cannot be cut; a cut is at least
1.
"""

RANGE_SENSITIVITY = 2
"""Range sensitivity of the rank utility −|left − right|: a row changes some candidates
by +1 and others by −1.
"""

_INTERVALS = {Grid.COARSE: "intervals", Grid.FINE: "intervals of fine cells"}
"""What the selections of a level are disjoint over, in events: the name of the grid."""

_FREE_CELLS = 32
_GROUPED_CELLS = 128


def private_features(schema: Schema) -> tuple[int, ...]:
    """The features whose bins are chosen privately, by number; a function of the
    declaration.
    """
    return tuple(
        index
        for index, feature in enumerate(schema.features)
        if _free_cuts(feature) is None
    )


def event(
    schema: Schema,
    epsilon: Fraction,
    *,
    size: int,
    selection: type[Selection] = PermuteAndFlip,
    n_levels: int | None = None,
) -> Event:
    """The event of ``releases.release_cuts`` at a price of at most ``epsilon`` under
    add/remove.

    Features and levels compose in sequence; the intervals of a level hold disjoint
    rows.

    Args:
        schema: public; :func:`private_features` is not empty.
        epsilon: above zero.
        size: the public size, which decides the grid.
        selection: the mechanism that selects medians.
        n_levels: for 2^n_levels bins, at most :data:`LEVELS`; by default all of them.

    Raises:
        ParameterInvalid: ``epsilon`` is too small for any draw.
    """
    private = private_features(schema)
    depth = LEVELS if n_levels is None else n_levels
    # Theorem 1 of docs/proofs/bins.md: a selection for each feature and level.
    scale = quantised(epsilon / (len(private) * depth * RANGE_SENSITIVITY))
    if scale == 0:
        raise ParameterInvalid.named("epsilon", "too-small", accepted=[amounts.MORE])
    is_fine = (
        len(private) <= MOST_FEATURES_OF_A_FINE_GRID
        and size >= FEWEST_ROWS_OF_A_FINE_GRID
        and size * scale * RANGE_SENSITIVITY >= STRENGTH_OF_A_FINE_GRID
    )
    grid = Grid.FINE if is_fine else Grid.COARSE
    most_cells = _MAX_FINE_CELLS
    if grid is Grid.COARSE:
        most_cells = max(n_cells(schema.features[index]) for index in private)
    median = selection(
        Adjacency.ADD_REMOVE_ONE,
        range_sensitivity=Fraction(RANGE_SENSITIVITY),
        inverse_scale=scale,
        max_candidates=most_cells - 1,
    )
    levels = tuple(
        Part(1, Parallel(_INTERVALS[grid], (Part(2**level, median),)))
        for level in range(depth)
    )
    return Sequential((Part(len(private), Sequential(levels)),))


def grid_of(event: Event) -> Grid:
    """The grid of the private bins in an event, whose first part they are; the coarse
    one where it has none.
    """
    while isinstance(event, Sequential) and event.parts:
        event = event.parts[0].event
    is_fine = isinstance(event, Parallel) and event.over == _INTERVALS[Grid.FINE]
    return Grid.FINE if is_fine else Grid.COARSE


def medians_of(event: Event) -> tuple[Selection, int]:
    """The priced selection of one median, and the priced number of levels of medians
    above a bin.

    Raises:
        UnknownPrivacyEvent: not the event of private quantile bins.
    """
    match event:
        case Sequential(
            (
                Part(
                    event=Sequential(
                        (Part(event=Parallel(_, (Part(event=median),))), *_) as levels
                    )
                ),
            )
        ):
            if isinstance(median, Selection) and len(levels) <= LEVELS:
                return median, len(levels)
    raise UnknownPrivacyEvent("not the event of private quantile bins")


def no_cuts(schema: Schema) -> UInt16Array:
    """Placeholder for released cuts where no cuts are priced: one bin per private
    feature.
    """
    return np.full((len(private_features(schema)), MAX_CUTS), NO_CUT, dtype=np.uint16)


def is_valid(schema: Schema, cuts: UInt16Array, grid: Grid) -> bool:
    """Whether ``cuts`` is a possible release: the right shape, ascending positions on
    the grid, then padding.
    """
    private = private_features(schema)
    if cuts.shape != (len(private), MAX_CUTS):
        return False
    for index, row in zip(private, cuts.tolist(), strict=True):
        feature_cuts = [cut for cut in row if cut != NO_CUT]
        is_padded_last = row[: len(feature_cuts)] == feature_cuts
        if not is_padded_last or feature_cuts != sorted(set(feature_cuts)):
            return False
        if feature_cuts and feature_cuts[-1] >= n_cells(schema.features[index], grid):
            return False
    return True


def encoding(schema: Schema, cuts: UInt16Array, grid: Grid) -> Encoding:
    """The bins of every feature: post-processing of cuts that were released on a grid
    and of the declaration.
    """
    edges: list[Float64Array | None] = list(map(_free_edges, schema.features))
    for index, row in zip(private_features(schema), cuts, strict=True):
        feature_cuts = [int(cut) for cut in row if cut != NO_CUT]
        edges[index] = _edges_at(schema.features[index], feature_cuts, grid)
    return Encoding.with_edges(schema, tuple(edges))


def public_grid(schema: Schema, grid: Grid) -> Encoding:
    """A public grid as bins: a superset of the edges of every :func:`encoding` of the
    schema on this grid.
    """
    private = private_features(schema)
    edges = list[Float64Array | None]()
    for index, feature in enumerate(schema.features):
        of_feature = grid if index in private else Grid.COARSE
        edges.append(grid_edges(feature, of_feature) if _is_number(feature) else None)
    return Encoding.with_edges(schema, tuple(edges))


def widest_encoding(schema: Schema) -> Encoding:
    """An encoding with the largest possible number of bins, for plans that precede the
    release of bins.
    """
    private = private_features(schema)
    cuts = no_cuts(schema)
    for row, index in enumerate(private):
        cells = n_cells(schema.features[index])
        cuts[row] = [step * cells // (MAX_CUTS + 1) for step in range(1, MAX_CUTS + 1)]
    return encoding(schema, cuts, Grid.COARSE)


def _free_edges(feature: Feature) -> Float64Array | None:
    if not _is_number(feature):
        return None
    return _edges_at(feature, _free_cuts(feature) or (), Grid.COARSE)


def _is_number(feature: Feature) -> bool:
    """Whether bins are cut from grid cells; otherwise every category is a bin."""
    return not feature.is_categorical or (
        feature.ordered and len(feature.categories) > _FREE_CELLS
    )


def _free_cuts(feature: Feature) -> Sequence[int] | None:
    """Cuts that follow from the declaration alone, or ``None`` where cuts are private."""
    if not _is_number(feature):
        return ()
    cells = n_cells(feature)
    if cells <= _FREE_CELLS:
        return range(1, cells)
    if as_number(feature).type != "numeric" and cells <= _GROUPED_CELLS:
        return [group * cells // _FREE_CELLS for group in range(1, _FREE_CELLS)]
    return None


def _edges_at(feature: Feature, cuts: Sequence[int], grid: Grid) -> Float64Array:
    """The grid edges of some cuts: a cut at c is the edge c − 1."""
    return grid_edges(feature, grid)[np.array(cuts, dtype=np.int64) - 1]


def price_bins(
    schema: Schema,
    epsilon: Fraction,
    budget: Budget,
    *,
    size: int,
    n_levels: int | None = None,
) -> Event:
    """The event of private quantile bins at a price.

    On accounts that count ε, medians are selected by permute-and-flip. On other
    accounts medians are selected by the exponential mechanism, at the largest ε that
    the budget pays for.

    Args:
        schema: public; at least one feature has private bins.
        epsilon: price of the bins on accounts that count ε.
        budget: price of the bins on accounts of another unit.
        size: see ``quantile_bins.event``.
        n_levels: see ``quantile_bins.event``.
    """
    if budget.accountant == pure.NAME:
        return event(schema, epsilon, size=size, n_levels=n_levels)

    def event_at(strength: Fraction) -> Event:
        return event(
            schema,
            strength,
            size=size,
            selection=ExponentialMechanism,
            n_levels=n_levels,
        )

    return fitted(budget, event_at, start=Fraction(1))


@dataclass(frozen=True)
class ReusedProfile:
    """Released numbers of one profile, as a plan and its artifact carry them.

    Reuse is post-processing (lemma L7, docs/proofs/lemmas.md). A profile may come from
    rows that the plan does not read.

    Attributes:
        id: id of the profile.
        cuts: per feature with private bins, positions on the public grid, ascending.
        prior: class counts in units of 2^-24 standard deviations of their noise.
        grid: the public grid of the cuts.
    """

    id: str
    cuts: tuple[tuple[int, ...], ...]
    prior: tuple[int, ...]
    grid: Grid = Grid.COARSE

    def to_json(self) -> JsonObject:
        """Counts as text, because they may have more than 53 bits; the grid unless it
        is the coarse one, which stored plans do not name.
        """
        value: JsonObject = {
            "id": self.id,
            "cuts": list(map(list, self.cuts)),
            "prior": list(map(str, self.prior)),
        }
        if self.grid is Grid.COARSE:
            return value
        return value | {"grid": self.grid.value}

    @classmethod
    def from_json(cls, value: object) -> ReusedProfile:
        """Inverse of :meth:`to_json`.

        Raises:
            ValueError: the value is not a reused profile.
        """
        match value:
            case {"id": str(id_), "cuts": [*rows], "prior": [*prior], **rest} if (
                rest in ({}, {"grid": Grid.FINE.value})
            ):
                cuts = tuple(tuple(map(int, row)) for row in rows)
                grid = Grid(str(rest.get("grid", Grid.COARSE)))
                if all(map(_are_positions, cuts)):
                    return cls(id_, cuts, tuple(map(int, prior)), grid)
        raise ValueError("not a reused profile")

    @property
    def cut_array(self) -> UInt16Array:
        """The cuts in the form in which bins are released: ``(n_private_features,
        MAX_CUTS)``.
        """
        array = np.full((len(self.cuts), MAX_CUTS), NO_CUT, dtype=np.uint16)
        for row, feature_cuts in zip(array, self.cuts, strict=True):
            row[: len(feature_cuts)] = feature_cuts
        return array


def _are_positions(cuts: tuple[int, ...]) -> bool:
    """Whether the cuts of a feature fit into a row of released cuts, which are uint16."""
    return len(cuts) <= MAX_CUTS and all(0 < cut < 2**16 for cut in cuts)
