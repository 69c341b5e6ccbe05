"""Reads the curves of figures from the CSV files behind the pages of the papers."""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Curve = Sequence[tuple[float, float]]
"""Points of a curve."""

Panels = Mapping[str, Mapping[str, Curve]]
"""Curves by title of the panel and name of the curve."""

_NUMBER = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True)
class Figure:
    """A figure of a paper.

    Attributes:
        name: of its CSV file and of its plot.
        panel: columns that name a panel.
        line: column that names a curve; empty: every column that is no other one is a
            curve.
        x: column of the places; empty: every column that is no other one is a place.
        y: columns of the values, where both ``line`` and ``x`` are columns; each has
            panels of its own.
        x_label: of the axis.
        y_label: of the axis.
        n_columns: panels side by side.
        is_logarithmic: whether places have a logarithmic scale.
    """

    name: str
    panel: Sequence[str]
    line: str = ""
    x: str = ""
    y: Sequence[str] = ()
    x_label: str = "trees"
    y_label: str = "accuracy (%)"
    n_columns: int = 4
    is_logarithmic: bool = False


FIGURES = (
    Figure("huang-figure-1", ("attributes",), x="ε", x_label="ε", is_logarithmic=True),
    Figure(
        "huang-figure-2",
        ("depth",),
        x="ε",
        x_label="ε",
        y_label="distance",
        is_logarithmic=True,
    ),
    Figure("huang-figure-3", ("dataset",), "depth"),
    Figure(
        "song-figure-2",
        ("dataset",),
        "p1",
        "p2",
        ("accuracy", "seconds"),
        x_label="p2",
        y_label="",
        n_columns=2,
    ),
    Figure("song-figure-4", ("dataset",), "forest"),
    Figure("song-figure-5", ("dataset", "ε"), "forests", n_columns=3),
)
"""The figures of Huang, Lei and Kabán and of Song and Wang that have curves."""


def panels(figure: Figure, text: str) -> Panels:
    """The curves of a figure.

    Args:
        figure: one of :data:`FIGURES`.
        text: of its CSV file.
    """
    points: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in csv.DictReader(text.splitlines()):
        for title, line, place, value in _points(figure, row):
            points[title][line].append((place, value))
    return points


def _points(
    figure: Figure, row: Mapping[str, str]
) -> Iterator[tuple[str, str, float, float]]:
    """Panel, curve, place and value of the points of a row; a cell of two forests has a
    point of each.
    """
    first, *others = figure.panel
    titles = [f"{first} = {row[first]}" if row[first].isdigit() else row[first]]
    titles += [f"{name} = {row[name]}" for name in others]
    title = ", ".join(titles)
    taken = {*figure.panel, figure.line, figure.x}
    for name in figure.y or (name for name in row if name not in taken):
        place = _number(row[figure.x] if figure.x else name)
        # a depth stands behind its rule, "2d = 8", and differs by panel
        line = row[figure.line].partition(" = ")[0] if figure.line else name
        if figure.y:
            yield (
                f"{title}, {name}",
                f"{figure.line} = {line}",
                place,
                _number(row[name]),
            )
            continue
        cells = row[name].split(" / ")
        of_forests = ("BMS-RF, ", "MRF, ") if len(cells) > 1 else ("",)
        for forest, cell in zip(of_forests, cells, strict=True):
            yield title, f"{forest}{line}", place, _number(cell)


def _number(cell: str) -> float:
    """The first number of a cell; NaN for a dash."""
    found = _NUMBER.search(cell)
    return float(found[0]) if found else math.nan
