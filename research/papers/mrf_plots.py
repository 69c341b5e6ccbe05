"""Draws figures 5 and 6 of Bai et al.: accuracy over ε and the number of trees, and
over B1 and B2.
"""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib import pyplot

from research.papers import ablations, mrf_page
from research.papers.ablations import Values
from research.papers.huang_page import percents
from research.papers.literal_forests import SMOOTH
from research.printed_plots import saved, styled
from research.runs import Task

_NAMES = {
    ablations.LITERAL: "MRF as printed",
    SMOOTH: "SmoothRF as printed",
    "mrf": "mrf, repaired",
    "srt": "srt, repaired",
}


def draw_budgets(path: Path, values: Values) -> None:
    """Draws figure 5 of Bai et al.: mean accuracy over the datasets by number of trees,
    of every forest, a plot per ε.
    """
    with styled():
        figure, axes = pyplot.subplots(
            1,
            len(ablations.BUDGETS),
            figsize=(11, 3),
            layout="constrained",
            sharey=True,
        )
        for plot, epsilon in zip(axes, ablations.BUDGETS, strict=True):
            for slug, name in _NAMES.items():
                means = [
                    _mean(values, mrf_page.pooled_tasks(slug, n_trees, epsilon))
                    for n_trees in ablations.FIGURE_5_TREES
                ]
                plot.plot(
                    ablations.FIGURE_5_TREES,
                    means,
                    marker="o",
                    markersize=3,
                    label=name,
                )
            plot.set(title=f"ε = {epsilon}", xlabel="trees", xscale="log")
            plot.set_xticks(
                ablations.FIGURE_5_TREES, labels=map(str, ablations.FIGURE_5_TREES)
            )
            plot.minorticks_off()
        axes[0].set(ylabel="accuracy (%)")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
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
                means = [_mean(values, [task]) for task in tasks]
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


def _mean(values: Values, tasks: Sequence[Task]) -> float:
    """Mean accuracy in percent; NaN without a run."""
    return statistics.fmean(percents(values, tasks) or [math.nan])
