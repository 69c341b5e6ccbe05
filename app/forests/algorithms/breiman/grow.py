"""Grows ``breiman`` with scikit-learn on the rows of a public dataset."""

from __future__ import annotations

from collections.abc import Callable

from app.forests.contract.forest import Forest
from app.forests.contract.plan import Plan
from app.forests.data.design import Design
from app.forests.data.rows import PublicRows
from app.forests.data.schema import Schema
from app.forests.trees.grow import scikit_trees
from app.forests.trees.grow.node_trees import collected

_TOGETHER = 10
"""Trees between two reports of progress."""


def grow_forest(plan: Plan, schema: Schema, rows: PublicRows, *, seed: int, on_tree_done: Callable[[], None]) -> Forest:
    """Grows the forest; every tree sees a bootstrap sample of all rows.

    Privacy:
        None.

    Source:
        Breiman, Random Forests (2001), as scikit-learn implements it.
    """
    from sklearn.ensemble import RandomForestClassifier  # of the extra 'references'

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
        scikit_trees.exported(tree.tree_, forest.classes_, n_classes=schema.n_classes) for tree in forest.estimators_
    )
    return Forest(plan, collected(trees))
