"""Leads over reference runs on the same splits, paired split by split.

Reads the runs that ``benchmarks.accuracy --csv`` wrote and tables of reference runs with the columns ``dataset``,
``method``, ``epsilon``, ``split`` and ``accuracy`` (a fraction), and prints, per dataset and ε, our mean accuracy, the
reference method with the largest mean, and the mean of the differences on the same test rows with its standard error::

    python -m benchmarks.leads runs.csv REFERENCES.csv --algorithm rpf --methods diffprivlib diprime privatree

Our noise differs from run to run while splits do not: with ``--again MORE.csv`` a split counts with its mean over all
runs.
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
    """One dataset at one ε; figures in percentage points.

    Attributes:
        cell: dataset and ε.
        ours: mean accuracy over the shared splits.
        method: the best reference by its mean over all its splits.
        theirs: its mean over the shared ones.
        difference: mean of the paired differences.
        standard_error: of that mean.
    """

    cell: Cell
    ours: float
    method: str
    theirs: float
    difference: float
    standard_error: float


def own_runs(paths: Sequence[Path], algorithm: str) -> dict[Cell, BySplit]:
    """Accuracy by split, per dataset and ε; the mean where a split was run more than once."""
    found: dict[Cell, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if row["algorithm"] == algorithm:
                    cell = row["dataset"], Fraction(row["epsilon"])
                    found[cell][int(row["repeat"])].append(float(row["accuracy"]))
    return {cell: {split: statistics.fmean(runs) for split, runs in splits.items()} for cell, splits in found.items()}


def reference_runs(paths: Sequence[Path], prefixes: Sequence[str]) -> dict[Cell, dict[str, BySplit]]:
    """Accuracy by split, per dataset and ε and method, for methods whose name starts with one of the prefixes."""
    found: dict[Cell, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for path in paths:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if row["epsilon"] and row["method"].startswith(tuple(prefixes)):
                    cell = row["dataset"], Fraction(row["epsilon"])
                    found[cell][row["method"]][int(row["split"])] = float(row["accuracy"])
    return {cell: dict(methods) for cell, methods in found.items()}


def leads(ours: Mapping[Cell, BySplit], references: Mapping[Cell, Mapping[str, BySplit]]) -> list[Lead]:
    """One lead per dataset and ε that both sides ran, over the best reference by the mean of all its runs."""
    result = []
    for cell, own in ours.items():
        means = {name: statistics.fmean(runs.values()) for name, runs in references.get(cell, {}).items()}
        if not means:
            continue
        best = max(means, key=lambda name: means[name])
        theirs = references[cell][best]
        shared = sorted(own.keys() & theirs.keys())
        differences = [100 * (own[split] - theirs[split]) for split in shared]
        error = statistics.stdev(differences) / math.sqrt(len(shared)) if len(shared) > 1 else math.nan
        mean = statistics.fmean(own[split] for split in shared)
        theirs_mean = statistics.fmean(theirs[split] for split in shared)
        result.append(Lead(cell, 100 * mean, best, 100 * theirs_mean, statistics.fmean(differences), error))
    return result


def markdown(found: Sequence[Lead]) -> str:
    """The table, and a summary line per ε."""
    epsilons = sorted({lead.cell[1] for lead in found})
    lines = [
        f"| dataset | {' | '.join(f'ε = {float(epsilon):g}' for epsilon in epsilons)} |",
        f"|---|{'---|' * len(epsilons)}",
    ]
    by_cell = {lead.cell: lead for lead in found}
    for dataset in dict.fromkeys(lead.cell[0] for lead in found):
        cells = [_cell(by_cell.get((dataset, epsilon))) for epsilon in epsilons]
        lines.append(f"| {dataset} | {' | '.join(cells)} |")
    summary = [f"| *ahead; mean lead* | {' | '.join(_summary(found, epsilon) for epsilon in epsilons)} |"]
    return "\n".join([*lines, *summary]) + "\n"


def _cell(lead: Lead | None) -> str:
    if lead is None:
        return "–"
    return f"{lead.ours:.1f} / {lead.theirs:.1f} {lead.method}: **{lead.difference:+.1f}** ± {lead.standard_error:.1f}"


def _summary(found: Sequence[Lead], epsilon: Fraction) -> str:
    own = [lead.difference for lead in found if lead.cell[1] == epsilon]
    return f"{sum(difference > 0 for difference in own)} of {len(own)}; {statistics.fmean(own):+.1f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.leads", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", type=Path, help="written by benchmarks.accuracy --csv")
    parser.add_argument("references", type=Path, nargs="+", help="tables of reference runs")
    parser.add_argument("--again", type=Path, nargs="+", default=[], help="more runs of the same splits")
    parser.add_argument("--algorithm", required=True)
    parser.add_argument("--methods", nargs="+", default=[""], help="beginnings of names of reference methods")
    chosen = parser.parse_args(arguments)
    ours = own_runs([chosen.runs, *chosen.again], chosen.algorithm)
    found = leads(ours, reference_runs(chosen.references, chosen.methods))
    if not found:
        parser.error("no dataset and ε were run by both sides")
    print(markdown(found), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
