"""Markdown tables of accuracy runs: accuracy and ranking, log loss and calibration, reliability."""

import json
import math
import statistics
from collections.abc import Callable, Sequence
from fractions import Fraction

from benchmarks.runs import N_BINS, Run


def accuracy(runs: Sequence[Run]) -> str:
    """Mean ± standard deviation of accuracy in percent, mean AUROC for two classes, number and depth of trees."""
    return _by_dataset(runs, _accuracy_cell)


def log_loss(runs: Sequence[Run]) -> str:
    """Mean log loss, and the expected calibration error in points."""
    return _by_dataset(runs, _log_loss_cell)


def _by_dataset(runs: Sequence[Run], cell: Callable[[Sequence[Run]], str]) -> str:
    epsilons = sorted({Fraction(run.epsilon) for run in runs})
    lines = [
        f"| dataset | algorithm | {' | '.join(f'ε = {float(epsilon):g}' for epsilon in epsilons)} |",
        f"|---|---|{'---|' * len(epsilons)}",
    ]
    for dataset, algorithm in dict.fromkeys((run.dataset, run.algorithm) for run in runs):
        mine = [run for run in runs if (run.dataset, run.algorithm) == (dataset, algorithm)]
        cells = [cell([run for run in mine if Fraction(run.epsilon) == epsilon]) for epsilon in epsilons]
        lines.append(f"| {dataset} | `{algorithm}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _accuracy_cell(same: Sequence[Run]) -> str:
    if not same:
        return "–"
    percent = [100 * run.accuracy for run in same]
    spread = f" ± {statistics.stdev(percent):.1f}" if len(percent) > 1 else ""
    areas = [run.auroc for run in same if not math.isnan(run.auroc)]
    area = f" / {statistics.fmean(areas):.3f}" if areas else ""
    return f"{statistics.fmean(percent):.1f}{spread}{area} ({same[0].n_trees} × depth {same[0].depth})"


def _log_loss_cell(same: Sequence[Run]) -> str:
    if not same:
        return "–"
    return f"{statistics.fmean(run.log_loss for run in same):.3f} / {100 * calibration_error(same):.1f}"


def calibration_error(runs: Sequence[Run]) -> float:
    """Mean over rows of |confidence − share of right labels| of their bin, bins pooled over runs."""
    pooled = pooled_reliability(runs)
    return sum(abs(confidence - right) for _, confidence, right in pooled) / sum(rows for rows, _, _ in pooled)


def pooled_reliability(runs: Sequence[Run]) -> list[tuple[float, float, float]]:
    """Rows, summed confidence and right rows of every bin, over all runs."""
    parts = [json.loads(run.reliability) for run in runs]
    return [
        (sum(rows), sum(confidence), sum(right))
        for rows, confidence, right in (zip(*bins, strict=True) for bins in zip(*parts, strict=True))
    ]


def reliability(runs: Sequence[Run]) -> str:
    """Per algorithm and ε: in each bin of the largest probability, its mean against the share of right labels."""
    epsilons = sorted({Fraction(run.epsilon) for run in runs})
    bounds = [f"{index / N_BINS:.1f}–{(index + 1) / N_BINS:.1f}" for index in range(N_BINS)]
    lines = [f"| algorithm | ε | {' | '.join(bounds)} |", f"|---|---|{'---|' * N_BINS}"]
    for algorithm in dict.fromkeys(run.algorithm for run in runs):
        for epsilon in epsilons:
            same = [run for run in runs if run.algorithm == algorithm and Fraction(run.epsilon) == epsilon]
            if same:
                cells = " | ".join(_bin_cell(*bin_) for bin_ in pooled_reliability(same))
                lines.append(f"| `{algorithm}` | {float(epsilon):g} | {cells} |")
    return "\n".join(lines) + "\n"


def _bin_cell(rows: float, confidence: float, right: float) -> str:
    return f"{100 * confidence / rows:.0f} → {100 * right / rows:.0f}" if rows else "–"
