"""Curves of figures are the numbers of their files, and every plot is on a page."""

import csv
import math

import pytest

from research.papers import __main__ as tables
from research.papers import curves
from research.papers.curves import Figure, Panels


def _panels(name: str) -> Panels:
    (figure,) = (figure for figure in curves.FIGURES if figure.name == name)
    text = (tables.RESULTS / f"{name}.csv").read_text(encoding="utf-8")
    return curves.panels(figure, text)


@pytest.mark.parametrize("figure", curves.FIGURES, ids=lambda figure: figure.name)
def test_every_number_of_a_file_is_a_point(figure: Figure) -> None:
    path = tables.RESULTS / f"{figure.name}.csv"
    head, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines())
    names = {*figure.panel, figure.line, figure.x} - {""}
    cells = [
        number
        for row in rows
        for name, cell in zip(head, row, strict=True)
        if name not in names
        for number in cell.split(" / ")
    ]
    points = [
        value
        for lines in _panels(figure.name).values()
        for curve in lines.values()
        for _, value in curve
    ]
    assert sorted(points) == sorted(float(cell.split()[0]) for cell in cells)


def test_panels_and_curves_have_names() -> None:
    of_budgets = _panels("song-figure-5")
    assert len(of_budgets) == 12
    assert list(of_budgets["Zoo, ε = 0.1"]) == [
        "BMS-RF, as printed",
        "MRF, as printed",
        "BMS-RF, repaired",
        "MRF, repaired",
        "at most",
    ]
    assert [place for place, _ in of_budgets["Zoo, ε = 1"]["at most"]] == [3, 30, 60]
    assert list(_panels("huang-figure-2")) == ["depth = 5", "depth = 10"]
    for lines in _panels("huang-figure-3").values():
        assert list(lines) == ["d/2", "d", "2d", "spe, d"]
    assert list(_panels("song-figure-2"))[:2] == [
        "movement_libras, accuracy",
        "movement_libras, seconds",
    ]


def test_a_dash_is_no_number() -> None:
    figure = Figure("x", ("dataset",), "forest")
    text = "dataset,forest,1 tree\nzoo,mrf,–\n"
    ((place, value),) = curves.panels(figure, text)["zoo"]["mrf"]
    assert place == 1
    assert math.isnan(value)
