"""Reads out forests that release noisy class counts of every leaf, over public bins: ``mrf`` and ``rdt``."""

from __future__ import annotations

import numpy as np

from app.forests.contract import family
from app.forests.contract.forest import Forest
from app.forests.contract.plan import Plan
from app.forests.data.schema import Schema
from app.forests.trees import leaf_prices, pooling, shapes
from app.forests.trees.leaf_sums import LeafSums, PooledSums
from app.forests.trees.tree_price import leaves_of


class CountFamily:
    """Noisy counts of leaves, pooled over trees by ``app.forests.trees.pooling``."""

    def layouts(self, plan: Plan, schema: Schema) -> family.Layouts:
        """Splits, and ``counts``: int64 ``(n_trees, 2^depth, n_classes)``."""
        shape = (plan.n_trees, family.n_leaves(plan), schema.n_classes)
        return {**family.split_layouts(plan), "counts": family.Layout(np.int64, shape)}

    def is_valid(self, forest: Forest, schema: Schema) -> bool:
        """Whether the splits are valid. Counts need no check: any integer can be a noisy count."""
        return family.splits_are_valid(forest, schema)

    def reader(self, forest: Forest, schema: Schema, read_out: str) -> PooledSums:
        """A reader that normalises sums of leaf values."""
        noise_scale = leaf_prices.noise_scale(leaves_of(forest.plan.event))
        sums = LeafSums(
            shapes.encoding_of(schema, forest.plan.parameters["n_bins"], forest.plan.profile),
            forest.arrays,
            pooling.leaf_values(forest.arrays["counts"], read_out, noise_scale=noise_scale),
        )
        return PooledSums(sums, read_out)
