"""Grows forests without privacy on small tables, and walks down their trees in plain
Python.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_iris

from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Feature, Label, Schema
from research.papers.forests import catalogue
from research.papers.forests.contract import PlainForest
from research.papers.forests.trees.node_routing import NodeTrees

IRIS = Schema(
    tuple(Feature(name, "numeric", 0.0, 10.0) for name in "abcd"),
    Label("species", ("setosa", "versicolor", "virginica")),
)
UNIT = Schema(
    tuple(Feature(name, "numeric", 0.0, 1.0) for name in "ab"),
    Label("y", ("no", "yes")),
)


def public_rows(
    *columns: NDArray[np.float64] | NDArray[np.int32], y: NDArray[np.int64]
) -> SanitisedRows:
    """Rows from their columns and classes."""
    return SanitisedRows(
        SanitisedColumns(columns, len(y)),
        y.astype(np.int32),
        np.zeros((len(y), 16), dtype=np.uint8),
    )


def iris() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The iris table in random order."""
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


def grown(
    slug: str, schema: Schema, rows: SanitisedRows, **parameters: object
) -> PlainForest:
    """A forest of 20 trees, after a check that every tree was reported."""
    n_done = 0

    def done() -> None:
        nonlocal n_done
        n_done += 1

    if "n_estimators" in {
        parameter.name for parameter in catalogue.REFERENCES[slug].parameters
    }:
        parameters = {"n_estimators": 20, **parameters}
    plan = catalogue.plan(slug, parameters)
    forest = catalogue.grow(plan, schema, rows, on_tree_done=done, seed=1)
    assert n_done == plan.n_trees
    return forest


def error(forest: PlainForest, schema: Schema, rows: SanitisedRows) -> float:
    """The share of rows whose most probable class is wrong."""
    shares = catalogue.probabilities(forest, schema, rows.features)
    return float((shares.argmax(axis=1) != rows.y).mean())


def leaf_of(trees: NodeTrees, tree: int, row: NDArray[np.float32]) -> tuple[int, int]:
    """The row of ``values`` that a row of a table reaches in a tree, and the number of
    splits above the leaf.
    """
    root, projections = int(trees.root[tree]), trees.projections
    node, depth = root, 0
    while (feature := int(trees.feature[node])) >= 0:
        if feature < len(row):
            value = float(row[feature])
        else:
            first, last = projections.first_term[feature - len(row) :][:2]
            terms = zip(
                projections.column[first:last],
                projections.weight[first:last],
                strict=True,
            )
            value = sum(float(row[column]) * float(weight) for column, weight in terms)
        node = (
            node + 1
            if value <= trees.threshold[node]
            else root + int(trees.right[node])
        )
        depth += 1
    return int(trees.right[node]), depth
