"""Measures forests on numbers whose public bounds are far wider than most values, with
private bins on the coarse grid and on the fine grid.

A name of a table may end with a factor, as in ``wdbc*20``: the bounds of its numbers
are then that many times as wide, and not around the same middle. ``traces`` is a made
table. Both grids run on the same splits; noise is never seeded. Each run is written to
the CSV when it ends, and no run is repeated::

    python -m research.wide_bounds DATA --csv docs/results/bins.csv --datasets traces
    "wdbc*20" magic --algorithms nbrt@gdp rpf --epsilons 1
"""

import argparse
import csv
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np

from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.bins.quantile_bins import Grid
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.releases.forest.price import plan
from research import datasets
from research.datasets import Dataset
from research.runs import Task, measure

TRACES = "traces"
_COLUMNS = ("dataset", "algorithm", "epsilon", "grid", "split", "accuracy")
_DELTA = "1e-6"


def traces() -> Dataset:
    """Fourteen drifting traces of 15,600 rows, each with twelve values far outside;
    54.2 % of the rows are of one class, in blocks.
    """
    chance = np.random.default_rng(3)
    n_rows, n_columns = 15_600, 14
    blocks = np.arange(n_rows) // 325
    y = (blocks % 24 >= 13).astype(np.int32)
    columns = []
    for number in range(n_columns):
        steps = 0.25 * chance.standard_normal(n_rows)
        drift = steps.cumsum() - np.linspace(
            0,
            steps.sum(),
            n_rows,
        )
        shift = 18 if number < 6 else 0
        column = 4_000 + 60 * number + drift + shift * y
        column += 4 * chance.standard_normal(n_rows)
        outside = chance.choice(n_rows, 12, replace=False)
        column[outside] = chance.uniform(30_000, 700_000, 12)
        columns.append(column)
    features = tuple(
        Feature(f"trace{number}", "numeric", lower=0.0, upper=1e6, missing=False)
        for number in range(n_columns)
    )
    schema = Schema(features, Label("state", ("open", "closed")))
    return Dataset(TRACES, schema, tuple(columns), y)


def widened(dataset: Dataset, factor: int) -> Dataset:
    """A table whose numbers are declared with bounds ``factor`` times as wide."""
    features = []
    for feature in dataset.schema.features:
        if feature.is_categorical:
            features.append(feature)
            continue
        further = (factor - 1) * (feature.upper - feature.lower)
        lower, upper = feature.lower - 0.37 * further, feature.upper + 0.63 * further
        if feature.type != "numeric":
            lower, upper = float(math.floor(lower)), float(math.ceil(upper))
        features.append(replace(feature, lower=lower, upper=upper))
    schema = replace(dataset.schema, features=tuple(features))
    return replace(dataset, name=f"{dataset.name}*{factor}", schema=schema)


def table(folder: Path, name: str) -> Dataset:
    """The table of a name, as the module describes names."""
    file, _, factor = name.partition("*")
    dataset = traces() if file == TRACES else datasets.read(folder, file)
    return widened(dataset, int(factor)) if factor else dataset


@contextmanager
def grid_at_most(grid: Grid) -> Iterator[None]:
    """Plans private bins by the public rule, or on the coarse grid only."""
    strength = quantile_bins.STRENGTH_OF_A_FINE_GRID
    if grid is Grid.COARSE:
        strength = sys.maxsize
    with mock.patch.object(quantile_bins, "STRENGTH_OF_A_FINE_GRID", strength):
        yield


def accuracy(dataset: Dataset, task: Task, grid: Grid) -> float:
    """The accuracy of a task with bins on a grid."""
    with grid_at_most(grid):
        return measure(dataset, task).accuracy


def is_fine(dataset: Dataset, task: Task) -> bool:
    """Whether the public rule chooses the fine grid."""
    return plan(task.request(dataset.public_size), dataset.schema).grid is Grid.FINE


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m research.wide_bounds",
        description=(__doc__ or "").split("\n")[0],
    )
    parser.add_argument(
        "folder", type=Path, help="folder with <name>.csv.gz and <name>.json"
    )
    parser.add_argument(
        "--csv", type=Path, required=True, help="file of runs; new runs are appended"
    )
    parser.add_argument("--datasets", nargs="+", required=True)
    parser.add_argument("--algorithms", nargs="+", default=["nbrt@gdp", "rpf"])
    parser.add_argument("--epsilons", nargs="+", default=["0.5", "1"])
    parser.add_argument("--repeats", type=int, default=5, help="splits")
    options = parser.parse_args(arguments)
    finished = _finished(options.csv)
    for name in options.datasets:
        dataset = table(options.folder, name)
        tasks = [
            Task(name, algorithm, epsilon, _DELTA, split)
            for algorithm in options.algorithms
            for epsilon in options.epsilons
            for split in range(options.repeats)
        ]
        for task in tasks:
            if not is_fine(dataset, task):
                continue  # both grids are the coarse one
            for grid in Grid:
                key = (name, task.algorithm, task.epsilon, grid.value, str(task.repeat))
                if key not in finished:
                    _append(options.csv, key, accuracy(dataset, task, grid))
    return 0


def _finished(path: Path) -> set[tuple[str, ...]]:
    if not path.exists():
        path.write_text(",".join(_COLUMNS) + "\n", encoding="utf-8")
    with path.open(newline="", encoding="utf-8") as file:
        return {
            tuple(line[name] for name in _COLUMNS[:-1]) for line in csv.DictReader(file)
        }


def _append(
    path: Path,
    key: tuple[str, ...],
    measured: float,
) -> None:
    with path.open("a", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerow((*key, f"{measured:.5f}"))


if __name__ == "__main__":
    sys.exit(main())
