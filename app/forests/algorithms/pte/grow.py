"""Grows a small ensemble on PRIVATE labels, then a larger ensemble on the labels that the small one predicts."""

from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from app.forests.contract.forest import Forest
from app.forests.contract.plan import Plan
from app.forests.data.encoding import Encoding
from app.forests.data.rows import SanitisedColumns, SanitisedRows
from app.forests.data.schema import Schema
from app.forests.noise.randomness import Randomness
from app.forests.trees import leaf_prices, pooling, tree_price
from app.forests.trees.grow import exact_medians
from app.forests.trees.grow.collect import forest_of
from app.forests.trees.grow.in_memory_histograms import LabelsApart, LocalHistograms, without_labels
from app.forests.trees.grow.leaves import Tree
from app.forests.trees.leaf_sums import LeafSums


def grow_forest(
    plan: Plan,
    schema: Schema,
    rows: SanitisedRows,
    randomness: Randomness,
    *,
    on_tree_done: Callable[[], None],
) -> Forest:
    """Releases a first ensemble over PRIVATE labels, then a second without them. One call is one release.

    Args:
        plan: the priced plan.
        schema: public.
        rows: all rows of the scope; features and ids are public, labels PRIVATE, −1 where unknown.
        randomness: source of the features of nodes, of the key of the shards, and of the noise.
        on_tree_done: called after each tree.

    Privacy:
        ε-DP for one label that changes, ε being the request's; *none under add/remove or replace-one*: the
        owner declared features and membership public. The first ensemble is the ensemble of ``sspe-2``: L1 sensitivity
        2 (lemma L3), paid once on shards and added up over sequential trees. The labels that the first ensemble
        predicts for public rows, and every tree of the second ensemble, are functions of the released first ensemble
        and of public features: post-processing (lemma L7), without cost or noise. *Not covered:* running time.

    Source:
        Huang, Lei and Kabán, Algorithm 4, whose Lap(1/ε) gives 2ε; repaired in Theorem 1 of docs/proofs/pte.md.
    """
    n_teachers = int(plan.parameters["n_teachers"])
    teachers: list[Tree] = []

    def released() -> Iterator[Tree]:
        for tree in exact_medians.label_trees(plan, schema, rows, randomness, n_trees=n_teachers):
            assert isinstance(tree, Tree)
            teachers.append(tree)
            yield tree

    pupils = _pupils(plan, schema, teachers, rows.features, randomness)
    return forest_of(plan, chain(released(), pupils), on_tree_done=on_tree_done)


def _pupils(
    plan: Plan, schema: Schema, teachers: list[Tree], features: SanitisedColumns, randomness: Randomness
) -> Iterator[Tree]:
    """Grows trees on public rows with the labels that released trees predict. Reads no PRIVATE label (lemma L7).

    Args:
        plan: public.
        schema: public.
        teachers: released trees; the list is complete before the first pupil is grown.
        features: public features of all rows.
        randomness: source of the features of nodes.
    """
    encoding = Encoding.of(schema, int(plan.parameters["n_bins"]))
    codes, taught = encoding.encode(features), labels_of(plan, teachers, encoding, features)
    labelled = LocalHistograms(codes, taught, n_codes=encoding.n_codes, n_classes=schema.n_classes, shard=None)
    apart = LabelsApart(without_labels(codes, n_codes=encoding.n_codes), labelled)
    for index in range(len(teachers), plan.n_trees):
        tree_rows = apart.of_tree(index)
        splits = exact_medians.grow(encoding, plan.parameters, tree_rows, randomness)
        yield Tree(*splits, tree_rows.leaf_histogram())


def labels_of(plan: Plan, trees: list[Tree], encoding: Encoding, features: SanitisedColumns) -> NDArray[np.int32]:
    """The labels that released trees predict for public rows: the most probable class by the ``log`` read-out.

    Returns:
        int32 ``(n_rows,)``, released.
    """
    arrays = {name: np.stack([getattr(tree, name) for tree in trees]) for name in ("feature", "threshold", "equals")}
    counts = np.stack([tree.counts for tree in trees])
    noise_scale = leaf_prices.noise_scale(tree_price.leaves_of(plan.event))
    values = pooling.leaf_values(counts, pooling.LOGARITHMIC, noise_scale=noise_scale)
    labels: NDArray[np.int32] = LeafSums(encoding, arrays, values).of(features).argmax(axis=1).astype(np.int32)
    return labels
