"""Divides a stacked forest into layers, and adds the votes of a released layer to the
rows of the next layer.

A number whose range has width R is converted to ticks: the whole number of steps of
2⁻¹⁶ R above its lower bound. The shift is a whole number of ticks, too. The position of
an ordered category is converted in the same way. Unordered categories do not change.
The result is a function of one row, the public schema, the public projection and
released leaves (lemma L6), and does not depend on other rows (docs/proofs/bms-rf.md).
Votes are integers, so that sums do not depend on the order of trees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests import amounts
from grovekeeper_forests.array_types import (
    Float64Array,
    Int32Array,
    Int64Array,
    UInt16Array,
)
from grovekeeper_forests.bins.quantile_bins import ReusedProfile
from grovekeeper_forests.contract.algorithm import Parameters
from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.encoding import as_number, to_numbers
from grovekeeper_forests.data.sanitiser import SanitisedColumns
from grovekeeper_forests.data.schema import Feature, Schema
from grovekeeper_forests.privacy.events import (
    Event,
    Parallel,
    Part,
    Sequential,
    UnknownPrivacyEvent,
)
from grovekeeper_forests.trees.tree_parameters import is_sharded

LAYERS = "layers"
"""Name of the disjoint parts in an event where every row is in one layer."""


def sizes(parameters: Parameters) -> tuple[int, ...]:
    """The number of trees of each layer, as even as possible; the first layers have one
    tree more.
    """
    whole, rest = divmod(int(parameters["n_estimators"]), int(parameters["n_layers"]))
    return tuple(whole + (layer < rest) for layer in range(int(parameters["n_layers"])))


def schemas(schema: Schema, parameters: Parameters) -> tuple[Schema, ...]:
    """The public schema of each layer's rows: the declared schema, then the schema of
    rows with added votes.
    """
    later = stacked_schema(schema, largest_shift(parameters))
    return (schema, *[later] * (int(parameters["n_layers"]) - 1))


def profiles(
    profile: ReusedProfile | None, parameters: Parameters
) -> tuple[ReusedProfile | None, ...]:
    """The profile that each layer reuses. Only the first layer reuses one: votes move
    the rows of later layers.
    """
    return (profile, *[None] * (int(parameters["n_layers"]) - 1))


def joined(events: tuple[Event, ...], *, disjoint: bool) -> Event:
    """The event of all layers: sequential on the same rows, or parallel on disjoint
    rows.
    """
    parts = tuple(Part(1, event) for event in events)
    return Parallel(LAYERS, parts) if disjoint else Sequential(parts)


def events(event: Event, parameters: Parameters) -> tuple[Event, ...]:
    """The events of the layers: the inverse of :func:`joined`.

    Raises:
        UnknownPrivacyEvent: not the event of a stacked forest with these parameters.
    """
    layer_sizes = sizes(parameters)
    if isinstance(event, Sequential | Parallel) and len(event.parts) == len(
        layer_sizes
    ):
        layer_events = tuple(part.event for part in event.parts)
        disjoint = isinstance(event, Parallel)
        of_layers = (
            joined(layer_events, disjoint=disjoint) == event
            and is_disjoint(parameters) is disjoint
        )
        if of_layers and all(
            _is_layer(layer, size, parameters)
            for layer, size in zip(layer_events, layer_sizes, strict=True)
        ):
            return layer_events
    raise UnknownPrivacyEvent("not the event of a stacked forest of these parameters")


def is_disjoint(parameters: Parameters) -> bool:
    """Whether the layers see disjoint rows."""
    return is_sharded({"assignment": parameters["layer_assignment"]})


def plans(plan: Plan) -> tuple[Plan, ...]:
    """The plan of each layer: a plan for a forest with the layer's share of the trees
    and of the event.
    """
    parameters = plan.parameters
    facts = zip(
        sizes(parameters),
        events(plan.event, parameters),
        profiles(plan.profile, parameters),
        strict=True,
    )
    return tuple(
        replace(
            plan,
            parameters={**parameters, "n_estimators": size},
            n_trees=size,
            event=event,
            profile=profile,
        )
        for size, event, profile in facts
    )


def _is_layer(event: Event, n_trees: int, parameters: Parameters) -> bool:
    kind = Parallel if is_sharded(parameters) else Sequential
    return isinstance(event, kind) and [part.times for part in event.parts] == [n_trees]


TICK_BITS: Final = 16
TICKS: Final = 2**TICK_BITS
"""Ticks between a number's bounds. Votes, projections and the shift are shares in units
of 1/TICKS.
"""


def largest_shift(parameters: Parameters) -> int:
    """The shift α in ticks: the amount that unanimous votes for a class of weight 1 add
    to a number.
    """
    return int(amounts.parse(parameters["shift"]) * TICKS)


def is_moved(feature: Feature) -> bool:
    """Whether votes are added to a feature: true for numbers and ordered categories."""
    return not feature.is_categorical or feature.ordered


def stacked_schema(schema: Schema, shift: int) -> Schema:
    """The public schema of rows with added votes.

    The votes of a row sum to at most 1 and each weight is below 1, so no value moves by
    more than the shift. The bounds are therefore a function of the declaration and the
    shift, and no value has to be clamped.
    """
    return Schema(
        tuple(_stacked(feature, shift) for feature in schema.features), schema.label
    )


def _stacked(feature: Feature, shift: int) -> Feature:
    if not is_moved(feature):
        return feature
    lowest = origin(feature)
    return Feature(
        feature.name,
        "integer",
        lower=float(lowest),
        upper=float(lowest + TICKS + shift),
        missing=feature.missing,
    )


def origin(feature: Feature) -> int:
    """The tick of a feature's lower bound. The value 0 has tick 0 if it is in the
    range; otherwise the bound nearer to 0 has tick 0. Public bins are finest near 0.
    """
    number = as_number(feature)
    below, below_parts = number.lower.as_integer_ratio()
    above, above_parts = number.upper.as_integer_ratio()
    # Both over one denominator, in whole numbers: fractions take ten times as long, and
    # a plan asks thirty times.
    lower, width = below * above_parts, above * below_parts - below * above_parts
    if width == 0:
        return 0
    return max(-(max(-lower, 0) * TICKS // width), -TICKS)


def add_votes(
    schema: Schema,
    columns: SanitisedColumns,
    votes: Int64Array,
    *,
    weights: UInt16Array,
    shift: int,
) -> SanitisedColumns:
    """Adds votes to rows for the next layer; record-wise, in whole numbers.

    Args:
        schema: public; the declared schema of the columns.
        columns: PRIVATE, or a caller's rows to predict.
        votes: the released layer's votes per row, int64 ``(n_rows, n_classes)`` in
            units of 2⁻¹⁶, each row summing to at most 2¹⁶. PRIVATE if the columns are.
        weights: the public projection, uint16 ``(n_classes, n_features)`` in units of
            2⁻¹⁶.
        shift: public, in ticks.

    Returns:
        Columns of :func:`stacked_schema`.
    """
    shifted: list[Float64Array | Int32Array] = []
    for index, (feature, column) in enumerate(
        zip(schema.features, columns.columns, strict=True)
    ):
        if is_moved(feature):
            drift = votes @ weights[:, index].astype(np.int64)  # below 2³²
            moved = (drift * shift) >> (2 * TICK_BITS)
            shifted.append(ticks(feature, column) + (moved + origin(feature)))
        else:
            shifted.append(column)
    return SanitisedColumns(tuple(shifted), columns.n_rows)


def ticks(feature: Feature, column: Float64Array | Int32Array) -> Float64Array:
    """Whole ticks above the lower bound: float64 array of whole numbers from 0 to 2¹⁶;
    NaN is MISSING.

    All numbers are halved so that no width overflows. Each of the four operations is
    elementwise and correctly rounded (IEEE 754), so a row's ticks do not depend on its
    place in the array, on the machine, or on other rows.
    """
    lower, width = halves(feature)
    return np.floor((to_numbers(feature, column) / 2 - lower) / width * TICKS)


def halves(feature: Feature) -> tuple[float, float]:
    """Half of the lower bound and half of the width; for a constant, whose only tick is
    0, the second is 1.
    """
    number = as_number(feature)
    width = number.upper / 2 - number.lower / 2
    return number.lower / 2, width if width > 0 else 1.0


_LARGEST_COUNT: Final = 2**36
"""Noisy counts are clipped here; the counts of 2³¹ rows are smaller with any noise that
leaves a signal.
"""


def of_leaves(arrays: Mapping[str, NDArray[Any]], n_classes: int) -> Int64Array:
    """The votes that every leaf adds to a row, in units of 2⁻¹⁶; post-processing of
    released leaves (lemma L7).

    A leaf with noisy counts adds its class shares: negative counts are set to 0, and a
    leaf whose counts are all 0 has equal shares. A leaf with a label adds a whole vote.
    All trees of a layer have the same weight and every share is rounded down, so the
    votes of a row sum to at most 2¹⁶.

    Args:
        arrays: released; ``counts`` int64 ``(n_trees, n_leaves, n_classes)``, or
            ``labels`` int32 ``(n_trees, n_leaves)``.
        n_classes: public.

    Returns:
        int64 ``(n_trees, n_leaves, n_classes)``.
    """
    shares: Int64Array
    if "labels" in arrays:
        labels = arrays["labels"]
        shares = np.eye(n_classes, dtype=np.int64)[labels] * (TICKS // len(labels))
        return shares
    evidence = np.clip(arrays["counts"], 0, _LARGEST_COUNT)
    evidence[~evidence.any(axis=2)] = 1
    shares = (evidence << TICK_BITS) // (
        evidence.sum(axis=2, keepdims=True) * len(evidence)
    )
    return shares
