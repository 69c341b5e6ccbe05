"""Draws the figures of ``research.papers.curves``. Needs the extra ``bench``."""

from pathlib import Path

from matplotlib import pyplot

from research.papers import curves
from research.printed_plots import saved, styled

_WIDTH, _HEIGHT = 2.5, 2.2
"""Inches of a panel."""


def draw(folder: Path) -> None:
    """Draws every figure of a results folder from its CSV file."""
    for figure in curves.FIGURES:
        text = (folder / f"{figure.name}.csv").read_text(encoding="utf-8")
        panels = curves.panels(figure, text)
        n_columns = min(figure.n_columns, len(panels))
        n_rows = -(-len(panels) // n_columns)
        with styled():
            drawn, axes = pyplot.subplots(
                n_rows,
                n_columns,
                figsize=(_WIDTH * n_columns + 1.8, _HEIGHT * n_rows + 0.2),
                layout="constrained",
                squeeze=False,
            )
            for plot, (title, lines) in zip(axes.flat, panels.items(), strict=False):
                for name, points in lines.items():
                    plot.plot(
                        *zip(*points, strict=True), marker="o", markersize=2, label=name
                    )
                plot.set(
                    title=title, xscale="log" if figure.is_logarithmic else "linear"
                )
                places = [place for place, _ in next(iter(lines.values()))]
                if figure.is_logarithmic:
                    plot.set_xticks(places, labels=[f"{place:g}" for place in places])
                    plot.minorticks_off()
            for plot in axes[-1]:
                plot.set(xlabel=figure.x_label)
            for plot in axes[:, 0]:
                plot.set(ylabel=figure.y_label)
            drawn.legend(
                *axes.flat[0].get_legend_handles_labels(), loc="outside right center"
            )
            saved(drawn, folder / "plots" / f"{figure.name}.svg")
