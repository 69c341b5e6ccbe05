"""Defines the released numbers of a profile that a training plan reuses at no privacy cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.forests.bins import quantile_bins


@dataclass(frozen=True)
class ReusedProfile:
    """Released numbers of one profile, as a plan and its artifact carry them.

    Reuse is post-processing (lemma L7, docs/proofs/lemmas.md). A profile may come from rows that the plan does not
    read.

    Attributes:
        id: id of the profile.
        cuts: per feature with private bins, positions on the public grid, ascending.
        prior: class counts in units of 2^-24 standard deviations of their noise.
    """

    id: str
    cuts: tuple[tuple[int, ...], ...]
    prior: tuple[int, ...]

    def to_json(self) -> dict[str, object]:
        """Counts as text, because they may have more than 53 bits."""
        return {
            "id": self.id,
            "cuts": [list(feature_cuts) for feature_cuts in self.cuts],
            "prior": [str(count) for count in self.prior],
        }

    @classmethod
    def from_json(cls, value: object) -> ReusedProfile:
        """Inverse of :meth:`to_json`.

        Raises:
            ValueError: the value is not a reused profile.
        """
        match value:
            case {"id": str(own), "cuts": [*rows], "prior": [*prior], **rest} if not rest:
                cuts = tuple(tuple(int(cut) for cut in row) for row in rows)
                if all(len(row) <= quantile_bins.MAX_CUTS and all(0 < cut < 2**16 for cut in row) for row in cuts):
                    return cls(own, cuts, tuple(int(count) for count in prior))
        raise ValueError("not a reused profile")

    @property
    def cut_array(self) -> NDArray[np.uint16]:
        """The cuts in the form in which bins are released: ``(n_private_features, MAX_CUTS)``."""
        array = np.full((len(self.cuts), quantile_bins.MAX_CUTS), quantile_bins.NO_CUT, dtype=np.uint16)
        for row, feature_cuts in zip(array, self.cuts, strict=True):
            row[: len(feature_cuts)] = feature_cuts
        return array
