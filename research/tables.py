"""Makes Markdown tables of accuracy runs: accuracy, log loss and calibration,
reliability.
"""

import json
import math
import statistics
from collections.abc import Callable, Sequence
from fractions import Fraction

from research.runs import N_BINS, Run


def accuracy(runs: Sequence[Run]) -> str:
    """Mean ± standard deviation of accuracy in percent, mean AUROC for two classes,
    number and depth of trees.
    """
    return _by_dataset(runs, _accuracy_cell)


def log_loss(runs: Sequence[Run]) -> str:
    """Mean log loss and expected calibration error in points."""
    return _by_dataset(runs, _log_loss_cell)


def _by_dataset(runs: Sequence[Run], cell: Callable[[Sequence[Run]], str]) -> str:
    epsilons = sorted({Fraction(run.epsilon) for run in runs})
    lines = [
        f"| dataset | algorithm | {' | '.join(f'ε = {float(epsilon):g}' for epsilon in epsilons)} |",
        f"|---|---|{'---|' * len(epsilons)}",
    ]
    for dataset, algorithm in dict.fromkeys(
        (run.dataset, run.algorithm) for run in runs
    ):
        algorithm_runs = [
            run for run in runs if (run.dataset, run.algorithm) == (dataset, algorithm)
        ]
        cells = [
            cell([run for run in algorithm_runs if Fraction(run.epsilon) == epsilon])
            for epsilon in epsilons
        ]
        lines.append(f"| {dataset} | `{algorithm}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _accuracy_cell(cell_runs: Sequence[Run]) -> str:
    if not cell_runs:
        return "–"
    percent = [100 * run.accuracy for run in cell_runs]
    spread = f" ± {statistics.stdev(percent):.1f}" if len(percent) > 1 else ""
    areas = [run.auroc for run in cell_runs if not math.isnan(run.auroc)]
    area = f" / {statistics.fmean(areas):.3f}" if areas else ""
    return f"{statistics.fmean(percent):.1f}{spread}{area} ({cell_runs[0].n_trees} × depth {cell_runs[0].depth})"


def _log_loss_cell(cell_runs: Sequence[Run]) -> str:
    if not cell_runs:
        return "–"
    return f"{statistics.fmean(run.log_loss for run in cell_runs):.3f} / {100 * calibration_error(cell_runs):.1f}"


def calibration_error(runs: Sequence[Run]) -> float:
    """Mean over rows of |confidence − share of right labels| of a row's bin; bins are
    pooled over runs.
    """
    pooled = pooled_reliability(runs)
    return sum(abs(confidence - right) for _, confidence, right in pooled) / sum(
        rows for rows, _, _ in pooled
    )


def pooled_reliability(runs: Sequence[Run]) -> list[tuple[float, float, float]]:
    """Number of rows, sum of confidences and number of right labels of every bin, over
    all runs.
    """
    parts = [json.loads(run.reliability) for run in runs]
    return [
        (sum(rows), sum(confidence), sum(right))
        for rows, confidence, right in (
            zip(*bins, strict=True) for bins in zip(*parts, strict=True)
        )
    ]


def reliability(runs: Sequence[Run]) -> str:
    """Mean of the largest probability and share of right labels, per algorithm, ε and
    bin of that probability.
    """
    epsilons = sorted({Fraction(run.epsilon) for run in runs})
    bounds = [
        f"{index / N_BINS:.1f}–{(index + 1) / N_BINS:.1f}" for index in range(N_BINS)
    ]
    lines = [f"| algorithm | ε | {' | '.join(bounds)} |", f"|---|---|{'---|' * N_BINS}"]
    for algorithm in dict.fromkeys(run.algorithm for run in runs):
        for epsilon in epsilons:
            cell_runs = [
                run
                for run in runs
                if run.algorithm == algorithm and Fraction(run.epsilon) == epsilon
            ]
            if cell_runs:
                cells = " | ".join(
                    _bin_cell(*bin_) for bin_ in pooled_reliability(cell_runs)
                )
                lines.append(f"| `{algorithm}` | {float(epsilon):g} | {cells} |")
    return "\n".join(lines) + "\n"


def _bin_cell(rows: float, confidence: float, right: float) -> str:
    return f"{100 * confidence / rows:.0f} → {100 * right / rows:.0f}" if rows else "–"
