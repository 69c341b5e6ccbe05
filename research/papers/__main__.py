"""Repeats the tables of the papers: printed accuracy, ours without privacy, ours
private and repaired, side by side.

One command, which continues where it stopped: every run is appended to ``runs.csv`` of
the results folder, and the pages and plots are written from all runs. Fold r is the
part r mod 10 of a permutation with the seed of r div 10::

    python -m research.papers DATA --tables spe-1 dprf-1

A dataset below 2,000 rows has ten cross-validations, as in the papers, a larger one has
one; ``--repeats`` changes it. DATA is a folder as in ``research.accuracy``. Without it,
three datasets of scikit-learn run.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.errors import NotSupported, ParameterInvalid
from research import bundled, datasets, printed_pages, printed_tables
from research.datasets import Dataset
from research.printed_pages import N_FOLDS
from research.printed_tables import Cell
from research.runs import Measured, Task, append, load, predictions, unfinished

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "papers"

FEW_ROWS = 2_000
"""From so many rows on, a dataset has one cross-validation instead of ten: its folds
spread less and take long.
"""


@dataclass(frozen=True)
class PaperRun(Measured):
    """The result of a task on one fold.

    Attributes:
        accuracy: share of test rows whose label is right.
        seconds: wall-clock time from plan to prediction.
    """

    accuracy: float
    seconds: float


def fold_of(n_rows: int, repeat: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of training and test rows of one fold of repeated 10-fold
    cross-validation.
    """
    order = np.random.default_rng(datasets.FIRST_SEED + repeat // N_FOLDS).permutation(
        n_rows
    )
    parts = np.array_split(order, N_FOLDS)
    test = parts.pop(repeat % N_FOLDS)
    return np.concatenate(parts), test


def tasks_of(
    cells: Iterable[Cell], *, repeats: int | None, sizes: dict[str, int]
) -> list[Task]:
    """All runs of cells, without repetition, smaller datasets first.

    Args:
        cells: printed numbers.
        repeats: number of folds of every dataset; without it, a hundred below
            :data:`FEW_ROWS` rows, ten from there on.
        sizes: number of rows of every dataset that is there.
    """
    first = [
        task
        for cell in cells
        for task in (cell.plain, cell.private, *cell.checks.values())
        if task is not None
    ]
    distinct = dict.fromkeys(task for task in first if task.dataset in sizes)
    by_size = sorted(distinct, key=lambda task: (sizes[task.dataset], task.dataset))
    folds = {
        name: repeats or (10 * N_FOLDS if n_rows < FEW_ROWS else N_FOLDS)
        for name, n_rows in sizes.items()
    }
    return [
        replace(task, repeat=repeat)
        for task in by_size
        for repeat in range(folds[task.dataset])
    ]


def run_all(folder: Path | None, tasks: Sequence[Task], path: Path) -> list[PaperRun]:
    """Runs the tasks that the CSV lacks and returns all its runs. A refused task is
    printed and left out.

    Any other error ends the command: a fold that is missing because of a defect would
    change a mean.
    """
    todo = unfinished(tasks, load(path, PaperRun))
    for done, task in enumerate(todo):
        dataset = read(folder, task.dataset)
        train, test = fold_of(len(dataset.y), task.repeat)
        try:
            answers = predictions(dataset, task, train, test)
        except (ParameterInvalid, NotSupported) as refused:
            print(
                f"refused: {task.dataset} {task.algorithm} ε = {task.epsilon}: {refused!r}",
                file=sys.stderr,
            )
            continue
        accuracy = float(np.mean(answers.labels == dataset.y[test]))
        append(
            path,
            PaperRun(
                **vars(task),
                accuracy=round(accuracy, 6),
                seconds=round(answers.seconds, 3),
            ),
        )
        print(
            f"{done + 1}/{len(todo)} {task.dataset} {task.algorithm} {task.repeat}",
            file=sys.stderr,
        )
    return load(path, PaperRun)


@cache
def read(folder: Path | None, name: str) -> Dataset:
    """A dataset of the folder, or of scikit-learn without a folder."""
    return bundled.read(name) if folder is None else datasets.read(folder, name)


def accuracies(runs: Iterable[PaperRun]) -> dict[tuple[object, ...], list[float]]:
    """Accuracies over folds, in their order, by the key of the task on the first fold."""
    by_fold = {run.task.key: run for run in sorted(runs, key=lambda run: run.repeat)}
    by_task: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for run in by_fold.values():
        by_task[replace(run.task, repeat=0).key].append(run.accuracy)
    return by_task


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    options = _parser().parse_args(arguments)
    present = set(
        bundled.LOADERS if options.folder is None else datasets.names(options.folder)
    )
    wanted = present & set(options.datasets or present)
    cells = [cell for table in options.tables for cell in printed_tables.rows(table)]
    files = {
        task.dataset
        for cell in cells
        for task in (cell.plain, cell.private, *cell.checks.values())
        if task is not None
    }
    sizes = {
        name: len(read(options.folder, name).y)
        for name in files
        if name.partition(":")[0].partition("@")[0] in wanted
    }
    options.results.mkdir(parents=True, exist_ok=True)
    tasks = tasks_of(cells, repeats=options.repeats, sizes=sizes)
    by_task = accuracies(run_all(options.folder, tasks, options.results / "runs.csv"))
    printed_pages.write(options.results, by_task, with_plots=options.plots)
    # imported here, because the pages of papers read runs as this module does
    from research.papers import entrances

    entrances.write(options.results)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m research.papers", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", help="folder with <name>.csv.gz and <name>.json"
    )
    parser.add_argument(
        "--tables",
        nargs="+",
        default=list(printed_tables.TABLES),
        choices=printed_tables.TABLES,
    )
    parser.add_argument("--datasets", nargs="+", help="names of files; default: all")
    parser.add_argument(
        "--repeats", type=int, help="folds; default: 100 below 2,000 rows, else 10"
    )
    parser.add_argument(
        "--plots",
        action="store_true",
        help="draws the plots, too (needs the extra ``bench``)",
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder of runs, pages and plots"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
