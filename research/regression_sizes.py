"""Measures what a public size that is wrong by a factor of two costs forests that predict
a number, on six tables.

The runs are those of :mod:`research.regression`, with half and twice the public size
beside the size itself. Run as a module::

    python -m research.regression_sizes DATA

Runs that ``docs/results/regression_sizes.csv`` has are not repeated;
``python -m research.regression`` writes what they say into its page.
"""

import argparse
import csv
from fractions import Fraction
from pathlib import Path

from research import datasets, regression

RUNS = regression.RUNS_OF_SIZES
FIELDS = ("table", "method", "epsilon", "split", "factor", "r2")
TABLES = ("diabetes", "concrete", "saratoga", "wage", "computers", "storms")
EPSILONS = ("0.5", "1", "2")
FACTORS = ("1/2", "1", "2")


def main() -> None:
    """Makes the runs that are missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    measure(parser.parse_args().data)


def measure(data: Path) -> None:
    """Appends every run that is missing to the file of runs."""
    done = {
        tuple(row[field] for field in FIELDS[:-1]) for row in regression.rows_of(RUNS)
    }
    tasks = [
        (method, epsilon, split, factor)
        for split in range(regression.N_SPLITS)
        for method in regression.PRIVATE
        for epsilon in EPSILONS
        for factor in FACTORS
    ]
    with RUNS.open("a", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines)
        if not done:
            writer.writerow(FIELDS)
        for name in TABLES:
            table = datasets.read(data, name)
            for method, epsilon, split, factor in tasks:
                if (name, method, epsilon, str(split), factor) in done:
                    continue
                size = round(Fraction(factor) * table.public_size)
                r2 = regression.run(table, method, epsilon, split, size=size)
                writer.writerow([name, method, epsilon, split, factor, f"{r2:.5f}"])
                lines.flush()


if __name__ == "__main__":
    main()
