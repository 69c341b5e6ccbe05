"""Reads metadata of CSV on the Web (CSVW): a table, a group of tables, or a schema of a table."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from app.services.dictionaries.columns import Column, category_column, number_column, text
from app.services.dictionaries.tables import NotADictionary, Table, listed

_INTEGERS = {
    "integer", "int", "long", "short", "byte", "gYear", "nonNegativeInteger", "positiveInteger", "nonPositiveInteger",
    "negativeInteger", "unsignedLong", "unsignedInt", "unsignedShort", "unsignedByte",
}  # fmt: skip
_NUMBERS = {"number", "decimal", "double", "float"}
_LEAST = {"positiveInteger": 1, **dict.fromkeys(("nonNegativeInteger", *(t for t in _INTEGERS if "unsigned" in t)), 0)}
_MOST = {"nonPositiveInteger": 0, "negativeInteger": -1}
_TEXTS = {"string", "normalizedString", "token", "Name", "NMTOKEN", "language"}
_ALTERNATIVES = re.compile(r"\^?\(?([\w -]+(?:\|[\w -]+)+)\)?\$?")
"""A pattern that only lists texts."""


def tables(value: Mapping[str, Any]) -> list[Table] | None:
    """The tables of a group, a table or a schema; ``None`` if the value is none of them.

    Raises:
        NotADictionary: a schema is in another file, or broken.
    """
    if "tables" in value:
        return [_table(table, value) for table in listed(value, "tables")]
    if "tableSchema" in value or "columns" in value:
        return [_table(value, {})]
    return None


def _table(table: Mapping[str, Any], group: Mapping[str, Any]) -> Table:
    schema = table.get("tableSchema", group.get("tableSchema", table))
    if not isinstance(schema, dict):
        raise NotADictionary("the schema of the table is in another file: convert that file")
    inherited = {**group, **table, **schema}
    columns = [column for column in listed(schema, "columns") if not column.get("virtual", False)]
    name = PurePosixPath(text(table.get("url", ""))).stem
    return Table(name, tuple(_column(column, inherited) for column in columns))


def _column(column: Mapping[str, Any], inherited: Mapping[str, Any]) -> Column:
    name, datatype = _name(column), column.get("datatype", inherited.get("datatype", "string"))
    kind = datatype if isinstance(datatype, dict) else {"base": datatype}
    base, missing = text(kind.get("base", "string")), not column.get("required", inherited.get("required", False))
    marks = _marks(column.get("null", inherited.get("null", ""))) if missing else ()
    if base in _INTEGERS | _NUMBERS:
        numbers = number_column(
            name,
            is_integer=base in _INTEGERS,
            least=(kind.get("minimum", kind.get("minInclusive", _LEAST.get(base))), kind.get("minExclusive")),
            most=(kind.get("maximum", kind.get("maxInclusive", _MOST.get(base))), kind.get("maxExclusive")),
            missing=missing,
        )
        return replace(numbers, marks=marks)
    written = kind.get("format")
    if base == "boolean":
        return replace(_boolean(name, written, missing=missing), marks=marks)
    if base in _TEXTS:
        alternatives = _ALTERNATIVES.fullmatch(written) if isinstance(written, str) else None
        values: list[object] | None = None if alternatives is None else [*alternatives[1].split("|")]
        return replace(category_column(name, values, missing=missing), marks=marks)
    return Column(name, None, missing=missing, bounds=None, described_as=base, marks=marks)


def _boolean(name: str, written: object, *, missing: bool) -> Column:
    """A column of two values: a format such as ``Y|N`` says how true and false are written."""
    if isinstance(written, str) and written.count("|") == 1:
        return category_column(name, [*reversed(written.split("|"))], missing=missing)
    return replace(category_column(name, None, missing=missing), spellings=("false", "0", "true", "1"))


def _name(column: Mapping[str, Any]) -> str:
    """The header of a column: its first title, else its name. Titles can be a text, a list, or lists by language."""
    titles = column.get("titles")
    if isinstance(titles, dict):
        titles = next(iter(titles.values()), None)
    if isinstance(titles, list):
        titles = titles[0] if titles else None
    return text(titles if isinstance(titles, str) and titles else column.get("name", ""))


def _marks(null: object) -> tuple[str, ...]:
    return tuple(text(mark) for mark in (null if isinstance(null, list) else [null]) if mark)
