"""Reads datasets of the accuracy benchmark (``<name>.csv.gz`` and ``<name>.json``) and
splits their rows.
"""

import csv
import gzip
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.data.sanitiser import (
    SanitisedColumns,
    codes_of_numbers,
    has_known_label,
    sanitise_codes,
    sanitise_numbers,
)
from grovekeeper_forests.data.schema import INTEGER, NUMBER, Feature, Schema

MANY_ROWS = 20_000
FIRST_SEED = 1_000
NUMBERS = "numbers"
"""Ends the name of a dataset whose categories are numbers."""
DECLARED = "declared"
"""Ends the name of a dataset whose unordered categories are a column of 0 and 1 for every
declared value, and none for other or missing values.
"""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A complete, sanitised table in memory.

    Attributes:
        name: name of the files.
        schema: public schema.
        columns: one array per feature.
        y: int32 ``(n_rows,)`` codes of classes or of numbers; rows with an undeclared
            label are dropped.
    """

    name: str
    schema: Schema
    columns: tuple[NDArray[Any], ...]
    y: NDArray[np.int32]

    @property
    def public_size(self) -> int:
        """The row count rounded to two significant digits, as an owner would declare
        it.
        """
        unit = 10 ** max(len(str(len(self.y))) - 2, 0)
        return max(round(len(self.y) / unit), 1) * unit

    @property
    def n_splits(self) -> int:
        """Number of splits in the protocol: 10 below 20,000 rows, else 5."""
        return 10 if len(self.y) < MANY_ROWS else 5

    def features(self, index: NDArray[np.int64]) -> SanitisedColumns:
        """The features of the rows at the given indices."""
        return SanitisedColumns(
            tuple(column[index] for column in self.columns), len(index)
        )


def names(folder: Path) -> list[str]:
    """Names of all datasets of a folder, in alphabetical order."""
    candidates = (path.name.removesuffix(".csv.gz") for path in folder.glob("*.csv.gz"))
    return sorted(name for name in candidates if (folder / f"{name}.json").is_file())


def split_of(n_rows: int, split: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of training and test rows: nine tenths and one tenth of a seeded
    permutation.
    """
    order = np.random.default_rng(FIRST_SEED + split).permutation(n_rows)
    n_test = round(n_rows / 10)
    return order[n_test:], order[:n_test]


def read(folder: Path, name: str) -> Dataset:
    """Reads a table by its public schema; undeclared values are clamped, OTHER or
    MISSING.

    A name ``file:column`` makes the column the label, a class or a number, and the
    documented label the last feature. A name ``file@numbers`` orders the values of
    every category as declared, so that they are numbers where trees compare numbers;
    ``file@declared`` turns every declared value of an unordered category into a column.
    """
    table, _, coding = name.partition("@")
    file, _, other_label = table.partition(":")
    declaration = json.loads((folder / f"{file}.json").read_text(encoding="utf-8"))
    label, features = declaration["label"], declaration["features"]
    if other_label:
        by_name = {feature["name"]: feature for feature in features}
        former = {
            "name": label["name"],
            "type": "categorical",
            "categories": label["classes"],
        }
        label = _as_label(by_name.pop(other_label))
        features = [*by_name.values(), former]
    if coding == NUMBERS:
        features = [
            {**feature, "ordered": True} if "categories" in feature else feature
            for feature in features
        ]
    schema = Schema.from_json({"features": features, "label": label})
    with gzip.open(
        folder / f"{file}.csv.gz", "rt", newline="", encoding="utf-8"
    ) as lines:
        reader = csv.reader(lines)
        header = next(reader)
        cells = dict(zip(header, zip(*reader, strict=True), strict=True))
    if schema.label.is_number:
        y = codes_of_numbers(schema.label, _numbers(cells[schema.label.name]))
    else:
        y = _codes(schema.label.classes, cells[schema.label.name])
    known = has_known_label(schema.label, y)
    columns = tuple(
        _column(feature, cells[feature.name])[known] for feature in schema.features
    )
    dataset = Dataset(name, schema, columns, y[known])
    return _with_declared_values(dataset) if coding == DECLARED else dataset


def _with_declared_values(dataset: Dataset) -> Dataset:
    """The table with a number, 0 or 1, for every declared value of an unordered
    category.
    """
    features: list[Feature] = []
    columns: list[NDArray[Any]] = []
    for feature, column in zip(dataset.schema.features, dataset.columns, strict=True):
        if not feature.is_categorical or feature.ordered:
            features.append(feature)
            columns.append(column)
            continue
        for code, value in enumerate(feature.categories):
            features.append(Feature(f"{feature.name}={value}", "integer", 0.0, 1.0))
            columns.append((column == code).astype(np.float64))
    schema = replace(dataset.schema, features=tuple(features))
    return replace(dataset, schema=schema, columns=tuple(columns))


def _as_label(feature: Mapping[str, Any]) -> dict[str, Any]:
    name = feature["name"]
    if "categories" in feature:
        return {"name": name, "classes": feature["categories"]}
    kind = INTEGER if feature["type"] == INTEGER else NUMBER
    bounds = {bound: feature[bound] for bound in ("lower", "upper")}
    return {"name": name, "type": kind, **bounds}


def _numbers(cells: Sequence[str]) -> NDArray[np.float64]:
    """Cells as numbers; NaN for an empty one."""
    return np.array([float(cell) if cell else math.nan for cell in cells])


def _column(feature: Feature, cells: Sequence[str]) -> NDArray[Any]:
    if feature.is_categorical:
        codes = _codes(feature.categories, cells)
        codes[np.array([cell == "" for cell in cells])] = feature.missing_code
        return sanitise_codes(feature, codes)
    return sanitise_numbers(feature, _numbers(cells))


def _codes(values: Sequence[str], cells: Iterable[str]) -> NDArray[np.int32]:
    code = {value: index for index, value in enumerate(values)}
    return np.array([code.get(cell, len(values)) for cell in cells], dtype=np.int32)
