"""Draws figures 5 and 6 of Bai et al.: accuracy over ε and the number of trees, and
over B1 and B2.
"""

import math
import statistics
from itertools import product
from pathlib import Path

from matplotlib import pyplot

from research.papers import ablations
from research.papers.ablations import Values
from research.papers.huang_page import percents
from research.printed_plots import saved, styled
from research.runs import Task

_NAMES = {ablations.LITERAL: "as printed", "mrf": "mrf", "srt": "srt"}
_LINES = dict(zip(ablations.BUDGETS, (":", "--", "-"), strict=True))


def draw_budgets(path: Path, values: Values) -> None:
    """Draws figure 5 of Bai et al.: accuracy by number of trees, of every forest at
    every ε, a plot per dataset.
    """
    with styled():
        n_columns = 3
        n_rows = -(-len(ablations.FIGURE_5_DATASETS) // n_columns)
        figure, axes = pyplot.subplots(
            n_rows,
            n_columns,
            figsize=(9, 2.3 * n_rows),
            layout="constrained",
            sharex=True,
            squeeze=False,
        )
        for plot, dataset in zip(axes.flat, ablations.FIGURE_5_DATASETS, strict=False):
            for (place, slug), epsilon in product(
                enumerate(ablations.FIGURE_5_FORESTS), ablations.BUDGETS
            ):
                tasks = [
                    ablations.privacy_task(slug, dataset, n, epsilon)
                    for n in ablations.FIGURE_5_TREES
                ]
                means = [_mean(values, task) for task in tasks]
                label = f"{_NAMES[slug]}, ε = {epsilon}"
                plot.plot(
                    ablations.FIGURE_5_TREES,
                    means,
                    color=f"C{place}",
                    linestyle=_LINES[epsilon],
                    label=label,
                )
            plot.set(title=dataset, xscale="log")
        for plot in axes.flat[len(ablations.FIGURE_5_DATASETS) :]:
            plot.set_axis_off()
        figure.supxlabel("trees")
        figure.supylabel("accuracy (%)")
        figure.legend(
            *axes.flat[0].get_legend_handles_labels(),
            loc="outside upper center",
            ncols=3,
        )
        saved(figure, path)


def draw_strengths(path: Path, values: Values) -> None:
    """Draws figure 6 of Bai et al.: accuracy by B2 at every B1, without privacy, a plot
    per dataset.
    """
    with styled():
        figure, axes = pyplot.subplots(
            1, len(ablations.FIGURE_6_DATASETS), figsize=(11, 3), layout="constrained"
        )
        for plot, dataset in zip(axes, ablations.FIGURE_6_DATASETS, strict=True):
            for b1 in ablations.FIGURE_6_STRENGTHS:
                tasks = [
                    ablations.strength_task(dataset, b1, b2)
                    for b2 in ablations.FIGURE_6_STRENGTHS
                ]
                means = [_mean(values, task) for task in tasks]
                plot.plot(
                    ablations.FIGURE_6_STRENGTHS,
                    means,
                    marker="o",
                    markersize=3,
                    label=f"B1 = {b1}",
                )
            plot.set(title=dataset, xlabel="B2")
        axes[0].set(ylabel="accuracy (%)")
        axes[-1].legend()
        saved(figure, path)


def _mean(values: Values, task: Task) -> float:
    """Mean accuracy in percent; NaN without a run."""
    return statistics.fmean(percents(values, [task]) or [math.nan])
