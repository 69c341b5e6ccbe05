"""Divides a stacked forest into layers: the number of trees, the plan, the schema and the event of each layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from app.forests.algorithms.bms_rf import stacked_features
from app.forests.bins.reused_profile import ReusedProfile
from app.forests.contract.parameters import Value
from app.forests.contract.plan import Plan
from app.forests.data.schema import Schema
from app.forests.trees.tree_parameters import is_sharded
from app.privacy.events import Event, Parallel, Part, Sequential, UnknownPrivacyEvent

LAYERS = "layers"
"""Name of the disjoint parts in an event where every row is in one layer."""


def sizes(parameters: Mapping[str, Value]) -> tuple[int, ...]:
    """The number of trees of each layer, as even as possible; the first layers have one tree more."""
    whole, rest = divmod(int(parameters["n_estimators"]), int(parameters["n_layers"]))
    return tuple(whole + (layer < rest) for layer in range(int(parameters["n_layers"])))


def schemas(schema: Schema, parameters: Mapping[str, Value]) -> tuple[Schema, ...]:
    """The public schema of each layer's rows: the declared schema, then the schema of rows with added votes."""
    later = stacked_features.stacked_schema(schema, stacked_features.largest_shift(parameters))
    return (schema, *[later] * (int(parameters["n_layers"]) - 1))


def profiles(profile: ReusedProfile | None, parameters: Mapping[str, Value]) -> tuple[ReusedProfile | None, ...]:
    """The profile that each layer reuses. Only the first layer reuses one: votes move the rows of later layers."""
    return (profile, *[None] * (int(parameters["n_layers"]) - 1))


def joined(events: tuple[Event, ...], *, disjoint: bool) -> Event:
    """The event of all layers: sequential on the same rows, or parallel on disjoint rows."""
    parts = tuple(Part(1, event) for event in events)
    return Parallel(LAYERS, parts) if disjoint else Sequential(parts)


def events(event: Event, parameters: Mapping[str, Value]) -> tuple[Event, ...]:
    """The events of the layers: the inverse of :func:`joined`.

    Raises:
        UnknownPrivacyEvent: not the event of a stacked forest with these parameters.
    """
    layer_sizes = sizes(parameters)
    if isinstance(event, Sequential | Parallel) and len(event.parts) == len(layer_sizes):
        layer_events = tuple(part.event for part in event.parts)
        disjoint = isinstance(event, Parallel)
        of_layers = joined(layer_events, disjoint=disjoint) == event and is_disjoint(parameters) is disjoint
        if of_layers and all(
            _is_layer(layer, size, parameters) for layer, size in zip(layer_events, layer_sizes, strict=True)
        ):
            return layer_events
    raise UnknownPrivacyEvent("not the event of a stacked forest of these parameters")


def is_disjoint(parameters: Mapping[str, Value]) -> bool:
    """Whether the layers see disjoint rows."""
    return is_sharded({"assignment": parameters["layer_assignment"]})


def plans(plan: Plan) -> tuple[Plan, ...]:
    """The plan of each layer: a plan for a forest with the layer's share of the trees and of the event."""
    parameters = plan.parameters
    facts = zip(sizes(parameters), events(plan.event, parameters), profiles(plan.profile, parameters), strict=True)
    return tuple(
        replace(plan, parameters={**parameters, "n_estimators": size}, n_trees=size, event=event, profile=profile)
        for size, event, profile in facts
    )


def _is_layer(event: Event, n_trees: int, parameters: Mapping[str, Value]) -> bool:
    kind = Parallel if is_sharded(parameters) else Sequential
    return isinstance(event, kind) and [part.times for part in event.parts] == [n_trees]
