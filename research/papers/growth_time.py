"""Compares the CPU time of growth without privacy with that of scikit-learn's
comparable forest of as many trees.

Run ``python -m research.papers.growth_time DATA``; DATA is a folder for
``research.accuracy``. Our time is that of rows to the forest's arrays, scikit-learn's
is ``fit`` on the same columns with a smallest leaf of five. Both run in turn on the
protocol's first split, and the ratio is the median of the paired ratios. The comparable
forests:

- one that draws √D columns for a node has scikit-learn's with ``max_features="sqrt"``,
  which also stands beside the comparison-based forests and random trees;
- one that looks at all columns has scikit-learn's with all columns;
- a stacked forest has a forest for each layer, later ones on columns shifted as in
  equation (4) of the paper;
- scikit-learn has no forest whose nodes rotate columns or fit planes. The comparable
  one is its forest with √D columns after one random rotation of all columns: splits
  compare real numbers there, too. The linear algebra of our nodes is in our time, and
  in its time there is none. Only beside ``hobraf``, whose nodes fit linear classifiers,
  stand also scikit-learn's fits of the same four classifiers to the nodes of one of our
  trees, as often as there are trees.
"""

import argparse
import statistics
from collections.abc import Callable
from math import isqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.svm import LinearSVC

from grovekeeper_forests.data.sanitiser import SanitisedRows
from research.cpu_time import cpu_seconds
from research.datasets import Dataset, read, split_of
from research.papers.forests import catalogue
from research.papers.forests.bms_rf_plain.read import scaled, shifted
from research.papers.forests.trees import linear_planes, oblique_trees
from research.papers.forests.trees.design import Design
from research.papers.forests.trees.oblique_trees import Limits, Nodes, PublicTable
from research.papers.forests.trees.plane_rules import Proposal
from research.papers.forests.trees.split_trees import Weights

N_TREES = 10
LIBRARY = ("breiman", "cart", "rpart")
"""Algorithms that are scikit-learn's."""

ALL_COLUMNS = ("mrf-plain", "breiman-m")
STACKED = ("bms-rf-plain",)
ROTATED = ("rof-pca", "rof-lda", "mpsvm-t", "mpsvm-p", "mpsvm-n")


def _fit(
    X: NDArray[np.float32], y: NDArray[np.int32], **settings: object
) -> RandomForestClassifier:
    return RandomForestClassifier(N_TREES, **{"min_samples_leaf": 5, **settings}).fit(
        X, y
    )


def _rotated(X: NDArray[np.float32]) -> NDArray[np.float32]:
    normal = np.random.default_rng(0).normal(size=(X.shape[1], X.shape[1]))
    standard = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    return np.asarray(standard @ np.linalg.qr(normal)[0], dtype=np.float32)


def comparable(slug: str, design: Design, rows: SanitisedRows) -> Callable[[], float]:
    """CPU time of the work of scikit-learn that stands beside the growth of a slug."""
    if slug == "hobraf":
        forest, fits = _forest("rof-pca", design, rows), _node_fits(design, rows)
        return lambda: cpu_seconds(forest) + N_TREES * cpu_seconds(fits)
    forest = _forest(slug, design, rows)
    return lambda: cpu_seconds(forest)


def _node_fits(design: Design, rows: SanitisedRows) -> Callable[[], object]:
    """Fits of scikit-learn's classifiers to the partitions of the nodes of one tree."""
    problems: list[tuple[NDArray[np.float64], NDArray[np.bool_]]] = []

    def recorded(nodes: Nodes) -> Proposal:
        (X, points), (order, bounds, columns) = nodes.table, nodes.rows
        for node, groups in enumerate(linear_planes.partitions(nodes.moments)):
            inside = order[bounds[node, 0] : bounds[node, 1]]
            values = X[columns[node]][:, inside].T.astype(np.float64)
            standard = (values - values.mean(axis=0)) / np.maximum(
                values.std(axis=0), 1e-9
            )
            problems.extend(
                (standard, group[points[0, inside]]) for group in groups if group.any()
            )
        return linear_planes.heterogeneous(nodes)

    table, random = (
        PublicTable(design.matrix(rows.features), rows.y, design.schema.n_classes),
        np.random.default_rng(0),
    )
    drawn = Weights.bootstrapped(len(rows.y), random).structure
    oblique_trees.grown(
        table, drawn, recorded, Limits(5, isqrt(design.n_columns)), random
    )
    kinds = (
        RidgeClassifier(),
        LinearDiscriminantAnalysis(solver="lsqr"),
        LogisticRegression(),
        LinearSVC(),
    )
    return lambda: [kind.fit(*problem) for problem in problems for kind in kinds]


def _forest(slug: str, design: Design, rows: SanitisedRows) -> Callable[[], object]:
    X, y = design.matrix(rows.features), rows.y
    if slug in ALL_COLUMNS:
        return lambda: _fit(X, y, max_features=None)
    if slug in ROTATED:
        rotated = _rotated(X)
        return lambda: _fit(rotated, y)
    if slug in STACKED:
        first, settings = (
            scaled(design, rows.features),
            {"max_features": None, "max_depth": 10},
        )
        shares = _fit(first, y, **settings).predict_proba(first)
        weights = (
            np.random.default_rng(0)
            .random((shares.shape[1], X.shape[1]))
            .astype(np.float32)
        )
        second = shifted(first, shares, weights, 0.35)
        return lambda: (_fit(first, y, **settings), _fit(second, y, **settings))
    return lambda: _fit(X, y)


def compare(dataset: Dataset, slug: str, *, pairs: int) -> str:
    """A table row: our CPU seconds, then median, smallest and largest ratio to
    scikit-learn's comparable forest.
    """
    train, _ = split_of(len(dataset.y), 0)
    design = Design.of(dataset.schema)
    names = {parameter.name for parameter in catalogue.REFERENCES[slug].parameters}
    n_trees = 2 * N_TREES if slug in STACKED else N_TREES
    plan = catalogue.plan(
        slug, {"n_estimators": n_trees} if "n_estimators" in names else {}
    )

    def rows_of(which: NDArray[np.int64]) -> SanitisedRows:
        return SanitisedRows(
            dataset.features(which),
            dataset.y[which],
            np.zeros((len(which), 16), dtype=np.uint8),
        )

    def grow(rows: SanitisedRows) -> object:
        return catalogue.grow(
            plan, dataset.schema, rows, on_tree_done=lambda: None, seed=0
        )

    rows = rows_of(train)
    theirs = comparable(slug, design, rows)
    grow(rows_of(train[:100]))  # compiles, loads
    times = [(cpu_seconds(lambda: grow(rows)), theirs()) for _ in range(pairs)]
    ratios = sorted(ours / other for ours, other in times)
    ours, median = (
        statistics.median(ours for ours, _ in times),
        statistics.median(ratios),
    )
    return f"| {dataset.name} | `{slug}` | {ours:.2f} | {median:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |"


def main() -> None:
    """Prints a Markdown table of ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--datasets", nargs="+", default=["adult", "pendigits"])
    default = [slug for slug in catalogue.REFERENCES if slug not in LIBRARY]
    parser.add_argument("--algorithms", nargs="+", default=default)
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    print(
        "| dataset | algorithm | CPU seconds | ours / scikit-learn's comparable forest |\n|---|---|---|---|"
    )
    for name in options.datasets:
        dataset = read(options.folder, name)
        for algorithm in options.algorithms:
            print(compare(dataset, algorithm, pairs=options.pairs), flush=True)


if __name__ == "__main__":
    main()
