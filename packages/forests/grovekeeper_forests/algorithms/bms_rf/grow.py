"""Grows stacked forests: releases a layer, then adds its votes to the rows of the next
layer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from grovekeeper_forests import amounts
from grovekeeper_forests.algorithms.bms_rf import layers, read
from grovekeeper_forests.array_types import Int64Array, UInt16Array
from grovekeeper_forests.contract.algorithm import Parameters
from grovekeeper_forests.contract.plan import Forest, Plan, encoding_of
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.noise.randomness import Randomness
from grovekeeper_forests.privacy.events import Event
from grovekeeper_forests.trees import tree_growth, tree_histograms, tree_price
from grovekeeper_forests.trees.leaf_read_out import LeafSums
from grovekeeper_forests.trees.tree_growth import ReleasedTree, grow_trees
from grovekeeper_forests.trees.tree_histograms import TreeHistograms


def grow_forest(
    plan: Plan,
    schema: Schema,
    rows: SanitisedRows,
    randomness: Randomness,
    *,
    on_tree_done: Callable[[], None],
) -> Forest:
    """Releases layers on the PRIVATE rows, each on rows with the votes of the layer
    before. One call is one release.

    The projections are drawn before any row is read.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. A layer is a
        multinomial forest (Theorem 1 of docs/proofs/mrf.md) on rows ``X + shift · votes
        · W``, where W is public and the votes of a row are computed from *released*
        leaves alone: a record-wise map (lemmas L6 and B1), in whole numbers, so that no
        row changes another row and every sensitivity equals the sensitivity of one
        forest. Dropout draws public coins and restricts public candidates (lemma B2).
        The losses of layers on the same rows add up (Theorem L), ε/N each; layers on
        disjoint rows, assigned by a keyed hash, cost the largest of their losses (lemma
        L5). The number of layers is public and independent of any accuracy on rows.
        *Not covered:* running time.

    Source:
        Song and Wang (2024), Algorithms 1 and 2; its Lemma 8 does not hold as stated.
        Theorem 1 of docs/proofs/bms-rf.md.
    """
    parameters, grown = plan.parameters, list[Forest]()
    plans, schemas = layers.plans(plan), layers.schemas(schema, parameters)
    projection = draw_projection(schema, len(plans) - 1, randomness)
    shift = layers.largest_shift(parameters)
    parts = _parts(plan, rows, randomness)
    for index, (layer_plan, layer_schema) in enumerate(
        zip(plans, schemas, strict=True)
    ):
        layer_rows = parts[index]
        # The votes of released layers alone, so that the columns of a row are a function
        # of the row and of releases (lemma B1). They are computed again for each layer,
        # because its rows may be others than those of the layers before.
        columns = layer_rows.features
        for released, released_schema, weights in zip(
            grown, schemas, projection, strict=False
        ):
            votes = votes_of(released, released_schema, columns)
            columns = layers.add_votes(
                schema, layer_rows.features, votes, weights=weights, shift=shift
            )
        layer = grow_trees(
            grow_tree,
            layer_plan,
            schema=layer_schema,
            rows=SanitisedRows(columns, layer_rows.y, layer_rows.row_ids),
            randomness=randomness,
            on_tree_done=on_tree_done,
        )
        grown.append(layer)
    return Forest(plan, {**read.joined(grown), read.PROJECTION: projection})


def grow_tree(
    event: Event,
    parameters: Parameters,
    *,
    encoding: Encoding,
    rows: TreeHistograms,
    randomness: Randomness,
) -> ReleasedTree:
    """Selects splits level by level on the PRIVATE rows, then releases the leaves; see
    ``GrowTree``.

    Privacy:
        The guarantee of ``mrf``, under add/remove and replace-one: coins are public,
        and the range sensitivity of a utility over fewer candidates is at most its
        range sensitivity over all. *Not covered:* running time.

    Source:
        Song and Wang (2024), Algorithm 2; lemma B2 of docs/proofs/bms-rf.md.
    """
    rule = tree_growth.SplitRule(
        str(parameters["utility"]),
        kept_features=amounts.parse(parameters["kept_features"]),
        kept_splits=amounts.parse(parameters["kept_splits"]),
    )
    by_shares = parameters["leaf"] == tree_price.SHARES
    return tree_growth.grow_greedy_tree(
        event,
        rule,
        encoding=encoding,
        rows=rows,
        randomness=randomness,
        by_shares=by_shares,
    )


def votes_of(layer: Forest, schema: Schema, columns: SanitisedColumns) -> Int64Array:
    """The votes of a released layer for each row, int64 ``(n_rows, n_classes)`` in
    units of 2⁻¹⁶; record-wise.

    Args:
        layer: released.
        schema: public; schema of the layer's rows.
        columns: PRIVATE, or a caller's rows to predict; columns of ``schema``.
    """
    encoding = encoding_of(schema, layer.plan.parameters["n_bins"], layer.plan.profile)
    values = layers.of_leaves(layer.arrays, schema.n_classes).astype(np.float64)
    # sums of whole numbers, exact
    sums = LeafSums(encoding, layer.arrays, values).packed.sums(columns)
    return sums.astype(np.int64)


def draw_projection(
    schema: Schema, n_steps: int, randomness: Randomness
) -> UInt16Array:
    """Draws the public weights between layers: uniform multiples of 2⁻¹⁶ below 1, and 0
    for unordered features.

    Returns:
        uint16 ``(n_steps, n_classes, n_features)``.
    """
    weights = np.zeros(
        (n_steps, schema.n_classes, len(schema.features)), dtype=np.uint16
    )
    for index, feature in enumerate(schema.features):
        if layers.is_moved(feature):
            drawn = [
                randomness.uniform(layers.TICKS)
                for _ in range(n_steps * schema.n_classes)
            ]
            of_feature = np.array(drawn, dtype=np.uint16)
            weights[:, :, index] = of_feature.reshape(weights.shape[:2])
    return weights


def _parts(
    plan: Plan, rows: SanitisedRows, randomness: Randomness
) -> list[SanitisedRows]:
    """The PRIVATE rows of each layer: all rows, or the rows that a keyed hash assigns
    to the layer.
    """
    n_layers = int(plan.parameters["n_layers"])
    if not layers.is_disjoint(plan.parameters):
        return [rows] * n_layers
    key = tree_histograms.fresh_key(randomness)
    shard = tree_histograms.shards(key, rows.row_ids, n_shards=n_layers)
    return [_rows_at(rows, np.flatnonzero(shard == layer)) for layer in range(n_layers)]


def _rows_at(rows: SanitisedRows, places: Int64Array) -> SanitisedRows:
    columns = tuple(column[places] for column in rows.features.columns)
    return SanitisedRows(
        SanitisedColumns(columns, len(places)), rows.y[places], rows.row_ids[places]
    )
