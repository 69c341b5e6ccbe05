"""Grows the planned forest on PRIVATE rows: the only function here that turns rows into something publishable."""

from collections.abc import Callable

from app.forests import catalogue
from app.forests.contract.algorithm import ForestMechanism, TwoDatasetMechanism
from app.forests.contract.forest import Forest
from app.forests.contract.plan import Plan
from app.forests.data.rows import SanitisedRows
from app.forests.data.schema import Schema
from app.forests.noise.randomness import Randomness
from app.forests.trees.tree_by_tree import grow_trees


def grow(
    plan: Plan,
    schema: Schema,
    rows: SanitisedRows,
    randomness: Randomness,
    *,
    on_tree_done: Callable[[], None],
    unlabelled: SanitisedRows | None = None,
) -> Forest:
    """Runs a plan once. One call is one release and costs ``plan.epsilon``; running again costs again.

    No number of rows is an error: an empty dataset, or one with a single class, gives a forest of the same shape.

    Args:
        plan: what was priced.
        schema: public.
        rows: PRIVATE, sanitised, already bounded to the privacy unit's contribution. Labels are known, but for a
            mechanism that is stated under ``label``: that one is given every row, −1 where the label is unknown.
        randomness: source of every draw.
        on_tree_done: told after each tree.
        unlabelled: PRIVATE rows of the second dataset, for an algorithm that learns from two; their labels are not
            looked at.

    Returns:
        The released forest, of a shape that the plan fixes.

    Privacy:
        ``pure.loss(plan.event)``-DP under the mechanism's own adjacency, by its own theorem, and where that is
        add/remove twice as much under replace-one: encoding and assignment are record-wise (lemmas L5 and L6), trees
        compose by Theorem L. ``on_tree_done`` is called once per tree whatever the rows are; *when* it is called is
        not covered.

    Source:
        docs/proofs/lemmas.md, and the proof page of the mechanism.
    """
    mechanism = catalogue.mechanism(plan.algorithm)
    if isinstance(mechanism, ForestMechanism):
        return mechanism.grow_forest(plan, schema, rows, randomness, on_tree_done=on_tree_done)
    if isinstance(mechanism, TwoDatasetMechanism):
        if unlabelled is None:
            raise ValueError("the rows of the second dataset are missing")
        return mechanism.grow_from_both(plan, schema, rows, unlabelled, randomness, on_tree_done=on_tree_done)
    return grow_trees(mechanism, plan, schema=schema, rows=rows, randomness=randomness, on_tree_done=on_tree_done)
