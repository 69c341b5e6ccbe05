"""Computes leads over reference runs on the same splits, paired split by split.

Reads the runs that ``research.accuracy --csv`` wrote and tables of reference runs with
the columns ``dataset``, ``method``, ``epsilon``, ``split`` and ``accuracy`` (a
fraction), and prints, per dataset and ε, our mean accuracy, the reference method with
the largest mean, and the mean of the differences on the same test rows with its
standard error::

    python -m research.leads runs.csv REFERENCES.csv --algorithm rpf --methods
    diffprivlib diprime privatree

Noise differs from run to run, splits do not: with ``--again MORE.csv`` the accuracy of
a split is its mean over all runs.
"""

import argparse
import csv
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

Cell: TypeAlias = tuple[str, Fraction]
"""Dataset and ε."""
BySplit: TypeAlias = Mapping[int, float]


@dataclass(frozen=True)
class Lead:
    """The lead on one dataset at one ε, in percentage points.

    Attributes:
        cell: dataset and ε.
        ours: our mean accuracy over the shared splits.
        method: the reference with the largest mean over all its splits.
        theirs: the reference's mean accuracy over the shared splits.
        difference: mean of the paired differences.
        standard_error: standard error of ``difference``.
    """

    cell: Cell
    ours: float
    method: str
    theirs: float
    difference: float
    standard_error: float


def our_runs(
    paths: Sequence[Path], algorithm: str, *, metric: str = "accuracy"
) -> dict[Cell, BySplit]:
    """Accuracy or AUROC by split, per dataset and ε; the mean over runs if a split was
    run more than once.
    """
    measured: dict[Cell, dict[int, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for path in paths:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if row["algorithm"] == algorithm and row[metric]:
                    cell = row["dataset"], Fraction(row["epsilon"])
                    measured[cell][int(row["repeat"])].append(float(row[metric]))
    return {
        cell: {split: statistics.fmean(runs) for split, runs in splits.items()}
        for cell, splits in measured.items()
    }


def reference_runs(
    paths: Sequence[Path], prefixes: Sequence[str]
) -> dict[Cell, dict[str, BySplit]]:
    """Accuracy by split, per dataset, ε and method, of the methods whose names start
    with one of the prefixes.
    """
    accuracies: dict[Cell, dict[str, dict[int, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for path in paths:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if row["epsilon"] and row["method"].startswith(tuple(prefixes)):
                    cell = row["dataset"], Fraction(row["epsilon"])
                    accuracies[cell][row["method"]][int(row["split"])] = float(
                        row["accuracy"]
                    )
    return {cell: dict(methods) for cell, methods in accuracies.items()}


def leads(
    ours: Mapping[Cell, BySplit], references: Mapping[Cell, Mapping[str, BySplit]]
) -> list[Lead]:
    """The lead on each dataset and ε that both sides ran, over the reference with the
    largest mean of all its runs.
    """
    result = []
    for cell, accuracies in ours.items():
        means = {
            name: statistics.fmean(runs.values())
            for name, runs in references.get(cell, {}).items()
        }
        if not means:
            continue
        best = max(means, key=lambda name: means[name])
        theirs = references[cell][best]
        shared = sorted(accuracies.keys() & theirs.keys())
        differences = [100 * (accuracies[split] - theirs[split]) for split in shared]
        error = (
            statistics.stdev(differences) / math.sqrt(len(shared))
            if len(shared) > 1
            else math.nan
        )
        mean = statistics.fmean(accuracies[split] for split in shared)
        theirs_mean = statistics.fmean(theirs[split] for split in shared)
        result.append(
            Lead(
                cell,
                100 * mean,
                best,
                100 * theirs_mean,
                statistics.fmean(differences),
                error,
            )
        )
    return result


def markdown(leads_of_cells: Sequence[Lead]) -> str:
    """A table of leads, and a summary line per ε."""
    epsilons = sorted({lead.cell[1] for lead in leads_of_cells})
    lines = [
        f"| dataset | {' | '.join(f'ε = {float(epsilon):g}' for epsilon in epsilons)} |",
        f"|---|{'---|' * len(epsilons)}",
    ]
    by_cell = {lead.cell: lead for lead in leads_of_cells}
    for dataset in dict.fromkeys(lead.cell[0] for lead in leads_of_cells):
        cells = [_cell(by_cell.get((dataset, epsilon))) for epsilon in epsilons]
        lines.append(f"| {dataset} | {' | '.join(cells)} |")
    summary = [
        f"| *ahead; mean lead* | {' | '.join(_summary(leads_of_cells, epsilon) for epsilon in epsilons)} |"
    ]
    return "\n".join([*lines, *summary]) + "\n"


def _cell(lead: Lead | None) -> str:
    if lead is None:
        return "–"
    return f"{lead.ours:.1f} / {lead.theirs:.1f} {lead.method}: **{lead.difference:+.1f}** ± {lead.standard_error:.1f}"


def _summary(leads_of_cells: Sequence[Lead], epsilon: Fraction) -> str:
    differences = [
        lead.difference for lead in leads_of_cells if lead.cell[1] == epsilon
    ]
    n_ahead = sum(difference > 0 for difference in differences)
    return f"{n_ahead} of {len(differences)}; {statistics.fmean(differences):+.1f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m research.leads", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("runs", type=Path, help="written by research.accuracy --csv")
    parser.add_argument(
        "references", type=Path, nargs="+", help="tables of reference runs"
    )
    parser.add_argument(
        "--again", type=Path, nargs="+", default=[], help="more runs of the same splits"
    )
    parser.add_argument("--algorithm", required=True)
    parser.add_argument(
        "--methods",
        nargs="+",
        default=[""],
        help="prefixes of the names of reference methods",
    )
    options = parser.parse_args(arguments)
    ours = our_runs([options.runs, *options.again], options.algorithm)
    leads_of_cells = leads(ours, reference_runs(options.references, options.methods))
    if not leads_of_cells:
        parser.error("no dataset and ε were run by both sides")
    print(markdown(leads_of_cells), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
