"""Plans and prices the profile of a dataset: private bins; class counts, or mean and
quantiles of a label that is a number; a size. No row is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from grovekeeper_forests import amounts
from grovekeeper_forests.bins import noisy_counts, quantile_bins
from grovekeeper_forests.contract.algorithm import (
    Parameter,
    Parameters,
    PublicFacts,
    read_all,
    share,
)
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import GrovekeeperError, ParameterInvalid
from grovekeeper_forests.json_types import JsonMapping, JsonObject
from grovekeeper_forests.privacy import events
from grovekeeper_forests.privacy.events import (
    Event,
    Part,
    Sequential,
    UnknownPrivacyEvent,
)
from grovekeeper_forests.releases.contract import counts_at
from grovekeeper_forests.releases.profile import number_label
from grovekeeper_forests.releases.statistics.price import StatisticsPlan

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
        "Share of the price for the class counts, or for mean and quantiles of a label that is a number; all of the "
        "price except the share of the size if no column needs private bins.",
        default="0.2",
        most=Fraction(9, 10),
    ),
    Parameter(
        "size_share",
        "number",
        "Share of the price for a count of all rows. At 0 the size is the sum of the class counts, or the number of "
        "rows of the mean, at no price.",
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
            size if it has a share. In place of class counts, a label that is a number
            has the parts of :mod:`.number_label`.
    """

    parameters: Parameters
    event: Event

    def label_plan(self, schema: Schema) -> StatisticsPlan | None:
        """Mean and quantiles of a label that is a number; ``None``: the label has
        classes.

        Raises:
            StatisticsInvalid: the event is not that of the label.
        """
        if not schema.label.is_number:
            return None
        return number_label.read_label_plan(parts_of(self.event).label, schema)

    def to_json(self) -> JsonObject:
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


def plan(requested: JsonMapping, facts: PublicFacts) -> ProfilePlan:
    """Settles the parameters and prices the release. Reads no row and draws nothing.

    Raises:
        ParameterInvalid: a broken rule, bounds of a label that no mean is released of,
            or a share too small for any draw.
    """
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
    parts += _label_parts(for_counts, facts)
    if for_size > 0:
        parts.append(counts_at(for_size, facts, coordinates=1))
    profile_plan = ProfilePlan(settled, Sequential(tuple(parts)))
    facts.require_covered(profile_plan.event)
    return profile_plan


def _label_parts(share: Fraction, facts: PublicFacts) -> Sequence[Part]:
    """Class counts, or mean and quantiles, at a share of the price."""
    if facts.schema.label.is_number:
        return number_label.plan_label(facts.part(share)).event.parts
    return [counts_at(share, facts, coordinates=facts.schema.n_classes)]


@dataclass(frozen=True)
class ProfileParts:
    """The priced releases of a profile; ``None`` where the profile omits a release.

    Attributes:
        label: class counts alone; of a label that is a number, the number of rows
            first.
    """

    bins: Event | None
    label: tuple[Event, ...]
    size: Event | None

    @property
    def counts(self) -> Event:
        """The class counts, or the number of rows with a number."""
        return self.label[0]


def parts_of(event: Event) -> ProfileParts:
    """The releases of a priced profile.

    Raises:
        UnknownPrivacyEvent: the event is not one of a profile.
    """
    if not isinstance(event, Sequential) or any(
        part.times != 1 for part in event.parts
    ):
        raise UnknownPrivacyEvent("not the event of a profile")
    releases = [part.event for part in event.parts]
    bins = None
    if releases and isinstance(releases[0], Sequential):
        bins = releases.pop(0)
        quantile_bins.medians_of(bins)
    of_label = 1
    if len(releases) >= number_label.N_PARTS:
        of_label = number_label.N_PARTS
    label, sizes = tuple(releases[:of_label]), releases[of_label:]
    # the parts of a number are read with its declaration
    counts = [*label[:1], *sizes]
    if not label or len(sizes) > 1 or not all(map(noisy_counts.per_row, counts)):
        raise UnknownPrivacyEvent("not the event of a profile")
    return ProfileParts(bins, label, sizes[0] if sizes else None)
