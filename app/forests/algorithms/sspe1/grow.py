"""Grows median trees on unlabelled rows, then releases noisy counts of labelled rows in their leaves."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from app.forests.contract.forest import Forest
from app.forests.contract.plan import Plan
from app.forests.data.coded_rows import TrainingRows
from app.forests.data.encoding import Encoding
from app.forests.data.schema import Schema
from app.forests.noise.randomness import Randomness
from app.forests.trees import shapes, tree_parameters, tree_price
from app.forests.trees.grow import leaves, private_medians, structure
from app.forests.trees.grow.assignment import Assignment
from app.forests.trees.grow.collect import forest_of
from app.forests.trees.grow.histograms import TreeHistograms
from app.forests.trees.grow.in_memory_histograms import LabelsApart, LocalHistograms, PartedHistograms
from app.forests.trees.grow.leaves import ReleasedTree
from app.forests.trees.row_parts import parts_of
from app.forests.trees.tree_price import Levels, TreePrice
from app.privacy.events import UnknownPrivacyEvent


def grow_from_both(
    plan: Plan,
    schema: Schema,
    rows: TrainingRows,
    unlabelled: TrainingRows,
    randomness: Randomness,
    *,
    on_tree_done: Callable[[], None],
) -> Forest:
    """Selects medians of unlabelled rows, then counts labelled rows in the leaves. One call: one release per dataset.

    Args:
        plan: the priced plan for both datasets.
        schema: public schema of the labelled dataset; the unlabelled dataset has the same features.
        rows: PRIVATE, labelled.
        unlabelled: PRIVATE; its ``y`` is not read.
        randomness: source of the features of nodes, of the key of the shards, of selections and noise.
        on_tree_done: called after each tree.

    Privacy:
        For the unlabelled dataset, ε-DP under add/remove and 2ε under replace-one at its own ε: a path of selections,
        each of range sensitivity 2 (lemma L2, or L1 on accounts in ρ and μ²; lemma L4). Its labels are never read. For
        the labelled dataset, ε-DP under add/remove and 2ε under replace-one at its own ε: leaf counts of L1 sensitivity
        1 (lemma L3) over splits that were released before, of other rows (Theorem L). Sharded trees, the default, cost
        the largest loss of a tree in either dataset (lemma L5); the losses of sequential trees add. *A person in both
        datasets* is protected at the sum of the two: the owners state that the datasets share no person, and the
        service does not check this statement. *Not covered:* running time.

    Source:
        Huang, Lei and Kabán, Algorithm 3, setting (I), whose guarantee does not hold as stated; repaired in Theorem 1
        of docs/proofs/sspe-1.md.
    """
    trees = _trees(plan, schema, rows, unlabelled, randomness)
    return forest_of(plan, trees, on_tree_done=on_tree_done)


def _medians(
    levels: Levels,
    encoding: Encoding,
    rows: TreeHistograms,
    randomness: Randomness,
    level: int,
    level_boxes: list[NDArray[np.bool_]],
) -> list[int | None]:
    (selection,) = levels[level]
    return private_medians.choose_medians(selection, encoding, rows, level_boxes=level_boxes, randomness=randomness)


def _parted(
    plan: Plan, encoding: Encoding, rows: TrainingRows, unlabelled: TrainingRows, randomness: Randomness
) -> LabelsApart:
    """The rows of both datasets by tree: unlabelled rows to choose splits, labelled rows to count in leaves."""
    n_shards = plan.n_trees if tree_parameters.is_sharded(plan.parameters) else 0
    assigned = Assignment.drawn(randomness, n_shards=n_shards)
    structure = parts_of(unlabelled, encoding, LocalHistograms, assigned, False)
    return LabelsApart(
        PartedHistograms(structure), PartedHistograms(parts_of(rows, encoding, LocalHistograms, assigned))
    )


def _trees(
    plan: Plan, schema: Schema, rows: TrainingRows, unlabelled: TrainingRows, randomness: Randomness
) -> Iterator[ReleasedTree]:
    if plan.unlabelled is None:
        raise UnknownPrivacyEvent("the event of the second dataset is missing")
    encoding = shapes.encoding_of(schema, plan.parameters["n_bins"], plan.profile)
    levels, priced = tree_price.levels_of(plan.unlabelled.event), TreePrice.of(plan.event).leaves
    of_both = _parted(plan, encoding, rows, unlabelled, randomness)
    for index in range(plan.n_trees):
        tree_rows = of_both.of_tree(index)
        choose = partial(_medians, levels, encoding, tree_rows, randomness)
        splits = structure.grow_levels(encoding.candidates, len(levels), tree_rows, choose)
        yield leaves.release(splits, priced, tree_rows, randomness)
