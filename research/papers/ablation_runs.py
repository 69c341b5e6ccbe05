"""Runs the ablations and figures of the papers, and writes their pages.

One command, which continues where it stopped: every run is appended to
``ablations.csv`` of the results folder, and the pages are written from all runs::

    python -m research.papers.ablation_runs DATA --names huang-figure-1 song-figure-4

DATA is a folder as in ``research.accuracy``. Without it, the generated datasets and
three of scikit-learn run. A task that ``runs.csv`` holds already, as the papers' tables
ran it, does not run again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from grovekeeper_forests.errors import NotSupported, ParameterInvalid
from research import bundled, datasets
from research.papers import __main__ as tables
from research.papers import (
    ablation_measures,
    ablations,
)
from research.runs import Measured, Task, append, load


@dataclass(frozen=True)
class AblationRun(Measured):
    """The result of a task of an ablation.

    Attributes:
        ablation: its name.
        values: numbers, separated by spaces; the function that measures them says what
            they are.
        seconds: CPU time of the measurement.
    """

    ablation: str
    values: str
    seconds: float


RUNS = "ablations.csv"

Reader = Callable[[Path, type[Any]], list[Any]]
"""Reads the runs of a CSV as in ``research.runs.load``."""

_WARM = set[str]()
"""Slugs that this process measured before."""


def run_fold(folder: Path | None, name: str, path: Path, repeat: int) -> None:
    """Runs the tasks of a fold of an ablation that neither CSV of the results folder
    holds.

    A refused task is printed and left out; any other error ends the command.

    Args:
        folder: of datasets; ``None``: the generated ones and those of scikit-learn.
            Tasks on others are left out.
        name: of the ablation.
        path: of the CSV of ablations.
        repeat: number of the fold.
    """
    ablation, present = (
        ablations.ABLATIONS[name],
        bundled.LOADERS if folder is None else datasets.names(folder),
    )
    done = runs_by_task(name, path)
    wanted = (
        task
        for task in ablation.runs
        if task.repeat == repeat and _is_there(task.dataset, present)
    )
    todo = [task for task in wanted if task not in done]
    for task in todo:
        try:
            # compiled loops are loaded at the first use and are no part of a time
            if task.slug not in _WARM:
                ablation.measure(folder, task)
                _WARM.add(task.slug)
            began = time.process_time()
            values = ablation.measure(folder, task)
        except (ParameterInvalid, NotSupported) as refused:
            print(
                f"refused: {task.dataset} {task.algorithm} ε = {task.epsilon}: {refused!r}",
                file=sys.stderr,
            )
            continue
        seconds = round(time.process_time() - began, 4)
        text = " ".join(f"{value:.6g}" for value in values)
        append(
            path, AblationRun(**vars(task), ablation=name, values=text, seconds=seconds)
        )
        print(
            f"{name} {task.dataset} {task.algorithm} {task.epsilon} fold {repeat}: {text}",
            file=sys.stderr,
        )


def _is_there(dataset: str, present: Container[str]) -> bool:
    return (
        dataset.partition("@")[0] in present
        or dataset == ablation_measures.NORMAL
        or dataset.startswith("syn")
    )


def runs_by_task(name: str, path: Path, read: Reader = load) -> dict[Task, AblationRun]:
    """The runs of an ablation by task, including accuracies that the papers' tables
    measured on the same fold.

    Args:
        name: of the ablation.
        path: of the CSV of ablations.
        read: reads a CSV.
    """
    wanted = set(ablations.ABLATIONS[name].runs)
    runs = {run.task: run for run in read(path, AblationRun) if run.ablation == name}
    if ablations.ABLATIONS[name].measure is ablation_measures.accuracy:
        for run in read(path.with_name("runs.csv"), tables.PaperRun):
            if run.task in wanted and run.task not in runs:
                runs[run.task] = AblationRun(
                    **vars(run.task),
                    ablation=name,
                    values=f"{run.accuracy}",
                    seconds=run.seconds,
                )
    return runs


def values_of(name: str, path: Path, read: Reader = load) -> ablations.Values:
    """The numbers of the runs of an ablation, in the order of the folds, by the task on
    the first fold; arguments as in :func:`runs_by_task`.
    """
    by_task: dict[Task, list[Sequence[float]]] = defaultdict(list)
    for task, run in sorted(runs_by_task(name, path, read).items()):
        by_task[replace(task, repeat=0)].append(tuple(map(float, run.values.split())))
    return by_task


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m research.papers.ablation_runs",
        description=(__doc__ or "").split("\n")[0],
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", help="folder with <name>.csv.gz and <name>.json"
    )
    parser.add_argument(
        "--names",
        nargs="*",
        default=list(ablations.ABLATIONS),
        choices=ablations.ABLATIONS,
        help="default: all",
    )
    parser.add_argument(
        "--results", type=Path, default=tables.RESULTS, help="folder of runs and pages"
    )
    parser.add_argument(
        "--plots",
        action="store_true",
        help="draws the figures (needs ``bench``)",
    )
    options = parser.parse_args(arguments)
    options.results.mkdir(parents=True, exist_ok=True)
    n_folds = {name: ablations.ABLATIONS[name].n_folds for name in options.names}
    for repeat, name in product(range(max(n_folds.values(), default=0)), options.names):
        if repeat < n_folds[name]:
            run_fold(options.folder, name, options.results / RUNS, repeat)
    # imported here, because the pages of papers read runs as this module does
    from research.papers import entrances

    entrances.write(options.results)
    if options.plots:
        # imported here, because Matplotlib is in the optional extra ``bench``
        from research.papers import curve_plots, mrf_plots

        plots, path = options.results / "plots", options.results / RUNS
        mrf_plots.draw_budgets(plots / "figure-5.svg", values_of("mrf-figure-5", path))
        mrf_plots.draw_strengths(
            plots / "figure-6.svg", values_of("mrf-figure-6", path)
        )
        curve_plots.draw(options.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
