"""The profile of a dataset: private bins, class counts and a size, released once and used by any number of jobs.

The proof stands in docs/proofs/bins.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from app.core import amounts
from app.core.errors import GrovekeeperError, InvalidRequest
from app.forests.algorithms.nbrt.scales import SCALE_BITS
from app.forests.bins import noisy_counts, priced_bins, quantile_bins
from app.forests.bins.reused_profile import ReusedProfile
from app.forests.contract.algorithm import PublicFacts
from app.forests.contract.parameters import Parameter, Value, read_all
from app.forests.data.rows import SanitisedRows
from app.forests.data.schema import Schema
from app.privacy import events
from app.privacy.events import Event, Part, Sequential, UnknownPrivacyEvent

if TYPE_CHECKING:
    from app.forests.noise.randomness import Randomness

BINS = {"4": 2, "8": 3, "16": 4}
"""Bins of a number, and the medians on the way to them."""

PARAMETERS = (
    Parameter(
        "bins",
        "choice",
        "Bins of each number that needs private ones. Fewer are cut more exactly at the same price.",
        default="16",
        choices=tuple(BINS),
    ),
    Parameter(
        "class_share",
        "number",
        "Share of the price for the class counts; all that the size leaves where no number needs private bins.",
        default="0.2",
        minimum=Fraction(1, 100),
        maximum=Fraction(9, 10),
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
    """Stored bytes that are no profile of a known form."""

    def __str__(self) -> str:
        return "not a profile of a known form"


@dataclass(frozen=True)
class ProfilePlan:
    """What a profile will release, settled and priced before any row is read.

    Attributes:
        parameters: every one of :data:`PARAMETERS` with its value.
        event: bins if any feature needs them, class counts, and a size if it has a share: one after another.
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
            ProfileInvalid: not of that form.
        """
        match value:
            case {"parameters": dict(asked), "event": event, **rest} if not rest:
                try:
                    read = cls(read_all(PARAMETERS, asked), events.from_json(event))
                    _parts(read.event)
                except (InvalidRequest, UnknownPrivacyEvent):
                    raise ProfileInvalid from None
                return read
        raise ProfileInvalid


@dataclass(frozen=True, eq=False)
class Profile:
    """Released numbers; nothing else about the rows.

    Attributes:
        plan: what was priced.
        schema: public.
        cuts: as ``quantile_bins.release`` gives them; no cut where every feature's bins are free.
        class_counts: int64 ``(n_classes,)`` in the units of ``noisy_counts.release``.
        size: a released count of all rows in such units, or ``None`` where none was priced.
    """

    plan: ProfilePlan
    schema: Schema
    cuts: NDArray[np.uint16]
    class_counts: NDArray[np.int64]
    size: int | None

    def to_json(self) -> dict[str, object]:
        """Counts as text: they may have more than 53 bits."""
        return {
            "plan": self.plan.to_json(),
            "cuts": [[int(cut) for cut in row if cut != quantile_bins.NO_CUT] for row in self.cuts],
            "class_counts": [str(count) for count in self.class_counts.tolist()],
            "size": None if self.size is None else str(self.size),
        }

    @classmethod
    def from_json(cls, value: object, schema: Schema) -> Profile:
        """Inverse of :meth:`to_json`; checks everything that a reader takes for granted.

        Raises:
            ProfileInvalid: not of that form, or not of this schema.
        """
        try:
            return _read(value, schema)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise ProfileInvalid from error

    @property
    def counts_in_rows(self) -> list[float]:
        """Noisy rows of each class; a count may be negative."""
        own: list[float] = noisy_counts.in_rows(self.class_counts, _parts(self.plan.event).counts).tolist()
        return own

    @property
    def count_noise_sd(self) -> float:
        """Standard deviation of the noise of each class count, in rows."""
        return noisy_counts.noise_sd(_parts(self.plan.event).counts)

    @property
    def size_in_rows(self) -> float:
        """Noisy number of rows: the released one, or the sum of the class counts."""
        event = _parts(self.plan.event).size
        if event is None or self.size is None:
            return sum(self.counts_in_rows)
        return self.size / noisy_counts.per_row(event)

    @property
    def size_noise_sd(self) -> float:
        """Standard deviation of the noise of :attr:`size_in_rows`."""
        event = _parts(self.plan.event).size
        if event is None:
            return float(self.count_noise_sd * self.schema.n_classes**0.5)
        return noisy_counts.noise_sd(event)

    def edges(self) -> dict[str, list[float]]:
        """Released edges of the bins, by the feature's name; a value on an edge belongs below it."""
        own = quantile_bins.encoding(self.schema, self.cuts).edges
        private = quantile_bins.private_features(self.schema)
        return {self.schema.features[index].name: [float(edge) for edge in own[index]] for index in private}  # type: ignore[union-attr]  # numbers have edges

    def reused(self, profile_id: str) -> ReusedProfile:
        """What a training plan takes from it."""
        # At a very large ε the noise is 0 in floating point.
        deviations = np.array(self.counts_in_rows) / max(self.count_noise_sd, 1e-200)
        return ReusedProfile(
            profile_id,
            tuple(tuple(int(cut) for cut in row if cut != quantile_bins.NO_CUT) for row in self.cuts),
            tuple(int(count) for count in np.rint(np.clip(deviations, -(2.0**38), 2.0**38) * 2**SCALE_BITS)),
        )


def plan(asked: Mapping[str, object], facts: PublicFacts) -> ProfilePlan:
    """Settles the parameters and prices the release. Touches no row and draws nothing.

    Raises:
        InvalidRequest: a broken rule, or a share too small to be drawn with.
    """
    settled = read_all(PARAMETERS, asked)
    for_counts, for_size = amounts.parse(settled["class_share"]), amounts.parse(settled["size_share"])
    if for_counts + for_size >= 1:
        raise InvalidRequest.at("/parameters/size_share", "too-large")
    parts = list[Part]()
    if quantile_bins.private_features(facts.schema):
        bins = priced_bins.event(facts, 1 - for_counts - for_size, n_levels=BINS[str(settled["bins"])])
        parts.append(Part(1, bins))
    else:
        for_counts = 1 - for_size
    parts.append(Part(1, noisy_counts.priced(facts, for_counts, coordinates=facts.schema.n_classes)))
    if for_size > 0:
        parts.append(Part(1, noisy_counts.priced(facts, for_size, coordinates=1)))
    made = ProfilePlan(settled, Sequential(tuple(parts)))
    facts.require_covered(made.event)
    return made


def release(plan: ProfilePlan, schema: Schema, rows: SanitisedRows, randomness: Randomness) -> Profile:
    """Releases a profile. One call is one release and costs what was priced.

    Args:
        plan: what was priced; every noise scale is taken from its event.
        schema: public.
        rows: PRIVATE, sanitised.
        randomness: source of every draw.

    Privacy:
        The loss of ``plan.event`` under add/remove, twice that (four times, in ρ and μ²) under replace-one. Bins by
        Theorem 1 of docs/proofs/bins.md. Class counts: a row is counted in the cell of its class and in no other, so
        L1 and L2 sensitivity are 1 (lemma L3). The size: sensitivity 1. One after another (Theorem L). Everything that
        is shown is post-processing (lemma L7). *Not covered:* running time.

    Source:
        docs/proofs/bins.md, Theorem 2.
    """
    parts = _parts(plan.event)
    cuts = priced_bins.cuts(parts.bins, schema, rows, randomness)
    exact = np.bincount(rows.y, minlength=schema.n_classes).astype(np.int64)
    counts = noisy_counts.release(exact, parts.counts, randomness)
    size = None
    if parts.size is not None:
        size = int(noisy_counts.release(exact.sum(keepdims=True), parts.size, randomness)[0])
    return Profile(plan, schema, cuts, counts, size)


@dataclass(frozen=True)
class _Parts:
    bins: Event | None
    counts: Event
    size: Event | None


def _parts(event: Event) -> _Parts:
    """The releases of a priced profile.

    Raises:
        UnknownPrivacyEvent: not the event of a profile.
    """
    if not isinstance(event, Sequential) or any(part.times != 1 for part in event.parts):
        raise UnknownPrivacyEvent("not the event of a profile")
    bins = next((part.event for part in event.parts[:1] if isinstance(part.event, Sequential)), None)
    tables = [part.event for part in event.parts[0 if bins is None else 1 :]]
    if bins is not None:
        quantile_bins.n_levels(bins)
        quantile_bins.inverse_scale(bins)
    if len(tables) not in (1, 2) or not all(noisy_counts.per_row(table) for table in tables):
        raise UnknownPrivacyEvent("not the event of a profile")
    return _Parts(bins, tables[0], tables[1] if len(tables) == 2 else None)


def _read(value: object, schema: Schema) -> Profile:
    match value:
        case {"plan": planned, "cuts": [*cuts], "class_counts": [*counts], "size": size, **rest} if not rest:
            plan = ProfilePlan.from_json(planned)
            parts = _parts(plan.event)
            reused = ReusedProfile("", tuple(tuple(int(cut) for cut in row) for row in cuts), ())
            read = Profile(
                plan,
                schema,
                reused.cut_array,
                np.array([int(count) for count in counts], dtype=np.int64),
                None if size is None else int(size),
            )
            is_whole = len(counts) == schema.n_classes and (size is None) is (parts.size is None)
            if is_whole and quantile_bins.is_valid(schema, read.cuts) and read.to_json() == value:
                return read
    raise ProfileInvalid
