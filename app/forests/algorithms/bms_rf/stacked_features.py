"""What a layer after the first sees of a row: its own columns, moved by what the released layer before says of it.

A number of width R becomes the whole number of 2⁻¹⁶ R steps (ticks) that it stands above its lower bound; the shift is
a whole number of ticks too. So is the position of an ordered category among the others. Unordered categories stay as
they are: nothing can be added to a name. Everything is a function of one row, the public schema, the public
projection and released leaves (lemma L6): no other row has a part in it (docs/proofs/bms-rf.md).
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
"""Ticks between a number's bounds; also the units of votes, of projections and of the shift, all of them shares."""


def largest_shift(parameters: Mapping[str, Value]) -> int:
    """The shift α in ticks: what unanimous votes for a class of weight 1 would add to a number."""
    return int(amounts.parse(parameters["shift"]) * TICKS)


def is_moved(feature: Feature) -> bool:
    """Whether votes are added to a feature: to numbers and ordered categories."""
    return not feature.is_categorical or feature.ordered


def stacked_schema(schema: Schema, shift: int) -> Schema:
    """The public columns of rows with votes added to them.

    Votes of a row sum to at most 1 and a weight is below 1, so that nothing moves by more than the shift: the bounds
    are a function of the declaration alone, and no value has to be clamped.
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
    """Where the ticks of a feature begin, so that 0 stays at 0 where its range holds it, or else at the nearer bound:
    public bins resolve values near 0 best."""
    number = ordinals.as_number(feature)
    lower, width = Fraction(number.lower), Fraction(number.upper) - Fraction(number.lower)
    return 0 if width == 0 else int(max(min(lower / width, Fraction(0)), Fraction(-1)) * TICKS)


def add_votes(
    schema: Schema, columns: SanitisedColumns, votes: NDArray[np.int64], *, weights: NDArray[np.uint16], shift: int
) -> SanitisedColumns:
    """Rows as the next layer sees them; record-wise, in whole numbers.

    Args:
        schema: public; of the columns as declared.
        columns: PRIVATE or a caller's own.
        votes: of the released layer for each row, int64 ``(n_rows, n_classes)`` in units of 2⁻¹⁶, each row summing to
            at most 2¹⁶. PRIVATE where the columns are.
        weights: the public projection, uint16 ``(n_classes, n_features)`` in units of 2⁻¹⁶.
        shift: public, in ticks.

    Returns:
        Columns of :func:`stacked_schema`.
    """
    found: list[NDArray[np.float64] | NDArray[np.int32]] = []
    for index, (feature, column) in enumerate(zip(schema.features, columns.columns, strict=True)):
        if is_moved(feature):
            drift = votes @ weights[:, index].astype(np.int64)  # below 2³²
            moved = (drift * shift) >> (2 * TICK_BITS)
            found.append(ticks(feature, column) + (moved + origin(feature)))
        else:
            found.append(column)
    return SanitisedColumns(tuple(found), columns.n_rows)


def ticks(feature: Feature, column: NDArray[np.float64] | NDArray[np.int32]) -> NDArray[np.float64]:
    """Whole steps above the lower bound: float64 of whole numbers from 0 to 2¹⁶; NaN is MISSING.

    Halves are taken so that no width overflows. Each of the four operations acts on one number, correctly rounded
    (IEEE 754), so a row's ticks do not depend on its place in the array, on the machine, or on the other rows.
    """
    lower, width = halves(feature)
    return np.floor((ordinals.numbers(feature, column) / 2 - lower) / width * TICKS)


def halves(feature: Feature) -> tuple[float, float]:
    """Half of the lower bound and half of the width; 1 for the width of a constant, whose only tick is 0."""
    number = ordinals.as_number(feature)
    width = number.upper / 2 - number.lower / 2
    return number.lower / 2, width if width > 0 else 1.0
