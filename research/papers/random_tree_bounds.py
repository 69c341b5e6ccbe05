"""Compares the bounds of Theorems 5.1 to 5.9 with the errors of random trees on real
rows, and writes ``bojarski-bounds.csv`` and ``bojarski-private-bounds.csv``.

Run ``python -m research.papers.random_tree_bounds DATA``; without DATA, ``wdbc`` of
scikit-learn runs. The theorems hold for any set of trees, so the trees of a pool that
is drawn first are taken as the set: its average accuracy, the goodness and the weight
of every row are then exact, and forests are drawn from the pool with replacement.
"""

import argparse
import csv
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, floor, log, log10
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from research import bundled, datasets
from research.papers import findings
from research.papers import printed_random_trees as printed
from research.papers import random_tree_theory as theory
from research.papers.__main__ import RESULTS
from research.papers.printed_random_trees import Columns
from research.reference.literal_rules import lower_bound, upper_bound

BOUNDS, PRIVATE_BOUNDS = "bojarski-bounds.csv", "bojarski-private-bounds.csv"
N_IN_POOL, N_FORESTS = 2_000, 20
MARGIN, EXPONENT, LIGHT_SHARE = 0.1, 1.0, 0.1
"""δ, K and ξ of the tables."""

_BOUNDS = (
    "dataset", "h", "e", "mean weight", "bound of the mean weight", "k", "1 − μ, vote", "bound, vote", "worst, vote",
    "1 − μ, averaging", "bound, averaging", "worst, averaging", "2 × trees, for votes",
)  # fmt: skip
_PRIVATE = (
    "dataset", "h", "k* at nη = 1000", "bound of failure", "nη for a failure of at most 1 %", "k* there",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Pool:
    """A set of trees and the rows that fill them.

    Attributes:
        right: whether a tree is right about a row, bool ``(n_trees, n_rows)``.
        shares: a row's own share in a tree, float64 ``(n_trees, n_rows)``.
    """

    right: NDArray[np.bool_]
    shares: NDArray[np.float64]

    @classmethod
    def of(
        cls, leaves: NDArray[np.int32], y: NDArray[np.int32] | NDArray[np.int64]
    ) -> "Pool":
        """The set of trees with the given leaves of rows, int32 ``(n_trees, n_rows)``."""
        labels = y.astype(np.int64)
        same, total = theory.same_label_counts(leaves.astype(np.int64), labels)
        return cls(theory.is_right(leaves.astype(np.int64), labels), same / total)

    @property
    def tree_error(self) -> float:
        """ε: 1 − average tree accuracy."""
        return float(1 - self.right.mean())

    def worst_errors(
        self, n_trees: int, n_forests: int, random: np.random.Generator
    ) -> tuple[float, float]:
        """The largest empirical errors among forests of ``n_trees`` drawn trees, by
        votes and by mean shares.
        """
        worst = np.zeros(2)
        for _ in range(n_forests):
            drawn = random.integers(len(self.right), size=n_trees)
            means = self.right[drawn].mean(axis=0), self.shares[drawn].mean(axis=0)
            worst = np.maximum(worst, [np.mean(of_rows <= 0.5) for of_rows in means])
        return float(worst[0]), float(worst[1])


def bounds_row(
    name: str, height: int, pool: Pool, random: np.random.Generator
) -> tuple[str, ...]:
    """A row of the table of Theorems 5.1 to 5.4, errors in percent."""
    error, n_rows = pool.tree_error, pool.right.shape[1]
    n_trees = theory.enough_trees(n_rows, MARGIN, EXPONENT)
    vote, mean = pool.worst_errors(n_trees, N_FORESTS, random)
    unsafe = [
        np.mean(of_trees.mean(axis=0) < 0.5 + MARGIN)
        for of_trees in (pool.right, pool.shares)
    ]
    bounds = (
        theory.voting_error_bound(error, MARGIN),
        theory.averaging_error_bound(error, MARGIN),
    )
    least = (1 - error) ** 2 + error**2
    return (
        name,
        str(height),
        f"{1 - error:.3f}",
        f"{pool.shares.mean():.3f}",
        lower_bound(least, 3),
        str(n_trees),
        upper_bound(100 * unsafe[0]),
        upper_bound(100 * bounds[0]),
        f"{100 * vote:.1f}",
        upper_bound(100 * unsafe[1]),
        upper_bound(100 * bounds[1]),
        f"{100 * mean:.1f}",
        upper_bound(200 * error),
    )


def private_row(name: str, height: int, n_rows: int) -> tuple[str, ...]:
    """A row of the table of Theorem 5.7: the best number of trees, and the least ε n, up
    to its second digit, at which its bound says something.
    """
    rate = theory.noise_rate(LIGHT_SHARE, MARGIN / 2, height)

    def failure(budget: float) -> tuple[int, float]:
        settings = {"margin": MARGIN, "rate": rate, "epsilon": budget / n_rows}
        n_trees = theory.best_n_trees(n_rows, height=height, **settings)
        return n_trees, theory.log_private_failure(
            n_rows, n_trees, height=height, **settings
        )

    n_trees, at_paper = failure(1_000)
    too_low, budget = 1_000.0, 1e15
    while budget > 1.001 * too_low:
        middle = (too_low * budget) ** 0.5
        if failure(middle)[1] > log(0.01):
            too_low = middle
        else:
            budget = middle
    # rounded down, the failure would be above 1 %
    second_digit = 10 ** (floor(log10(budget)) - 1)
    budget = ceil(budget / second_digit) * second_digit
    there, _ = failure(budget)
    bounds = upper_bound(exp(at_paper), 0), f"{budget:.1e}"
    return name, str(height), str(n_trees), *bounds, str(there)


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes two tables; rows of datasets that do not run stay."""
    parser = argparse.ArgumentParser(
        prog="python -m research.papers.random_tree_bounds"
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--datasets", nargs="+", default=["wdbc"])
    parser.add_argument("--heights", nargs="+", type=int, default=[4, 8, 12])
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    bounds, private = [], []
    for name in options.datasets:
        dataset = (
            bundled.read(name)
            if options.folder is None
            else datasets.read(options.folder, name)
        )
        random = np.random.default_rng(datasets.FIRST_SEED)
        tallest = max(options.heights)
        leaves = printed.leaves_of(
            Columns.of(dataset), n_trees=N_IN_POOL, height=tallest, random=random
        )
        for height in options.heights:
            pool = Pool.of(leaves >> (tallest - height), dataset.y)
            bounds.append(bounds_row(name, height, pool, random))
            private.append(private_row(name, height, len(dataset.y)))
    for name, columns, rows in (
        (BOUNDS, _BOUNDS, bounds),
        (PRIVATE_BOUNDS, _PRIVATE, private),
    ):
        path = options.results / name
        kept = _rows_of_others(path, options.datasets)
        path.write_text(findings.csv_text(columns, [*kept, *rows]), encoding="utf-8")


def _rows_of_others(path: Path, names: Sequence[str]) -> list[list[str]]:
    """The rows of a file whose dataset is none of the names; none without a file."""
    if not path.exists():
        return []
    _, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines())
    return [row for row in rows if row[0] not in names]


if __name__ == "__main__":
    main()
