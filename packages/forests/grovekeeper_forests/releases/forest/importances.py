"""Tells what the trees of a released forest look at: splits by feature, importances, and
leaves by class.

All of it is post-processing of the released arrays (lemma L7): it reads no row and costs
no budget.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grovekeeper_forests import catalogue
from grovekeeper_forests.algorithms.bms_rf.read import StackedSums
from grovekeeper_forests.algorithms.rpf.price import PAIRS
from grovekeeper_forests.array_types import (
    BoolArray,
    Float64Array,
    Int32Array,
    Int64Array,
)
from grovekeeper_forests.contract.plan import Forest
from grovekeeper_forests.data.encoding import (
    COLUMNS_PER_PAIR,
    NO_SPLIT,
    pairs_of_schema,
)
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.trees.leaf_read_out import PooledSums


@dataclass(frozen=True)
class ForestUse:
    """What the trees of a forest look at.

    Attributes:
        n_splits: splits that look at each feature, in the order of the schema; a split
            of ``rpf`` by a pair of features counts for both.
        importances: shares of the decrease of impurity, in the order of the schema;
            they sum to 1, or are all 0 where nothing decreases. ``None`` where the
            leaves release no class counts.
        leaf_shares: the share of the leaves that favour each class alone; those that
            favour several alike are in no share. Empty where the label is a number.
    """

    n_splits: tuple[int, ...]
    importances: tuple[float, ...] | None
    leaf_shares: tuple[float, ...]


def use_of(forest: Forest, schema: Schema) -> ForestUse:
    """Tells what the trees of a forest look at.

    The importance of a feature is the decrease of the Gini impurity at its splits, as in
    scikit-learn, from released noisy class counts in place of rows. The counts of a node
    are the sums over the leaves below it, clipped at 0. The decrease at a split is n·G
    of the node less n·G of its two sides, n being the sum of the counts and G their Gini
    impurity, clipped at 0. It is summed over all splits by feature, and divided by the
    total. Noise decreases impurity, too: forests of little budget have importances
    without meaning. In ``rpf``, later trees count rows by their weights.

    Privacy:
        None of its own: a function of the released forest and of public facts alone.
        Differential privacy is closed under post-processing (lemma L7,
        docs/proofs/lemmas.md), so no row is read and nothing is charged.

    Args:
        forest: released.
        schema: public; the schema inside the artifact.
    """
    splits, reached = reached_of(forest)
    features = _features_of(forest.arrays["feature"][splits], forest, schema)
    n_features = len(schema.features)
    first, second = features.T
    n_splits = np.bincount(first, minlength=n_features)
    n_splits += np.bincount(second[first != second], minlength=n_features)
    importances = None
    if "counts" in forest.arrays:
        # half of a decrease for each feature of a pair, both halves for one feature
        decreases = _decreases(forest.arrays["counts"], reached)
        halves = np.repeat(decreases[splits] / 2, 2)
        sums = np.bincount(features.ravel(), weights=halves, minlength=n_features)
        total = sums.sum() or 1.0
        importances = tuple((sums / total).tolist())
    return ForestUse(
        n_splits=tuple(n_splits.tolist()),
        importances=importances,
        leaf_shares=_leaf_shares(forest, schema, reached),
    )


def reached_of(forest: Forest) -> tuple[BoolArray, BoolArray]:
    """Whether each node splits and a row can reach it, bool ``(n_trees, n_nodes)``, and
    whether a row can reach each leaf, bool ``(n_trees, n_leaves)``.
    """
    arrays = forest.arrays
    if "right" in arrays:
        passes = np.all(arrays["right"] == 0, axis=2)
    else:
        passes = (arrays["threshold"] == NO_SPLIT) & ~arrays["equals"]
    n_trees = len(passes)
    reached = np.ones((n_trees, 1), dtype=np.bool_)
    splits = [np.zeros((n_trees, 0), dtype=np.bool_)]
    for level in range(forest.depth):
        nodes = slice((1 << level) - 1, (2 << level) - 1)
        splits.append(reached & ~passes[:, nodes])
        sides = np.stack((reached, splits[-1]), axis=2)
        reached = sides.reshape(n_trees, -1)
    return np.concatenate(splits, axis=1), reached


def _features_of(columns: Int32Array, forest: Forest, schema: Schema) -> Int64Array:
    """The two features that splits by these columns look at, int64 ``(n_splits, 2)``;
    twice the same where a column is no pair.
    """
    places = np.arange(len(schema.features))
    features = np.repeat(places, 2).reshape(-1, 2)
    if forest.plan.parameters.get("pairs") == PAIRS:
        pairs = np.array(pairs_of_schema(schema), dtype=np.int64).reshape(-1, 2)
        of_pairs = np.repeat(pairs, COLUMNS_PER_PAIR, axis=0)
        features = np.concatenate((features, of_pairs))
    looked_at: Int64Array = features[columns]
    return looked_at


def _decreases(counts: Int64Array, reached: BoolArray) -> Float64Array:
    """The decrease of impurity at every node, float64 ``(n_trees, n_nodes)``.

    Args:
        counts: released, int64 ``(n_trees, n_leaves, n_classes)``.
        reached: bool ``(n_trees, n_leaves)``; other leaves hold noise alone.
    """
    is_reached = reached[..., np.newaxis]
    below = np.where(is_reached, counts, 0).astype(np.float64)
    n_trees, _, n_classes = below.shape
    levels = [np.zeros((n_trees, 0))]
    while below.shape[1] > 1:
        impurity = _impurity(below)
        of_sides = impurity.reshape(n_trees, -1, 2).sum(axis=2)
        sides = below.reshape(n_trees, -1, 2, n_classes)
        below = sides.sum(axis=2)
        levels.append(np.maximum(_impurity(below) - of_sides, 0.0))
    return np.concatenate(levels[::-1], axis=1)


def _impurity(counts: Float64Array) -> Float64Array:
    """n·G of nodes: n − Σ nᵢ²/n from their counts by class, clipped at 0."""
    positive = np.maximum(counts, 0.0)
    total = positive.sum(axis=-1)
    squares = np.square(positive).sum(axis=-1)
    impurity: Float64Array = total - np.divide(
        squares, total, out=np.zeros_like(total), where=total > 0
    )
    return impurity


def _leaf_shares(
    forest: Forest, schema: Schema, reached: BoolArray
) -> tuple[float, ...]:
    """See :attr:`ForestUse.leaf_shares`: by what each leaf adds to the answer, in the
    default read-out.
    """
    if schema.label.is_number:
        return ()
    slug = forest.plan.algorithm
    read_out = catalogue.read_outs(slug)[0]
    reader = catalogue.family(slug).reader(forest, schema, read_out)
    match reader:
        case StackedSums(layers=layers):
            values = np.concatenate([layer.values for layer in layers])
            values = values[..., : schema.n_classes]
        case PooledSums(sums=sums):
            values = sums.values
        case _:
            values = forest.arrays["scores"]
    if values.shape[2] == 1:  # of the second of two classes; the first has none
        values = np.concatenate((np.zeros_like(values), values), axis=2)
    leaves = values[reached]
    leads = leaves == leaves.max(axis=1, keepdims=True)
    n_leads = leads.sum(axis=1, keepdims=True)
    alone = leads & (n_leads == 1)
    return tuple(alone.mean(axis=0).tolist())
