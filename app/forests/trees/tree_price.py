"""Builds the privacy event of a tree: the selections of a path, then the releases of the leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from app.forests.trees import tree_losses
from app.forests.trees.selections import Selection
from app.privacy.events import Event, ExponentialMechanism, Parallel, Part, PermuteAndFlip, Sequential
from app.privacy.events import UnknownPrivacyEvent as Unknown

Levels: TypeAlias = tuple[tuple[Selection, ...], ...]
"""For each level, root first, the selections of one of its nodes in their order."""

_APART = "parts"


@dataclass(frozen=True)
class TreePrice:
    """What one tree draws, as priced; growth takes every noise scale from here.

    Attributes:
        levels: for each level, root first, the selections of one of its nodes in their order.
        leaves: of all leaves together.
        apart: the leaves' rows and the selections' rows are disjoint parts by a keyed hash, so that the larger of the
            two sides counts and not their sum.
    """

    levels: Levels
    leaves: Event
    apart: bool = False

    def forest_event(self, n_trees: int, *, sharded: bool) -> Event:
        """So many trees, one after another on the same rows or on disjoint rows."""
        return _forest(self._event(), n_trees, sharded=sharded)

    def _event(self) -> Event:
        selections, leaves = _selections_of_a_tree(self.levels), Part(1, self.leaves)
        return (
            Parallel(_APART, (Part(1, selections), leaves)) if self.apart else Sequential((*selections.parts, leaves))
        )

    @classmethod
    def of(cls, forest: Event) -> TreePrice:
        """Reads the price of one tree out of a forest's event: the inverse of :meth:`forest_event`.

        Raises:
            UnknownPrivacyEvent: not the event of such a forest.
        """
        match tree_losses.tree_event(forest):
            case Parallel(over, (Part(times=1, event=Sequential(levels)), Part(times=1, event=leaves))) if (
                over == _APART
            ):
                return cls(_read(levels), leaves, apart=True)
            case Sequential((*levels, Part(times=1, event=leaves))):
                return cls(_read(levels), leaves)
        raise Unknown("not the event of a tree that was priced here")

    def require(self, *, depth: int, selections: Sequence[Fraction], apart: bool) -> None:
        """Checks the shape of a price that came from outside.

        Args:
            depth: levels of the tree.
            selections: range sensitivity of every selection of a node, in their order.
            apart: as the attribute.

        Raises:
            UnknownPrivacyEvent: the price has another shape.
        """
        require_levels(self.levels, depth, selections)
        if self.apart is not apart:
            raise Unknown("not the event of these parameters")


def structure_event(levels: Levels, n_trees: int, *, sharded: bool) -> Event:
    """So many trees without leaves, one after another on the same rows or on disjoint rows."""
    return _forest(_selections_of_a_tree(levels), n_trees, sharded=sharded)


def levels_of(forest: Event) -> Levels:
    """The inverse of :func:`structure_event`.

    Raises:
        UnknownPrivacyEvent: not the event of trees without leaves.
    """
    tree = tree_losses.tree_event(forest)
    if isinstance(tree, Sequential):
        return _read(tree.parts)
    raise Unknown("not the event of the structure of trees")


def require_levels(levels: Levels, depth: int, selections: Sequence[Fraction]) -> None:
    """Checks the shape of levels that came from outside; see :meth:`TreePrice.require`."""
    told = [[selection.range_sensitivity for selection in own] for own in levels]
    scales = [selection.inverse_scale for own in levels for selection in own]
    if told != [list(selections)] * depth or not all(scales):
        raise Unknown("not the event of these parameters")


def _forest(tree: Event, n_trees: int, *, sharded: bool) -> Event:
    parts = (Part(n_trees, tree),)
    return Parallel("trees", parts) if sharded else Sequential(parts)


def _selections_of_a_tree(levels: Levels) -> Sequential:
    return Sequential(tuple(Part(1, _level(2**level, own)) for level, own in enumerate(levels)))


def _level(n_nodes: int, selections: tuple[Selection, ...]) -> Event:
    own: Event = selections[0] if len(selections) == 1 else Sequential(tuple(Part(1, each) for each in selections))
    return Parallel("nodes", (Part(n_nodes, own),))


def _read(levels: Sequence[Part]) -> Levels:
    return tuple(_selections(level.event) for level in levels)


def _selections(level: Event) -> tuple[Selection, ...]:
    node = tree_losses.tree_event(level)
    parts = [part.event for part in node.parts] if isinstance(node, Sequential) else [node]
    found = tuple(each for each in parts if isinstance(each, PermuteAndFlip | ExponentialMechanism))
    if not found or len(found) != len(parts):
        raise Unknown("not the event of a level of selections")
    return found
