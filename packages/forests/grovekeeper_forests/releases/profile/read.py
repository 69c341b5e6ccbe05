"""Reads a released profile: bins; class counts, or mean and quantiles; a size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from grovekeeper_forests.array_types import Int64Array, UInt16Array
from grovekeeper_forests.bins import noisy_counts, quantile_bins
from grovekeeper_forests.bins.noisy_counts import SCALE_BITS
from grovekeeper_forests.bins.quantile_bins import Grid, ReusedProfile
from grovekeeper_forests.data.days import date_of
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.json_types import JsonObject
from grovekeeper_forests.releases.profile.price import (
    ProfileInvalid,
    ProfilePlan,
    parts_of,
)
from grovekeeper_forests.releases.statistics.price import StatisticsInvalid
from grovekeeper_forests.releases.statistics.read import Statistics


@dataclass(frozen=True, eq=False)
class Profile:
    """The released numbers of a profile, and no other fact about the rows.

    Attributes:
        schema: public.
        cuts: released cuts in the form of ``releases.release_cuts``; empty where no
            feature has private bins.
        class_counts: int64 ``(n_classes,)`` in the units of
            ``releases.release_counts``; none of a label that is a number.
        size: a released count of all rows in these units, or ``None`` where no size is
            priced.
        numbers: mean and quantiles of a label that is a number, else ``None``.
    """

    plan: ProfilePlan
    schema: Schema
    cuts: UInt16Array
    class_counts: Int64Array
    size: int | None
    numbers: Statistics | None = None

    def to_json(self) -> JsonObject:
        """Counts as text, because they may have more than 53 bits."""
        value: JsonObject = {
            "plan": self.plan.to_json(),
            "cuts": self._cuts_by_feature(),
            "class_counts": list(map(str, self.class_counts.tolist())),
            "size": None if self.size is None else str(self.size),
        }
        # profiles of classes have no such member, and keep their bytes
        if self.numbers is not None:
            value["numbers"] = self.numbers.to_json()["tables"]
        return value

    def _cuts_by_feature(self) -> list[list[int]]:
        """The cuts without padding."""
        return [
            [int(cut) for cut in row if cut != quantile_bins.NO_CUT]
            for row in self.cuts
        ]

    @classmethod
    def from_json(cls, value: object, schema: Schema) -> Profile:
        """Inverse of :meth:`to_json`; checks everything that a reader relies on.

        Raises:
            ProfileInvalid: the value is not a valid profile of this schema.
        """
        try:
            match value:
                case {
                    "plan": planned,
                    "cuts": [*cuts],
                    "class_counts": [*counts],
                    "size": size,
                    **rest,
                } if rest.keys() <= {"numbers"}:
                    plan = ProfilePlan.from_json(planned)
                    reused = ReusedProfile(
                        "", tuple(tuple(map(int, row)) for row in cuts), ()
                    )
                    profile = cls(
                        plan,
                        schema,
                        reused.cut_array,
                        np.array(list(map(int, counts)), dtype=np.int64),
                        None if size is None else int(size),
                        _numbers(rest, plan, schema),
                    )
                    has_size = parts_of(plan.event).size is not None
                    is_whole = (
                        len(counts) == schema.n_classes
                        and (size is not None) is has_size
                    )
                    # The comparison refuses spellings that ``int`` accepts and
                    # ``to_json`` never writes.
                    if (
                        is_whole
                        and quantile_bins.is_valid(schema, profile.cuts, profile.grid)
                        and profile.to_json() == value
                    ):
                        return profile
        except (ArithmeticError, StatisticsInvalid, TypeError, ValueError) as error:
            raise ProfileInvalid from error
        raise ProfileInvalid

    @property
    def grid(self) -> Grid:
        """The public grid that the positions of the cuts refer to."""
        return quantile_bins.grid_of(self.plan.event)

    @property
    def counts_in_rows(self) -> list[float]:
        """Noisy rows of each class; a count may be negative."""
        counts: list[float] = noisy_counts.in_rows(
            self.class_counts, parts_of(self.plan.event).counts
        ).tolist()
        return counts

    @property
    def count_noise_sd(self) -> float:
        """Standard deviation of the noise of each class count, or of the number of rows
        of a mean, in rows.
        """
        return noisy_counts.noise_sd(parts_of(self.plan.event).counts)

    @property
    def size_in_rows(self) -> float:
        """Noisy number of rows: the released one, or the sum of the class counts, or the
        number of rows of the mean.
        """
        parts = parts_of(self.plan.event)
        if parts.size is not None and self.size is not None:
            return self.size / noisy_counts.per_row(parts.size)
        if self.numbers is not None:
            n_rows, _ = self.numbers.numbers(0)
            return float(noisy_counts.in_rows(n_rows, parts.counts)[0])
        return sum(self.counts_in_rows)

    @property
    def size_noise_sd(self) -> float:
        """Standard deviation of the noise of :attr:`size_in_rows`."""
        event = parts_of(self.plan.event).size
        if event is None:
            n_counts = max(len(self.class_counts), 1)
            return float(self.count_noise_sd * n_counts**0.5)
        return noisy_counts.noise_sd(event)

    def edges(self) -> dict[str, list[float | str]]:
        """Released edges of the bins, by the feature's name; a value on an edge belongs
        below it.
        """
        feature_edges = quantile_bins.encoding(self.schema, self.cuts, self.grid).edges
        private = quantile_bins.private_features(self.schema)
        edges: dict[str, list[float | str]] = {}
        for index in private:
            of_feature = feature_edges[index]
            assert of_feature is not None  # numbers have edges
            feature = self.schema.features[index]
            edges[feature.name] = list(map(float, of_feature))
            if feature.first_day is not None:
                # an edge of dates is in the middle of the last day below it
                days = of_feature + feature.first_day
                edges[feature.name] = list(map(date_of, days))
        return edges

    def reused(self, profile_id: str) -> ReusedProfile:
        """The numbers that a training plan reuses."""
        # At a very large ε the noise is 0 in floating point.
        deviations = np.array(self.counts_in_rows) / max(self.count_noise_sd, 1e-200)
        # Clipped, so that a count in these units is at most 2⁶².
        clipped = np.clip(deviations, -(2.0**38), 2.0**38)
        prior = np.rint(clipped * 2**SCALE_BITS)
        return ReusedProfile(
            profile_id,
            tuple(map(tuple, self._cuts_by_feature())),
            tuple(map(int, prior)),
            self.grid,
        )


def _numbers(
    rest: Mapping[object, object], plan: ProfilePlan, schema: Schema
) -> Statistics | None:
    """Mean and quantiles of a label that is a number, from a stored profile.

    Raises:
        StatisticsInvalid: they are not those of the plan.
    """
    label_plan = plan.label_plan(schema)
    if label_plan is None:
        return None
    stored = {"plan": label_plan.to_json(), "tables": rest.get("numbers")}
    return Statistics.from_json(stored, schema)
