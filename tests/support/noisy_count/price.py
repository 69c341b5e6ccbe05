"""Prices a noisy number of rows. No row is read."""

from dataclasses import dataclass

from grovekeeper_forests.bins import noisy_counts
from grovekeeper_forests.contract.algorithm import PublicFacts
from grovekeeper_forests.privacy import events
from grovekeeper_forests.privacy.events import Event


@dataclass(frozen=True)
class CountPlan:
    """The release of one number, priced before any row is read."""

    event: Event

    def to_json(self) -> dict[str, object]:
        return {"event": self.event.to_json()}

    @classmethod
    def from_json(cls, value: dict[str, object]) -> "CountPlan":
        return cls(events.from_json(value["event"]))


def plan(facts: PublicFacts) -> CountPlan:
    """A row changes the number by one."""
    priced = CountPlan(noisy_counts.priced(facts.epsilon, facts.budget, coordinates=1))
    facts.require_covered(priced.event)
    return priced
