"""Reads the cells of a column of a prediction request, in whatever form the request has them."""

import math
from collections.abc import Sequence
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from app.forests.data.schema import Feature

_JSON_NUMBERS: frozenset[type] = frozenset({int, float, type(None)})
_JSON_STRINGS: frozenset[type] = frozenset({str, type(None)})


def legal_types(feature: Feature) -> frozenset[type]:
    """The types of legal cells, an empty one included.

    Exact types, not their subclasses: in Python a bool is an int, but here it is neither a number nor a category.
    """
    return _JSON_STRINGS if feature.is_categorical else _JSON_NUMBERS


def codes_of(feature: Feature) -> dict[object, int]:
    """The codes of the declared categories and of an empty cell."""
    codes: dict[object, int] = {category: code for code, category in enumerate(feature.categories)}
    return codes | {None: feature.missing_code}


class Cells(Protocol):
    """The cells of one column."""

    def __len__(self) -> int:
        """Number of cells."""

    def of_other_types(self, feature: Feature) -> Sequence[int] | NDArray[np.intp]:
        """The rows whose cell is not empty and has no type of the feature, ascending."""

    def empty(self, feature: Feature) -> Sequence[int] | NDArray[np.intp]:
        """The rows whose cell is empty, ascending."""

    def numbers(self) -> NDArray[np.float64]:
        """The nearest floats, NaN for an empty cell, of a column whose cells are all of a number's type."""

    def codes(self, feature: Feature) -> NDArray[np.int32]:
        """The codes of categories, of a column whose cells are all of a category's type."""


class JsonCells:
    """Cells that are values of JSON."""

    def __init__(self, values: Sequence[object]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def of_other_types(self, feature: Feature) -> Sequence[int]:
        """See :class:`Cells`."""
        legal = legal_types(feature)
        if legal.issuperset(map(type, self._values)):
            return ()
        return [row for row, value in enumerate(self._values) if type(value) not in legal]

    def empty(self, _: Feature) -> Sequence[int]:
        """See :class:`Cells`."""
        return [row for row, value in enumerate(self._values) if value is None] if None in self._values else ()

    def numbers(self) -> NDArray[np.float64]:
        """See :class:`Cells`."""
        values = cast(Sequence[int | float | None], self._values)
        try:
            return np.array(values, dtype=np.float64)
        except OverflowError:
            return np.array([_float(value) for value in values], dtype=np.float64)

    def codes(self, feature: Feature) -> NDArray[np.int32]:
        """See :class:`Cells`."""
        codes, other = codes_of(feature), feature.other_code
        return np.array([codes.get(value, other) for value in self._values], dtype=np.int32)


class NumberCells:
    """Cells that are numbers of one array; NaN is an empty cell."""

    def __init__(self, values: NDArray[np.float64]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def of_other_types(self, feature: Feature) -> NDArray[np.intp]:
        """See :class:`Cells`."""
        return np.flatnonzero(~np.isnan(self._values)) if feature.is_categorical else np.empty(0, dtype=np.intp)

    def empty(self, _: Feature) -> NDArray[np.intp]:
        """See :class:`Cells`."""
        return np.flatnonzero(np.isnan(self._values))

    def numbers(self) -> NDArray[np.float64]:
        """See :class:`Cells`."""
        return self._values

    def codes(self, feature: Feature) -> NDArray[np.int32]:
        """See :class:`Cells`; no cell has a value."""
        return np.full(len(self), feature.missing_code, dtype=np.int32)


def _float(value: int | float | None) -> float:
    """A value as a float: an integer beyond the range of floats becomes an infinity, which is clamped later."""
    if value is None:
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
