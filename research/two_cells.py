"""Tries to mend two cells in which the forests trail, and judges each try on tables that
were named before any run on them.

Cell (a): many classes on few rows of a pure account (``rpf``). Cell (b): tables without
numbers on a ``gdp`` account (``nbrt``). Run as a module, once for shown tables and
once, with ``--held-out``, for the others::

    python -m research.two_cells FOLDER --csv docs/results/two_cells.csv --tables zoo

Names of (a) may end with a number of rows, drawn with a fixed seed: ``letter_1000``.

Ideas for (a), each a function of the declaration, the public size and ε:

* ``rpf`` with other shares of ε for splits, fewer levels, or one level at a time;
* *noisy Bayes*: integer noise on the counts of every (column, code, class), with a
  hierarchical prior (the counts of all classes pooled) as smoothing, alone;
* a forest on a part of ε, and noisy Bayes on the rest, as the sum of log-probabilities.

Ideas for (b):

* ``rpf`` on the ``gdp`` account, whose splits are selected, in place of ``nbrt``;
* ``nbrt`` and ``rpf`` at half of μ² each, as the sum of log-probabilities;
* *screening*: a tenth of μ² buys noisy counts of every (column, code, class), and
  ``nbrt`` sees only the columns whose counts differ most between classes;
* ``nbrt`` on a part of μ², and noisy Bayes on the rest, as for (a).

Rules may use numbers of rows, classes, columns and categories, and the budget.

Shown tables, on which settings are chosen: of (a) zoo, movement_libras, yeast, segment,
vehicle, wine_quality_red and 1,000 rows each of pendigits and letter; of (b) car,
nursery, kr_vs_kp, mushroom, tic_tac_toe, vote and splice (the issue names its result).
Tables held out: those of :mod:`research.two_cells_tables`, run once, at ε = 1, on five
splits or more. A rule that gains less than 0.3 points on their mean is dropped.

Frozen after the shown tables, before any run on the others: for (a),
:func:`joins_two_levels`; for (b), :func:`takes_both`.
"""

import argparse
import csv
import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.algorithms.rpf import price as rpf_price
from grovekeeper_forests.bins.noisy_counts import draw_scale
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.noise.randomness import Randomness, SystemRandomness
from grovekeeper_forests.privacy.accountants import Amount, gdp
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.releases.forest.price import plan
from research import datasets
from research.datasets import Dataset, split_of
from research.runs import Task, predictions
from research.two_cells_tables import MANY_CLASSES, NO_NUMBERS

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

BAYES, BOTH = "noisy Bayes", "half nbrt, half rpf"
FOREST, TWO_LEVELS = "rpf:at_once=1", "rpf:at_once=2"
BOOSTED, SELECTED = "nbrt@gdp", "rpf@gdp"
METHODS: Final = {
    "a": (FOREST, TWO_LEVELS, BAYES),
    "b": (BOOSTED, SELECTED, BOTH),
}

DELTA: Final = "1e-6"
N_SPLITS: Final = 10
_SEED: Final = 44
_COLUMNS: Final = ("table", "method", "epsilon", "split", "accuracy")

FEWEST_FEATURES: Final = 48
"""Fewest features of :func:`takes_both`: between those of kr_vs_kp (36) and splice (60)."""


def joins_two_levels(table: Dataset, epsilon: str) -> bool:
    """Whether ``rpf`` takes two levels at a time by default since the verdict, and took
    one before: the time of a small table stays below that of a table of 2^15 rows.
    """
    task = Task(table.name, "rpf", epsilon, DELTA, 0)
    by_default = plan(task.request(table.public_size), table.schema)
    parameters = by_default.parameters
    before = rpf_price.default_at_once(
        rpf_price.widest_encoding(parameters, table.schema),
        int(parameters["max_depth"]),
        n_trees=by_default.n_trees,
        size=table.public_size,
    )
    return before == 1 and parameters["at_once"] != 1


def takes_both(schema: Schema) -> bool:
    """Whether ``nbrt`` and ``rpf`` share μ²: many features, none of them a number."""
    features = schema.features
    return len(features) >= FEWEST_FEATURES and all(
        feature.is_categorical for feature in features
    )


N_CELLS: Final = 8
"""Equal cells between the public bounds of a number."""

SMOOTHING: Final = 1.0
"""Deviations of the noise, in rows, that a column's shares are smoothed by."""


def coded(dataset: Dataset) -> tuple[Integers, list[int]]:
    """Codes of all rows, int64 ``(n_rows, n_columns)``, and the number of codes of each
    column: a function of each row and of the declaration.
    """
    codes, n_codes = list[Integers](), list[int]()
    for feature, column in zip(dataset.schema.features, dataset.columns, strict=True):
        if feature.is_categorical:
            codes.append(column.astype(np.int64))
            n_codes.append(feature.missing_code + 1)
            continue
        width = max(feature.upper - feature.lower, 1e-300) / N_CELLS
        present = np.nan_to_num(column, nan=feature.lower)
        cell = ((present - feature.lower) / width).astype(np.int64)
        cell = np.clip(cell, 0, N_CELLS - 1)
        codes.append(np.where(np.isnan(column), N_CELLS, cell))
        n_codes.append(N_CELLS + 1)
    return np.stack(codes, axis=1), n_codes


def noisy_counts(
    codes: Integers,
    n_codes: Sequence[int],
    y: NDArray[np.int32],
    *,
    n_classes: int,
    epsilon: Fraction,
    randomness: Randomness,
) -> list[Reals]:
    """Counts of every (column, class, code): one ``(n_classes, n_codes)`` per column.

    **Privacy.** A row adds one to one cell of each column's table, so the L1
    sensitivity is the number of columns under add/remove, and the release with discrete
    Laplace noise is ε-DP.

    Args:
        codes: PRIVATE; int64 ``(n_rows, n_columns)``.
        n_codes: public; of each column.
        y: PRIVATE; classes of the rows.
        n_classes: public.
        epsilon: public; of all counts together.
        randomness: of the noise.
    """
    scale = draw_scale(epsilon, len(n_codes))
    tables = []
    for column, width in enumerate(n_codes):
        cells = y.astype(np.int64) * width + codes[:, column]
        exact = np.bincount(cells, minlength=n_classes * width)
        noise = randomness.discrete_laplace((len(exact),), inverse_scale=scale)
        noisy = (exact + noise).astype(np.float64)
        tables.append(noisy.reshape(n_classes, width))
    return tables


def bayes_scores(tables: Sequence[Reals], codes: Integers, epsilon: Fraction) -> Reals:
    """Scores of classes, float64 ``(n_rows, n_classes)``: post-processing of counts.

    Each column's shares of codes in a class are smoothed toward its shares in all
    classes together.

    Args:
        tables: released; see :func:`noisy_counts`.
        codes: of the rows that are scored.
        epsilon: public; of all counts together.
    """
    sizes = np.mean([table.sum(axis=1) for table in tables], axis=0)
    sizes = np.maximum(sizes, 1.0)
    scores = np.tile(np.log(sizes / sizes.sum()), (len(codes), 1))
    deviation = np.sqrt(2.0) * len(tables) / float(epsilon)
    rows = 1.0 + SMOOTHING * deviation
    for column, table in enumerate(tables):
        pooled = np.maximum(table.sum(axis=0), 1.0)
        pooled /= pooled.sum()
        shares = np.maximum(table, 0.0) + rows * pooled
        shares /= shares.sum(axis=1, keepdims=True)
        scores += np.log(shares[:, codes[:, column]]).T
    return scores


@functools.cache
def half_of(epsilon: str) -> str:
    """The largest ε of five digits whose μ² at δ = 1e-6 is at most half of that of
    ``epsilon``.
    """

    def squared_mu(tried: Fraction) -> Fraction:
        price = Terms(tried, gdp.NAME, Fraction(DELTA)).price()
        return Amount(gdp.NAME, price).value

    half = squared_mu(Fraction(epsilon)) / 2
    low, high = 0, int(Fraction(epsilon) * 10**5)
    while high - low > 1:
        middle = (low + high) // 2
        fits = squared_mu(Fraction(middle, 10**5)) <= half
        low, high = (middle, high) if fits else (low, middle)
    return f"{low / 10**5:.5f}"


def accuracy(table: Dataset, method: str, epsilon: str, split: int) -> float:
    """The share of right labels of one method on the test rows of a split."""
    train, test = split_of(len(table.y), split)
    if method == BAYES:
        codes, n_codes = coded(table)
        budget = Fraction(epsilon)
        tables = noisy_counts(
            codes[train],
            n_codes,
            table.y[train],
            n_classes=table.schema.n_classes,
            epsilon=budget,
            randomness=SystemRandomness(),
        )
        labels = bayes_scores(tables, codes[test], budget).argmax(axis=1)
        return float(np.mean(labels == table.y[test]))
    task = Task(table.name, method, epsilon, DELTA, split)
    if method != BOTH:
        labels = predictions(table, task, train, test).labels
        return float(np.mean(labels == table.y[test]))
    half = replace(task, epsilon=half_of(epsilon))
    scores = np.zeros((len(test), table.schema.n_classes))
    for algorithm in (BOOSTED, SELECTED):
        answers = predictions(table, replace(half, algorithm=algorithm), train, test)
        scores += np.log(np.maximum(answers.probabilities, 1e-9))
    return float(np.mean(scores.argmax(axis=1) == table.y[test]))


def read(folder: Path, name: str) -> Dataset:
    """A table of the folder, or rows of it that a fixed seed draws."""
    file, _, n_rows = name.rpartition("_")
    if (folder / f"{name}.json").exists() or not n_rows.isdigit():
        return datasets.read(folder, name)
    table = datasets.read(folder, file)
    chosen = np.random.default_rng(_SEED).permutation(len(table.y))[: int(n_rows)]
    columns = tuple(column[chosen] for column in table.columns)
    return Dataset(name, table.schema, columns, table.y[chosen])


def held_out(folder: Path, epsilon: str) -> Iterator[tuple[str, str]]:
    """Tables and methods of the sealed judge: a table that a rule leaves alone has the
    gain 0 without a run.
    """
    for name in MANY_CLASSES:
        if joins_two_levels(read(folder, name), epsilon):
            yield from ((name, method) for method in (FOREST, TWO_LEVELS))
    for name in NO_NUMBERS:
        if takes_both(read(folder, name).schema):
            yield from ((name, method) for method in (BOOSTED, BOTH))


def main() -> None:
    """Appends the runs to the CSV."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--tables", nargs="*", default=[])
    parser.add_argument("--cell", choices=METHODS, default="a")
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--held-out", action="store_true")
    asked = parser.parse_args()
    pairs = [(name, method) for name in asked.tables for method in METHODS[asked.cell]]
    if asked.held_out:
        pairs = list(held_out(asked.folder, asked.epsilon))
    is_new = not asked.csv.exists()
    with asked.csv.open("a", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        if is_new:
            writer.writerow(_COLUMNS)
        for name, method in pairs:
            table = read(asked.folder, name)
            for split in range(N_SPLITS):
                right = accuracy(table, method, asked.epsilon, split)
                writer.writerow([name, method, asked.epsilon, split, f"{right:.5f}"])
                lines.flush()


if __name__ == "__main__":
    main()
