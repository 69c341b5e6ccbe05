"""Repeats the grid of random trees with other folds, trees and noise, and counts what the
page of Bojarski et al. (2014) counts: how far chance moves a count.

Run ``python -m research.papers.random_tree_draws DATA``; it writes
``bojarski-grids.csv``, whose first grid is that of the page. Datasets that are too large
run in no grid. ``random_trees`` writes the page.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from research.papers import findings, random_tree_grid, random_tree_page
from research.papers.__main__ import RESULTS
from research.papers.random_tree_grid import (
    BUDGETS,
    PRINTED_NAMES,
    TOO_LARGE,
    GridRun,
)
from research.runs import load

N_FURTHER = 8

SMALL = tuple(name for name in PRINTED_NAMES if name not in TOO_LARGE)


def counts(runs: Iterable[GridRun]) -> dict[tuple[str, str], int]:
    """The counts of the page over datasets that are not too large, by what is counted
    (datasets, cases or differences) and of what.
    """
    return dict(random_tree_page.counts([run for run in runs if run.dataset in SMALL]))


def further(folder: Path, grid: int) -> Iterator[GridRun]:
    """The runs of another grid, from 1 on."""
    for name in SMALL:
        folds = random_tree_grid.folds(folder, name, grid)
        for task in random_tree_grid.tasks_of([name], BUDGETS):
            yield random_tree_grid.measure(folds, task)


def text_of(grids: Sequence[Mapping[tuple[str, str], int]]) -> str:
    """The CSV file of the counts of grids, that of the page first."""
    columns = ("counted", "of", "the page's grid", *map(str, range(1, len(grids))))
    rows = ((*place, *(str(of_grid[place]) for of_grid in grids)) for place in grids[0])
    return findings.csv_text(columns, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the file."""
    parser = argparse.ArgumentParser(prog="python -m research.papers.random_tree_draws")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--grids", type=int, default=N_FURTHER)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    grids = [counts(load(options.results / "random_trees.csv", GridRun))]
    for grid in range(1, options.grids + 1):
        grids.append(counts(further(options.folder, grid)))
        (options.results / random_tree_page.OF_GRIDS).write_text(
            text_of(grids), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
