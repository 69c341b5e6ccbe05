"""Prices and reads private quantile bins: sixteen bins per number, cut by recursive noisy medians on a public grid.

Small declarations need no private bins: the cells of a number with at most 32 cells on its public grid are its bins, an
integer with at most 128 cells has 32 equal groups of cells as bins, and each category is a bin. The other numbers are
cut privately, in four levels: each interval of cells is cut at a noisy median, selected among the grid's inner edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.core.errors import InvalidRequest
from app.forests.bins import grid
from app.forests.data import ordinals
from app.forests.data.encoding import Encoding
from app.forests.data.schema import Feature, Schema
from app.privacy.events import (
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

Selection: TypeAlias = PermuteAndFlip | ExponentialMechanism
"""The mechanism that selects a median. Permute-and-flip is better at the same ε. Where ρ or μ² is counted, the
exponential mechanism is better at the same price, because its loss is bounded-range."""

LEVELS = 4
"""Levels of medians above a bin: 2⁴ bins."""

MAX_CUTS = 2**LEVELS - 1
NO_CUT = 0
"""Pads the list of a feature's cuts where an interval cannot be cut; a cut is at least 1."""

RANGE_SENSITIVITY = 2
"""Range sensitivity of the rank utility −|left − right|: a row changes some candidates by +1 and others by −1."""

_FREE_CELLS = 32
_GROUPED_CELLS = 128


def private_features(schema: Schema) -> tuple[int, ...]:
    """The features whose bins are chosen privately, by number; a function of the declaration."""
    return tuple(index for index, feature in enumerate(schema.features) if _free_cuts(feature) is None)


def event(
    schema: Schema,
    epsilon: Fraction,
    *,
    selection: type[Selection] = PermuteAndFlip,
    n_levels: int | None = None,
) -> Event:
    """The event of ``bins.grow.quantile_cuts.release`` at a price of at most ``epsilon`` under add/remove.

    Features and levels compose in sequence; the intervals of a level hold disjoint rows.

    Args:
        schema: public; :func:`private_features` is not empty.
        epsilon: above zero.
        selection: the mechanism that selects medians.
        n_levels: for 2^n_levels bins, at most :data:`LEVELS`; by default all of them.

    Raises:
        InvalidRequest: ``epsilon`` is too small for any draw.
    """
    chosen = private_features(schema)
    depth = LEVELS if n_levels is None else n_levels
    scale = quantised(epsilon / (len(chosen) * depth * RANGE_SENSITIVITY))
    if scale == 0:
        raise InvalidRequest.at("/epsilon", "too-small")
    median = selection(
        Adjacency.ADD_REMOVE_ONE,
        range_sensitivity=Fraction(RANGE_SENSITIVITY),
        inverse_scale=scale,
        max_candidates=max(grid.n_cells(schema.features[index]) for index in chosen) - 1,
    )
    levels = tuple(Part(1, Parallel("intervals", (Part(2**level, median),))) for level in range(depth))
    return Sequential((Part(len(chosen), Sequential(levels)),))


def selection_of(event: Event) -> Selection:
    """The priced selection of one median.

    Raises:
        UnknownPrivacyEvent: not the event of private quantile bins.
    """
    match event:
        case Sequential((Part(event=Sequential((Part(event=Parallel(_, (Part(event=own),))), *_))),)):
            if isinstance(own, PermuteAndFlip | ExponentialMechanism):
                return own
    raise UnknownPrivacyEvent("not the event of private quantile bins")


def n_levels(event: Event) -> int:
    """The priced number of levels of medians above a bin.

    Raises:
        UnknownPrivacyEvent: not the event of private quantile bins.
    """
    match event:
        case Sequential((Part(event=Sequential(levels)),)) if 1 <= len(levels) <= LEVELS:
            return len(levels)
    raise UnknownPrivacyEvent("not the event of private quantile bins")


def inverse_scale(event: Event) -> Fraction:
    """The priced inverse scale of the selections.

    Raises:
        UnknownPrivacyEvent: not the event of private quantile bins.
    """
    return selection_of(event).inverse_scale


def no_cuts(schema: Schema) -> NDArray[np.uint16]:
    """Placeholder for released cuts where no cuts are priced: one bin per private feature."""
    return np.full((len(private_features(schema)), MAX_CUTS), NO_CUT, dtype=np.uint16)


def is_valid(schema: Schema, cuts: NDArray[np.uint16]) -> bool:
    """Whether ``cuts`` is a possible release: the right shape, ascending positions on the grid, then padding."""
    private = private_features(schema)
    if cuts.shape != (len(private), MAX_CUTS):
        return False
    for index, row in zip(private, cuts.tolist(), strict=True):
        feature_cuts = [cut for cut in row if cut != NO_CUT]
        if row[: len(feature_cuts)] != feature_cuts or feature_cuts != sorted(set(feature_cuts)):
            return False
        if feature_cuts and feature_cuts[-1] >= grid.n_cells(schema.features[index]):
            return False
    return True


def encoding(schema: Schema, cuts: NDArray[np.uint16]) -> Encoding:
    """The bins of every feature: post-processing of released cuts and of the declaration."""
    edges: list[NDArray[np.float64] | None] = [_free_edges(feature) for feature in schema.features]
    for index, row in zip(private_features(schema), cuts, strict=True):
        edges[index] = _edges_at(schema.features[index], [int(cut) for cut in row if cut != NO_CUT])
    return Encoding.with_edges(schema, tuple(edges))


def public_grid(schema: Schema) -> Encoding:
    """The public grid as bins: a superset of the edges of every :func:`encoding` of the schema."""
    return Encoding.with_edges(
        schema, tuple(grid.edges(feature) if _is_number(feature) else None for feature in schema.features)
    )


def widest_encoding(schema: Schema) -> Encoding:
    """An encoding with the largest possible number of bins, for plans that precede the release of bins."""
    private = private_features(schema)
    cuts = no_cuts(schema)
    for row, index in enumerate(private):
        cells = grid.n_cells(schema.features[index])
        cuts[row] = [step * cells // (MAX_CUTS + 1) for step in range(1, MAX_CUTS + 1)]
    return encoding(schema, cuts)


def _free_edges(feature: Feature) -> NDArray[np.float64] | None:
    return _edges_at(feature, _free_cuts(feature) or ()) if _is_number(feature) else None


def _is_number(feature: Feature) -> bool:
    """Whether bins are cut from grid cells; otherwise every category is a bin."""
    return not feature.is_categorical or (feature.ordered and len(feature.categories) > _FREE_CELLS)


def _free_cuts(feature: Feature) -> Sequence[int] | None:
    """Cuts that follow from the declaration alone, or ``None`` where cuts are private."""
    if not _is_number(feature):
        return ()
    cells = grid.n_cells(feature)
    if cells <= _FREE_CELLS:
        return range(1, cells)
    if ordinals.as_number(feature).type == "integer" and cells <= _GROUPED_CELLS:
        return [group * cells // _FREE_CELLS for group in range(1, _FREE_CELLS)]
    return None


def _edges_at(feature: Feature, cuts: Sequence[int]) -> NDArray[np.float64]:
    """The grid edges of some cuts: a cut at c is the edge c − 1."""
    return grid.edges(feature)[np.array(cuts, dtype=np.int64) - 1]
