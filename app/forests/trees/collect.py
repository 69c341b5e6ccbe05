"""A forest out of trees that are released one after another."""

from collections.abc import Callable, Iterable

import numpy as np

from app.forests.contract.algorithm import ReleasedTree
from app.forests.contract.family import Family
from app.forests.contract.forest import Forest
from app.forests.contract.plan import Plan
from app.forests.data.schema import Schema


def forest_of(
    plan: Plan, schema: Schema, family: Family, trees: Iterable[ReleasedTree], *, on_tree_done: Callable[[], None]
) -> Forest:
    """Puts released trees into the arrays that the plan fixes.

    Args:
        plan: what was priced.
        schema: public.
        family: of the mechanism.
        trees: released as they are asked for, ``plan.n_trees`` of them.
        on_tree_done: told after each tree.
    """
    arrays = {name: np.empty(layout.shape, dtype=layout.dtype) for name, layout in family.layouts(plan, schema).items()}
    for index, tree in enumerate(trees):
        for name, array in arrays.items():
            array[index] = getattr(tree, name)
        on_tree_done()
    return Forest(plan, arrays)
