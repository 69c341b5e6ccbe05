"""Plots accuracy against ε, one SVG per dataset. Needs the extra ``bench``."""

import statistics
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot

from research.leads import BySplit, Cell
from research.runs import Run


def draw(
    folder: Path, runs: Sequence[Run], references: Mapping[Cell, Mapping[str, BySplit]]
) -> list[Path]:
    """Draws mean accuracy ± standard deviation of every algorithm, and the best
    reference at each ε as a grey line.

    Args:
        folder: folder of the plots ``<dataset>.svg``; made if it does not exist.
        runs: runs to plot.
        references: accuracy by split, per dataset, ε and method; may be empty.

    Returns:
        The files, in the order of the datasets.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    # With a fixed salt and no date, equal runs give equal bytes.
    with mpl.rc_context(
        {"svg.hashsalt": "grovekeeper", "svg.fonttype": "none", "font.size": 9}
    ):
        for dataset in dict.fromkeys(run.dataset for run in runs):
            figure, axes = pyplot.subplots(figsize=(5, 3.4), layout="constrained")
            for algorithm, points in curves(
                [run for run in runs if run.dataset == dataset]
            ).items():
                epsilons, means, spreads = zip(*points, strict=True)
                axes.errorbar(
                    epsilons,
                    means,
                    yerr=spreads,
                    marker="o",
                    markersize=3,
                    capsize=2,
                    label=algorithm,
                )
            best = best_references(dataset, references)
            if best:
                axes.plot(
                    *zip(*best, strict=True),
                    color="0.6",
                    linestyle="--",
                    label="best reference",
                )
            axes.set(title=dataset, xlabel="ε", ylabel="accuracy (%)", xscale="log")
            axes.grid(visible=True, alpha=0.3)
            axes.legend()
            files.append(folder / f"{dataset}.svg")
            figure.savefig(files[-1], metadata={"Date": None})
            pyplot.close(figure)
    return files


def curves(runs: Sequence[Run]) -> dict[str, list[tuple[float, float, float]]]:
    """ε, mean and standard deviation of accuracy in percent, per algorithm in ascending
    order of ε.
    """
    points_by_algorithm = {}
    for algorithm in dict.fromkeys(run.algorithm for run in runs):
        algorithm_runs = [run for run in runs if run.algorithm == algorithm]
        points = []
        for epsilon in sorted({Fraction(run.epsilon) for run in algorithm_runs}):
            percent = [
                100 * run.accuracy
                for run in algorithm_runs
                if Fraction(run.epsilon) == epsilon
            ]
            spread = statistics.stdev(percent) if len(percent) > 1 else 0.0
            points.append((float(epsilon), statistics.fmean(percent), spread))
        points_by_algorithm[algorithm] = points
    return points_by_algorithm


def best_references(
    dataset: str, references: Mapping[Cell, Mapping[str, BySplit]]
) -> list[tuple[float, float]]:
    """ε and the largest mean accuracy of any reference in percent, in ascending order
    of ε.
    """
    return sorted(
        (
            float(epsilon),
            max(100 * statistics.fmean(runs.values()) for runs in methods.values()),
        )
        for (name, epsilon), methods in references.items()
        if name == dataset and methods
    )
