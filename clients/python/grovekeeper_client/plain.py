"""Converts cells and parameters of NumPy, pandas and Arrow to values of JSON, without loss."""

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, TypeAlias

Scalar: TypeAlias = str | int | float | bool | None
Feature: TypeAlias = Mapping[str, Any]
"""A feature of the public schema, as a model card shows it."""

_MISSING_TYPES = ("NAType", "NaTType")
"""Types of ``pandas.NA`` and ``pandas.NaT``, by name, because pandas may not be installed."""


def plain(value: Any) -> Any:
    """A value with lists, mappings and scalars of Python alone, for parameters and scopes."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | range):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # an array, or a scalar of NumPy
        return value.tolist()
    return value


def cells(feature: Feature, column: Sequence[Any]) -> list[Scalar]:
    """The cells of a column as the API reads them: ``None``, NaN, NaT and NA are missing.

    Numbers of a categorical feature become the text of a declared category where one has that value: 1, 1.0 and
    ``True`` become ``"1"`` if ``"1"`` is declared. Infinities become the bound to which the service would clamp them.

    Raises:
        TypeError: a cell has a type that the feature does not take. The message names the column and the type.
    """
    convert = _category(feature) if feature["type"] == "categorical" else _number(feature)
    try:
        return [None if is_missing(cell) else convert(cell) for cell in column]
    except TypeError as error:
        raise TypeError(f"column {feature['name']!r}: {error}") from None


def is_missing(cell: Any) -> bool:
    """Whether a cell is ``None``, NaN, NaT or NA."""
    if cell is None or type(cell).__name__ in _MISSING_TYPES:
        return True
    return bool(isinstance(cell, Real | Decimal) and cell != cell) or _is_numpy_nat(cell)


def _is_numpy_nat(cell: Any) -> bool:
    return type(cell).__name__ in ("datetime64", "timedelta64") and bool(cell != cell)


def _number(feature: Feature) -> Callable[[Any], int | float]:
    lower, upper = feature["lower"], feature["upper"]

    def convert(cell: Any) -> int | float:
        value = _python_scalar(cell)
        if isinstance(value, Integral):
            return int(value)
        if isinstance(value, Real | Decimal):
            number = float(value)
            if math.isinf(number):
                return upper if number > 0 else lower  # type: ignore[no-any-return]
            return number
        raise TypeError(f"a number is needed, not {type(cell).__name__}")

    return convert


def _category(feature: Feature) -> Callable[[Any], str]:
    declared = frozenset(feature["categories"])

    def convert(cell: Any) -> str:
        value = _python_scalar(cell)
        if isinstance(value, str):
            return str(value)
        if not isinstance(value, Real | Decimal):
            raise TypeError(f"text or a number is needed, not {type(cell).__name__}")
        texts = _texts(value)
        return next((text for text in texts if text in declared), texts[0])

    return convert


def _texts(value: Any) -> list[str]:
    """Texts of a number or a truth value, the usual text first."""
    if isinstance(value, bool):
        return [str(value), str(value).lower(), str(int(value))]
    if isinstance(value, Integral):
        return [str(int(value)), f"{int(value)}.0"]
    integral = [str(int(value))] if math.isfinite(value) and value == int(value) else []
    return [*integral, str(value)]


def _python_scalar(cell: Any) -> Any:
    return cell.item() if hasattr(cell, "item") else cell
