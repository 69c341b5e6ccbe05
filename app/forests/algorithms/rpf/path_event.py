"""Describes a reweighted forest as a privacy event: private bins, then trees with the same loss on every path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from app.forests.bins import quantile_bins
from app.forests.kernels.reweighting import UNIT
from app.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    Event,
    Parallel,
    Part,
    PermuteAndFlip,
    Sequential,
    UnknownPrivacyEvent,
)

RANGE_SENSITIVITY = UNIT
"""One row raises the utility of every candidate of its node by an integer from 0 to 256."""

L1_SENSITIVITY = UNIT
"""One row raises one weight of one leaf by at most 256."""


class Stage(NamedTuple):
    """One selection on a path: the public number of splits that it chooses, and the most candidates."""

    n_splits: int
    max_candidates: int


def stages(depth: int, at_once: int) -> tuple[int, ...]:
    """The number of splits that each selection on a path chooses, root first, with as few selections as possible.

    Numbers differ by at most one; smaller numbers come first. Five levels, two at once, give 1, 2, 2.

    Args:
        depth: of the tree.
        at_once: most levels whose splits are chosen by one selection.
    """
    n_selections = -(-depth // at_once)
    return tuple((depth + place) // n_selections for place in range(n_selections))


@dataclass(frozen=True)
class PathScales:
    """Inverse scales of the draws on a path, in integer units of weight (1/256 row).

    Attributes:
        levels: inverse scale of each selection, root first; a selection covers one level or several.
        last: inverse scale of the noise in a leaf at full depth.
    """

    levels: tuple[Fraction, ...]
    last: Fraction

    @cached_property
    def leaves(self) -> tuple[Fraction, ...]:
        """Inverse scale of the noise in a leaf, by the number of selections on its path, from 0 to all.

        The leaf gets the budget that its path did not spend on selections (lemma L4). Selections and weights have the
        same sensitivity, so inverse scales add up as losses do, and every path has exactly the same loss.
        """
        return tuple(sum(self.levels[spent:], self.last) for spent in range(len(self.levels) + 1))

    def event(self, of_selections: Sequence[Stage], *, n_classes: int, by_level: bool = False) -> Event:
        """Describes one tree as an event, with every possible end of a path at the same loss.

        Args:
            of_selections: one stage per inverse scale in :attr:`levels`.
            n_classes: public number of classes.
            by_level: whether one selection serves all nodes of a level, instead of one selection per node.
        """
        if len(of_selections) != len(self.levels):
            raise UnknownPrivacyEvent("a selection without a price, or a price without a selection")
        n_splits = sum(stage.n_splits for stage in of_selections)
        event: Event = self._leaf(len(self.levels), n_classes << n_splits)
        for index, stage in reversed(list(enumerate(of_selections))):
            n_splits -= stage.n_splits
            selection = PermuteAndFlip(
                Adjacency.ADD_REMOVE_ONE,
                range_sensitivity=Fraction(RANGE_SENSITIVITY),
                inverse_scale=self.levels[index],
                max_candidates=stage.max_candidates,
            )
            n_selections = 1 if by_level else 1 << n_splits
            event = Sequential((Part(1, Parallel("nodes", (Part(n_selections, selection),))), Part(1, event)))
            if index > 0:
                event = Parallel("nodes", (Part(1, self._leaf(index, n_classes << n_splits)), Part(1, event)))
        return event

    def _leaf(self, n_selections: int, coordinates: int) -> Event:
        return DiscreteLaplace(
            Adjacency.ADD_REMOVE_ONE,
            l1_sensitivity=Fraction(L1_SENSITIVITY),
            inverse_scale=self.leaves[n_selections],
            coordinates=coordinates,
        )

    @classmethod
    def of(cls, event: Event) -> PathScales:
        """Reads the scales out of a priced event: the inverse of :meth:`event`.

        Raises:
            UnknownPrivacyEvent: not the event of a reweighted tree.
        """
        levels: list[Fraction] = []
        while True:
            match event:
                case DiscreteLaplace():
                    return cls(tuple(levels), event.inverse_scale)
                case Parallel(_, (Part(event=DiscreteLaplace()), Part(event=Sequential() as going_on))):
                    event = going_on
                case Sequential(
                    (Part(event=Parallel(_, (Part(event=PermuteAndFlip() as selection),))), Part(event=deeper))
                ):
                    levels.append(selection.inverse_scale)
                    event = deeper
                case _:
                    raise UnknownPrivacyEvent("not the event of a reweighted tree")


def events_of(event: Event) -> tuple[Event | None, PathScales]:
    """The event of the bins, if any were priced, and the scales of the trees.

    Raises:
        UnknownPrivacyEvent: not the event of a reweighted forest.
    """
    match event:
        case Sequential((Part(event=tree),)):
            return None, PathScales.of(tree)
        case Sequential((Part(event=bins), Part(event=tree))):
            quantile_bins.inverse_scale(bins)
            return bins, PathScales.of(tree)
    raise UnknownPrivacyEvent("not the event of a reweighted forest")
