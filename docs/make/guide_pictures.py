"""Draws the pictures of the guides as SVG: odds, cells and boxes, the way of a job,
accuracy against ε.

Run ``python -m docs.make.guide_pictures`` after the measurements changed. The bytes
depend on committed numbers alone, so a test compares them with the files.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from grovekeeper_forests.expected_accuracy import MEASUREMENTS

FOLDER = Path(__file__).parents[1] / "pictures"
TABLES = ("adult", "nursery", "pendigits")
"""Tables of two, five and ten classes; the last one has numbers alone."""

_COLOURS = (
    "#0b5fa5",
    "#c2410c",
    "#15803d",
    "#7e22ce",
    "#b91c1c",
    "#0f766e",
    "#a16207",
    "#4338ca",
    "#be185d",
    "#475569",
)
_STYLE = "font-family='system-ui, sans-serif' font-size='14'"


def drawn() -> dict[str, str]:
    """Every picture by the name of its file."""
    measured = json.loads(MEASUREMENTS.read_text(encoding="utf-8"))
    curves = {f"accuracy-{name}.svg": accuracy(name, measured[name]) for name in TABLES}
    return {"odds.svg": odds(), "cells.svg": cells(), "job.svg": job(), **curves}


def odds() -> str:
    """How often a guess about one row is right at most, by ε."""
    parts = [
        _text(20, 28, "A right guess about one row, at most this often", weight="bold")
    ]
    for row, epsilon in enumerate((0.1, 0.5, 1, 3, 10)):
        y, share = 60 + 40 * row, math.exp(epsilon) / (1 + math.exp(epsilon))
        percent = "more than 99 %" if share > 0.995 else f"{math.ceil(100 * share)} %"
        parts += [
            _text(20, y + 17, f"ε = {epsilon:g}"),
            _box(100, y, 400, 24, fill="#e5e7eb"),
            _box(100, y, 400 * share, 24, fill="#0b5fa5"),
            _text(512, y + 17, percent),
        ]
    parts += [
        _line([(300, 52), (300, 250)], dash="4 4"),
        _text(300, 272, "a coin: 50 %", anchor="middle"),
    ]
    return _svg(
        640,
        290,
        "Odds of a right guess by ε: 53 % at 0.1, 63 % at 0.5, 74 % at 1, 96 % at 3",
        parts,
    )


def cells() -> str:
    """Two partitions, two boxes, and the joint cell in which they add up."""
    parts = [
        _text(
            20,
            28,
            "Jobs on disjoint cells do not add up; jobs that share a joint cell do",
            weight="bold",
        )
    ]
    shards, regions = ("shard 0", "shard 1", "shard 2"), ("EU", "US", "OTHER")
    for column, shard in enumerate(shards):
        parts.append(_text(185 + 120 * column, 66, shard, anchor="middle"))
        for row, region in enumerate(regions):
            spent = (1 if column == 0 else 0) + (0.5 if row == 0 else 0)
            fill = {0: "#ffffff", 0.5: "#fde4cf", 1: "#cfe3f5", 1.5: "#d9c7ee"}[spent]
            parts.append(
                _box(
                    125 + 120 * column,
                    80 + 50 * row,
                    120,
                    50,
                    fill=fill,
                    stroke="#475569",
                )
            )
            parts.append(
                _text(
                    185 + 120 * column, 110 + 50 * row, f"ε {spent:g}", anchor="middle"
                )
            )
            if column == 0:
                parts.append(_text(110, 110 + 50 * row, region, anchor="end"))
    parts += [
        _text(20, 262, "Job A: ε = 1 on shard 0. Job B: ε = 0.5 on region EU."),
        _text(
            20,
            284,
            "The tightest cell (shard 0, EU) paid 1.5; the account compares 1.5 with its cap.",
        ),
    ]
    return _svg(
        640,
        300,
        "A grid of joint cells: job A and job B add up in the cell that both cover",
        parts,
    )


def job() -> str:
    """The steps of a training job, and the step at which the charge becomes final."""
    steps = (
        ("quote", "reads no row", "costs nothing"),
        ("reserve", "or refuse: says", "what would fit"),
        ("charge", "final, also if", "the job fails"),
        ("train", "first private read", "in a child process"),
        ("predict", "post-processing", "costs nothing"),
    )
    parts = [_text(20, 28, "The way of a job", weight="bold")]
    for number, (name, *lines) in enumerate(steps):
        x = 20 + 152 * number
        parts.append(
            _box(
                x,
                50,
                132,
                90,
                fill="#cfe3f5" if name == "charge" else "#f8fafc",
                stroke="#475569",
            )
        )
        parts.append(_text(x + 66, 76, name, weight="bold", anchor="middle"))
        parts += [
            _text(x + 66, 100 + 20 * at, line, anchor="middle", size=12)
            for at, line in enumerate(lines)
        ]
        if number:
            parts.append(_line([(x - 20, 95), (x, 95)]))
    return _svg(
        790,
        160,
        "Quote, reserve, charge, train, predict: the charge comes before the first private read",
        parts,
    )


def accuracy(name: str, table: Mapping[str, object]) -> str:
    """Accuracy of every measured algorithm on one table against ε, between the largest
    class and no privacy.

    An algorithm that was measured on pure accounts is drawn for these alone.
    """
    runs: Mapping[str, Mapping[str, float]] = table["accuracy"]  # type: ignore[assignment]
    measured = {
        run: runs[run]
        for run in runs
        if run.endswith("@pure") or f"{run.partition('@')[0]}@pure" not in runs
    }
    majority, forest = float(str(table["majority"])), float(str(table["forest"]))
    lowest = (
        math.floor(
            10
            * min(
                majority,
                *(value for curve in measured.values() for value in curve.values()),
            )
        )
        / 10
    )

    def x(epsilon: float) -> float:
        return 60 + 400 * (math.log10(epsilon) + 1) / 2

    def y(share: float) -> float:
        return 330 - 270 * (share - lowest) / (1 - lowest)

    parts = [_text(20, 28, f"Accuracy on {name} against ε", weight="bold")]
    for epsilon in (0.1, 0.5, 1, 2, 10):
        parts += [_line([(x(epsilon), 60), (x(epsilon), 330)], colour="#e5e7eb")]
        parts += [_text(x(epsilon), 350, f"{epsilon:g}", anchor="middle", size=12)]
    for step in range(int(10 * lowest), 11):
        parts.append(
            _text(52, y(step / 10) + 4, f"{10 * step} %", anchor="end", size=12)
        )
    for share, what in ((forest, "no privacy"), (majority, "largest class")):
        parts += [
            _line([(60, y(share)), (460, y(share))], dash="6 4"),
            _text(62, y(share) - 4, what, size=11),
        ]
    for number, (algorithm, curve) in enumerate(sorted(measured.items())):
        colour, dash = (
            _COLOURS[number % len(_COLOURS)],
            None if number < len(_COLOURS) else "2 3",
        )
        points = [
            (x(float(epsilon)), y(value))
            for epsilon, value in sorted(curve.items(), key=_epsilon)
        ]
        parts += [
            _line(points, colour=colour, dash=dash, width=2),
            *(_dot(*point, colour) for point in points),
        ]
        parts += [
            _line(
                [(480, 58 + 20 * number), (504, 58 + 20 * number)],
                colour=colour,
                dash=dash,
                width=2,
            )
        ]
        parts += [_text(510, 62 + 20 * number, algorithm, size=12)]
    height = max(370, 80 + 20 * len(measured))
    return _svg(
        680,
        height,
        f"Curves of accuracy against ε on {name}, one for each algorithm",
        parts,
    )


def _epsilon(point: tuple[str, float]) -> float:
    return float(point[0])


def _svg(width: int, height: int, label: str, parts: Iterable[str]) -> str:
    size = f"viewBox='0 0 {width} {height}' width='{width}'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img' {_STYLE}>"
    return "\n".join(
        [
            head,
            f"<title>{escape(label)}</title>",
            _box(0, 0, width, height, fill="#ffffff"),
            *parts,
            "</svg>\n",
        ]
    )


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    weight: str = "normal",
    size: int = 14,
) -> str:
    place = f"x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' font-weight='{weight}' font-size='{size}'"
    return f"<text {place} fill='#1f2937'>{escape(text)}</text>"


def _box(
    x: float, y: float, width: float, height: float, *, fill: str, stroke: str = "none"
) -> str:
    return f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}' fill='{fill}' stroke='{stroke}'/>"


def _dot(x: float, y: float, colour: str) -> str:
    return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='{colour}'/>"


def _line(
    points: Sequence[tuple[float, float]],
    *,
    colour: str = "#475569",
    dash: str | None = None,
    width: int = 1,
) -> str:
    listed = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = "" if dash is None else f" stroke-dasharray='{dash}'"
    return f"<polyline points='{listed}' fill='none' stroke='{colour}' stroke-width='{width}'{dashes}/>"


def write() -> None:
    """Stores all pictures."""
    for file, picture in drawn().items():
        (FOLDER / file).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    write()
