"""Growth of stacked forests: a layer is released, then every row is moved by what that release says of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from app.forests.algorithms.bms_rf import layers, read, stacked_features, votes
from app.forests.bins import tree_bins
from app.forests.contract.forest import Forest
from app.forests.contract.plan import Plan
from app.forests.data.rows import SanitisedColumns, SanitisedRows
from app.forests.data.schema import Schema
from app.forests.trees import assignment
from app.forests.trees.leaf_sums import LeafSums
from app.forests.trees.tree_by_tree import grow_trees

if TYPE_CHECKING:
    from app.forests.contract.algorithm import TreeMechanism
    from app.forests.noise.randomness import Randomness


def grow_layers(
    mechanism: TreeMechanism,
    plan: Plan,
    *,
    schema: Schema,
    rows: SanitisedRows,
    randomness: Randomness,
    on_tree_done: Callable[[], None],
) -> Forest:
    """Releases the layers of a plan. One call is one release, at the loss of ``plan.event``.

    Args:
        mechanism: grows a tree of any layer.
        plan: what was priced.
        schema: public; as declared.
        rows: PRIVATE.
        randomness: source of every draw.
        on_tree_done: told after each tree.
    """
    parameters, grown = plan.parameters, list[Forest]()
    plans, schemas = layers.plans(plan), layers.schemas(schema, parameters)
    projection = draw_projection(schema, len(plans) - 1, randomness)
    shift = stacked_features.largest_shift(parameters)
    parts = _parts(plan, rows, randomness)
    for index, (own, own_schema) in enumerate(zip(plans, schemas, strict=True)):
        mine = parts[index]
        seen = mine.features
        for released, seen_by, weights in zip(grown, schemas, projection, strict=False):
            said = votes_of(released, seen_by, seen)
            seen = stacked_features.add_votes(schema, mine.features, said, weights=weights, shift=shift)
        layer = grow_trees(
            mechanism,
            own,
            schema=own_schema,
            rows=SanitisedRows(seen, mine.y, mine.row_ids),
            randomness=randomness,
            on_tree_done=on_tree_done,
        )
        grown.append(layer)
    return Forest(plan, {**read.joined(grown), read.PROJECTION: projection})


def votes_of(layer: Forest, schema: Schema, columns: SanitisedColumns) -> NDArray[np.int64]:
    """What a released layer says of rows, int64 ``(n_rows, n_classes)`` in units of 2⁻¹⁶; record-wise.

    Args:
        layer: released.
        schema: public; of the rows that it sees.
        columns: PRIVATE or a caller's own, as that layer sees them.
    """
    encoding = tree_bins.encoding_of(schema, layer.plan.parameters["n_bins"], layer.plan.profile)
    values = votes.of_leaves(layer.arrays, schema.n_classes).astype(np.float64)
    return LeafSums(encoding, layer.arrays, values).of(columns).astype(np.int64)  # sums of whole numbers, exact


def draw_projection(schema: Schema, n_steps: int, randomness: Randomness) -> NDArray[np.uint16]:
    """Public weights between layers, uniform multiples of 2⁻¹⁶ below 1; none for what votes are not added to.

    Returns:
        uint16 ``(n_steps, n_classes, n_features)``.
    """
    weights = np.zeros((n_steps, schema.n_classes, len(schema.features)), dtype=np.uint16)
    for index, feature in enumerate(schema.features):
        if stacked_features.is_moved(feature):
            drawn = [randomness.uniform(stacked_features.TICKS) for _ in range(n_steps * schema.n_classes)]
            weights[:, :, index] = np.array(drawn, dtype=np.uint16).reshape(weights.shape[:2])
    return weights


def _parts(plan: Plan, rows: SanitisedRows, randomness: Randomness) -> list[SanitisedRows]:
    """The PRIVATE rows of each layer: all of them, or those whose keyed hash chose it."""
    n_layers = int(plan.parameters["n_layers"])
    if not layers.is_disjoint(plan.parameters):
        return [rows] * n_layers
    key = assignment.fresh_key(randomness)
    shard = assignment.shards(key, rows.row_ids, n_shards=n_layers)
    return [_those(rows, np.flatnonzero(shard == layer)) for layer in range(n_layers)]


def _those(rows: SanitisedRows, mine: NDArray[np.int64]) -> SanitisedRows:
    columns = tuple(column[mine] for column in rows.features.columns)
    return SanitisedRows(SanitisedColumns(columns, len(mine)), rows.y[mine], rows.row_ids[mine])
