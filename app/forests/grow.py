"""Grows the planned forest on PRIVATE rows: the only function here that turns rows into something publishable."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from app.core import amounts
from app.forests import assignment, catalogue
from app.forests.encoding import Encoding
from app.forests.forest import Forest
from app.forests.in_memory import LocalHistograms
from app.forests.mechanisms.common import HASH, SHARDED
from app.forests.mechanisms.mechanism import ForestMechanism
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
    if isinstance(mechanism, ForestMechanism):
        return mechanism.grow_forest(plan, schema, rows, randomness, on_tree_done=on_tree_done)
    encoding = Encoding.of(schema, int(plan.parameters["n_bins"]))
    histograms = _histograms(encoding, plan, schema, rows, randomness)
    layouts = mechanism.family.layouts(plan, schema)
    arrays = {name: np.empty(layout.shape, dtype=layout.dtype) for name, layout in layouts.items()}
    for index in range(plan.n_trees):
        own = histograms.of_tree(index)
        tree = mechanism.grow_tree(plan.event, plan.parameters, encoding=encoding, rows=own, randomness=randomness)
        for name, array in arrays.items():
            array[index] = getattr(tree, name)
        on_tree_done()
    return Forest(plan, arrays)


def _histograms(
    encoding: Encoding, plan: Plan, schema: Schema, rows: SanitisedRows, randomness: Randomness
) -> LocalHistograms:
    """All rows for every tree, or to each tree its own; in one part or, by another hash, in two."""
    sharded, apart = plan.parameters["assignment"] == SHARDED, plan.parameters.get("se") == HASH
    key = assignment.fresh_key(randomness) if sharded or apart else b""
    shard = assignment.shards(key, rows.row_ids, n_shards=plan.n_trees) if sharded else None

    def structure_rows(tree: int) -> NDArray[np.bool_]:
        share = amounts.parse(plan.parameters["structure_rows"])
        return assignment.structure_rows(key, rows.row_ids, tree=tree, share=share)

    return LocalHistograms(
        encoding.encode(rows.features),
        rows.y,
        n_codes=encoding.n_codes,
        n_classes=schema.n_classes,
        shard=shard,
        structure_rows=structure_rows if apart else None,
    )
