"""Grows forests of independent trees: passes each tree its rows, and releases the trees in sequence."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Protocol

from app.core import amounts
from app.forests.contract.algorithm import Parameters
from app.forests.contract.forest import Forest
from app.forests.contract.plan import Plan
from app.forests.data.coded_rows import TrainingRows
from app.forests.data.encoding import Encoding
from app.forests.data.schema import Schema
from app.forests.noise.randomness import Randomness
from app.forests.trees import shapes
from app.forests.trees.grow.assignment import Assignment
from app.forests.trees.grow.collect import forest_of
from app.forests.trees.grow.histograms import TreeHistograms
from app.forests.trees.grow.in_memory_histograms import LocalHistograms, PartedHistograms
from app.forests.trees.grow.leaves import ReleasedTree
from app.forests.trees.row_parts import parts_of
from app.forests.trees.tree_parameters import HASH, SHARDED
from app.privacy.events import Event


class GrowTree(Protocol):
    """Growth of one tree that uses no release of another tree."""

    def __call__(
        self,
        event: Event,
        parameters: Parameters,
        /,
        *,
        encoding: Encoding,
        rows: TreeHistograms,
        randomness: Randomness,
    ) -> ReleasedTree:
        """Grows and releases one tree on the PRIVATE histograms of its rows; one call is one release."""


def grow_trees(
    grow_tree: GrowTree,
    plan: Plan,
    *,
    schema: Schema,
    rows: TrainingRows,
    randomness: Randomness,
    on_tree_done: Callable[[], None],
) -> Forest:
    """Releases the trees of a plan. One call is one release, at the loss of ``plan.event``.

    Args:
        grow_tree: of the algorithm.
        plan: the priced plan.
        schema: public.
        rows: PRIVATE.
        randomness: source of every draw.
        on_tree_done: called after each tree.
    """
    encoding = shapes.encoding_of(schema, plan.parameters["n_bins"], plan.profile)
    assigned = _assignment(plan, randomness)
    histograms = PartedHistograms(parts_of(rows, encoding, LocalHistograms, assigned))
    trees = (
        grow_tree(plan.event, plan.parameters, encoding=encoding, rows=histograms.of_tree(index), randomness=randomness)
        for index in range(plan.n_trees)
    )
    return forest_of(plan, trees, on_tree_done=on_tree_done)


def _assignment(plan: Plan, randomness: Randomness) -> Assignment:
    """The rows of each tree: all rows, or one shard; in one part, or divided in two by another keyed hash."""
    sharded, apart = plan.parameters["assignment"] == SHARDED, plan.parameters.get("se") == HASH
    return Assignment.drawn(
        randomness,
        n_shards=plan.n_trees if sharded else 0,
        structure_share=amounts.parse(plan.parameters["structure_rows"]) if apart else Fraction(0),
    )
