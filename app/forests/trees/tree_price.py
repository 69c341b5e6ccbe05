"""Prices the selections and the leaves of a tree, and reads the parts of a tree back out of the priced event.

On accounts that count ε, a selection is permute-and-flip, which is at least as good as the exponential mechanism at the
same ε. On accounts that count ρ or μ², a selection is the exponential mechanism, whose bounded range makes it cheaper
in these units (docs/proofs/accounting.md). The priced event names the mechanism that growth draws from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from app.forests.bins.noisy_counts import draw_scale
from app.forests.contract.facts import PublicFacts
from app.forests.contract.parameters import Value
from app.forests.trees.tree_parameters import is_sharded
from app.privacy.accountants import pure
from app.privacy.events import (
    Event,
    ExponentialMechanism,
    Parallel,
    Part,
    PermuteAndFlip,
    Sequential,
    UnknownPrivacyEvent,
)

Selection: TypeAlias = PermuteAndFlip | ExponentialMechanism


def selection_event(loss: Fraction, facts: PublicFacts, *, range_sensitivity: int, max_candidates: int) -> Selection:
    """The event of one selection that costs at most ``loss`` in ε.

    Args:
        loss: public; above zero.
        facts: public; the unit of the account decides the mechanism.
        range_sensitivity: of the utility, in the utility's integer units, under the adjacency of ``facts.budget``.
        max_candidates: public; largest number of candidates, at least 1.
    """
    kind = PermuteAndFlip if facts.budget.accountant == pure.NAME else ExponentialMechanism
    return kind(
        facts.budget.adjacency,
        range_sensitivity=Fraction(range_sensitivity),
        inverse_scale=draw_scale(loss, range_sensitivity),
        max_candidates=max_candidates,
    )


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


Levels: TypeAlias = tuple[tuple[Selection, ...], ...]
"""For each level, root first, the selections of one node in order."""

_APART = "parts"


@dataclass(frozen=True)
class TreePrice:
    """The priced selections and leaf releases of one tree; growth takes every noise scale from this object.

    Attributes:
        levels: for each level, root first, the selections of one node in order.
        leaves: the event of all leaves together.
        apart: a keyed hash separates the rows of selections from the rows of leaves, so that the tree costs the
            larger of the two losses instead of their sum.
    """

    levels: Levels
    leaves: Event
    apart: bool = False

    def forest_event(self, n_trees: int, *, sharded: bool) -> Event:
        """The event of ``n_trees`` trees: sequential on the same rows, or parallel on disjoint rows."""
        return _forest(self._event(), n_trees, sharded=sharded)

    def _event(self) -> Event:
        selections, leaves = _selections_of_a_tree(self.levels), Part(1, self.leaves)
        return (
            Parallel(_APART, (Part(1, selections), leaves)) if self.apart else Sequential((*selections.parts, leaves))
        )

    @classmethod
    def of(cls, forest: Event) -> TreePrice:
        """Reads the price of one tree from a forest's event: the inverse of :meth:`forest_event`.

        Raises:
            UnknownPrivacyEvent: the event is not one of such a forest.
        """
        match tree_event(forest):
            case Parallel(over, (Part(times=1, event=Sequential(levels)), Part(times=1, event=leaves))) if (
                over == _APART
            ):
                return cls(_read(levels), leaves, apart=True)
            case Sequential((*levels, Part(times=1, event=leaves))):
                return cls(_read(levels), leaves)
        raise UnknownPrivacyEvent("not the event of a forest of trees")

    def require(self, *, depth: int, selections: Sequence[Fraction], apart: bool) -> None:
        """Checks the shape of a price that was read from a stored event.

        Args:
            depth: number of levels of the tree.
            selections: range sensitivity of each selection of a node, in order.
            apart: see the attribute.

        Raises:
            UnknownPrivacyEvent: the price has another shape.
        """
        require_levels(self.levels, depth, selections)
        if self.apart is not apart:
            raise UnknownPrivacyEvent("not the event of these parameters")


def structure_event(levels: Levels, n_trees: int, *, sharded: bool) -> Event:
    """The event of ``n_trees`` trees without leaves: sequential on the same rows, or parallel on disjoint rows."""
    return _forest(_selections_of_a_tree(levels), n_trees, sharded=sharded)


def levels_of(forest: Event) -> Levels:
    """Reads the levels of one tree from the event of a structure: the inverse of :func:`structure_event`.

    Raises:
        UnknownPrivacyEvent: the event is not one of trees without leaves.
    """
    tree = tree_event(forest)
    if isinstance(tree, Sequential):
        return _read(tree.parts)
    raise UnknownPrivacyEvent("not the event of the structure of trees")


def require_levels(levels: Levels, depth: int, selections: Sequence[Fraction]) -> None:
    """Checks the shape of levels that were read from a stored event; see :meth:`TreePrice.require`."""
    sensitivities = [[selection.range_sensitivity for selection in level] for level in levels]
    scales = [selection.inverse_scale for level in levels for selection in level]
    if sensitivities != [list(selections)] * depth or not all(scales):
        raise UnknownPrivacyEvent("not the event of these parameters")


def _forest(tree: Event, n_trees: int, *, sharded: bool) -> Event:
    parts = (Part(n_trees, tree),)
    return Parallel("trees", parts) if sharded else Sequential(parts)


def _selections_of_a_tree(levels: Levels) -> Sequential:
    return Sequential(tuple(Part(1, _level(2**level, selections)) for level, selections in enumerate(levels)))


def _level(n_nodes: int, selections: tuple[Selection, ...]) -> Event:
    node: Event = (
        selections[0] if len(selections) == 1 else Sequential(tuple(Part(1, selection) for selection in selections))
    )
    return Parallel("nodes", (Part(n_nodes, node),))


def _read(levels: Sequence[Part]) -> Levels:
    return tuple(_selections(level.event) for level in levels)


def _selections(level: Event) -> tuple[Selection, ...]:
    node = tree_event(level)
    parts = [part.event for part in node.parts] if isinstance(node, Sequential) else [node]
    selections = tuple(event for event in parts if isinstance(event, PermuteAndFlip | ExponentialMechanism))
    if not selections or len(selections) != len(parts):
        raise UnknownPrivacyEvent("not the event of a level of selections")
    return selections
