"""Repeats the figures of the multinomial forest's paper over ε, number of trees, B1 and B2, and plots the tables."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot

from benchmarks.printed_tables import Cell
from benchmarks.reference.literal_rules import vote_ceiling
from benchmarks.runs import Task

BY_EPSILON = ("wdbc", "banknote")
EPSILONS, N_TREES = ("0.1", "0.5", "1"), (1, 2, 4, 8, 16, 32, 64)
"""Values of the paper's figure 5, which prints no numbers and names no dataset in our text."""

BY_STRENGTH = ("wdbc", "cmc", "car")
STRENGTHS = (0, 5, 10, 15, 20)
"""Datasets of the paper's figure 6 that we have, and values of B1 and B2 in its range."""

Means = Mapping[tuple[object, ...], float]
"""Mean accuracy in percent by the key of the task on the first split."""


def tasks() -> Iterator[Task]:
    """Every run of both figures, on the first split."""
    for dataset in BY_EPSILON:
        for epsilon in EPSILONS:
            yield from (Task(dataset, f"mrf:n_estimators={n_trees}", epsilon, "0", 0) for n_trees in N_TREES)
    for dataset in BY_STRENGTH:
        for b1 in STRENGTHS:
            yield from (Task(dataset, f"mrf-plain:b1={b1},b2={b2}", "", "0", 0) for b2 in STRENGTHS)


def draw(folder: Path, means: Means) -> None:
    """Draws figures 5 and 6 as far as runs exist.

    Args:
        folder: of the files ``figure-5.svg`` and ``figure-6.svg``.
        means: of all runs.
    """
    with mpl.rc_context({"svg.hashsalt": "grovekeeper", "svg.fonttype": "none", "font.size": 8}):
        figure, axes = pyplot.subplots(1, len(BY_EPSILON), figsize=(8, 3.2), layout="constrained", sharey=True)
        for plot, dataset in zip(axes, BY_EPSILON, strict=True):
            for place, epsilon in enumerate(EPSILONS):
                points = _known(means, {n: Task(dataset, f"mrf:n_estimators={n}", epsilon, "0", 0) for n in N_TREES})
                plot.plot(
                    *zip(*points, strict=True), marker="o", markersize=3, color=f"C{place}", label=f"ε = {epsilon}"
                )
                ceiling = [(n, 100 * vote_ceiling(n, float(epsilon))) for n in N_TREES]
                plot.plot(*zip(*ceiling, strict=True), color=f"C{place}", linestyle=":")
            plot.set(title=dataset, xlabel="trees", xscale="log", ylim=(45, 100))
        axes[0].set(ylabel="accuracy (%)")
        axes[0].legend(title="dotted: at most, by the paper's rule")
        _save(figure, folder / "figure-5.svg")

        figure, axes = pyplot.subplots(1, len(BY_STRENGTH), figsize=(9, 3), layout="constrained")
        for plot, dataset in zip(axes, BY_STRENGTH, strict=True):
            for b1 in STRENGTHS:
                points = _known(
                    means, {b2: Task(dataset, f"mrf-plain:b1={b1},b2={b2}", "", "0", 0) for b2 in STRENGTHS}
                )
                plot.plot(*zip(*points, strict=True), marker="o", markersize=3, label=f"B1 = {b1}")
            plot.set(title=dataset, xlabel="B2")
        axes[0].set(ylabel="accuracy (%)")
        axes[-1].legend()
        _save(figure, folder / "figure-6.svg")


def draw_table(path: Path, rows: Sequence[tuple[Cell, float | None, float | None]]) -> None:
    """Draws our accuracy against the printed one: filled without privacy, hollow private.

    Args:
        path: of the SVG.
        rows: printed cell, our mean without privacy and our private mean, in percent.
    """
    with mpl.rc_context({"svg.hashsalt": "grovekeeper", "svg.fonttype": "none", "font.size": 8}):
        figure, axes = pyplot.subplots(figsize=(5, 4.4), layout="constrained")
        for place, method in enumerate(dict.fromkeys(cell.method for cell, _, _ in rows)):
            for column, face in ((1, f"C{place}"), (2, "none")):
                points = [(row[0].printed, row[column]) for row in rows if row[0].method == method]
                known = [(printed, ours) for printed, ours in points if ours is not None]
                if known:
                    name = f"{method}, private" if column == 2 else method
                    axes.scatter(*zip(*known, strict=True), facecolors=face, edgecolors=f"C{place}", s=18, label=name)
        low = min(axes.get_xlim()[0], axes.get_ylim()[0])
        axes.plot([low, 100], [low, 100], color="0.6", linewidth=0.8)
        axes.set(xlabel="printed accuracy (%)", ylabel="our accuracy (%)")
        axes.legend(fontsize=6)
        _save(figure, path)


def _known(means: Means, tasks_by_place: Mapping[int, Task]) -> list[tuple[float, float]]:
    points = [(place, means[task.key]) for place, task in tasks_by_place.items() if task.key in means]
    return [(float(place), mean) for place, mean in points] or [(float("nan"), float("nan"))]


def _save(figure: pyplot.Figure, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
