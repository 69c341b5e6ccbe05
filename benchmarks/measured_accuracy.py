"""Collects the committed accuracies of ``docs/results`` in the file from which quotes show an expected accuracy.

Reads the runs of the flagships, the accuracy tables of the other algorithms' pages at their default parameters,
the sizes in ``docs/results/tables.csv``, and the reference runs of the largest class and of a forest without privacy.
Run from the project's folder after a new measurement; a test holds the file equal to its sources::

    python -m benchmarks.measured_accuracy
"""

import csv
import json
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.forests.expected_accuracy import MEASUREMENTS
from benchmarks.leads import our_runs
from benchmarks.runs import Task

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PEERS = Path(__file__).with_name("reference") / "peers.csv"
PAGES = ("first-families.md", "papers.md", "semi-supervised.md")
FLAGSHIPS = ("rpf", "nbrt@gdp")

_EPSILON = re.compile(r"ε = ([0-9.]+)")
_MEAN = re.compile(r"([0-9.]+) ± ")


def collected() -> dict[str, Any]:
    """The facts and accuracies of every table, by name."""
    accuracies: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for table, algorithm, epsilon, accuracy in (*_of_flagships(), *_of_pages()):
        accuracies[table][_run(algorithm)].setdefault(epsilon, accuracy)
    with (RESULTS / "tables.csv").open(newline="") as file:
        return {row["dataset"]: _facts(row, accuracies[row["dataset"]]) for row in csv.DictReader(file)}


def _facts(row: dict[str, str], accuracy: dict[str, dict[str, float]]) -> dict[str, Any]:
    numeric, categorical = int(row["numeric_columns"]), int(row["categorical_columns"])
    return {
        "rows": int(row["rows"]),
        "classes": int(row["classes"]),
        "numeric_share": round(numeric / (numeric + categorical), 4),
        "majority": _reference(row["dataset"], "majority"),
        "forest": _reference(row["dataset"], "sklearn-rf100-nonprivate"),
        "accuracy": {run: dict(sorted(cells.items())) for run, cells in sorted(accuracy.items())},
    }


def _run(algorithm: str) -> str:
    task = Task("", algorithm, "1", "1e-6", 0)
    return f"{task.slug}@{task.accountant}"


def _of_flagships() -> Iterator[tuple[str, str, str, float]]:
    for algorithm in FLAGSHIPS:
        for (table, epsilon), splits in our_runs([RESULTS / "flagships.csv"], algorithm).items():
            yield table, algorithm, f"{float(epsilon):g}", round(statistics.fmean(splits.values()), 4)


def _of_pages() -> Iterator[tuple[str, str, str, float]]:
    """The accuracy tables of every page, without the lines whose parameters are not the defaults."""
    for page in PAGES:
        columns: dict[int, str] = {}
        for line in (RESULTS / page).read_text(encoding="utf-8").splitlines():
            cells = [cell.strip(" `") for cell in line.strip("|").split("|")]
            if line.startswith("| dataset | algorithm |"):
                columns = _columns(cells)
            elif not line.startswith("|"):
                columns = {}
            elif ":" not in cells[1]:
                for place, epsilon in columns.items():
                    if mean := _MEAN.match(cells[place]):
                        yield cells[0], cells[1], epsilon, round(float(mean[1]) / 100, 4)


def _columns(header: list[str]) -> dict[int, str]:
    """The columns of accuracies as they are now, by place, with their ε: ``after`` in place of ``before``."""
    found = {place: name[1] for place, cell in enumerate(header) if (name := _EPSILON.match(cell))}
    return {place + ("before" in header[place]): epsilon for place, epsilon in found.items()}


def _reference(table: str, method: str) -> float:
    with PEERS.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["dataset"], row["method"]) == (table, method)]
    return round(statistics.fmean(float(row["accuracy"]) for row in rows), 4)


def text() -> str:
    """The text of the file."""
    return json.dumps(collected(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    MEASUREMENTS.write_text(text(), encoding="utf-8")
    sys.stdout.write(f"wrote {MEASUREMENTS}\n")
