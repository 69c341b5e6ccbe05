"""Collects committed accuracies and AUROC of ``docs/results`` in the file from which
quotes show what to expect.

Reads the runs of the flagships, the accuracy tables of the other algorithms' pages at
their default parameters, the sizes in ``docs/results/tables.csv``, and the reference
runs of the largest class and of a forest without privacy. Run from the project's folder
after a new measurement; a test holds the file equal to its sources::

    python -m research.measured_accuracy
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

from grovekeeper_forests.expected_accuracy import MEASUREMENTS
from research.leads import our_runs
from research.runs import Task

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PEERS = Path(__file__).with_name("reference") / "peers.csv"
PAGES = ("first-families.md", "papers.md", "semi-supervised.md")
FLAGSHIPS = ("rpf", "nbrt@gdp")

_EPSILON = re.compile(r"ε = ([0-9.]+)")
_MEANS = {
    "accuracy": re.compile(r"([0-9.]+) ± "),
    "auroc": re.compile(r"[0-9.]+ ± [0-9.]+ / ([0-9.]+)"),
}
_UNITS = {"accuracy": 100, "auroc": 1}


def collected() -> dict[str, Any]:
    """The facts, accuracies and AUROC of every table, by name."""
    measured = {metric: _measured(metric) for metric in _MEANS}
    with (RESULTS / "tables.csv").open(newline="") as file:
        return {
            row["dataset"]: _facts(row)
            | {
                metric: _sorted(runs[row["dataset"]])
                for metric, runs in measured.items()
            }
            for row in csv.DictReader(file)
        }


def _measured(metric: str) -> dict[str, dict[str, dict[str, float]]]:
    measured: dict[str, dict[str, dict[str, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for table, algorithm, epsilon, mean in (*_of_flagships(metric), *_of_pages(metric)):
        measured[table][_run(algorithm)].setdefault(epsilon, mean)
    return measured


def _sorted(runs: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    return {run: dict(sorted(cells.items())) for run, cells in sorted(runs.items())}


def _facts(row: dict[str, str]) -> dict[str, Any]:
    numeric, categorical = int(row["numeric_columns"]), int(row["categorical_columns"])
    return {
        "rows": int(row["rows"]),
        "classes": int(row["classes"]),
        "numeric_share": round(numeric / (numeric + categorical), 4),
        "majority": _reference(row["dataset"], "majority"),
        "forest": _reference(row["dataset"], "sklearn-rf100-nonprivate"),
        "forest_auroc": _reference(row["dataset"], "sklearn-rf100-nonprivate", "auroc"),
    }


def _run(algorithm: str) -> str:
    task = Task("", algorithm, "1", "1e-6", 0)
    return f"{task.slug}@{task.accountant}"


def _of_flagships(metric: str) -> Iterator[tuple[str, str, str, float]]:
    for algorithm in FLAGSHIPS:
        for (table, epsilon), splits in our_runs(
            [RESULTS / "flagships.csv"], algorithm, metric=metric
        ).items():
            yield (
                table,
                algorithm,
                f"{float(epsilon):g}",
                round(statistics.fmean(splits.values()), 4),
            )


def _of_pages(metric: str) -> Iterator[tuple[str, str, str, float]]:
    """The tables of every page, without the lines whose parameters are not the
    defaults.
    """
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
                    if mean := _MEANS[metric].match(cells[place]):
                        yield (
                            cells[0],
                            cells[1],
                            epsilon,
                            round(float(mean[1]) / _UNITS[metric], 4),
                        )


def _columns(header: list[str]) -> dict[int, str]:
    """The columns of accuracies as they are now, by place, with their ε: ``after`` in
    place of ``before``.
    """
    found = {
        place: name[1]
        for place, cell in enumerate(header)
        if (name := _EPSILON.match(cell))
    }
    return {
        place + ("before" in header[place]): epsilon for place, epsilon in found.items()
    }


def _reference(table: str, method: str, metric: str = "accuracy") -> float | None:
    """The mean of a reference's runs; ``None`` where the metric is not defined, as
    AUROC for more than two classes.
    """
    with PEERS.open(newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["dataset"], row["method"]) == (table, method)
        ]
    values = [float(row[metric]) for row in rows if row[metric]]
    return round(statistics.fmean(values), 4) if values else None


def text() -> str:
    """The text of the file."""
    return json.dumps(collected(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    MEASUREMENTS.write_text(text(), encoding="utf-8")
    sys.stdout.write(f"wrote {MEASUREMENTS}\n")
