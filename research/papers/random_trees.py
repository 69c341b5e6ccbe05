"""Repeats figures 1 and 2 and table 1 of Bojarski et al. (2014) on random decision
trees as printed.

One command, which continues where it stopped: every result is appended to
``random_trees.csv`` of the results folder. The page of the paper with its files, and the
plots, are written from all results::

    python -m research.papers.random_trees DATA --plots

DATA is a folder as in ``research.accuracy``. Without it, ``wdbc`` of scikit-learn runs.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from research import datasets
from research.papers import entrances, random_tree_grid
from research.papers.__main__ import RESULTS
from research.papers.random_tree_grid import BUDGETS, PRINTED_NAMES, GridRun, GridTask
from research.runs import append, load, unfinished

_folds = cache(random_tree_grid.folds)
"""Consecutive tasks have the same dataset."""


def run_all(folder: Path | None, tasks: Sequence[GridTask], path: Path) -> None:
    """Runs the tasks that the CSV lacks and appends their results."""
    todo = unfinished(tasks, load(path, GridRun))
    for done, task in enumerate(todo):
        assert isinstance(task, GridTask)
        append(path, random_tree_grid.measure(_folds(folder, task.dataset), task))
        print(
            f"{done + 1}/{len(todo)} {task.dataset} {task.algorithm} {task.epsilon or 'plain'}",
            file=sys.stderr,
        )


def write(folder: Path, runs: Sequence[GridRun], *, with_plots: bool) -> None:
    """Writes the pages, and the plots if Matplotlib may be used."""
    entrances.write(folder)
    if with_plots:
        # imported here, because Matplotlib is in the extra ``bench``
        from research.papers import random_tree_figures

        random_tree_figures.draw(folder / "plots", runs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m research.papers.random_trees")
    parser.add_argument(
        "folder", type=Path, nargs="?", help="folder with <name>.csv.gz and <name>.json"
    )
    parser.add_argument(
        "--datasets",
        nargs="+",
        help="names of files; default: those of the paper that are there",
    )
    parser.add_argument(
        "--budgets",
        nargs="+",
        default=list(BUDGETS),
        choices=BUDGETS,
        help="ε times training rows",
    )
    parser.add_argument(
        "--plots",
        action="store_true",
        help="draw figures 1 and 2 (needs the extra ``bench``)",
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        help="folder of results, page and plots",
    )
    options = parser.parse_args(arguments)
    present = ["wdbc"] if options.folder is None else datasets.names(options.folder)
    names = (
        options.datasets
        or [name for name in PRINTED_NAMES if name in present]
        or present
    )
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / "random_trees.csv"
    run_all(options.folder, random_tree_grid.tasks_of(names, options.budgets), path)
    write(options.results, load(path, GridRun), with_plots=options.plots)
    return 0


if __name__ == "__main__":
    sys.exit(main())
