"""Makes a draft of a declaration from a data dictionary, and lists what the draft lacks.

A dictionary in one of three forms describes the columns: the schema of a declaration, metadata of CSV on the Web
(CSVW), or a table schema of Frictionless Data. What it does not say stays ``null`` in the draft, with a sentence that
says what belongs there. Nothing is ever read off rows: a bound or a list of categories that follows the rows would
publish facts about single people (docs/known-limits.md).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core import json_text, limits
from app.core.errors import TooLarge
from app.forests.data.schema import plain_number
from app.services.dictionaries import csvw, declared, frictionless
from app.services.dictionaries.columns import Column
from app.services.dictionaries.tables import NotADictionary, Table

_NO_ROWS = (
    "a declaration is made from a data dictionary in JSON, never from rows: bounds and categories that are read off "
    "rows publish facts about single people"
)
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)


@dataclass(frozen=True)
class Remark:
    """A sentence about one place of a draft; ``at`` is a JSON pointer."""

    at: str
    text: str


@dataclass(frozen=True)
class Draft:
    """A declaration with gaps.

    Attributes:
        declaration: the body of ``POST /datasets``, ``null`` where something is missing.
        lacking: what to fill in, one remark for every ``null``.
        to_confirm: what to look at: the draft is complete there, and may still be wrong.
        optional: what the draft leaves out and the declaration cannot get later.
    """

    declaration: dict[str, Any]
    lacking: tuple[Remark, ...]
    to_confirm: tuple[Remark, ...]
    optional: tuple[Remark, ...]


def draft_declaration(
    text: bytes,
    *,
    name: str | None = None,
    label: str | None = None,
    unit: str | None = None,
    table: str | None = None,
    also: Mapping[str, Any] | None = None,
) -> Draft:
    """Makes a draft from a data dictionary.

    Args:
        text: of the dictionary.
        name: of the dataset; by default the name in the dictionary.
        label: the column to predict; by default the label of the dictionary, if it has one.
        unit: the column that names a row's privacy unit, if rows are not the unit.
        table: which table to declare, if the dictionary describes several.
        also: members of the declaration that no dictionary has, such as the budget.

    Raises:
        NotADictionary: the text is CSV, JSON of another form, or describes no such column or table.
        TooLarge: more text, or more values, than a declaration may have.
    """
    described = _chosen(_tables(_parsed(text)), table)
    label = label or described.label
    columns = {column.name: column for column in described.columns}
    for asked in (label, unit):
        if asked is not None and asked not in columns:
            raise NotADictionary(f"the data dictionary has no column {asked}")
    features = [column for column in described.columns if column.name not in (label, unit)]
    given = {**(described.declared or {}), **(also or {})}
    if unit is not None:
        given["privacy_unit"] = {"column": unit, "max_rows": None}
    name = name or (described.name if _NAME.fullmatch(described.name) else None)
    declaration = {
        "name": name,
        "schema": {
            "features": [_feature(column) for column in features],
            "label": {"name": label, "classes": None if label is None else _list(columns[label].categories)},
        },
        "budget": None,
        **given,
    }
    lacking = [*_lacking(declaration, features, None if label is None else columns[label])]
    return Draft(declaration, tuple(lacking), tuple(_to_confirm(features)), tuple(_optional(declaration)))


def _parsed(text: bytes) -> dict[str, Any]:
    if len(text) > limits.MAX_DECLARATION_BODY_BYTES:
        raise TooLarge("the data dictionary in bytes", limits.MAX_DECLARATION_BODY_BYTES)
    try:
        json_text.check_nodes(text, limits.MAX_DECLARATION_BODY_NODES)
        value = json_text.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):  # out of the handler: the library's error quotes the text
        raise NotADictionary(_NO_ROWS)
    return value


def _tables(value: dict[str, Any]) -> Sequence[Table]:
    for described in (declared.tables(value), frictionless.tables(value), csvw.tables(value)):
        if described is not None:
            return described
    raise NotADictionary(
        "the JSON is no data dictionary: expected the schema of a declaration, CSVW metadata or a Frictionless table "
        "schema"
    )


def _chosen(tables: Sequence[Table], name: str | None) -> Table:
    chosen = [table for table in tables if name in (None, table.name)]
    if len(chosen) != 1:
        names = ", ".join(table.name or "(without a name)" for table in tables) or "none"
        raise NotADictionary(f"choose one of the tables that the data dictionary describes: {names}")
    return chosen[0]


def _feature(column: Column) -> dict[str, Any]:
    feature: dict[str, Any] = {"name": column.name, "type": column.type}
    if column.type == "categorical":
        feature |= {"categories": _list(column.categories), "ordered": column.ordered}
    elif column.type is not None:
        feature |= {"lower": _number(column.lower), "upper": _number(column.upper)}
    feature["missing"] = column.missing
    if column.type in ("numeric", "integer") and column.bounds is not None:
        feature["bounds"] = column.bounds
    return feature


def _lacking(declaration: dict[str, Any], features: Sequence[Column], label: Column | None) -> Iterator[Remark]:
    if declaration["name"] is None:
        yield Remark("/name", "a name for the dataset")
    for index, column in enumerate(features):
        yield from _lacking_of(column, f"/schema/features/{index}")
    if label is None:
        yield Remark("/schema/label/name", "the column to predict, which is then no feature")
    if label is None or label.categories is None:
        yield Remark("/schema/label/classes", "every class of the column to predict, as texts")
    if declaration["budget"] is None:
        yield Remark("/budget", 'the lifetime budget, such as {"accountant": "pure", "epsilon": "3"}')
    if declaration.get("privacy_unit", {}).get("max_rows", 1) is None:
        yield Remark("/privacy_unit/max_rows", "the most rows that one unit has; further rows are not stored")


def _lacking_of(column: Column, at: str) -> Iterator[Remark]:
    if column.type is None:
        described = f" (the dictionary says {column.described_as})" if column.described_as else ""
        yield Remark(
            f"{at}/type",
            f"{column.name}: numeric, integer or categorical{described}; or leave the column out, here and in the rows",
        )
    elif column.type == "categorical" and column.categories is None:
        spelled = f"; the dictionary allows {', '.join(column.spellings)}" if column.spellings else ""
        yield Remark(f"{at}/categories", f"{column.name}: every category, written as in the rows{spelled}")
    elif column.type != "categorical":
        if column.lower is None:
            yield Remark(f"{at}/lower", f"{column.name}: the smallest value that makes sense; smaller ones become it")
        if column.upper is None:
            yield Remark(f"{at}/upper", f"{column.name}: the largest value that makes sense; larger ones become it")


def _to_confirm(features: Sequence[Column]) -> Iterator[Remark]:
    for index, column in enumerate(features):
        if column.marks:
            yield Remark(
                f"/schema/features/{index}/missing",
                f"{column.name}: the dictionary writes a missing value as {', '.join(column.marks)}; in an upload only "
                "an empty cell is missing",
            )


def _optional(declaration: Mapping[str, Any]) -> Iterator[Remark]:
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


def _list(values: tuple[str, ...] | None) -> list[str] | None:
    return None if values is None else list(values)


def _number(value: float | None) -> float | int | None:
    return None if value is None else plain_number(value)
