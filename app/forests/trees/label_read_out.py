"""Reads out forests whose leaves release one label each, and forests whose plan chooses between labels and counts."""

from __future__ import annotations

import numpy as np

from app.forests.contract import family
from app.forests.contract.forest import Forest
from app.forests.contract.plan import Plan
from app.forests.data.schema import Schema
from app.forests.trees import pooling, shapes
from app.forests.trees.count_read_out import CountFamily
from app.forests.trees.leaf_sums import LeafSums, PooledSums


class LabelFamily:
    """One released label per leaf; a row's probabilities are the shares of trees that vote for each class.

    A label carries one vote and no count, so every read-out is the share of votes.
    """

    def layouts(self, plan: Plan, schema: Schema) -> family.Layouts:
        """Splits, and ``labels``: int32 ``(n_trees, 2^depth)``."""
        return {**family.split_layouts(plan), "labels": family.Layout(np.int32, (plan.n_trees, family.n_leaves(plan)))}

    def is_valid(self, forest: Forest, schema: Schema) -> bool:
        """Whether splits and labels are those of the schema."""
        labels = forest.arrays["labels"]
        return family.splits_are_valid(forest, schema) and bool(np.all((labels >= 0) & (labels < schema.n_classes)))

    def reader(self, forest: Forest, schema: Schema, read_out: str) -> PooledSums:
        """A reader that returns shares of votes."""
        sums = LeafSums(
            shapes.encoding_of(schema, forest.plan.parameters["n_bins"], forest.plan.profile),
            forest.arrays,
            np.eye(schema.n_classes)[forest.arrays["labels"]] / forest.plan.n_trees,
        )
        return PooledSums(sums, pooling.VOTE)


class ChosenLeafFamily:
    """Leaves that release labels where the plan's parameter ``leaf`` is ``label``, and counts otherwise."""

    def of(self, plan: Plan) -> CountFamily | LabelFamily:
        """The family that the plan's parameter ``leaf`` chooses."""
        return LabelFamily() if plan.parameters["leaf"] == "label" else CountFamily()

    def layouts(self, plan: Plan, schema: Schema) -> family.Layouts:
        """The layouts of the chosen kind of leaf."""
        return self.of(plan).layouts(plan, schema)

    def is_valid(self, forest: Forest, schema: Schema) -> bool:
        """Whether the forest is valid for the chosen kind of leaf."""
        return self.of(forest.plan).is_valid(forest, schema)

    def reader(self, forest: Forest, schema: Schema, read_out: str) -> PooledSums:
        """The reader of the chosen kind of leaf."""
        return self.of(forest.plan).reader(forest, schema, read_out)
