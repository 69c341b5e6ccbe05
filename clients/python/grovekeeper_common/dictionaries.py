"""Makes a draft of a declaration from a data dictionary, and lists what the draft
lacks. Reads no rows and no database.

A dictionary is the schema of a declaration or a table schema of Frictionless Data. What
it does not say stays ``null`` in the draft, with a sentence that says what belongs
there. Nothing is ever read off rows: a bound or a list of categories that follows the
rows would publish facts about single people (docs/known-limits.md).

The numbers of a declaration are those of the service, where a test compares them.
"""

import codecs
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from grovekeeper_common import identifier_names, strict_json
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_common.number_text import BLANKS, is_number

_NO_ROWS = (
    "a declaration is made from a data dictionary in JSON, never from rows: bounds and categories that are read off "
    "rows publish facts about single people"
)
_OTHER_FORM = (
    "the JSON is no data dictionary: expected the schema of a declaration or a Frictionless table schema, alone, in a "
    "resource or in a package"
)
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)
_DECIMAL = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII
)
_FURTHER = (
    "budget",
    "privacy_unit",
    "protects",
    "partitions",
    "public_size",
    "population",
)
_BOUNDS_NOTES = ("documented", "natural", "rounded-from-data")
_TRUTH_VALUES = ["false", "False", "FALSE", "0", "true", "True", "TRUE", "1"]

MAX_BYTES = 16 * 1024 * 1024
"""Bytes of a declaration."""

MAX_NODES = 600_000
"""Values and names of members in a declaration."""


class NotADictionary(ValueError):
    """A file is no data dictionary, or one that names no table that can be declared.
    ``str()`` says why.
    """


@dataclass(eq=False)
class DictionaryTooLarge(ValueError):
    """A data dictionary is over a limit of declarations."""

    what: str
    limit: int

    def __str__(self) -> str:
        return f"{self.what} is over the limit of {self.limit}"


@dataclass(frozen=True)
class Remark:
    """A sentence about one place of a draft; ``at`` is a JSON pointer."""

    at: str
    text: str


@dataclass(frozen=True)
class Draft:
    """A declaration with gaps.

    Attributes:
        declaration: the body of ``POST /datasets``, ``null`` where something is
            missing.
        lacking: what to fill in, one remark for every ``null``.
        to_confirm: what to look at: the draft is complete there, and may still be
            wrong.
        optional: what the draft leaves out and the declaration cannot get later.
    """

    declaration: JsonObject
    lacking: tuple[Remark, ...]
    to_confirm: tuple[Remark, ...]
    optional: tuple[Remark, ...]


@dataclass(frozen=True)
class _Column:
    """A column of a table.

    Attributes:
        feature: the column as a feature of a declaration, ``None`` where the dictionary
            does not say.
        hint: what the dictionary says about a type or categories that a declaration
            cannot have.
    """

    feature: JsonObject
    hint: str = ""


@dataclass(frozen=True)
class _Table:
    """A table of a dictionary.

    Attributes:
        labels: by name, the points that cut each label into classes, if it has numbers.
        missing_values: texts that stand for an empty cell, as the dictionary has them.
        declared: members of a declaration where the dictionary is one.
    """

    name: str
    columns: list[_Column]
    labels: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    missing_values: Sequence[object] = ()
    declared: JsonObject = field(default_factory=dict)


def draft_declaration(
    text: bytes,
    *,
    name: str | None = None,
    labels: Mapping[str, Sequence[float]] | None = None,
    unit: str | None = None,
    table: str | None = None,
    also: JsonMapping | None = None,
) -> Draft:
    """Makes a draft from a data dictionary.

    Args:
        name: of the dataset; by default the name in the dictionary.
        labels: the columns to predict, each with the points that cut it into classes
            if it has numbers; by default the labels of the dictionary, if it has any.
        unit: the column that names a row's privacy unit, if rows are not the unit.
        also: members of the declaration that no dictionary has, such as the budget.

    Raises:
        NotADictionary: the text is CSV, JSON of another form, or describes no such
            column or table.
        DictionaryTooLarge: more text, or more values, than a declaration may have.
    """
    described = _chosen(_tables(_parsed(text)), table)
    labels = described.labels if labels is None else labels
    columns = {column.feature["name"]: column for column in described.columns}
    for name_of_column in (*labels, unit):
        if name_of_column is not None and name_of_column not in columns:
            raise NotADictionary(f"the data dictionary has no column {name_of_column}")
    features = [
        column
        for column in described.columns
        if column.feature["name"] not in (*labels, unit)
    ]
    predicted: list[JsonObject] = []
    for label, points in labels.items():
        cuts = points or described.labels.get(label)
        predicted.append(_label(columns[label].feature, cuts))
    stated: JsonObject = {"label": {"name": None, "classes": None}}
    if len(predicted) > 1:
        stated = {"labels": predicted}
    elif predicted:
        stated = {"label": predicted[0]}
    missing_values, left_out = _missing_values(described.missing_values)
    declaration = {
        "name": name or (described.name if _NAME.fullmatch(described.name) else None),
        "schema": {
            "features": [column.feature for column in features],
            **stated,
            **({"missing_values": missing_values} if missing_values else {}),
        },
        "budget": None,
        **described.declared,
        **(also or {}),
    }
    if unit is not None:
        declaration["privacy_unit"] = {"column": unit, "max_rows": None}
    return Draft(
        declaration,
        tuple(_lacking(declaration, features)),
        (
            *_of_missing_values(missing_values, left_out),
            *_of_forms(features),
        ),
        tuple(_optional(declaration)),
    )


def _label(column: JsonMapping, cuts: Sequence[Any] | None) -> JsonObject:
    """A column of a dictionary as the label of a declaration; a column of numbers that
    nothing cuts is predicted as a number.
    """
    name = column["name"]
    if cuts:
        return {"name": name, "cuts": list(cuts)}
    kind = {"numeric": "number", "integer": "integer"}.get(column["type"])
    if kind is not None:
        lower = column.get("lower")
        upper = column.get("upper")
        return {"name": name, "type": kind, "lower": lower, "upper": upper}
    return {"name": name, "classes": column.get("categories")}


def _missing_values(given: Sequence[object]) -> tuple[list[str], list[str]]:
    """The texts of a dictionary that stand for an empty cell in a declaration, and those
    that cannot, because they are numbers. An empty text does so anyway.
    """
    texts = [text.strip(BLANKS) for text in given if isinstance(text, str)]
    distinct = list(filter(None, dict.fromkeys(texts)))
    numbers = [
        *filter(is_number, distinct),
        *(_text(value) for value in given if isinstance(value, int | float)),
    ]
    return [text for text in distinct if text not in numbers], numbers


def _of_missing_values(
    kept: Sequence[str], left_out: Sequence[str]
) -> Iterator[Remark]:
    if kept:
        yield Remark(
            "/schema/missing_values",
            f"a cell with one of these texts is read as empty, in every column: {', '.join(kept)}",
        )
    if left_out:
        yield Remark(
            "/schema/missing_values",
            f"a number cannot stand for a missing value, and was left out: {', '.join(left_out)}; leave such cells "
            "empty in the rows",
        )


def _of_forms(features: Sequence[_Column]) -> Iterator[Remark]:
    for index, column in enumerate(features):
        if column.feature["type"] == "date" and column.hint:
            yield Remark(
                f"/schema/features/{index}/type",
                f"{column.feature['name']}: dates of the rows are written as 2024-02-29{column.hint}",
            )


def _parsed(text: bytes) -> JsonObject:
    if len(text) > MAX_BYTES:
        raise DictionaryTooLarge("the data dictionary in bytes", MAX_BYTES)
    if strict_json.has_more_nodes(text, MAX_NODES):
        what = "the number of values and names in the body"
        raise DictionaryTooLarge(what, MAX_NODES)
    try:
        value = strict_json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    # Out of the handler: the library's error quotes the text.
    if value is None and text.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"{":
        fault = strict_json.fault(text)
        raise NotADictionary(f"the data dictionary is not JSON: {fault}")
    raise NotADictionary(_NO_ROWS)


def _chosen(tables: Sequence[_Table], name: str | None) -> _Table:
    chosen = [table for table in tables if name in (None, table.name)]
    if len(chosen) != 1:
        names = (
            ", ".join(table.name or "(without a name)" for table in tables) or "none"
        )
        raise NotADictionary(
            f"choose one of the tables that the data dictionary describes: {names}"
        )
    return chosen[0]


def _tables(value: JsonObject) -> list[_Table]:
    """The table of a declaration or its schema, or those of a Frictionless schema,
    resource or package.
    """
    schema = value if "features" in value else _object(value.get("schema"))
    if "features" in schema:
        stated = _object(schema.get("label"))
        if "labels" in schema:
            several = _objects(schema, "labels")
        else:
            several = [stated]
        columns = list(map(_of_declaration, _objects(schema, "features")))
        labels = {_name(label): _list(label.get("cuts")) for label in several if label}
        for label in filter(None, several):
            column = _Column(_categorical(label, label.get("classes")))
            if label.get("type") == "integer":
                column = _of_declaration(label)
            elif label.get("cuts") or label.get("type") == "number":
                column = _of_declaration({**label, "type": "numeric"})
            columns.append(column)
        declared = {name: value[name] for name in _FURTHER if name in value}
        marks = _list(schema.get("missing_values"))
        return [_Table(_name(value), columns, labels, marks, declared)]
    if "resources" in value:
        return [
            _of_resource(resource)
            for resource in _objects(value, "resources")
            if "schema" in resource
        ]
    if "fields" in value:
        return [_of_resource({"name": value.get("name"), "schema": value})]
    if isinstance(value.get("schema"), str) or "fields" in schema:
        return [_of_resource(value)]
    raise NotADictionary(_OTHER_FORM)


def _of_resource(resource: JsonMapping) -> _Table:
    """The table of a Frictionless resource, whose rows are not looked at."""
    schema = resource["schema"]
    if not isinstance(schema, dict):
        raise NotADictionary("the table schema is in another file: convert that file")
    fields = _objects(schema, "fields")
    columns = list(map(_of_field, fields))
    # those of a field are of the whole declaration, too, which a remark says
    marks = [
        _unlabelled(mark)
        for described in (schema, *fields)
        for mark in _list(described.get("missingValues"))
    ]
    return _Table(_name(resource), columns, missing_values=marks)


def _of_declaration(given: JsonMapping) -> _Column:
    kind = given.get("type")
    missing = given.get("missing") is True
    categories = given.get("categories")
    if kind == "categorical" or (kind is None and isinstance(categories, list)):
        ordered = given.get("ordered") is True
        return _Column(
            _categorical(given, categories, ordered=ordered, missing=missing)
        )
    if kind not in ("numeric", "integer", "date"):
        return _Column({"name": _name(given), "type": None, "missing": missing})
    read: Callable[[object], object] = _number
    if kind == "date":
        read = _day
    bounds = {name: read(given.get(name)) for name in ("lower", "upper")}
    note = {}
    if given.get("bounds") in _BOUNDS_NOTES:
        note = {"bounds": given["bounds"]}
    return _Column(
        {"name": _name(given), "type": kind, **bounds, "missing": missing, **note}
    )


def _of_field(given: JsonMapping) -> _Column:
    kind = _text(given.get("type", "string"))
    rules = _object(given.get("constraints"))
    missing = not rules.get("required", False)
    values = given.get("categories", rules.get("enum"))
    hint = ""
    if kind == "boolean" and not isinstance(values, list):
        false_texts = _list(given.get("falseValues"))
        true_texts = _list(given.get("trueValues"))
        # Several texts of one truth value would be several categories: the owner says
        # which of them the rows have.
        values = None
        if len(false_texts) == len(true_texts) == 1:
            values = [*false_texts, *true_texts]
        texts = [*false_texts, *true_texts] or _TRUTH_VALUES
        hint = f"; the dictionary allows {', '.join(map(_text, texts))}"
    if isinstance(values, list) or kind in ("boolean", "string"):
        ordered = bool(given.get("categoriesOrdered"))
        return _Column(
            _categorical(given, values, ordered=ordered, missing=missing), hint
        )
    if kind == "date":
        return _of_dates(given, rules, missing=missing)
    if kind not in ("integer", "year", "number"):
        return _Column(
            {"name": _name(given), "type": None, "missing": missing},
            f" (the dictionary says {kind})",
        )
    is_integer = kind != "number"
    lower = _bound(
        rules.get("minimum"),
        rules.get("exclusiveMinimum"),
        step=1,
        is_integer=is_integer,
    )
    upper = _bound(
        rules.get("maximum"),
        rules.get("exclusiveMaximum"),
        step=-1,
        is_integer=is_integer,
    )
    feature = {
        "name": _name(given),
        "type": "integer" if is_integer else "numeric",
        "lower": lower,
        "upper": upper,
    }
    return _Column({**feature, "missing": missing, "bounds": "documented"})


def _of_dates(given: JsonMapping, rules: JsonMapping, *, missing: bool) -> _Column:
    """A column of dates."""
    first = rules.get("minimum")
    last = rules.get("maximum")
    feature = {
        "name": _name(given),
        "type": "date",
        "lower": _day(first),
        "upper": _day(last),
        "missing": missing,
        "bounds": "documented",
    }
    form = given.get("format")
    if form in (None, "default", "%Y-%m-%d"):
        return _Column(feature)
    return _Column(feature, f" (the dictionary says {_text(form)})")


def _day(value: object) -> str | None:
    """A date of the form 2024-02-29; ``None`` for anything else."""
    try:
        return date.fromisoformat(str(value)).isoformat()
    except ValueError:
        return None


def _categorical(
    given: JsonMapping,
    values: object,
    *,
    ordered: bool = False,
    missing: bool = False,
) -> JsonObject:
    """A categorical feature. An empty text among its values, which may have labels,
    stands for a missing value.
    """
    texts: dict[str, None] = {}  # each once, in their order
    for value in _list(values):
        text = _text(_unlabelled(value))
        texts[text] = None
    return {
        "name": _name(given),
        "type": "categorical",
        "categories": [text for text in texts if text] or None,
        "ordered": ordered,
        "missing": missing or "" in texts,
    }


def _bound(
    closed: object, beyond: object, *, step: int, is_integer: bool
) -> float | int | None:
    """A closed bound: the neighbour of an open bound of integers, and an open bound of
    other numbers itself.
    """
    bounds = [(_number(closed), 0), (_number(beyond), step if is_integer else 0)]
    kept = [
        bound + by
        for bound, by in bounds
        if bound is not None and not (is_integer and bound % 1)
    ]
    if not kept:
        return None
    narrowest = max(kept) if step > 0 else min(kept)
    return _plain(float(narrowest))


def _number(value: object) -> float | int | None:
    """A bound, which a dictionary may write as text; ``None`` if it is no finite
    number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
        return None
    try:
        converted = float(value)
    except OverflowError:
        return None
    return _plain(converted) if math.isfinite(converted) else None


def _lacking(declaration: JsonObject, features: Sequence[_Column]) -> Iterator[Remark]:
    schema = declaration["schema"]
    if declaration["name"] is None:
        yield Remark("/name", "a name for the dataset")
    for index, column in enumerate(features):
        sentences = {
            "type": f"numeric, integer, date or categorical{column.hint}; or leave the column out, here and in the "
            "rows",
            "categories": f"every category, written as in the rows{column.hint}",
            "lower": "the smallest value that makes sense; smaller ones become it",
            "upper": "the largest value that makes sense; larger ones become it",
        }
        for member, sentence in sentences.items():
            if member in column.feature and column.feature[member] is None:
                yield Remark(
                    f"/schema/features/{index}/{member}",
                    f"{column.feature['name']}: {sentence}",
                )
    at = "/schema/label"
    for index, label in enumerate(schema.get("labels") or [schema["label"]]):
        if "labels" in schema:
            at = f"/schema/labels/{index}"
        yield from _lacking_of_label(label, at)
    if declaration["budget"] is None:
        yield Remark(
            "/budget",
            'the lifetime budget, such as {"accountant": "pure", "epsilon": "3"}',
        )
    if _object(declaration.get("privacy_unit")).get("max_rows", 1) is None:
        yield Remark(
            "/privacy_unit/max_rows",
            "the most rows that one unit has; further rows are not stored",
        )


def _lacking_of_label(label: JsonMapping, at: str) -> Iterator[Remark]:
    if label["name"] is None:
        yield Remark(f"{at}/name", "the column to predict, which is then no feature")
    if label.get("classes", ()) is None:
        yield Remark(
            f"{at}/classes",
            'every class of the column to predict, as texts; or, in place of "classes", "cuts": the points that '
            'cut its numbers into classes, such as [3, 7]; or "type": "number" with "lower" and "upper"',
        )
    for bound in ("lower", "upper"):
        if label.get(bound, 0) is None:
            yield Remark(
                f"{at}/{bound}",
                f"{label['name']}: a public bound of the numbers to predict; numbers beyond count as the bound",
            )


def _optional(declaration: JsonMapping) -> Iterator[Remark]:
    names = [str(feature["name"]) for feature in declaration["schema"]["features"]]
    unit = _object(declaration.get("privacy_unit")).get("column")
    for sentence in identifier_names.warnings_of(names, unit=unit):
        yield Remark("/privacy_unit", sentence)
    if declaration.get("public_size") is None:
        yield Remark(
            "/public_size",
            "a round number of rows that you are willing to publish, such as 5000; without it, forests are sized for "
            "a small table",
        )
    if not declaration.get("partitions"):
        yield Remark(
            "/partitions",
            'cells, such as {"name": "shard", "kind": "hash", "cells": 5}, so that a model can be measured on rows '
            "that it was not trained on",
        )


def _objects(value: JsonMapping, name: str) -> list[JsonObject]:
    items = value.get(name)
    if isinstance(items, list) and all(isinstance(item, dict) for item in items):
        return items
    raise NotADictionary(f'"{name}" in the data dictionary is not a list of objects')


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _name(value: JsonMapping) -> str:
    return _text(value.get("name") or "")


def _unlabelled(value: object) -> object:
    """A value of a list, which may be an object with the value and its label."""
    return value.get("value") if isinstance(value, dict) else value


def _text(value: object) -> str:
    """A value of a dictionary as a cell of the rows shows it; null is an empty cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(_plain(value) if isinstance(value, float) else value)


def _plain(value: float) -> float | int:
    """A number as people write it: without a fraction where it has none."""
    if value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
