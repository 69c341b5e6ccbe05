"""Writes the rows that an estimator uploads, as the CSV of a declared schema."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from grovekeeper_client import rows
from grovekeeper_client.plain import Scalar, cells, plain

Columns: TypeAlias = dict[str, list[Scalar]]
"""PRIVATE cells by column; ``None`` is an empty cell."""

_LABEL = "label"


def of_numbers(
    X: Any, codes: Any, *, names: Sequence[str], bounds: tuple[float, float], classes: Sequence[Any]
) -> tuple[dict[str, Any], Columns]:
    """Schema and columns of rows of numbers.

    Args:
        X: PRIVATE numbers ``(n_rows, n_features)``; NaN is missing.
        codes: PRIVATE indices of classes ``(n_rows,)``.
        names: of the features; public.
        bounds: of every feature; public.
        classes: public.
    """
    lower, upper = map(float, bounds)
    features = [{"name": name, "type": "numeric", "lower": lower, "upper": upper, "missing": True} for name in names]
    texts = [str(plain(name)) for name in classes]
    label = next(name for name in (_LABEL, *(f"{_LABEL}{n}" for n in range(len(names)))) if name not in names)
    columns: Columns = {
        name: [None if math.isnan(cell) else cell for cell in column]
        for name, column in zip(names, X.T.astype(float).tolist(), strict=True)
    }
    columns[label] = [texts[code] for code in codes]
    return {"features": features, "label": {"name": label, "classes": texts}}, columns


def by_schema(X: Any, y: Any, schema: Mapping[str, Any]) -> Columns:
    """Columns of rows of any kind by a public schema.

    Raises:
        ValueError: the columns of ``X`` are not those of the schema, or ``y`` has another length or is ``None``.
        TypeError: a cell has a type that its feature does not take.
    """
    label = schema["label"]
    if y is None:
        raise ValueError("an upload requires y to be passed, but the target y is None")
    table = rows.read(X, schema)
    labels = cells({"name": label["name"], "type": "categorical", "categories": label["classes"]}, list(y))
    if len(labels) != table.n_rows:
        raise ValueError(f"X has {table.n_rows} rows and y has {len(labels)}")
    empty: list[Scalar] = [None] * table.n_rows
    columns = {feature["name"]: table.columns.get(feature["name"], empty) for feature in schema["features"]}
    return {**columns, label["name"]: labels}


def write(columns: Columns, file: Path) -> None:
    """Writes columns with a header; numbers keep every digit."""
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            writer.writerow(["" if cell is None else cell if isinstance(cell, str) else repr(cell) for cell in row])
