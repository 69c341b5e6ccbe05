"""Grows forests of independent trees on PRIVATE rows: the splits of each tree, then
noisy counts or a label per leaf.

The splits of a complete tree are drawn at random without rows, or chosen level by
level, for example by private selections among public candidates with a utility of the
class counts. Leaves are released when all splits are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests import amounts
from grovekeeper_forests.array_types import (
    BoolArray,
    Int32Array,
    Int64Array,
    UInt8Array,
)
from grovekeeper_forests.bins import noisy_counts, releases
from grovekeeper_forests.bins.quantile_bins import Selection
from grovekeeper_forests.contract.algorithm import Parameters
from grovekeeper_forests.contract.plan import Forest, Plan, encoding_of
from grovekeeper_forests.data.coded_rows import TrainingRows, parts_of
from grovekeeper_forests.data.encoding import Candidates, Encoding
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.kernels.arrays import Splits
from grovekeeper_forests.noise.randomness import Randomness, forfeit
from grovekeeper_forests.privacy.events import Event, PermuteAndFlip
from grovekeeper_forests.trees import tree_parameters
from grovekeeper_forests.trees.tree_histograms import (
    Assignment,
    LocalHistograms,
    PartedTree,
    TreeHistograms,
)
from grovekeeper_forests.trees.tree_parameters import HASH, SHARDED
from grovekeeper_forests.trees.tree_price import (
    BITS,
    GINI,
    MISCOUNT,
    NORMALISED,
    TreePrice,
    label_selection,
)


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
        """Grows and releases one tree on the PRIVATE histograms of its rows; one call
        is one release.
        """


def grow_trees(
    grow_tree: GrowTree,
    plan: Plan,
    *,
    schema: Schema,
    rows: TrainingRows,
    randomness: Randomness,
    on_tree_done: Callable[[], None],
) -> Forest:
    """Releases the trees of a plan. One call is one release, at the loss of
    ``plan.event``.

    Args:
        grow_tree: of the algorithm.
        schema: public.
        rows: PRIVATE.
    """
    encoding = encoding_of(schema, plan.parameters["n_bins"], plan.profile)
    assigned = _assignment(plan, randomness)
    parts = parts_of(rows, encoding, LocalHistograms, assigned)
    trees = (
        grow_tree(
            plan.event,
            plan.parameters,
            encoding=encoding,
            rows=PartedTree(parts, index),
            randomness=randomness,
        )
        for index in range(plan.n_trees)
    )
    return forest_of(plan, trees, on_tree_done=on_tree_done)


def _assignment(plan: Plan, randomness: Randomness) -> Assignment:
    """The rows of each tree: all rows, or one shard; in one part, or divided in two by
    another keyed hash.
    """
    is_sharded = plan.parameters["assignment"] == SHARDED
    structure_share = Fraction(0)
    if plan.parameters.get("se") == HASH:
        structure_share = amounts.parse(plan.parameters["structure_rows"])
    return Assignment.drawn(
        randomness,
        n_shards=plan.n_trees if is_sharded else 0,
        structure_share=structure_share,
    )


Choose: TypeAlias = Callable[[int, list[BoolArray]], list[int | None]]
"""Maps a level and the public boxes of its nodes to one released candidate per node;
``None`` sends every row left.
"""


def grow_levels(
    candidates: Candidates, depth: int, rows: TreeHistograms, choose: Choose
) -> Splits:
    """Chooses the split of every node level by level, also of empty nodes, and moves
    the PRIVATE rows down.

    Args:
        candidates: public.
        depth: public; the only stopping rule.
        rows: PRIVATE, at the root; at the leaves on return.
        choose: called once per level, root first; its result is a release.
    """
    tree_choices: list[int | None] = []
    level_boxes = [candidates.root]
    # The depth is public. A rule that looked at rows, such as the end of a path without
    # rows, would release an exact count (docs/proofs/lemmas.md, L4).
    for level in range(depth):
        choices = choose(level, level_boxes)
        feature, threshold, equals = candidates.splits(choices)
        rows.descend(feature=feature, threshold=threshold, equals=equals)
        child_boxes = list[BoolArray]()
        for box, choice in zip(level_boxes, choices, strict=True):
            child_boxes += candidates.children(box, choice)
        level_boxes = child_boxes
        tree_choices += choices
    return candidates.splits(tree_choices)


def drop_rows(rows: TreeHistograms, splits: Splits) -> None:
    """Moves PRIVATE rows from the root to the leaves of a complete tree."""
    feature, threshold, equals = splits
    for level in range((len(feature) + 1).bit_length() - 1):
        nodes = slice(2**level - 1, 2 ** (level + 1) - 1)
        rows.descend(
            feature=feature[nodes], threshold=threshold[nodes], equals=equals[nodes]
        )


def random_structure(
    candidates: Candidates, depth: int, randomness: Randomness
) -> Splits:
    """Draws a complete random tree: in every box a uniform feature among those with a
    split, then a uniform split.

    Reads no row. Works depth first, so that memory holds only one path of boxes.
    """
    chosen: list[int | None] = [None] * (2**depth - 1)
    pending = [(0, candidates.root)] if chosen else []
    while pending:
        node, box = pending.pop()
        choice = random_split(candidates, box, randomness)
        chosen[node] = choice
        if choice is not None and 2 * node + 2 < len(chosen):
            left, right = candidates.children(box, choice)
            pending += [(2 * node + 2, right), (2 * node + 1, left)]
    return candidates.splits(chosen)


def random_split(
    candidates: Candidates, box: BoolArray, randomness: Randomness
) -> int | None:
    """Draws a uniform feature among those with a split in the box, then a uniform
    split; ``None`` without a split.
    """
    alive = np.flatnonzero(box)
    if len(alive) == 0:
        return None
    groups = by_feature(candidates, alive)
    feature_splits = groups[randomness.uniform(len(groups))]
    return int(feature_splits[randomness.uniform(len(feature_splits))])


def by_feature(candidates: Candidates, alive: Int64Array) -> list[Int64Array]:
    """Ascending indices of candidates, cut where the feature changes; at least one
    index.
    """
    # ascending, so the splits of a feature are adjacent
    feature = candidates.feature[alive]
    return np.split(alive, np.flatnonzero(feature[1:] != feature[:-1]) + 1)


def select(selection: Selection, utilities: Int64Array, randomness: Randomness) -> int:
    """The index of the selected candidate; one call is one release at the price of
    ``selection``.

    Args:
        selection: as priced.
        utilities: PRIVATE int64 ``(n_candidates,)``, at least one; the candidates are
            public or follow from releases.
    """
    if isinstance(selection, PermuteAndFlip):
        return randomness.permute_and_flip(
            utilities, inverse_scale=selection.inverse_scale
        )
    return randomness.select_exponential(
        utilities, inverse_scale=selection.inverse_scale
    )


def forfeit_selections(selections: Sequence[Selection], randomness: Randomness) -> None:
    """Forfeits the priced selections of a node that makes none, for a public or
    released reason.
    """
    for selection in selections:
        forfeit(randomness, type(selection), inverse_scale=selection.inverse_scale)


@dataclass(frozen=True)
class SplitRule:
    """How a node chooses among the splits of its public box.

    Attributes:
        utility: name of the cost that a good split lowers.
        exploration: public probability of a random split instead, whose law does not
            depend on rows. Such a mixture costs no budget (lemma L0).
        kept_features: public probability that a node keeps a feature; see
            :func:`surviving`.
        kept_splits: public probability that a node keeps a split of a kept feature.
    """

    utility: str
    exploration: Fraction = Fraction(0)
    kept_features: Fraction = Fraction(1)
    kept_splits: Fraction = Fraction(1)


def grow_greedy_tree(
    event: Event,
    rule: SplitRule,
    *,
    encoding: Encoding,
    rows: TreeHistograms,
    randomness: Randomness,
    by_shares: bool = False,
) -> ReleasedTree:
    """Selects splits level by level on the PRIVATE rows, then releases the leaves: one
    release.

    Args:
        event: the priced event, which holds every noise scale.
        rule: public.
        encoding: public bins and candidates.
        rows: PRIVATE rows of this tree, each row once.
        by_shares: see :func:`release_leaves`.
    """
    price = TreePrice.of(event)

    def choose(level: int, level_boxes: list[BoolArray]) -> list[int | None]:
        selections = price.levels[level]
        return choose_level(
            selections,
            rule,
            encoding,
            rows,
            level_boxes=level_boxes,
            randomness=randomness,
        )

    splits = grow_levels(encoding.candidates, len(price.levels), rows, choose)
    return release_leaves(splits, price.leaves, rows, randomness, by_shares=by_shares)


def choose_level(
    selections: tuple[Selection, ...],
    rule: SplitRule,
    encoding: Encoding,
    rows: TreeHistograms,
    *,
    level_boxes: list[BoolArray],
    randomness: Randomness,
) -> list[int | None]:
    """Releases the split of every node of a level.

    Args:
        selections: the selections of a node, as priced: of a split, or of a feature and
            then of its split.
        rule: public.
        encoding: public.
        rows: PRIVATE, in the nodes of the level.
        level_boxes: public; the candidates of every node.
    """
    utility = split_utilities(
        rows, encoding, n_nodes=len(level_boxes), utility=rule.utility
    )
    picked: list[int | None] = []
    for box, scores in zip(level_boxes, utility, strict=True):
        if (
            rule.exploration > 0
            and box.any()
            and randomness.bernoulli(rule.exploration)
        ):
            forfeit_selections(selections, randomness)
            picked.append(random_split(encoding.candidates, box, randomness))
        else:
            alive = surviving(
                encoding.candidates, np.flatnonzero(box), rule, randomness
            )
            picked.append(
                _select(
                    selections, rule, encoding.candidates, alive, scores, randomness
                )
            )
    return picked


def surviving(
    candidates: Candidates,
    alive: Int64Array,
    rule: SplitRule,
    randomness: Randomness,
) -> Int64Array:
    """Bernoulli dropout: the candidates of a node's selection.

    An independent draw keeps or drops each feature, then each split of a kept feature.
    If all features are dropped, one feature is drawn uniformly; if all splits of a kept
    feature are dropped, one split is drawn uniformly. The draws are public and do not
    depend on rows, so the kept splits are public candidates. At least one split is kept
    if the box has a split.

    Args:
        candidates: public.
        alive: ascending indices of the splits of the node's public box.
        rule: public.
        randomness: source of the draws; unused where everything is kept.
    """
    if len(alive) == 0 or rule.kept_features == rule.kept_splits == 1:
        return alive
    groups = by_feature(candidates, alive)
    kept = []
    for place in _places(len(groups), rule.kept_features, randomness):
        group = groups[place]
        kept.append(group[_places(len(group), rule.kept_splits, randomness)])
    return np.concatenate(kept)


def _places(n_members: int, share: Fraction, randomness: Randomness) -> list[int]:
    """Bernoulli sample of the indices below ``n_members``; a single uniform index where
    the sample is empty.
    """
    places = [
        place for place in range(n_members) if share == 1 or randomness.bernoulli(share)
    ]
    return places or [randomness.uniform(n_members)]


def _select(
    selections: tuple[Selection, ...],
    rule: SplitRule,
    candidates: Candidates,
    alive: Int64Array,
    scores: Int64Array,
    randomness: Randomness,
) -> int | None:
    def choose(selection: Selection, utilities: Int64Array) -> int:
        # Among the candidates of this selection, as its range sensitivity assumes.
        if rule.utility == NORMALISED:
            utilities = normalised(utilities)
        return select(selection, utilities, randomness)

    if len(alive) == 0:
        forfeit_selections(selections, randomness)
        return None
    if len(selections) == 1:
        return int(alive[choose(selections[0], scores[alive])])
    # Two selections compose in sequence: of a feature by its best split, then, given the
    # released feature, of one of its splits.
    of_feature, of_split = selections
    groups = by_feature(candidates, alive)
    best = np.array([scores[group].max() for group in groups], dtype=np.int64)
    feature_splits = groups[choose(of_feature, best)]
    return int(feature_splits[choose(of_split, scores[feature_splits])])


def split_utilities(
    rows: TreeHistograms, encoding: Encoding, *, n_nodes: int, utility: str = GINI
) -> Int64Array:
    """Utility of every public candidate in every node of the current level.

    Returns:
        PRIVATE int64 ``(n_nodes, n_candidates)``; larger is better.
    """
    candidates = encoding.candidates
    scores = np.empty((n_nodes, len(candidates)), dtype=np.int64)
    for block in tree_parameters.feature_blocks(encoding, n_nodes):
        histogram = rows.class_histogram(block)
        end = 0
        for feature in range(block.start, block.stop):
            begin, end = end, end + int(encoding.n_codes[feature])
            of_feature = candidates.of(slice(feature, feature + 1))
            codes = candidates.threshold[of_feature]
            if len(codes) == 0:
                continue
            counts = histogram[:, begin:end]
            total = counts.sum(axis=1, keepdims=True)
            side = counts
            if not candidates.equals[of_feature][0]:
                side = counts.cumsum(axis=1)
            scores[:, of_feature] = split_utility(
                side[:, codes], total - side[:, codes], utility
            )
    return scores


def count_gini(counts: Int64Array) -> Int64Array:
    """⌊2^q (n² − Σ n_c²) / n⌋ of class counts; 0 for an empty node.

    One added row raises the cost by an integer in [0, 2^(q+1)]. Counts are at most
    ``limits.MAX_ROWS_PER_DATASET`` < 2^31, so Σ n_c² ≤ n² < 2^62. The code computes
    2^q·n − ⌈2^q·S/n⌉ with S = Σ n_c² and S = Q·n + R, so that every intermediate value
    is at most 2^62; 2^q·S would overflow.

    Args:
        counts: PRIVATE int64 ``(…, n_classes)``, non-negative, summing to less than
            2^31.

    Returns:
        int64 ``(…)``. PRIVATE.
    """
    n = counts.sum(axis=-1)
    squares = (counts * counts).sum(axis=-1)
    divisor = np.maximum(n, 1)
    whole, rest = np.divmod(squares, divisor)
    fraction_up = -(-(rest << BITS) // divisor)
    result: Int64Array = (n << BITS) - (whole << BITS) - fraction_up
    return result


def miscount(counts: Int64Array) -> Int64Array:
    """n − max_c n_c of class counts: rows outside the most common class.

    One added row raises n by one and the maximum by zero or one, so it raises the
    miscount by 0 or 1.

    Args:
        counts: PRIVATE int64 ``(…, n_classes)``.

    Returns:
        int64 ``(…)``. PRIVATE.
    """
    result: Int64Array = counts.sum(axis=-1) - counts.max(axis=-1)
    return result


def split_utility(left: Int64Array, right: Int64Array, utility: str) -> Int64Array:
    """−(cost left + cost right), where the cost is the miscount, or else the count
    Gini; larger is better.

    Monotone: an added row enters one side of every split and lowers the utility by an
    integer from 0 to ``RANGE_SENSITIVITIES[utility]``, which is therefore the range
    sensitivity under add/remove. The range sensitivity under replace-one is twice as
    much. Of ``NORMALISED`` these are the utilities before :func:`normalised`.
    """
    cost = miscount if utility == MISCOUNT else count_gini
    return -(cost(left) + cost(right))


def normalised(utilities: Int64Array) -> Int64Array:
    """⌊2^q (u − min u) / (max u − min u)⌋ of the candidates of one selection, or 0
    where all are equal.

    The utility of the papers. Every value is in [0, 2^q], so no value moves by more
    than 2^q, and one row can move the best candidate to the other end: the range
    sensitivity is 2^(q+1), under add/remove and under replace-one.

    Args:
        utilities: PRIVATE int64 ``(n_candidates,)``, at least one, of magnitude at most
            2^41.

    Returns:
        int64 ``(n_candidates,)``. PRIVATE.
    """
    above = utilities - utilities.min()
    result: Int64Array = (above << BITS) // max(int(above.max()), 1)
    return result


def class_shares(counts: Int64Array) -> Int64Array:
    """⌊2^q n_c / n⌋ of class counts; 0 for an empty leaf. The papers' utility of a
    leaf's label.

    The range sensitivity is 2^q under add/remove (lemma M2 of docs/proofs/mrf.md) and
    at most twice as much under replace-one.

    Args:
        counts: PRIVATE int64 ``(…, n_classes)``, summing to less than 2^31.

    Returns:
        int64 ``(…, n_classes)``. PRIVATE.
    """
    result: Int64Array = (counts << BITS) // np.maximum(
        counts.sum(axis=-1, keepdims=True), 1
    )
    return result


def release_leaves(
    splits: Splits,
    event: Event,
    rows: TreeHistograms,
    randomness: Randomness,
    *,
    by_shares: bool = False,
) -> ReleasedTree:
    """Releases the leaves of a tree whose splits were released, on PRIVATE rows that
    lie in its leaves.

    Every leaf is released, whether a row reaches it or not: an empty leaf's label is
    uniform, its counts are noise.

    Args:
        splits: released; feature, threshold and equality of every node.
        event: of the leaves, as priced.
        rows: PRIVATE.
        by_shares: whether labels are selected by class shares, and not by class counts.
    """
    exact = rows.leaf_histogram()
    label = label_selection(event)
    if label is not None:
        utilities = class_shares(exact) if by_shares else exact
        drawn = [select(label, of_leaf, randomness) for of_leaf in utilities]
        return LabelTree(*splits, np.array(drawn, dtype=np.int32))
    released = releases.release_counts(exact, event, randomness)
    return Tree(*splits, noisy_counts.in_whole_rows(released, event))


@dataclass(frozen=True)
class Tree:
    """One released tree in heap layout; shapes as in ``Forest`` without the leading
    axis.
    """

    feature: Int32Array
    threshold: UInt8Array
    equals: BoolArray
    counts: Int64Array


@dataclass(frozen=True)
class LabelTree:
    """One released tree in heap layout whose leaves released a label each; ``labels``
    is int32 ``(2^depth,)``.
    """

    feature: Int32Array
    threshold: UInt8Array
    equals: BoolArray
    labels: Int32Array


ReleasedTree: TypeAlias = Tree | LabelTree


def forest_of(
    plan: Plan, trees: Iterable[ReleasedTree], *, on_tree_done: Callable[[], None]
) -> Forest:
    """The released arrays of all trees, each with a leading axis for the trees.

    Args:
        trees: ``plan.n_trees`` trees, each released when the iterable yields it.
    """
    arrays: dict[str, NDArray[Any]] = {}
    for index, tree in enumerate(trees):
        for field in fields(tree):
            released = getattr(tree, field.name)
            if index == 0:
                arrays[field.name] = np.empty(
                    (plan.n_trees, *released.shape), dtype=released.dtype
                )
            arrays[field.name][index] = released
        on_tree_done()
    return Forest(plan, arrays)
