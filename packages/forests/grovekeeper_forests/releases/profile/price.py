"""Plans and prices the profile of a dataset: private bins, class counts, a size. No row
is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from grovekeeper_forests import amounts
from grovekeeper_forests.bins import noisy_counts, quantile_bins
from grovekeeper_forests.contract.algorithm import (
    Parameter,
    PublicFacts,
    Value,
    read_all,
    share,
)
from grovekeeper_forests.errors import (
    GrovekeeperError,
    ParameterInvalid,
    ParameterProblem,
)
from grovekeeper_forests.privacy import events
from grovekeeper_forests.privacy.events import (
    Event,
    Part,
    Sequential,
    UnknownPrivacyEvent,
)
from grovekeeper_forests.releases.contract import counts_at

BINS = {"4": 2, "8": 3, "16": 4}
"""Levels of medians for each number of bins."""

PARAMETERS = (
    Parameter(
        "bins",
        "choice",
        "Number of bins of each numeric column that needs private bins. Fewer bins are more exact at the same price.",
        default="16",
        choices=tuple(BINS),
    ),
    share(
        "class_share",
        "Share of the price for the class counts; all of the price except the share of the size if no column needs "
        "private bins.",
        default="0.2",
        most=Fraction(9, 10),
    ),
    Parameter(
        "size_share",
        "number",
        "Share of the price for a count of all rows. At 0 the size is the sum of the class counts, at no price.",
        default="0",
        minimum=Fraction(0),
        maximum=Fraction(1, 2),
    ),
)


class ProfileInvalid(GrovekeeperError):
    """Stored bytes that are not a valid profile."""

    sentence = "not a profile of a known form"


@dataclass(frozen=True)
class ProfilePlan:
    """The releases of a profile, settled and priced before any row is read.

    Attributes:
        parameters: every one of :data:`PARAMETERS` with its value.
        event: in sequence: bins if any feature needs private bins, class counts, and a
            size if it has a share.
    """

    parameters: Mapping[str, Value]
    event: Event

    def to_json(self) -> dict[str, object]:
        """Exact."""
        return {"parameters": dict(self.parameters), "event": self.event.to_json()}

    @classmethod
    def from_json(cls, value: object) -> ProfilePlan:
        """Inverse of :meth:`to_json`.

        Raises:
            ProfileInvalid: the value is not a valid plan.
        """
        match value:
            case {"parameters": dict(asked), "event": event, **rest} if not rest:
                try:
                    read = cls(read_all(PARAMETERS, asked), events.from_json(event))
                    parts_of(read.event)
                except (ParameterInvalid, UnknownPrivacyEvent):
                    raise ProfileInvalid from None
                return read
        raise ProfileInvalid


def plan(requested: Mapping[str, object], facts: PublicFacts) -> ProfilePlan:
    """Settles the parameters and prices the release. Reads no row and draws nothing.

    Raises:
        ParameterInvalid: a broken rule, a label that is a number and has no classes to
            count, or a share too small for any draw.
    """
    if facts.schema.label.is_number:
        raise ParameterInvalid([ParameterProblem(("label",), "not-for-numbers")])
    settled = read_all(PARAMETERS, requested)
    for_counts = amounts.parse(settled["class_share"])
    for_size = amounts.parse(settled["size_share"])
    if for_counts + for_size >= 1:
        raise ParameterInvalid.named(
            "size_share", "too-large", accepted=["1 - class_share, or less"]
        )
    parts = list[Part]()
    if quantile_bins.private_features(facts.schema):
        part = facts.part(1 - for_counts - for_size)
        n_levels = BINS[str(settled["bins"])]
        bins = quantile_bins.price_bins(
            facts.schema,
            part.epsilon,
            part.budget,
            size=facts.size,
            n_levels=n_levels,
        )
        parts.append(Part(1, bins))
    else:
        for_counts = 1 - for_size
    parts.append(counts_at(for_counts, facts, coordinates=facts.schema.n_classes))
    if for_size > 0:
        parts.append(counts_at(for_size, facts, coordinates=1))
    profile_plan = ProfilePlan(settled, Sequential(tuple(parts)))
    facts.require_covered(profile_plan.event)
    return profile_plan


@dataclass(frozen=True)
class ProfileParts:
    """The priced releases of a profile; ``None`` where the profile omits a release."""

    bins: Event | None
    counts: Event
    size: Event | None


def parts_of(event: Event) -> ProfileParts:
    """The releases of a priced profile.

    Raises:
        UnknownPrivacyEvent: the event is not one of a profile.
    """
    if not isinstance(event, Sequential) or any(
        part.times != 1 for part in event.parts
    ):
        raise UnknownPrivacyEvent("not the event of a profile")
    bins = next(
        (part.event for part in event.parts[:1] if isinstance(part.event, Sequential)),
        None,
    )
    tables = [part.event for part in event.parts[0 if bins is None else 1 :]]
    if bins is not None:
        quantile_bins.medians_of(bins)
    if len(tables) not in (1, 2) or not all(
        noisy_counts.per_row(table) for table in tables
    ):
        raise UnknownPrivacyEvent("not the event of a profile")
    return ProfileParts(bins, tables[0], tables[1] if len(tables) == 2 else None)
