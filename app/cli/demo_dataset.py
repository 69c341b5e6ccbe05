"""Loads the dataset of the demo: rows to upload, and rows to measure accuracy on."""

import csv
import gzip
import io
import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from app.cli import prediction_rows

TITLE = "Adult (Census Income), Becker & Kohavi 1996, UCI Machine Learning Repository, CC BY 4.0"
_HELD_OUT_PART = 10


@dataclass(frozen=True)
class DemoDataset:
    """Adult, from the package.

    Attributes:
        schema: the public schema, as the owner declares it.
        n_uploaded: number of uploaded rows.
        held_out: rows that are not uploaded, in the form of ``/predict``.
        held_out_labels: the true labels of ``held_out``.
    """

    schema: dict[str, Any]
    n_uploaded: int
    held_out: prediction_rows.Rows
    held_out_labels: list[str]

    @property
    def public_size(self) -> int:
        """The number of uploaded rows to two significant digits: what an owner may publish before the first row."""
        unit: int = 10 ** (len(str(self.n_uploaded)) - 2)
        return self.n_uploaded // unit * unit


def load(upload_to: Path) -> DemoDataset:
    """Reads the dataset and writes the part to upload to a file, as gzip CSV."""
    folder = resources.files("app.cli") / "demo_data"
    schema = json.loads((folder / "adult.json").read_text(encoding="utf-8"))
    text = gzip.decompress((folder / "adult.csv.gz").read_bytes()).decode("utf-8")
    header, *lines = text.splitlines(keepends=True)
    n_uploaded = len(lines) - len(lines) // _HELD_OUT_PART
    upload_to.write_bytes(gzip.compress((header + "".join(lines[:n_uploaded])).encode("utf-8"), mtime=0))
    held_out = header + "".join(lines[n_uploaded:])
    labels = [row[schema["label"]["name"]] for row in csv.DictReader(io.StringIO(held_out))]
    return DemoDataset(schema, n_uploaded, prediction_rows.from_csv(io.StringIO(held_out), schema), labels)
