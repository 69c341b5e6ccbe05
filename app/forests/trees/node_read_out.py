"""Reads out forests of algorithms without privacy: trees of any shape over real columns."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from app.forests.contract import family
from app.forests.contract.forest import Forest
from app.forests.contract.plan import Plan
from app.forests.data.design import Design
from app.forests.data.rows import SanitisedColumns
from app.forests.data.schema import Schema
from app.forests.kernels.node_routing import NodeTrees
from app.forests.trees import pooling

_SLACK = 1e-4
"""Shares are float32."""


class NodeFamily:
    """Class shares of every leaf. The sizes of the trees follow from the rows, which are public."""

    def layouts(self, plan: Plan, schema: Schema) -> family.Layouts:
        """The arrays of :class:`app.forests.kernels.node_routing.NodeTrees`; ``values`` are the shares of classes."""
        return {
            "root": family.Layout(np.int64, (plan.n_trees + 1,)),
            "feature": family.Layout(np.int32, (None,)),
            "threshold": family.Layout(np.float64, (None,)),
            "right": family.Layout(np.int32, (None,)),
            "values": family.Layout(np.float32, (None, schema.n_classes)),
        }

    def is_valid(self, forest: Forest, schema: Schema) -> bool:
        """Whether the trees are trees over the schema's columns, and the values are shares."""
        values = forest.arrays["values"]
        are_shares = np.all(values >= 0) and np.all(np.abs(values.sum(axis=1) - 1) <= _SLACK)
        return bool(are_shares) and NodeTrees.of(forest.arrays).is_valid(n_columns=Design.of(schema).n_columns)

    def reader(self, forest: Forest, schema: Schema, read_out: str) -> family.Reader:
        """A reader of shares of votes (``mv``) or of mean shares (``ta``, ``pa``)."""
        trees = NodeTrees.of(forest.arrays)
        if read_out == pooling.VOTE:
            trees = voting(trees)
        return NodeReader(Design.of(schema), trees)


def voting(trees: NodeTrees) -> NodeTrees:
    """The trees with a vote for its largest share, the first in a tie, in place of the shares of every leaf."""
    votes = np.eye(trees.values.shape[1], dtype=np.float32)
    return replace(trees, values=votes[trees.values.argmax(axis=1)])


class ObliqueFamily(NodeFamily):
    """As :class:`NodeFamily`, with nodes that may compare weighted sums of columns."""

    def layouts(self, plan: Plan, schema: Schema) -> family.Layouts:
        """As in :class:`NodeFamily`, and the arrays of :class:`app.forests.kernels.node_routing.Projections`."""
        return {
            **super().layouts(plan, schema),
            "first_term": family.Layout(np.int64, (None,)),
            "column": family.Layout(np.int32, (None,)),
            "weight": family.Layout(np.float32, (None,)),
        }


@dataclass(frozen=True, eq=False)
class NodeReader:
    """A forest prepared for prediction."""

    design: Design
    trees: NodeTrees

    def __call__(self, columns: SanitisedColumns) -> NDArray[np.float64]:
        """Class probabilities of rows, float64 ``(n_rows, n_classes)``."""
        return pooling.to_probabilities(self.trees.sums(self.design.matrix(columns)), pooling.AVERAGE)
