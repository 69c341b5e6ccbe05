"""Names the columns of a file of rows by the declaration of its dataset, and writes them
as CSV.
"""

import csv
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, TextIO, TypeAlias

from grovekeeper_common.declared_labels import labels_of
from grovekeeper_common.json_types import JsonMapping, JsonObject

Scalar: TypeAlias = str | int | float | bool | None

Feature: TypeAlias = Mapping[str, Any]
"""A feature of the public schema, as a model card shows it."""

Columns: TypeAlias = dict[str, Sequence[Scalar | date]]
"""PRIVATE cells by column; ``None`` is an empty cell."""

_MISSING = "MISSING"
_OTHER = "OTHER"
"""Cells of a partition that are no categories."""


def declared_columns(facts: JsonMapping) -> list[Feature]:
    """The columns of a file of rows, but for the unit column: features, labels and
    the columns of partitions, these two as columns of categories. A label that is cut
    has numbers, and ``cuts``; one that is a number has numbers, and its bounds.

    Args:
        facts: answer of ``GET /datasets/{id}``.
    """
    schema = facts["schema"]
    labels = list(map(label_column, labels_of(schema)))
    further = []
    for partition in facts["partitions"]:
        if partition["kind"] == "column" and not partition["feature"]:
            cells = partition["cells"]
            column = _of_categories(partition["column"], categories_of(cells))
            further.append({**column, "missing": _MISSING in cells})
    return [*schema["features"], *labels, *further]


def label_column(label: JsonMapping) -> JsonObject:
    """A label as a column of a file."""
    if label.get("cuts"):
        return {"name": label["name"], "type": "numeric", "cuts": label["cuts"]}
    if label.get("type") == "number":
        return {**label, "type": "numeric"}
    if label.get("type") == "integer":
        return dict(label)
    return _of_categories(label["name"], label["classes"])


def _of_categories(name: str, categories: Sequence[str]) -> JsonObject:
    return {"name": name, "type": "categorical", "categories": categories}


def categories_of(cells: Sequence[str]) -> list[str]:
    """The declared categories among the cells of a partition."""
    return [cell for cell in cells if cell not in (_MISSING, _OTHER)]


def write(columns: Columns, stream: TextIO) -> None:
    """Writes columns as CSV with a header; numbers keep every digit."""
    writer = csv.writer(stream)
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow(map(_text, row))


def _text(cell: Scalar | date) -> str:
    if cell is None:
        return ""
    if isinstance(cell, str | date):
        return str(cell)
    return repr(cell)
