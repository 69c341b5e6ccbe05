"""Accuracy of private forests on real datasets, through the same functions as a training job.

Every figure comes out of plan → grow → artifact bytes → loaded artifact → predict. The protocol: random 90/10 splits,
split r being ``numpy.random.default_rng(1000 + r).permutation(n)`` with the first tenth (rounded) as the test set; 10
repeats below 20,000 rows, 5 from there on; bounds, categories and classes from the dataset's public schema; the public
size is the row count rounded to two significant digits. Only the splits are seeded: noise never is.

A data folder holds, per dataset, ``<name>.csv.gz`` (header row, empty = missing) and ``<name>.json`` (``features`` and
``label`` as in ``POST /datasets``). Run as a module::

    python -m benchmarks.accuracy DATA --datasets adult banknote --algorithms mrf rdt-ta --epsilons 0.5 1 --csv runs.csv
"""

import argparse
import csv
import gzip
import json
import math
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from sklearn.metrics import roc_auc_score

from app.forests import catalogue, codec, predict
from app.forests.grow import grow
from app.forests.plan import PlanRequest, plan
from app.forests.randomness import SystemRandomness
from app.forests.rows import SanitisedColumns, SanitisedRows
from app.forests.sanitiser import sanitise_codes, sanitise_numbers
from app.forests.schema import Feature, Schema
from app.privacy import accountants

MANY_ROWS = 20_000
DELTA = Fraction(1, 10**6)
CSV_FIELDS = ("dataset", "algorithm", "epsilon", "repeat", "n_trees", "depth", "accuracy", "auroc", "seconds")


@dataclass(frozen=True)
class Dataset:
    """A whole table in memory, sanitised."""

    name: str
    schema: Schema
    columns: tuple[NDArray[Any], ...]
    y: NDArray[np.int32]

    @property
    def public_size(self) -> int:
        """The row count to two significant digits: what an owner would declare."""
        unit = 10 ** max(len(str(len(self.y))) - 2, 0)
        return max(round(len(self.y) / unit), 1) * unit

    def features(self, index: NDArray[np.int64]) -> SanitisedColumns:
        """Some rows, without their labels."""
        return SanitisedColumns(tuple(column[index] for column in self.columns), len(index))


@dataclass(frozen=True)
class Run:
    """One split, one forest."""

    dataset: str
    algorithm: str
    epsilon: str
    repeat: int
    n_trees: int
    depth: int
    accuracy: float
    auroc: float
    seconds: float


def read(folder: Path, name: str) -> Dataset:
    """Reads ``<name>.csv.gz`` by its public schema."""
    declaration = json.loads((folder / f"{name}.json").read_text())
    schema = Schema.from_json(
        {
            "features": declaration["features"],
            "label": {"name": declaration["label"]["name"], "classes": declaration["label"]["classes"]},
        }
    )
    with gzip.open(folder / f"{name}.csv.gz", "rt", newline="") as lines:
        reader = csv.reader(lines)
        header = next(reader)
        cells = dict(zip(header, zip(*reader, strict=True), strict=True))
    y = _codes(schema.label.classes, cells[schema.label.name])
    known = y < schema.n_classes
    columns = tuple(_column(feature, cells[feature.name])[known] for feature in schema.features)
    return Dataset(name, schema, columns, y[known])


def _column(feature: Feature, cells: Sequence[str]) -> NDArray[Any]:
    if feature.is_categorical:
        codes = _codes(feature.categories, cells)
        codes[np.array([cell == "" for cell in cells])] = feature.missing_code
        return sanitise_codes(feature, codes)
    numbers = np.array([float(cell) if cell else math.nan for cell in cells], dtype=np.float64)
    return sanitise_numbers(feature, numbers)


def _codes(values: Sequence[str], cells: Iterable[str]) -> NDArray[np.int32]:
    code = {value: index for index, value in enumerate(values)}
    return np.array([code.get(cell, len(values)) for cell in cells], dtype=np.int32)


def request(algorithm: str, epsilon: str, size: int) -> PlanRequest:
    """On the first kind of account that the algorithm is for; with :data:`DELTA` where that has a δ."""
    accountant = catalogue.mechanism(algorithm).accountants[0]
    delta = DELTA if accountants.by_name(accountant).TAKES_DELTA else None
    return PlanRequest(algorithm, {}, Fraction(epsilon), size, accountant, delta)


def measure(dataset: Dataset, algorithm: str, epsilon: str, repeat: int) -> Run:
    """Trains on nine tenths of a split and reads the rest with the artifact that a client would download."""
    order = np.random.default_rng(1000 + repeat).permutation(len(dataset.y))
    test, train = np.split(order, [round(len(order) / 10)])
    began = time.perf_counter()
    settled = plan(request(algorithm, epsilon, dataset.public_size), dataset.schema)
    row_ids = np.frombuffer(np.random.default_rng(repeat).bytes(16 * len(train)), dtype=np.uint8).reshape(-1, 16)
    rows = SanitisedRows(dataset.features(train), dataset.y[train], row_ids)
    forest = grow(settled, dataset.schema, rows, SystemRandomness(), on_tree_done=lambda: None)
    artifact = codec.loads(codec.dumps(forest, {"schema": dataset.schema.to_json()}))
    features = dataset.features(test)
    found = predict.probabilities(artifact.forest, artifact.schema, features, read_out=None)
    labels = predict.labels(artifact.forest, artifact.schema, features, found, read_out=None)
    seconds = time.perf_counter() - began
    truth = dataset.y[test]
    two_classes = dataset.schema.n_classes == 2 and len(np.unique(truth)) == 2
    return Run(
        dataset.name,
        algorithm,
        epsilon,
        repeat,
        settled.n_trees,
        forest.depth,
        float(np.mean(labels == truth)),
        float(roc_auc_score(truth, found[:, 1])) if two_classes else math.nan,
        seconds,
    )


def runs(
    folder: Path, names: Sequence[str], algorithms: Sequence[str], epsilons: Sequence[str], *, repeats: int | None
) -> Iterator[tuple[int, Run]]:
    """Every run, with the number of runs still to come for its dataset."""
    for name in names:
        dataset = read(folder, name)
        n_repeats = repeats or (10 if len(dataset.y) < MANY_ROWS else 5)
        left = n_repeats * len(algorithms) * len(epsilons)
        for algorithm in algorithms:
            for epsilon in epsilons:
                for repeat in range(n_repeats):
                    left -= 1
                    yield left, measure(dataset, algorithm, epsilon, repeat)


def markdown(done: Sequence[Run]) -> str:
    """Mean ± standard deviation of accuracy in percent, and mean AUROC where there are two classes."""
    epsilons = sorted({run.epsilon for run in done}, key=Fraction)
    lines = [
        f"| dataset | algorithm | {' | '.join(f'ε = {epsilon}' for epsilon in epsilons)} |",
        f"|---|---|{'---|' * len(epsilons)}",
    ]
    for dataset, algorithm in dict.fromkeys((run.dataset, run.algorithm) for run in done):
        mine = [run for run in done if (run.dataset, run.algorithm) == (dataset, algorithm)]
        cells = [_cell([run for run in mine if run.epsilon == epsilon]) for epsilon in epsilons]
        lines.append(f"| {dataset} | `{algorithm}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(same: Sequence[Run]) -> str:
    if not same:
        return "–"
    percent = [100 * run.accuracy for run in same]
    spread = f" ± {statistics.stdev(percent):.1f}" if len(percent) > 1 else ""
    auroc = statistics.fmean(run.auroc for run in same)
    area = "" if math.isnan(auroc) else f" / {auroc:.3f}"
    return f"{statistics.fmean(percent):.1f}{spread}{area} ({same[0].n_trees} × depth {same[0].depth})"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="folder with <name>.csv.gz and <name>.json")
    parser.add_argument("--datasets", nargs="+", help="names; default: all in the folder")
    parser.add_argument("--algorithms", nargs="+", default=["mrf", "rdt-ta"])
    parser.add_argument("--epsilons", nargs="+", default=["0.1", "0.5", "1", "2", "10"])
    parser.add_argument("--repeats", type=int, help="default: 10, or 5 from 20,000 rows on")
    parser.add_argument("--csv", type=Path, help="write every run here")
    parser.add_argument("--markdown", type=Path, help="write the table here as well")
    chosen = parser.parse_args(arguments)
    names = chosen.datasets or sorted(path.name.removesuffix(".csv.gz") for path in chosen.folder.glob("*.csv.gz"))
    done: list[Run] = []
    with Progress(console=Console(file=sys.stderr), transient=True) as progress:
        bars = {name: progress.add_task(name, total=None) for name in names}
        todo = runs(chosen.folder, names, chosen.algorithms, chosen.epsilons, repeats=chosen.repeats)
        for left, run in todo:
            done.append(run)
            own = sum(other.dataset == run.dataset for other in done)
            progress.update(bars[run.dataset], completed=own, total=own + left)
    if chosen.csv:
        with chosen.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, CSV_FIELDS)
            writer.writeheader()
            writer.writerows(vars(run) for run in done)
    table = markdown(done)
    if chosen.markdown:
        chosen.markdown.write_text(table)
    print(table, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
