"""Losses of the parts of a tree, and how growth reads them back out of the priced event."""

from collections.abc import Mapping
from fractions import Fraction

from app.forests.contract.parameters import Value
from app.forests.trees.tree_parameters import is_sharded
from app.privacy.events import Event, Parallel, Sequential, UnknownPrivacyEvent


def loss_per_tree(parameters: Mapping[str, Value], epsilon: Fraction) -> Fraction:
    """What one tree may cost: all of ε on its own rows, or its share on everybody's."""
    return epsilon if is_sharded(parameters) else epsilon / int(parameters["n_estimators"])


def level_losses(total: Fraction, depth: int) -> tuple[Fraction, ...]:
    """A path's structure budget over its levels: deeper nodes hold fewer rows and get a little more."""
    weights = [10 + level for level in range(depth)]
    return tuple(total * weight / sum(weights) for weight in weights)


def geometric_losses(total: Fraction, depth: int, ratio: Fraction) -> tuple[Fraction, ...]:
    """A path's structure budget over its levels, each level getting ``ratio`` times what the one above it gets."""
    weights = [ratio**level for level in range(depth)]
    return tuple(total * weight / sum(weights) for weight in weights)


def tree_event(event: Event) -> Event:
    """The event of one of the like parts that a forest (or a level) consists of.

    Raises:
        UnknownPrivacyEvent: not the event of a forest or a level.
    """
    if isinstance(event, Sequential | Parallel) and len(event.parts) == 1:
        return event.parts[0].event
    raise UnknownPrivacyEvent("not an event of like parts")


def leaves_of(event: Event) -> Event:
    """What the leaves of one tree release, as priced in a forest's event.

    Raises:
        UnknownPrivacyEvent: not the event of a forest.
    """
    tree = tree_event(event)
    return tree.parts[-1].event if isinstance(tree, Sequential | Parallel) and tree.parts else tree
