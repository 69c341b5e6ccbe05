"""Grows ``breiman`` with scikit-learn on public rows."""

from __future__ import annotations

from collections.abc import Callable

from sklearn.ensemble import RandomForestClassifier

from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Schema
from research.papers.forests.contract import PlainForest, PlainPlan
from research.papers.forests.trees import scikit_trees
from research.papers.forests.trees.design import Design
from research.papers.forests.trees.node_trees import collected

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
    forest = RandomForestClassifier(
        n_estimators=0,
        min_samples_leaf=int(plan.parameters["min_samples_leaf"]),
        max_features="sqrt" if plan.parameters["max_features"] == "sqrt" else None,
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
