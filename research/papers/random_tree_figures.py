"""Draws figures 1 and 2 of Bojarski et al. (2014) from the runs of
``random_tree_grid``. Needs the extra ``bench``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from research.papers import printed_random_trees as printed
from research.papers.curve_names import spread
from research.papers.random_tree_grid import (
    BUDGETS,
    COLUMNS,
    HEIGHTS,
    IN_FIGURES,
    N_ESTIMATORS,
    RECALLED_BUDGET,
    GridRun,
)
from research.papers.random_tree_page import (
    K_IN_FIGURE_2,
    Errors,
    chosen_by_validation,
    errors_of,
)

COLOURS = {"mv": "C0", "ta": "C2", "pa": "C3"}
LINES = ("-", "--", ":")
LINE_HEIGHT = 3.4
"""Least distance between two names beside curves, in percentage points of error."""

K_IN_FIGURE_1, H_IN_FIGURE_1 = (1, 5, 21), (5, 12)
H_IN_FIGURE_2 = 3, 9, 15


def draw(folder: Path, runs: Sequence[GridRun]) -> None:
    """Draws the figures as far as datasets have all heights.

    Args:
        folder: of the files ``bojarski-figure-1.svg`` and ``bojarski-figure-2.svg``;
            made if it does not exist.
        runs: all runs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    grid, n_rows = errors_of(runs), {run.dataset: int(run.n_test) for run in runs}
    complete = {place for place, errors in grid.items() if np.isfinite(errors).all()}
    with mpl.rc_context(
        {"svg.hashsalt": "grovekeeper", "svg.fonttype": "none", "font.size": 7}
    ):
        names = [name for name in IN_FIGURES if (name, RECALLED_BUDGET) in complete]
        if names:
            figure, axes = _panels(len(names), 4)
            for row, name in zip(axes, names, strict=True):
                _figure_1(
                    row,
                    name,
                    grid[name, RECALLED_BUDGET],
                    printed.n_trees_of("logarithmic", n_rows[name]),
                )
            _save(figure, axes, folder / "bojarski-figure-1.svg")
            figure, axes = _panels(len(names), 2)
            for row, name in zip(axes, names, strict=True):
                budgets = [budget for budget in BUDGETS if (name, budget) in complete]
                by_budget = [
                    [
                        run
                        for run in runs
                        if (run.dataset, run.epsilon) == (name, of_run)
                    ]
                    for of_run in budgets
                ]
                _figure_2(
                    row,
                    name,
                    [float(budget) / (0.9 * n_rows[name]) for budget in budgets],
                    by_budget,
                )
            _save(figure, axes, folder / "bojarski-figure-2.svg")


def _panels(n_rows: int, n_columns: int) -> tuple[Figure, Any]:
    size = (2.9 * n_columns, 2.0 * n_rows)
    return pyplot.subplots(
        n_rows,
        n_columns,
        figsize=size,
        layout="constrained",
        squeeze=False,
        sharey=True,
    )


def _figure_1(
    panels: Sequence[Any], name: str, errors: Errors, logarithmic: int
) -> None:
    numbers = [number for number in N_ESTIMATORS if isinstance(number, int)]
    by_height, range_by_height, by_trees, range_by_trees = panels
    for read_out, colour in COLOURS.items():
        of_read_out = errors[COLUMNS.index(read_out)]
        for n_trees, line in zip(K_IN_FIGURE_1, LINES, strict=True):
            column = of_read_out[:, N_ESTIMATORS.index(n_trees)]
            by_height.plot(
                HEIGHTS, column, line, color=colour, label=f"{read_out}, k = {n_trees}"
            )
        for height, line in zip(H_IN_FIGURE_1, LINES, strict=False):
            row = of_read_out[HEIGHTS.index(height)]
            by_trees.plot(
                [*numbers, logarithmic],
                row,
                line,
                color=colour,
                label=f"{read_out}, h = {height}",
            )
    by_trees.axvline(logarithmic, color="0.6", linestyle=":")
    votes = errors[COLUMNS.index("mv")][:, : len(numbers)]
    for panel, places, axis in (
        (range_by_height, HEIGHTS, 1),
        (range_by_trees, numbers, 0),
    ):
        panel.fill_between(
            places, votes.min(axis=axis), votes.max(axis=axis), color="C0", alpha=0.2
        )
        panel.plot(places, votes.mean(axis=axis), color="C0", label="mv, mean")
    by_height.set(ylabel=f"{name}: test error (%)")
    for panel, title, label in zip(panels, "abcd", "hhkk", strict=True):
        panel.set(title=title, xlabel=label)
    for panel in (by_height, range_by_height):
        panel.set_xticks((1, 5, 10, 15))


def _figure_2(
    panels: Sequence[Any],
    name: str,
    epsilons: Sequence[float],
    by_budget: Sequence[Sequence[GridRun]],
) -> None:
    chosen, by_height = panels
    for read_out, colour in COLOURS.items():
        for n_trees, line in zip(K_IN_FIGURE_2, LINES, strict=False):
            errors = [
                chosen_by_validation(runs, read_out, n_trees) for runs in by_budget
            ]
            chosen.plot(
                epsilons, errors, line, color=colour, label=f"{read_out}, k = {n_trees}"
            )
        for height, line in zip(H_IN_FIGURE_2, LINES, strict=True):
            of_height = [
                next(run for run in runs if run.task.height == height)
                for runs in by_budget
            ]
            place = COLUMNS.index(read_out)
            errors = [
                run.test_errors[place, run.task.n_estimators.index(21)]
                for run in of_height
            ]
            by_height.plot(
                epsilons, errors, line, color=colour, label=f"{read_out}, h = {height}"
            )
    chosen.set(ylabel=f"{name}: test error (%)")
    for panel, title in zip(panels, "ab", strict=True):
        panel.set(title=title, xlabel="ε", xscale="log")


def _save(figure: Figure, axes: Any, path: Path) -> None:
    for panel in axes.flat:
        _name_curves(panel)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _name_curves(panel: Any) -> None:
    """Writes the name of every curve at its right end, names apart from each other."""
    lines = [line for line in panel.get_lines() if not line.get_label().startswith("_")]
    ends = [float(line.get_ydata()[-1]) for line in lines]
    for line, end, place in zip(lines, ends, spread(ends, LINE_HEIGHT), strict=True):
        panel.annotate(
            line.get_label(),
            (line.get_xdata()[-1], end),
            xytext=(1.04, place),
            textcoords=("axes fraction", "data"),
            color=line.get_color(),
            fontsize=5,
            verticalalignment="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": line.get_color(), "lw": 0.3},
        )
