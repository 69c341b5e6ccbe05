"""Reads out forests of algorithms without privacy: trees of any shape over real
columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.contract.plan import Reader
from grovekeeper_forests.data.sanitiser import SanitisedColumns
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.trees import leaf_read_out
from research.papers.forests.contract import PlainForest
from research.papers.forests.trees.design import Design
from research.papers.forests.trees.node_routing import NodeTrees


def reader(forest: PlainForest, schema: Schema, read_out: str) -> Reader:
    """A reader of shares of votes (``mv``) or of mean shares (``ta``, ``pa``)."""
    trees = NodeTrees.of(forest.arrays)
    return NodeReader(
        Design.of(schema), voting(trees) if read_out == leaf_read_out.VOTE else trees
    )


def voting(trees: NodeTrees) -> NodeTrees:
    """The trees with a vote for its largest share, the first in a tie, in place of the
    shares of every leaf.
    """
    votes = np.eye(trees.values.shape[1], dtype=np.float32)
    return replace(trees, values=votes[trees.values.argmax(axis=1)])


@dataclass(frozen=True, eq=False)
class NodeReader:
    """A forest prepared for prediction."""

    design: Design
    trees: NodeTrees

    def __call__(self, columns: SanitisedColumns) -> NDArray[np.float64]:
        """Class probabilities of rows, float64 ``(n_rows, n_classes)``."""
        return leaf_read_out.to_probabilities(
            self.trees.sums(self.design.matrix(columns)), leaf_read_out.AVERAGE
        )
