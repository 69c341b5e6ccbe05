"""Plots show the committed runs: places of markers follow the numbers, as drawing them
again needs Matplotlib, which is not installed here.
"""

import math
import statistics
from collections.abc import Sequence
from functools import cache
from itertools import product
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from research import printed_tables
from research.papers import __main__ as tables
from research.papers import ablation_runs, ablations, curves, mrf_page
from research.papers.curves import Figure
from research.papers.huang_page import percents
from research.printed_pages import Accuracies

_SVG = "{http://www.w3.org/2000/svg}"

WIDEST = 0.01
"""Points of a page that a marker may be beside its place: coordinates are rounded."""


def markers(name: str) -> list[list[tuple[float, float]]]:
    """By panel, places of the markers of its curves and points, those of axes and
    legends left out.
    """
    root = ET.parse(tables.RESULTS / "plots" / f"{name}.svg").getroot()
    return [
        [
            (float(use.get("x", "nan")), float(use.get("y", "nan")))
            for group in panel
            if group.get("id", "").startswith(("PathCollection_", "line2d_"))
            for use in group.iter(f"{_SVG}use")
        ]
        for panel in root.iter(f"{_SVG}g")
        if panel.get("id", "").startswith("axes_")
    ]


def assert_on_one_scale(
    places: Sequence[float], numbers: Sequence[float], *, axis: int
) -> None:
    """Places are a linear function of numbers, which grow to the right and upwards."""
    assert len(places) == len(numbers)
    line = np.polyfit(numbers, places, 1)
    assert np.sign(line[0]) == (1, -1)[axis], "a picture's second axis goes down"
    assert np.abs(np.polyval(line, numbers) - places).max() < WIDEST


@cache
def _accuracies() -> Accuracies:
    return tables.accuracies(tables.load(tables.RESULTS / "runs.csv", tables.PaperRun))


@pytest.mark.parametrize("table", printed_tables.TABLES)
def test_a_table_is_drawn_from_its_runs(table: str) -> None:
    cells = list(printed_tables.rows(table))
    points = [
        (cell.printed, 100 * statistics.fmean(runs))
        for method in dict.fromkeys(cell.method for cell in cells)
        for place in (0, 1)
        for cell in cells
        if cell.method == method
        if (task := (cell.plain, cell.private)[place]) is not None
        if (runs := _accuracies().get(task.key))
    ]
    (drawn,) = markers(table)
    for axis in (0, 1):
        assert_on_one_scale(
            [place[axis] for place in drawn],
            [point[axis] for point in points],
            axis=axis,
        )


@pytest.mark.parametrize("figure", curves.FIGURES, ids=lambda figure: figure.name)
def test_a_figure_is_drawn_from_its_file(figure: Figure) -> None:
    text = (tables.RESULTS / f"{figure.name}.csv").read_text(encoding="utf-8")
    panels = curves.panels(figure, text).values()
    for drawn, lines in zip(markers(figure.name), panels, strict=True):
        points = [point for curve in lines.values() for point in curve]
        for axis in (0, 1):
            numbers = [point[axis] for point in points]
            if axis == 0 and figure.is_logarithmic:
                numbers = [math.log(number) for number in numbers]
            assert_on_one_scale([place[axis] for place in drawn], numbers, axis=axis)


def test_figures_5_and_6_of_bai_are_drawn_from_their_runs() -> None:
    path = tables.RESULTS / ablation_runs.RUNS
    budgets, strengths = (
        ablation_runs.values_of(name, path) for name in ("mrf-figure-5", "mrf-figure-6")
    )
    of_5 = [
        [
            statistics.fmean(
                percents(budgets, mrf_page.pooled_tasks(slug, n_trees, epsilon))
            )
            for slug, n_trees in product(
                ablations.FIGURE_5_FORESTS, ablations.FIGURE_5_TREES
            )
        ]
        for epsilon in ablations.BUDGETS
    ]
    of_6 = [
        [
            statistics.fmean(percents(strengths, [task]))
            for task in mrf_page.strength_tasks(dataset)
        ]
        for dataset in ablations.FIGURE_6_DATASETS
    ]
    for name, panels in (("figure-5", of_5), ("figure-6", of_6)):
        for drawn, numbers in zip(markers(name), panels, strict=True):
            # curves may be drawn in another order
            highest_first = sorted(numbers, reverse=True)
            assert_on_one_scale(sorted(y for _, y in drawn), highest_first, axis=1)
