"""Trains the two references without trees: a softmax fitted by noisy gradient descent.

``dp-gd-linear`` is linear in the columns; ``dp-gd-rff`` adds 400 random cosines of the
numbers. One public rule sets every parameter from the number of training rows and from
μ, so nothing is tuned on the rows that are judged. Noise is in floating point, and the
number of training rows counts as public, as with the other references::

    python -m research.reference.gradient_descent DATA --csv
    research/reference/gradient_descent.csv --datasets adult wdbc --epsilons 0.5 1

Runs that the CSV has are not repeated.

**The rule.** A tenth of μ² pays for noisy means and second moments of the numbers,
scaled to [−1, 1] by their bounds: one Gaussian query. Standardised numbers are clipped
to ±3. With μ the rest and n the training rows, S = min(5 μ n, 10,000) is the sum of all
steps, T = ⌊S / 60⌋, at least 20 and at most 150, the number of rounds. Each round adds
a step of 0.1 S / T with momentum 0.9 along the mean of the rows' gradients, each
clipped to length 0.5, with noise of deviation 0.5 √T / μ on each coordinate of their
sum. The last iterate predicts. Rows have length 1, so the noise of a score does not
grow with the number of columns or classes.
"""

import argparse
import csv
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.privacy.accountants import Amount, gdp
from grovekeeper_forests.privacy.calibration import Terms
from research import datasets
from research.datasets import Dataset, split_of
from research.runs import auroc

LINEAR, COSINES = "dp-gd-linear", "dp-gd-rff"
METHODS = (LINEAR, COSINES)
DELTA = Fraction(1, 10**6)

_MOMENT_SHARE = 0.1
_LONGEST_GRADIENT = 0.5
_LARGEST_DEVIATIONS = 3.0
_SMALLEST_DEVIATION = 0.02
_N_COSINES = 400
_MOMENTUM = 0.9
_COLUMNS = ("dataset", "method", "epsilon", "split", "accuracy", "auroc")

Reals = NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """Rows as the references read them.

    Attributes:
        numbers: float64 ``(n_rows, n_numbers)`` in [−1, 1]; NaN where a number is
            missing.
        indicators: float64 ``(n_rows, n_categories)``: 1 for the category of the row in
            each column, and for each number that is missing.
        n_columns: number of declared features.
    """

    numbers: Reals
    indicators: Reals
    n_columns: int


def columns_of(dataset: Dataset, which: NDArray[np.int64]) -> Columns:
    """The columns of some rows, by the public schema."""
    numbers, indicators = list[Reals](), list[Reals]()
    for feature, column in zip(dataset.schema.features, dataset.columns, strict=True):
        values = column[which]
        if feature.is_categorical:
            codes = np.arange(len(feature.categories) + 1 + feature.missing)
            indicators += [(values == code).astype(np.float64) for code in codes]
            continue
        middle = (feature.upper + feature.lower) / 2
        half_width = max((feature.upper - feature.lower) / 2, 1e-300)
        numbers.append((values - middle) / half_width)
        if feature.missing:
            indicators.append(np.isnan(values).astype(np.float64))
    empty = np.empty((len(which), 0))
    return Columns(
        np.stack(numbers, axis=1) if numbers else empty,
        np.stack(indicators, axis=1) if indicators else empty,
        len(dataset.schema.features),
    )


def moments(
    numbers: Reals, mu: float, noise: np.random.Generator
) -> tuple[Reals, Reals]:
    """Noisy means and standard deviations of the numbers: one query at ``mu``.

    A row adds at most 1 to each sum of values and to each sum of squares, so the L2
    sensitivity is √(2 · n_numbers).
    """
    n_rows, n_numbers = numbers.shape
    present = np.nan_to_num(numbers)
    deviation = math.sqrt(2 * n_numbers) / mu
    sums, squares = (
        values.sum(axis=0) + deviation * noise.standard_normal(n_numbers)
        for values in (present, present**2)
    )
    mean = sums / n_rows
    variance = squares / n_rows - mean**2
    smallest = max(deviation / n_rows, _SMALLEST_DEVIATION**2)
    return mean, np.sqrt(np.maximum(variance, smallest))


class Features:
    """The map from columns to rows of length 1."""

    def __init__(
        self,
        method: str,
        train: Columns,
        mu: float,
        noise: np.random.Generator,
    ) -> None:
        self._has_cosines = method == COSINES
        self._n_columns = train.n_columns
        n_numbers = train.numbers.shape[1]
        self._mean, self._deviation = np.zeros(n_numbers), np.ones(n_numbers)
        if n_numbers:
            self._mean, self._deviation = moments(train.numbers, mu, noise)
        scales = np.exp(noise.uniform(math.log(0.7), math.log(4), _N_COSINES))
        directions = noise.standard_normal((n_numbers, _N_COSINES))
        self._directions = directions * scales / math.sqrt(max(n_numbers, 1))
        self._phases = noise.uniform(0, 2 * math.pi, _N_COSINES)

    def of(self, columns: Columns) -> Reals:
        """Rows of length 1, float64 ``(n_rows, n_features)``."""
        deviations = (columns.numbers - self._mean) / self._deviation
        z = np.nan_to_num(
            np.clip(deviations, -_LARGEST_DEVIATIONS, _LARGEST_DEVIATIONS)
        )
        n_rows, n_numbers = z.shape
        blocks = [np.ones((n_rows, 1)), z, columns.indicators]
        if self._has_cosines:
            cosines = np.cos(z @ self._directions + self._phases)
            root = math.sqrt(self._n_columns)
            blocks = [
                np.full((n_rows, 1), 0.3),
                z / (2 * math.sqrt(max(n_numbers, 1))),
                columns.indicators / root,
                cosines * math.sqrt(2 / _N_COSINES),
            ]
        rows = np.concatenate(blocks, axis=1)
        unit: Reals = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit


def weights(
    rows: Reals, y: NDArray[np.int32], n_classes: int, mu: float
) -> NDArray[np.float32]:
    """The last iterate of noisy gradient descent at ``mu``: ``(n_features,
    n_classes)``.
    """
    noise = np.random.default_rng()
    n_rows = len(rows)
    whole_step = min(5 * mu * n_rows, 10_000)
    n_rounds = int(np.clip(whole_step // 60, 20, 150))
    step = np.float32(0.1 * whole_step / n_rounds)
    deviation = _LONGEST_GRADIENT * math.sqrt(n_rounds) / mu
    rows = rows.astype(np.float32)
    is_class = np.eye(n_classes, dtype=np.float32)[y]
    iterate = np.zeros((rows.shape[1], n_classes), dtype=np.float32)
    velocity = np.zeros_like(iterate)
    for _ in range(n_rounds):
        shares = _softmax(rows @ iterate) - is_class
        # Rows have length 1, so a row's gradient is as long as its difference of shares.
        lengths = np.linalg.norm(shares, axis=1, keepdims=True)
        shares *= np.minimum(1, _LONGEST_GRADIENT / np.maximum(lengths, 1e-9))
        total = rows.T @ shares
        total += (deviation * noise.standard_normal(total.shape)).astype(np.float32)
        velocity = np.float32(_MOMENTUM) * velocity + total / np.float32(n_rows)
        iterate -= step * velocity
    return iterate


def _softmax(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    shares: NDArray[np.float32] = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def probabilities(
    dataset: Dataset,
    method: str,
    epsilon: Fraction,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
) -> Reals:
    """Class probabilities of the test rows after training on the training rows at (ε,
    10⁻⁶), float64 ``(n_test, n_classes)``.
    """
    price = Terms(epsilon, gdp.NAME, DELTA).price()
    squared = float(Amount(gdp.NAME, price).value)
    columns = columns_of(dataset, train)
    for_moments = _MOMENT_SHARE * squared if columns.numbers.shape[1] else 0.0
    features = Features(
        method, columns, math.sqrt(for_moments), np.random.default_rng()
    )
    fitted = weights(
        features.of(columns),
        dataset.y[train],
        dataset.schema.n_classes,
        math.sqrt(squared - for_moments),
    )
    scores = features.of(columns_of(dataset, test)).astype(np.float32) @ fitted
    return _softmax(scores).astype(np.float64)


def run(dataset: Dataset, method: str, epsilon: str, split: int) -> dict[str, str]:
    """A line of the CSV: accuracy and, for two classes, AUROC on the test rows."""
    train, test = split_of(len(dataset.y), split)
    shares = probabilities(dataset, method, Fraction(epsilon), train, test)
    accuracy = float(np.mean(shares.argmax(axis=1) == dataset.y[test]))
    area = auroc(shares, dataset.y[test])
    return {
        "dataset": dataset.name,
        "method": method,
        "epsilon": epsilon,
        "split": str(split),
        "accuracy": f"{accuracy:.5f}",
        "auroc": "" if math.isnan(area) else f"{area:.5f}",
    }


def methods_of(dataset: Dataset) -> tuple[str, ...]:
    """The references that a table can be given to: cosines need a number."""
    if all(feature.is_categorical for feature in dataset.schema.features):
        return (LINEAR,)
    return METHODS


def append(path: Path, line: dict[str, str]) -> None:
    """Appends a line to the CSV in one write."""
    with path.open("a", newline="", encoding="utf-8") as file:
        csv.DictWriter(file, _COLUMNS, lineterminator="\n").writerow(line)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m research.reference.gradient_descent",
        description=(__doc__ or "").split("\n")[0],
    )
    parser.add_argument(
        "folder", type=Path, help="folder with <name>.csv.gz and <name>.json"
    )
    parser.add_argument(
        "--csv", type=Path, required=True, help="file of runs; new runs are appended"
    )
    parser.add_argument("--datasets", nargs="+", help="default: all in the folder")
    parser.add_argument("--epsilons", nargs="+", default=["0.1", "0.5", "1", "2", "10"])
    parser.add_argument("--repeats", type=int, default=5, help="splits")
    options = parser.parse_args(arguments)
    finished = set[tuple[str, ...]]()
    if options.csv.exists():
        with options.csv.open(newline="", encoding="utf-8") as file:
            finished = {
                tuple(line[name] for name in _COLUMNS[:4])
                for line in csv.DictReader(file)
            }
    else:
        options.csv.write_text(",".join(_COLUMNS) + "\n", encoding="utf-8")
    for name in options.datasets or datasets.names(options.folder):
        dataset = datasets.read(options.folder, name)
        n = min(options.repeats, dataset.n_splits)
        for epsilon in options.epsilons:
            tasks = [(m, split) for m in methods_of(dataset) for split in range(n)]
            for method, split in tasks:
                if (name, method, epsilon, str(split)) not in finished:
                    append(options.csv, run(dataset, method, epsilon, split))
    return 0


if __name__ == "__main__":
    sys.exit(main())
