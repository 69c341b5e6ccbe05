"""Plans and prices the profile of a dataset (private bins, class counts, a size), and reads the release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from app.core import amounts
from app.core.errors import GrovekeeperError, InvalidRequest
from app.forests.bins import noisy_counts, quantile_bins
from app.forests.bins.noisy_counts import SCALE_BITS
from app.forests.bins.quantile_bins import ReusedProfile
from app.forests.contract.algorithm import Parameter, PublicFacts, Value, read_all, share
from app.forests.data.schema import Schema
from app.privacy import events
from app.privacy.events import Event, Part, Sequential, UnknownPrivacyEvent

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
        event: in sequence: bins if any feature needs private bins, class counts, and a size if it has a share.
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
                except (InvalidRequest, UnknownPrivacyEvent):
                    raise ProfileInvalid from None
                return read
        raise ProfileInvalid


def plan(requested: Mapping[str, object], facts: PublicFacts) -> ProfilePlan:
    """Settles the parameters and prices the release. Reads no row and draws nothing.

    Raises:
        InvalidRequest: a broken rule, or a share too small for any draw.
    """
    settled = read_all(PARAMETERS, requested)
    for_counts, for_size = amounts.parse(settled["class_share"]), amounts.parse(settled["size_share"])
    if for_counts + for_size >= 1:
        raise InvalidRequest.at("/parameters/size_share", "too-large", accepted=["1 - class_share, or less"])
    parts = list[Part]()
    if quantile_bins.private_features(facts.schema):
        part = facts.part(1 - for_counts - for_size)
        n_levels = BINS[str(settled["bins"])]
        bins = quantile_bins.price_bins(facts.schema, part.epsilon, part.budget, n_levels=n_levels)
        parts.append(Part(1, bins))
    else:
        for_counts = 1 - for_size
    part = facts.part(for_counts)
    parts.append(Part(1, noisy_counts.priced(part.epsilon, part.budget, coordinates=facts.schema.n_classes)))
    if for_size > 0:
        part = facts.part(for_size)
        parts.append(Part(1, noisy_counts.priced(part.epsilon, part.budget, coordinates=1)))
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
    if not isinstance(event, Sequential) or any(part.times != 1 for part in event.parts):
        raise UnknownPrivacyEvent("not the event of a profile")
    bins = next((part.event for part in event.parts[:1] if isinstance(part.event, Sequential)), None)
    tables = [part.event for part in event.parts[0 if bins is None else 1 :]]
    if bins is not None:
        quantile_bins.medians_of(bins)
    if len(tables) not in (1, 2) or not all(noisy_counts.per_row(table) for table in tables):
        raise UnknownPrivacyEvent("not the event of a profile")
    return ProfileParts(bins, tables[0], tables[1] if len(tables) == 2 else None)


@dataclass(frozen=True, eq=False)
class Profile:
    """The released numbers of a profile, and no other fact about the rows.

    Attributes:
        schema: public.
        cuts: released cuts in the form of ``releases.release_cuts``; empty where no feature has private bins.
        class_counts: int64 ``(n_classes,)`` in the units of ``releases.release_counts``.
        size: a released count of all rows in these units, or ``None`` where no size is priced.
    """

    plan: ProfilePlan
    schema: Schema
    cuts: NDArray[np.uint16]
    class_counts: NDArray[np.int64]
    size: int | None

    def to_json(self) -> dict[str, object]:
        """Counts as text, because they may have more than 53 bits."""
        return {
            "plan": self.plan.to_json(),
            "cuts": [[int(cut) for cut in row if cut != quantile_bins.NO_CUT] for row in self.cuts],
            "class_counts": [str(count) for count in self.class_counts.tolist()],
            "size": None if self.size is None else str(self.size),
        }

    @classmethod
    def from_json(cls, value: object, schema: Schema) -> Profile:
        """Inverse of :meth:`to_json`; checks everything that a reader relies on.

        Raises:
            ProfileInvalid: the value is not a valid profile of this schema.
        """
        try:
            match value:
                case {"plan": planned, "cuts": [*cuts], "class_counts": [*counts], "size": size, **rest} if not rest:
                    plan = ProfilePlan.from_json(planned)
                    reused = ReusedProfile("", tuple(tuple(int(cut) for cut in row) for row in cuts), ())
                    read = cls(
                        plan,
                        schema,
                        reused.cut_array,
                        np.array([int(count) for count in counts], dtype=np.int64),
                        None if size is None else int(size),
                    )
                    has_size = parts_of(plan.event).size is not None
                    is_whole = len(counts) == schema.n_classes and (size is not None) is has_size
                    if is_whole and quantile_bins.is_valid(schema, read.cuts) and read.to_json() == value:
                        return read
        except (ArithmeticError, TypeError, ValueError) as error:
            raise ProfileInvalid from error
        raise ProfileInvalid

    @property
    def counts_in_rows(self) -> list[float]:
        """Noisy rows of each class; a count may be negative."""
        counts: list[float] = noisy_counts.in_rows(self.class_counts, parts_of(self.plan.event).counts).tolist()
        return counts

    @property
    def count_noise_sd(self) -> float:
        """Standard deviation of the noise of each class count, in rows."""
        return noisy_counts.noise_sd(parts_of(self.plan.event).counts)

    @property
    def size_in_rows(self) -> float:
        """Noisy number of rows: the released one, or the sum of the class counts."""
        event = parts_of(self.plan.event).size
        if event is None or self.size is None:
            return sum(self.counts_in_rows)
        return self.size / noisy_counts.per_row(event)

    @property
    def size_noise_sd(self) -> float:
        """Standard deviation of the noise of :attr:`size_in_rows`."""
        event = parts_of(self.plan.event).size
        if event is None:
            return float(self.count_noise_sd * self.schema.n_classes**0.5)
        return noisy_counts.noise_sd(event)

    def edges(self) -> dict[str, list[float]]:
        """Released edges of the bins, by the feature's name; a value on an edge belongs below it."""
        feature_edges = quantile_bins.encoding(self.schema, self.cuts).edges
        private = quantile_bins.private_features(self.schema)
        return {self.schema.features[index].name: [float(edge) for edge in feature_edges[index]] for index in private}  # type: ignore[union-attr]  # numbers have edges

    def reused(self, profile_id: str) -> ReusedProfile:
        """The numbers that a training plan reuses."""
        # At a very large ε the noise is 0 in floating point.
        deviations = np.array(self.counts_in_rows) / max(self.count_noise_sd, 1e-200)
        return ReusedProfile(
            profile_id,
            tuple(tuple(int(cut) for cut in row if cut != quantile_bins.NO_CUT) for row in self.cuts),
            tuple(int(count) for count in np.rint(np.clip(deviations, -(2.0**38), 2.0**38) * 2**SCALE_BITS)),
        )
