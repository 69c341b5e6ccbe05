"""Reads numbers out of forests whose label is a number: post-processing (lemma L7)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.array_types import Float64Array
from grovekeeper_forests.data.sanitiser import SanitisedColumns, numbers_of_codes
from grovekeeper_forests.data.schema import TARGET_STEPS, Label
from grovekeeper_forests.kernels.boosting import SCORE_BITS
from grovekeeper_forests.trees.leaf_read_out import LeafSums, PackedForest

START_AND_SPREAD: Final = 2
"""Numbers that are released of a label that is a number beside the trees."""


class Numbers(ABC):
    """The reader of a forest whose label is a number.

    Attributes:
        arrays: as released; ``start`` holds the start and the spread.
        label: public.
    """

    arrays: Mapping[str, NDArray[Any]]
    label: Label

    @property
    @abstractmethod
    def packed(self) -> PackedForest:
        """The trees with scores as floats: sums of 1,024 scores of 32 bits are exact."""

    def __call__(self, columns: SanitisedColumns) -> Float64Array:
        """The numbers of rows, float64 ``(n_rows, 1)``, within the bounds."""
        return self.numbers(self.packed.sums(columns))

    def numbers(
        self,
        sums: Float64Array,
    ) -> Float64Array:
        """The numbers that sums of scores stand for, float64 of their shape.

        Args:
            sums: whole numbers in units of 2^-16 spreads.
        """
        start, spread = self.arrays["start"].tolist()
        # Exact: a released spread is three times a power of two, and a sum of 1,024
        # scores has 28 bits.
        unit = spread / 2.0**SCORE_BITS
        codes = start + sums * unit
        inside = np.clip(codes, 0.0, TARGET_STEPS)
        numbers = numbers_of_codes(self.label, inside)
        column = self.label.column
        # rounding may carry a number beyond its bound
        return np.clip(numbers, column.lower, column.upper)


@dataclass(frozen=True, eq=False)
class LeafNumbers(Numbers):
    """The reader of trees with thresholds, whose label is a number.

    Attributes:
        sums: the forest prepared for prediction, with scores in units of 2^-16 spreads.
        arrays: as released; ``start`` holds the start and the spread.
        label: public.
    """

    sums: LeafSums
    arrays: Mapping[str, NDArray[Any]]
    label: Label

    @property
    def packed(self) -> PackedForest:
        """The trees with scores as floats."""
        return self.sums.packed


def is_legal_start(start: NDArray[np.signedinteger]) -> bool:
    """Whether a start and a spread, as codes, are within their limits."""
    middle, spread = start.tolist()
    if not 0 <= middle <= TARGET_STEPS:
        return False
    # a spread divides
    return bool(1 <= spread <= TARGET_STEPS)
