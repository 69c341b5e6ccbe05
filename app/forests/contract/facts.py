"""The public facts that the rules of an algorithm may use, and shares of what may be spent."""

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
    """All that a default may depend on.

    Attributes:
        schema: the declaration.
        epsilon: what one tree ensemble may cost under the mechanism's own adjacency; on accounts with a δ, the ε of the
            request, or a strength that is looked for (see ``app.privacy.calibration.fitted``).
        size: the public order of magnitude of the rows in scope.
        budget: what the job may cost in the unit of its account, under the mechanism's own adjacency.
        profile: released before; its numbers are used in place of draws that would be paid for.
        unlabelled: the same of a second, unlabelled dataset, where the algorithm learns from two.
    """

    schema: Schema
    epsilon: Fraction
    size: int
    budget: Budget
    profile: ReusedProfile | None = None
    unlabelled: PublicFacts | None = None

    def require_covered(self, event: Event) -> None:
        """Checks that an event costs no more than what was asked for.

        Where ε is counted that is :attr:`epsilon` itself: a k-th part of a price is no whole number of steps, and the
        budget is rounded down.

        Raises:
            EventCostsMore: it does, which is a bug of whatever priced it.
        """
        is_pure = self.budget.accountant == pure.NAME
        if not (self.budget.loss(event) <= self.epsilon if is_pure else self.budget.covers(event)):
            raise EventCostsMore("the event costs more than the amount that pays for it")

    def part(self, share: Fraction) -> PublicFacts:
        """The same facts with a share of what may be spent, the budget rounded down.

        Args:
            share: above zero, at most 1.

        Raises:
            InvalidRequest: less than one step of the account's unit is left.
        """
        part = replace(self, epsilon=share * self.epsilon, budget=self.budget.part(share))
        if part.budget.amount == 0 and self.budget.accountant != pure.NAME:
            raise InvalidRequest.at("/epsilon", "too-small")
        return part

    @property
    def of_unlabelled(self) -> PublicFacts:
        """The facts of the second dataset, in a mechanism that has one."""
        if self.unlabelled is None:
            raise ValueError("no second dataset pays")
        return self.unlabelled
