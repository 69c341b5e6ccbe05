"""Grows ``breiman`` with scikit-learn on public rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Schema
from research.papers.forests.contract import PlainForest, PlainPlan
from research.papers.forests.trees import scikit_trees
from research.papers.forests.trees.design import Design
from research.papers.forests.trees.node_trees import NodeTree, collected

_TOGETHER = 10
"""Trees between two reports of progress."""


def grow_forest(
    plan: PlainPlan,
    schema: Schema,
    rows: SanitisedRows,
    *,
    seed: int,
    on_tree_done: Callable[[], None],
) -> PlainForest:
    """Grows the forest; every tree sees a bootstrap sample of all rows.

    Privacy:
        None.

    Source:
        Breiman, Random Forests (2001), as scikit-learn implements it.
    """
    if plan.parameters["leaf_counts"] == "draws":
        return _grown_on_draws(plan, schema, rows, seed, on_tree_done)
    forest = RandomForestClassifier(
        n_estimators=0,
        min_samples_leaf=int(plan.parameters["min_samples_leaf"]),
        max_features=_max_features(plan),
        random_state=seed,
        warm_start=True,
    )
    X = Design.of(schema).matrix(rows.features)
    while forest.n_estimators < plan.n_trees:
        n_new = min(_TOGETHER, plan.n_trees - forest.n_estimators)
        forest.set_params(n_estimators=forest.n_estimators + n_new)
        forest.fit(X, rows.y)
        for _ in range(n_new):
            on_tree_done()
    trees = (
        scikit_trees.exported(tree.tree_, forest.classes_, n_classes=schema.n_classes)
        for tree in forest.estimators_
    )
    return PlainForest(plan, collected(trees))


def _grown_on_draws(
    plan: PlainPlan,
    schema: Schema,
    rows: SanitisedRows,
    seed: int,
    on_tree_done: Callable[[], None],
) -> PlainForest:
    """The forest with every draw of a bootstrap sample as a row of its own."""
    X, random = Design.of(schema).matrix(rows.features), np.random.default_rng(seed)

    def trees() -> Iterator[NodeTree]:
        for _ in range(plan.n_trees):
            drawn = random.integers(len(rows.y), size=len(rows.y))
            tree = DecisionTreeClassifier(
                min_samples_leaf=int(plan.parameters["min_samples_leaf"]),
                max_features=_max_features(plan),
                random_state=int(random.integers(2**31)),
            ).fit(X[drawn], rows.y[drawn])
            yield scikit_trees.exported(
                tree.tree_, tree.classes_, n_classes=schema.n_classes
            )
            on_tree_done()

    return PlainForest(plan, collected(trees()))


def _max_features(plan: PlainPlan) -> str | None:
    return "sqrt" if plan.parameters["max_features"] == "sqrt" else None
