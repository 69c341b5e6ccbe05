"""Divides a tree's loss over its parts, and reads the parts back out of the priced event."""

from collections.abc import Mapping
from fractions import Fraction

from app.forests.contract.parameters import Value
from app.forests.trees.tree_parameters import is_sharded
from app.privacy.events import Event, Parallel, Sequential, UnknownPrivacyEvent


def loss_per_tree(parameters: Mapping[str, Value], epsilon: Fraction) -> Fraction:
    """The ε of one tree: all of ε where trees have disjoint rows, an equal share where all trees share the rows."""
    return epsilon if is_sharded(parameters) else epsilon / int(parameters["n_estimators"])


def level_losses(total: Fraction, depth: int) -> tuple[Fraction, ...]:
    """Divides a path's structure budget over the levels: deeper nodes hold fewer rows and get a little more."""
    weights = [10 + level for level in range(depth)]
    return tuple(total * weight / sum(weights) for weight in weights)


def geometric_losses(total: Fraction, depth: int, ratio: Fraction) -> tuple[Fraction, ...]:
    """Divides a path's structure budget over the levels: each level gets ``ratio`` times the level above."""
    weights = [ratio**level for level in range(depth)]
    return tuple(total * weight / sum(weights) for weight in weights)


def tree_event(event: Event) -> Event:
    """The event of one tree of a forest, or of one part of a level.

    Raises:
        UnknownPrivacyEvent: the event is not one of a forest or a level.
    """
    if isinstance(event, Sequential | Parallel) and len(event.parts) == 1:
        return event.parts[0].event
    raise UnknownPrivacyEvent("not an event of like parts")


def leaves_of(event: Event) -> Event:
    """The event of the leaves of one tree, taken from a forest's event.

    Raises:
        UnknownPrivacyEvent: the event is not one of a forest.
    """
    tree = tree_event(event)
    return tree.parts[-1].event if isinstance(tree, Sequential | Parallel) and tree.parts else tree
