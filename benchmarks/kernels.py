"""Measures the speed of compiled loops and draws, as ratios to their usual
alternatives.

Run ``python -m benchmarks.kernels``. Both sides of a pair run alternately on the same
inputs and the median of the paired ratios is printed, because absolute times of a
shared machine mean little. Above 1, ours is faster.
"""

import random
import statistics
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from benchmarks.scatter import compiled
from grovekeeper_forests.kernels import node_rows, prediction
from grovekeeper_forests.noise.randomness import SystemRandomness

_PAIRS = 7


def _seconds(work: Callable[[], object]) -> float:
    """Processor time, which a busy machine changes less than elapsed time; both sides
    use one thread.
    """
    start = time.process_time()
    work()
    return time.process_time() - start


def compare(
    name: str,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    *,
    share: int = 1,
) -> None:
    """Prints the median, the smallest and the largest of the paired ratios theirs /
    ours.

    Args:
        name: label of the line.
        ours: the work with our code.
        theirs: the same work with the alternative, or one part in ``share`` of the
            work.
        share: factor by which the alternative's time is multiplied.
    """
    ours()
    theirs()
    ratios = sorted(share * _seconds(theirs) / _seconds(ours) for _ in range(_PAIRS))
    print(
        f"{name:<72} {statistics.median(ratios):9.2f}   ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    )


def _bincount(
    X: NDArray[np.uint8],
    y: NDArray[np.int32],
    node: NDArray[np.int32],
    shape: tuple[int, int, int],
) -> NDArray[np.int64]:
    n_nodes, n_bins, n_classes = shape
    counts = np.empty((X.shape[0], n_nodes * n_bins * n_classes), dtype=np.int64)
    for f, column in enumerate(X):
        counts[f] = np.bincount(
            (node * n_bins + column) * n_classes + y, minlength=counts.shape[1]
        )
    return counts


def class_histogram(
    n_rows: int, n_features: int, *, shape: tuple[int, int, int]
) -> None:
    """Compares the class histogram of one tree level with ``numpy.bincount``, feature
    by feature.
    """
    n_nodes, n_bins, n_classes = shape
    rng = np.random.default_rng(0)
    X = rng.integers(0, n_bins, (n_features, n_rows), dtype=np.uint8)
    y = rng.integers(0, n_classes, n_rows, dtype=np.int32)
    node = rng.integers(0, n_nodes, n_rows, dtype=np.int32)
    bins = np.full(n_features, n_bins, dtype=np.int32)
    compare(
        f"class histogram, {n_rows:,} rows, {n_features} features, {shape}; numpy.bincount",
        lambda: node_rows.class_histogram(
            X,
            y,
            node,
            n_bins=bins,
            onto=node_rows.no_sums(n_nodes, n_classes, n_bins=bins),
        ),
        lambda: _bincount(X, y, node, shape),
    )


def weighted_histogram(
    n_rows: int, n_features: int, *, shape: tuple[int, int, int]
) -> None:
    """Compares the weighted histogram of one tree level with a C kernel."""
    n_nodes, n_bins, n_classes = shape
    rng = np.random.default_rng(0)
    X = rng.integers(0, n_bins, (n_features, n_rows), dtype=np.uint8)
    y = rng.integers(0, n_classes, n_rows, dtype=np.int32)
    node = rng.integers(0, n_nodes, n_rows, dtype=np.int32)
    weight = rng.integers(0, 257, n_rows, dtype=np.uint16)
    bins = np.full(n_features, n_bins, dtype=np.int32)
    scatter = compiled()
    if scatter is None:
        print("no C compiler (cc): the weighted histogram is not compared")
        return

    def ours() -> NDArray[np.int64]:
        onto = node_rows.no_sums(n_nodes, n_classes, n_bins=bins)
        return node_rows.class_histogram(
            X, y, node, n_bins=bins, weight=weight, onto=onto
        )

    def theirs() -> NDArray[np.int64]:
        return scatter(X, y, node, weight, shape=shape)

    assert np.array_equal(ours(), theirs())
    compare(
        f"weighted histogram, {n_rows:,} rows, {n_features} features, {shape}; C kernel",
        ours,
        theirs,
    )


def sum_leaf_values(n_rows: int, *, n_trees: int, depth: int) -> None:
    """Compares a forest's scores with scikit-learn's ``predict_proba`` for a forest of
    equal size, on one thread.
    """
    rng = np.random.default_rng(0)
    X = rng.integers(0, 32, (n_rows, 14), dtype=np.uint8)
    shape = (n_trees, 2**depth - 1)
    feature = rng.integers(0, 14, shape, dtype=np.int32)
    threshold = rng.integers(0, 32, shape, dtype=np.uint8)
    equals = rng.random(shape) < 0.3
    values = rng.normal(size=(n_trees, 2**depth, 2))
    trees = prediction.PackedTrees.of_thresholds(
        feature, threshold, equals, values=values, n_features=14
    )
    codes = np.ascontiguousarray(X.T)
    forest = RandomForestClassifier(n_trees, max_depth=depth, n_jobs=1, random_state=0)
    forest.fit(rng.integers(0, 32, (5_000, 14)), rng.integers(0, 2, 5_000))
    floats = X.astype(np.float32)
    compare(
        f"prediction, {n_rows:,} rows, {n_trees} trees of depth {depth}; scikit-learn predict_proba",
        lambda: prediction.sum_leaf_values(codes, trees),
        lambda: forest.predict_proba(floats),
    )


class PythonSampler:
    """The discrete Laplace sampler of Canonne, Kamath and Steinke in plain Python."""

    def __init__(self) -> None:
        self._source = random.SystemRandom()

    def _accepts(self, gamma: Fraction) -> bool:
        k = 1
        while self._source.randrange(gamma.denominator * k) < gamma.numerator:
            k += 1
        return k % 2 == 1

    def draw(self, inverse_scale: Fraction) -> int:
        """Draws one integer."""
        s, t = inverse_scale.numerator, inverse_scale.denominator
        while True:
            remainder = self._source.randrange(t)
            if not self._accepts(Fraction(remainder, t)):
                continue
            whole = 0
            while self._accepts(Fraction(1)):
                whole += 1
            magnitude = (remainder + t * whole) // s
            negative = self._source.randrange(2) == 1
            if magnitude or not negative:
                return -magnitude if negative else magnitude


def discrete_laplace(n_draws: int, *, inverse_scale: Fraction) -> None:
    """Compares exact noise with the same algorithm in Python, which makes one draw in a
    hundred.
    """
    randomness, plain = SystemRandomness(), PythonSampler()
    compare(
        f"discrete Laplace, inverse scale {inverse_scale}; plain Python on SystemRandom",
        lambda: randomness.discrete_laplace((n_draws,), inverse_scale=inverse_scale),
        lambda: [plain.draw(inverse_scale) for _ in range(n_draws // 100)],
        share=100,
    )


def main() -> None:
    """Prints all ratios."""
    print(
        f"{'median of the paired ratios; above 1: ours is faster':<72} {'ratio':>9}   (range)"
    )
    class_histogram(200_000, 14, shape=(16, 32, 2))
    class_histogram(200_000, 30, shape=(1, 64, 10))
    class_histogram(200_000, 16, shape=(64, 16, 26))
    for shape in ((1, 32, 2), (32, 32, 2), (128, 32, 2), (1, 256, 10), (64, 17, 26)):
        weighted_histogram(2**17, 20, shape=shape)
    for n_rows in (1, 100, 10_000):
        sum_leaf_values(n_rows, n_trees=64, depth=6)
    sum_leaf_values(10_000, n_trees=400, depth=5)
    for inverse_scale in (Fraction(1, 8), Fraction(1), Fraction(1, 2**32)):
        discrete_laplace(300_000, inverse_scale=inverse_scale)


if __name__ == "__main__":
    main()
