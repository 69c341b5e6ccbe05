"""Defines the public facts that the rules of an algorithm may use, and divides their budget into shares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from app.core.errors import InvalidRequest
from app.forests.bins.reused_profile import ReusedProfile
from app.forests.data.schema import Schema
from app.privacy.accountants import pure
from app.privacy.calibration import Budget
from app.privacy.events import Event, EventCostsMore


@dataclass(frozen=True)
class PublicFacts:
    """The public facts that default values may depend on.

    Attributes:
        schema: the declaration.
        epsilon: largest ε of the forest under the mechanism's adjacency. On accounts with a δ: the ε of the request,
            or the trial value of a search (see ``app.privacy.calibration.fitted``).
        size: the public order of magnitude of the rows in scope.
        budget: largest price of the job in the account's unit, under the mechanism's adjacency.
        profile: an earlier release, whose numbers replace draws that would cost budget.
        unlabelled: the facts of a second, unlabelled dataset, where the algorithm learns from two datasets.
    """

    schema: Schema
    epsilon: Fraction
    size: int
    budget: Budget
    profile: ReusedProfile | None = None
    unlabelled: PublicFacts | None = None

    def require_covered(self, event: Event) -> None:
        """Checks that an event costs no more than the request allows.

        On accounts that count ε, the limit is :attr:`epsilon` and not :attr:`budget`, because a k-th part of a price
        need not be a whole number of steps, and the budget is rounded down.

        Raises:
            EventCostsMore: the event costs more, which is a bug in the code that prices it.
        """
        is_pure = self.budget.accountant == pure.NAME
        if not (self.budget.loss(event) <= self.epsilon if is_pure else self.budget.covers(event)):
            raise EventCostsMore("the event costs more than the amount that pays for it")

    def part(self, share: Fraction) -> PublicFacts:
        """These facts with a share of ε and of the budget, the budget rounded down.

        Args:
            share: above zero, at most 1.

        Raises:
            InvalidRequest: the share is less than one step of the account's unit.
        """
        part = replace(self, epsilon=share * self.epsilon, budget=self.budget.part(share))
        if part.budget.amount == 0 and self.budget.accountant != pure.NAME:
            raise InvalidRequest.at("/epsilon", "too-small")
        return part

    @property
    def of_unlabelled(self) -> PublicFacts:
        """The facts of the unlabelled dataset, for algorithms that learn from two datasets."""
        if self.unlabelled is None:
            raise ValueError("no second dataset pays")
        return self.unlabelled
