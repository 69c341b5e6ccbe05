"""Compares the CPU time of training with that of scikit-learn's forest of 100 trees.

Run ``python -m benchmarks.training DATA``, where DATA is a folder for
``research.accuracy``. Our time covers the plan to the artifact's bytes, on the rows of
the protocol's first split; scikit-learn's time is ``fit`` on the same rows as numbers.
Both run alternately, and the output is the median of the paired ratios, because
absolute times of a shared machine mean little. Below 1, ours is cheaper.
"""

import argparse
import statistics
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from grovekeeper_forests import catalogue
from grovekeeper_forests.releases.forest.price import plan
from research.cpu_time import cpu_seconds
from research.datasets import Dataset, read, split_of
from research.runs import Task, artifact_of

DEFAULT_DATASETS = ("adult", "magic", "pendigits")
DELTA = "1e-6"


def _numbers(dataset: Dataset, train: NDArray[np.int64]) -> NDArray[np.float64]:
    columns = np.column_stack(
        [column[train].astype(np.float64) for column in dataset.columns]
    )
    return np.nan_to_num(columns, nan=-1.0)


def compare(dataset: Dataset, algorithm: str, *, epsilon: str, pairs: int) -> str:
    """A table row: number and depth of trees, then median, smallest and largest ratio
    of our time to scikit-learn's.
    """
    train, _ = split_of(len(dataset.y), 0)
    task = Task(dataset.name, algorithm, epsilon, DELTA, 0)
    training_plan = plan(task.request(dataset.public_size), dataset.schema)
    X, y = _numbers(dataset, train), dataset.y[train]

    def ours() -> object:
        return artifact_of(
            dataset, plan(task.request(dataset.public_size), dataset.schema), train
        )

    def theirs() -> object:
        return RandomForestClassifier(n_estimators=100, n_jobs=1).fit(X, y)

    ours()  # compiles, loads
    ratios = sorted(cpu_seconds(ours) / cpu_seconds(theirs) for _ in range(pairs))
    size = f"{training_plan.n_trees} × depth {training_plan.parameters['max_depth']}"
    median = statistics.median(ratios)
    return f"| {dataset.name} | `{algorithm}` | {size} | {median:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |"


def main() -> None:
    """Prints a Markdown table of ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--datasets", nargs="+", default=list(DEFAULT_DATASETS))
    parser.add_argument("--algorithms", nargs="+", default=sorted(catalogue.BY_SLUG))
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    print(
        "| dataset | algorithm | trees | CPU time, ours / scikit-learn's 100 trees |\n|---|---|---|---|"
    )
    for name in options.datasets:
        dataset = read(options.folder, name)
        for algorithm in options.algorithms:
            print(
                compare(
                    dataset, algorithm, epsilon=options.epsilon, pairs=options.pairs
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
