"""Grows the planned forest on PRIVATE rows: the only function here that turns rows into something publishable."""

from collections.abc import Callable

import numpy as np

from app.forests import assignment, catalogue
from app.forests.encoding import Encoding
from app.forests.forest import Forest
from app.forests.in_memory import LocalHistograms
from app.forests.mechanisms.common import SHARDED
from app.forests.plan import Plan
from app.forests.randomness import Randomness
from app.forests.rows import SanitisedRows
from app.forests.schema import Schema


def grow(
    plan: Plan,
    schema: Schema,
    rows: SanitisedRows,
    randomness: Randomness,
    *,
    on_tree_done: Callable[[], None],
) -> Forest:
    """Runs a plan once. One call is one release and costs ``plan.epsilon``; running again costs again.

    No number of rows is an error: an empty dataset, or one with a single class, gives a forest of the same shape.

    Args:
        plan: what was priced.
        schema: public.
        rows: PRIVATE, sanitised, already bounded to the privacy unit's contribution.
        randomness: source of every draw.
        on_tree_done: told after each tree.

    Returns:
        The released forest, of a shape that the plan fixes.

    Privacy:
        ``pure.loss(plan.event)``-DP under add/remove and twice that under replace-one, by the mechanism's own theorem:
        encoding and assignment are record-wise (lemmas L5 and L6), trees compose by Theorem L. ``on_tree_done`` is
        called once per tree whatever the rows are; *when* it is called is not covered.

    Source:
        docs/proofs/lemmas.md, and the proof page of the mechanism.
    """
    mechanism = catalogue.mechanism(plan.algorithm)
    encoding = Encoding.of(schema, int(plan.parameters["n_bins"]))
    shard = None
    if plan.parameters["assignment"] == SHARDED:
        shard = assignment.shards(assignment.fresh_key(randomness), rows.row_ids, n_shards=plan.n_trees)
    histograms = LocalHistograms(
        encoding.encode(rows.features), rows.y, n_codes=encoding.n_codes, n_classes=schema.n_classes, shard=shard
    )
    n_leaves = 2 ** int(plan.parameters["max_depth"])
    nodes = (plan.n_trees, n_leaves - 1)
    forest = Forest(
        plan,
        feature=np.empty(nodes, dtype=np.int32),
        threshold=np.empty(nodes, dtype=np.uint8),
        equals=np.empty(nodes, dtype=np.bool_),
        counts=np.empty((plan.n_trees, n_leaves, schema.n_classes), dtype=np.int64),
    )
    for index in range(plan.n_trees):
        own = histograms.of_tree(index)
        tree = mechanism.grow_tree(plan.event, plan.parameters, encoding=encoding, rows=own, randomness=randomness)
        forest.feature[index], forest.threshold[index] = tree.feature, tree.threshold
        forest.equals[index], forest.counts[index] = tree.equals, tree.counts
        on_tree_done()
    return forest
