"""Grows ``cart`` and ``rpart`` with scikit-learn on public rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Schema
from research.papers.forests.contract import PlainForest, PlainPlan
from research.papers.forests.trees import scikit_trees
from research.papers.forests.trees.design import Design
from research.papers.forests.trees.node_trees import NodeTree, collected


def grow_forest(
    plan: PlainPlan,
    schema: Schema,
    rows: SanitisedRows,
    *,
    seed: int,
    on_tree_done: Callable[[], None],
) -> PlainForest:
    """Grows one tree on all rows; ``rpart`` prunes it.

    Privacy:
        None.

    Source:
        Breiman et al., CART (1984), as scikit-learn implements it; rpart's rule of
        pruning.
    """
    parameters = plan.parameters
    classifier = DecisionTreeClassifier(
        min_samples_leaf=int(parameters["min_samples_leaf"]),
        min_samples_split=max(int(parameters.get("min_samples_split", 2)), 2),
        max_depth=int(parameters["max_depth"]) or None,
        random_state=seed,
    )
    classifier.fit(Design.of(schema).matrix(rows.features), rows.y)
    tree = scikit_trees.exported(
        classifier.tree_, classifier.classes_, n_classes=schema.n_classes
    )
    if "cp" in parameters:
        tree = _pruned(
            tree, classifier.tree_.n_node_samples, cp=float(parameters["cp"])
        )
    on_tree_done()
    return PlainForest(plan, collected([tree]))


def _pruned(tree: NodeTree, n_rows: NDArray[np.integer[Any]], *, cp: float) -> NodeTree:
    """Weakest-link pruning: while a node saves less than ``cp`` of the root's errors
    per leaf, it becomes a leaf.

    The risk of a node is its number of rows outside the largest class (Breiman et al.
    1984, section 3.3). Nodes are in preorder, so a subtree is a run of nodes, and one
    pass from the last node to the first sums up every subtree.
    """
    feature = tree.feature.copy()
    risk = n_rows * (1.0 - tree.shares.max(axis=1))
    least = cp * risk[0]
    while True:
        below, n_leaves = risk.copy(), np.ones(len(feature), dtype=np.int64)
        for node in range(len(feature) - 1, -1, -1):
            if feature[node] >= 0:
                children = [node + 1, tree.right[node]]
                below[node], n_leaves[node] = (
                    below[children].sum(),
                    n_leaves[children].sum(),
                )
        reachable = _reachable(feature, tree.right)
        inner = np.flatnonzero((feature >= 0) & reachable)
        saved = (risk[inner] - below[inner]) / (n_leaves[inner] - 1)
        if not len(inner) or saved.min() >= least:
            return _kept(tree, feature, reachable)
        feature[inner[saved <= saved.min()]] = -1


def _reachable(
    feature: NDArray[np.int32], right: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Nodes below no leaf."""
    reachable = np.zeros(len(feature), dtype=np.bool_)
    reachable[0] = True
    for node in np.flatnonzero(feature >= 0):
        if reachable[node]:
            reachable[[node + 1, right[node]]] = True
    return reachable


def _kept(
    tree: NodeTree, feature: NDArray[np.int32], kept: NDArray[np.bool_]
) -> NodeTree:
    place = np.cumsum(kept) - 1
    return NodeTree(
        feature[kept],
        tree.threshold[kept],
        place[tree.right[kept]].astype(np.int32),
        tree.shares[kept],
    )
