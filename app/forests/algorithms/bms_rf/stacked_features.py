"""Adds the votes of a released layer to the columns of a row, for the next layer of a stacked forest.

A number whose range has width R is converted to ticks: the whole number of steps of 2⁻¹⁶ R above its lower bound. The
shift is a whole number of ticks, too. The position of an ordered category is converted in the same way. Unordered
categories do not change. The result is a function of one row, the public schema, the public projection and released
leaves (lemma L6), and does not depend on other rows (docs/proofs/bms-rf.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.core import amounts
from app.forests.contract.parameters import Value
from app.forests.data import ordinals
from app.forests.data.rows import SanitisedColumns
from app.forests.data.schema import Feature, Schema

TICK_BITS: Final = 16
TICKS: Final = 2**TICK_BITS
"""Ticks between a number's bounds. Votes, projections and the shift are shares in units of 1/TICKS."""


def largest_shift(parameters: Mapping[str, Value]) -> int:
    """The shift α in ticks: the amount that unanimous votes for a class of weight 1 add to a number."""
    return int(amounts.parse(parameters["shift"]) * TICKS)


def is_moved(feature: Feature) -> bool:
    """Whether votes are added to a feature: true for numbers and ordered categories."""
    return not feature.is_categorical or feature.ordered


def stacked_schema(schema: Schema, shift: int) -> Schema:
    """The public schema of rows with added votes.

    The votes of a row sum to at most 1 and each weight is below 1, so no value moves by more than the shift. The bounds
    are therefore a function of the declaration and the shift, and no value has to be clamped.
    """
    return Schema(tuple(_stacked(feature, shift) for feature in schema.features), schema.label)


def _stacked(feature: Feature, shift: int) -> Feature:
    if not is_moved(feature):
        return feature
    lowest = origin(feature)
    return Feature(
        feature.name, "integer", lower=float(lowest), upper=float(lowest + TICKS + shift), missing=feature.missing
    )


def origin(feature: Feature) -> int:
    """The tick of a feature's lower bound. The value 0 has tick 0 if it is in the range; otherwise the bound nearer to
    0 has tick 0. Public bins are finest near 0."""
    number = ordinals.as_number(feature)
    lower, width = Fraction(number.lower), Fraction(number.upper) - Fraction(number.lower)
    return 0 if width == 0 else int(max(min(lower / width, Fraction(0)), Fraction(-1)) * TICKS)


def add_votes(
    schema: Schema, columns: SanitisedColumns, votes: NDArray[np.int64], *, weights: NDArray[np.uint16], shift: int
) -> SanitisedColumns:
    """Adds votes to rows for the next layer; record-wise, in whole numbers.

    Args:
        schema: public; the declared schema of the columns.
        columns: PRIVATE, or a caller's rows to predict.
        votes: the released layer's votes per row, int64 ``(n_rows, n_classes)`` in units of 2⁻¹⁶, each row summing to
            at most 2¹⁶. PRIVATE if the columns are.
        weights: the public projection, uint16 ``(n_classes, n_features)`` in units of 2⁻¹⁶.
        shift: public, in ticks.

    Returns:
        Columns of :func:`stacked_schema`.
    """
    shifted: list[NDArray[np.float64] | NDArray[np.int32]] = []
    for index, (feature, column) in enumerate(zip(schema.features, columns.columns, strict=True)):
        if is_moved(feature):
            drift = votes @ weights[:, index].astype(np.int64)  # below 2³²
            moved = (drift * shift) >> (2 * TICK_BITS)
            shifted.append(ticks(feature, column) + (moved + origin(feature)))
        else:
            shifted.append(column)
    return SanitisedColumns(tuple(shifted), columns.n_rows)


def ticks(feature: Feature, column: NDArray[np.float64] | NDArray[np.int32]) -> NDArray[np.float64]:
    """Whole ticks above the lower bound: float64 array of whole numbers from 0 to 2¹⁶; NaN is MISSING.

    All numbers are halved so that no width overflows. Each of the four operations is elementwise and correctly rounded
    (IEEE 754), so a row's ticks do not depend on its place in the array, on the machine, or on other rows.
    """
    lower, width = halves(feature)
    return np.floor((ordinals.numbers(feature, column) / 2 - lower) / width * TICKS)


def halves(feature: Feature) -> tuple[float, float]:
    """Half of the lower bound and half of the width; for a constant, whose only tick is 0, the second is 1."""
    number = ordinals.as_number(feature)
    width = number.upper / 2 - number.lower / 2
    return number.lower / 2, width if width > 0 else 1.0
