"""Measures the accuracy of private forests on real datasets with the functions of a
training job.

Each run goes through plan → grow → artifact bytes → loaded artifact → predict. The
protocol: random 90/10 splits, where split r is ``numpy.random.default_rng(1000 +
r).permutation(n)`` with the first tenth (rounded) as the test set; 10 repeats below
20,000 rows, else 5; bounds, categories and classes from the dataset's public schema;
the public size is the row count rounded to two significant digits. Only the splits are
seeded; noise is never seeded.

A data folder holds, per dataset, ``<name>.csv.gz`` (header row, empty = missing) and
``<name>.json`` (``features`` and ``label`` as in ``POST /datasets``). Run as a module::

    python -m research.accuracy DATA --csv runs.csv --datasets adult banknote
    --algorithms rpf nbrt@gdp \\
        "mrf:n_estimators=1,max_depth=4" --epsilons 0.5 1 --jobs 2 --markdown tables.md
        --plots plots

Each run is written to the CSV when it ends. Repeating the command continues after an
interruption, without repeating finished runs, and makes tables and plots of all runs
that the command names.
"""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from grovekeeper_forests.errors import GrovekeeperError
from research import datasets, leads, tables
from research.datasets import Dataset
from research.reference import methods
from research.runs import (
    Run,
    RunsUnreadable,
    Task,
    append,
    load,
    measure,
    runs_of,
    unfinished,
)

Outcome: TypeAlias = tuple[Task, Run | str]
"""A task with its run, or with the reason why the task was refused."""


def tasks_of(
    folder: Path,
    names: Sequence[str],
    *,
    algorithms: Sequence[str],
    budgets: Sequence[tuple[str, str]],
    repeats: int,
) -> list[Task]:
    """All tasks of a command, dataset by dataset.

    Args:
        folder: folder of the data.
        names: names of datasets.
        algorithms: algorithms, written as in :class:`Task`.
        budgets: pairs of ε and δ.
        repeats: number of splits; 0 for the protocol's number.
    """
    return [
        Task(name, algorithm, epsilon, delta, repeat)
        for name in names
        for n_repeats in (repeats or _dataset(folder, name).n_splits,)
        for algorithm in algorithms
        for epsilon, delta in budgets
        for repeat in range(n_repeats)
    ]


def outcomes(folder: Path, tasks: Sequence[Task], *, n_jobs: int) -> Iterator[Outcome]:
    """Runs tasks in this process or in ``n_jobs`` new processes, and yields each
    outcome when its task ends.
    """
    if n_jobs == 1:
        yield from (_outcome(folder, task) for task in tasks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(n_jobs, mp_context=context) as pool:
        try:
            for future in as_completed(
                [pool.submit(_outcome, folder, task) for task in tasks]
            ):
                yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _outcome(folder: Path, task: Task) -> Outcome:
    """Runs a task. A refused request, for example with a budget that is too small, does
    not end the other runs.
    """
    try:
        return task, measure(_dataset(folder, task.dataset), task)
    except GrovekeeperError as refused:
        return task, str(refused)


@lru_cache(maxsize=2)
def _dataset(folder: Path, name: str) -> Dataset:
    return datasets.read(folder, name)


def complete(
    folder: Path, tasks: Sequence[Task], path: Path, *, n_jobs: int
) -> list[Outcome]:
    """Runs the tasks that the CSV lacks, appends their runs to the CSV, and returns the
    refused tasks.
    """
    todo = unfinished(tasks, load(path, Run))
    refused: list[Outcome] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=sys.stderr)) as progress:
        bar = progress.add_task(
            "runs", total=len(tasks), completed=len(tasks) - len(todo)
        )
        for task, result in outcomes(folder, todo, n_jobs=n_jobs):
            if isinstance(result, Run):
                append(path, result)
            else:
                refused.append((task, result))
            progress.update(
                bar,
                advance=1,
                description=f"{task.dataset} {task.algorithm} ε = {task.epsilon}",
            )
    return refused


def report(runs: Sequence[Run], references: Sequence[Path]) -> str:
    """All tables of the given runs, as Markdown."""
    parts = [
        "## Accuracy\n\nMean ± standard deviation in percent; for two classes, mean AUROC after the slash; in "
        "brackets, number and depth of trees that the public rules chose.\n\n"
        + tables.accuracy(runs)
    ]
    for algorithm in dict.fromkeys(run.algorithm for run in runs):
        parts += _lead_tables(
            [run for run in runs if run.algorithm == algorithm], references
        )
    parts.append(
        "## Log loss and calibration\n\nMean log loss in nats / expected calibration error in points.\n\n"
        + tables.log_loss(runs)
    )
    parts.append(
        "## Reliability\n\nTest rows of all datasets by their largest probability: its mean → the share of right "
        "labels, in percent.\n\n" + tables.reliability(runs)
    )
    return "\n".join(parts)


def _lead_tables(runs: Sequence[Run], references: Sequence[Path]) -> list[str]:
    """One table for each group of reference methods that ran on the same datasets and
    ε.
    """
    task = runs[0].task
    accuracies: dict[leads.Cell, dict[int, float]] = {}
    for run in runs:
        accuracies.setdefault((run.dataset, Fraction(run.epsilon)), {})[run.repeat] = (
            run.accuracy
        )
    lead_tables = []
    for title, group in methods.opponents(task.slug, task.accountant).items():
        leads_over_group = leads.leads(
            accuracies, leads.reference_runs(references, group)
        )
        if leads_over_group:
            lead_tables.append(
                f"## `{task.algorithm}` ({task.accountant}) against {title}\n\nOur accuracy / the best accuracy of the "
                "group: **mean lead** ± its standard error, in points, paired on the same splits.\n\n"
                + leads.markdown(leads_over_group)
            )
    return lead_tables


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    names = options.datasets or datasets.names(options.folder)
    budgets = [(epsilon, options.delta) for epsilon in options.epsilons]
    tasks = tasks_of(
        options.folder,
        names,
        algorithms=options.algorithms,
        budgets=budgets,
        repeats=options.repeats,
    )
    try:
        refused = complete(options.folder, tasks, options.csv, n_jobs=options.jobs)
    except RunsUnreadable as error:
        parser.error(str(error))
    runs = runs_of(tasks, load(options.csv, Run))
    text = report(runs, options.references)
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")
    if options.plots:
        # imported here, because Matplotlib is in the optional extra ``bench``
        from research import plots

        plots.draw(
            options.plots,
            runs,
            leads.reference_runs(
                options.references, methods.of_claim(*methods.PRIVATE)
            ),
        )
    print(text, end="")
    for task, reason in refused:
        print(
            f"refused: {task.dataset} {task.algorithm} ε = {task.epsilon}: {reason}",
            file=sys.stderr,
        )
    return 1 if refused else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m research.accuracy", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "folder", type=Path, help="folder with <name>.csv.gz and <name>.json"
    )
    parser.add_argument(
        "--csv", type=Path, required=True, help="file of runs; new runs are appended"
    )
    parser.add_argument(
        "--datasets", nargs="+", help="names of datasets; default: all in the folder"
    )
    parser.add_argument(
        "--algorithms",
        nargs="+",
        default=["rpf", "nbrt@gdp"],
        help="slug[@accountant][:name=value,…]",
    )
    parser.add_argument("--epsilons", nargs="+", default=["0.1", "0.5", "1", "2", "10"])
    parser.add_argument("--delta", default="1e-6", help="δ of accounts with a δ")
    parser.add_argument(
        "--repeats",
        type=int,
        default=0,
        help="splits; default: 10 below 20,000 rows, else 5",
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="number of processes"
    )
    parser.add_argument(
        "--references",
        type=Path,
        nargs="*",
        default=methods.TABLES,
        help="tables of reference runs",
    )
    parser.add_argument("--markdown", type=Path, help="file that also gets the tables")
    parser.add_argument(
        "--plots",
        type=Path,
        help="folder for one plot per dataset (needs the extra ``bench``)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
