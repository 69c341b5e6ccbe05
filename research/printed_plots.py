"""Plots the tables of the papers."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot

from research.printed_tables import Cell


def styled() -> AbstractContextManager[None]:
    """The style of every plot: text stays text, and equal plots are equal files."""
    return mpl.rc_context(
        {"svg.hashsalt": "grovekeeper", "svg.fonttype": "none", "font.size": 8}
    )


def draw_table(
    path: Path, rows: Sequence[tuple[Cell, float | None, float | None]]
) -> None:
    """Draws our accuracy against the printed one: filled without privacy, hollow
    private.

    Args:
        path: of the SVG.
        rows: printed cell, our mean without privacy and our private mean, in percent.
    """
    with styled():
        figure, axes = pyplot.subplots(figsize=(5, 4.4), layout="constrained")
        for place, method in enumerate(
            dict.fromkeys(cell.method for cell, _, _ in rows)
        ):
            for column, face in ((1, f"C{place}"), (2, "none")):
                points = [
                    (row[0].printed, row[column])
                    for row in rows
                    if row[0].method == method
                ]
                known = [
                    (printed, ours) for printed, ours in points if ours is not None
                ]
                if known:
                    name = f"{method}, private" if column == 2 else method
                    axes.scatter(
                        *zip(*known, strict=True),
                        facecolors=face,
                        edgecolors=f"C{place}",
                        s=18,
                        label=name,
                    )
        low = min(axes.get_xlim()[0], axes.get_ylim()[0])
        axes.plot([low, 100], [low, 100], color="0.6", linewidth=0.8)
        axes.set(xlabel="printed accuracy (%)", ylabel="our accuracy (%)")
        axes.legend(fontsize=6)
        saved(figure, path)


def saved(figure: pyplot.Figure, path: Path) -> None:
    """Writes a plot and frees it."""
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
