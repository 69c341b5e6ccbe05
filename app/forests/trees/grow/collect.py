"""Collects trees that are released one after another into a forest."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.forests.contract.forest import Forest
from app.forests.contract.plan import Plan
from app.forests.trees.grow.leaves import ReleasedTree


def forest_of(plan: Plan, trees: Iterable[ReleasedTree], *, on_tree_done: Callable[[], None]) -> Forest:
    """The released arrays of all trees, each with a leading axis for the trees.

    Args:
        plan: the priced plan.
        trees: ``plan.n_trees`` trees, each released when the iterable yields it.
        on_tree_done: called after each tree.
    """
    arrays: dict[str, NDArray[Any]] = {}
    for index, tree in enumerate(trees):
        for field in fields(tree):
            released = getattr(tree, field.name)
            if index == 0:
                arrays[field.name] = np.empty((plan.n_trees, *released.shape), dtype=released.dtype)
            arrays[field.name][index] = released
        on_tree_done()
    return Forest(plan, arrays)
