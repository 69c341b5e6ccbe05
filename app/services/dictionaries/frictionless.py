"""Reads table schemas of Frictionless Data: a table schema alone, a resource, or a package of resources."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.services.dictionaries.columns import Column, category_column, number_column, text
from app.services.dictionaries.tables import NotADictionary, Table, items, listed, member, name_of

_NUMBERS = {"integer": True, "year": True, "number": False}
"""Types of numbers, and whether they are whole."""


def tables(value: Mapping[str, Any]) -> list[Table] | None:
    """The tables of a package, a resource or a table schema; ``None`` if the value is none of them.

    Rows that a resource holds are not looked at.

    Raises:
        NotADictionary: a table schema is in another file, or broken.
    """
    if "resources" in value:
        resources = [resource for resource in listed(value, "resources") if "schema" in resource]
        return [_of_resource(resource) for resource in resources]
    if "fields" in value:
        return [Table(name_of(value), _columns(value))]
    if isinstance(value.get("schema"), str) or "fields" in member(value, "schema"):
        return [_of_resource(value)]
    return None


def _of_resource(resource: Mapping[str, Any]) -> Table:
    schema = resource["schema"]
    if not isinstance(schema, dict):
        raise NotADictionary("the table schema is in another file: convert that file")
    return Table(name_of(resource), _columns(schema))


def _columns(schema: Mapping[str, Any]) -> tuple[Column, ...]:
    marks = tuple(text(mark) for mark in items(schema.get("missingValues")) if isinstance(mark, str) and mark)
    return tuple(_column(field, marks) for field in listed(schema, "fields"))


def _column(field: Mapping[str, Any], marks: tuple[str, ...]) -> Column:
    name, kind, limits = name_of(field), text(field.get("type", "string")), member(field, "constraints")
    missing = not limits.get("required", False)
    marks = marks if missing else ()
    values = _values(field, limits)
    if values is not None:
        is_ordered = bool(field.get("categoriesOrdered", False))
        return replace(category_column(name, values, ordered=is_ordered, missing=missing), marks=marks)
    if kind in _NUMBERS:
        column = number_column(
            name,
            is_integer=_NUMBERS[kind],
            least=(limits.get("minimum"), limits.get("exclusiveMinimum")),
            most=(limits.get("maximum"), limits.get("exclusiveMaximum")),
            missing=missing,
        )
        return replace(column, marks=marks)
    if kind == "boolean":
        return replace(_boolean(name, field, missing=missing), marks=marks)
    if kind == "string":
        return replace(category_column(name, None, missing=missing), marks=marks)
    return Column(name, None, missing=missing, bounds=None, described_as=kind, marks=marks)


def _values(field: Mapping[str, Any], limits: Mapping[str, Any]) -> list[object] | None:
    """The values that a field lists: its categories, with or without labels, or the values of a constraint."""
    values = field.get("categories", limits.get("enum"))
    if not isinstance(values, list):
        return None
    return [value.get("value") if isinstance(value, dict) else value for value in values]


def _boolean(name: str, field: Mapping[str, Any], *, missing: bool) -> Column:
    """A column of two values, if the dictionary allows one way to write each of them."""
    values = [field.get(which) for which in ("falseValues", "trueValues")]
    if all(isinstance(spelled, list) and len(spelled) == 1 for spelled in values):
        return category_column(name, [spelled[0] for spelled in values if spelled], missing=missing)
    spellings = tuple(text(way) for spelled in values for way in items(spelled))
    spellings = spellings or ("false", "False", "FALSE", "0", "true", "True", "TRUE", "1")
    return replace(category_column(name, None, missing=missing), spellings=spellings)
