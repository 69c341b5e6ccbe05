"""What a reweighted forest is priced as: private bins, then trees whose every path costs the same."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from app.forests import quantile_bins
from app.forests.kernels.reweighting import UNIT
from app.privacy.adjacency import Adjacency
from app.privacy.events import (
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


@dataclass(frozen=True)
class PathScales:
    """Inverse scales of the draws on a path, in integer units of weight (1/256 row).

    Attributes:
        levels: of the selection at each level, root first.
        last: of the noise in a leaf at full depth.
    """

    levels: tuple[Fraction, ...]
    last: Fraction

    @cached_property
    def leaves(self) -> tuple[Fraction, ...]:
        """Inverse scale in a leaf, by the number of selections on its path, 0 to the depth.

        What the path did not spend on selections goes to the leaf (lemma L4). Selections and weights have the same
        sensitivity, so inverse scales add up as losses do, and every path costs exactly the same.
        """
        return tuple(sum(self.levels[spent:], self.last) for spent in range(len(self.levels) + 1))

    def event(self, *, max_candidates: int, n_classes: int, by_level: bool = False) -> Event:
        """One tree as an event: every way a path can end, at equal cost.

        Args:
            max_candidates: of one selection.
            n_classes: public number of classes.
            by_level: one selection per level, not one per node of it.
        """
        return self._below(0, max_candidates=max_candidates, n_classes=n_classes, by_level=by_level)

    def _below(self, level: int, *, max_candidates: int, n_classes: int, by_level: bool) -> Event:
        leaves = DiscreteLaplace(
            Adjacency.ADD_REMOVE_ONE,
            l1_sensitivity=Fraction(L1_SENSITIVITY),
            inverse_scale=self.leaves[level],
            coordinates=n_classes << level,
        )
        if level == len(self.levels):
            return leaves
        selection = PermuteAndFlip(
            Adjacency.ADD_REMOVE_ONE,
            range_sensitivity=Fraction(RANGE_SENSITIVITY),
            inverse_scale=self.levels[level],
            max_candidates=max_candidates,
        )
        deeper = self._below(level + 1, max_candidates=max_candidates, n_classes=n_classes, by_level=by_level)
        n_selections = 1 if by_level else 1 << level
        going_on = Sequential((Part(1, Parallel("nodes", (Part(n_selections, selection),))), Part(1, deeper)))
        return going_on if level == 0 else Parallel("nodes", (Part(1, leaves), Part(1, going_on)))

    @classmethod
    def of(cls, event: Event) -> PathScales:
        """Reads the scales out of what was priced: the inverse of :meth:`event`.

        Raises:
            UnknownPrivacyEvent: not the event of such a tree.
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
        UnknownPrivacyEvent: not the event of such a forest.
    """
    match event:
        case Sequential((Part(event=tree),)):
            return None, PathScales.of(tree)
        case Sequential((Part(event=bins), Part(event=tree))):
            quantile_bins.inverse_scale(bins)
            return bins, PathScales.of(tree)
    raise UnknownPrivacyEvent("not the event of a reweighted forest")
