"""Grows the forests of published papers: the splits of each paper, then noisy leaf
counts or one label per leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np

from grovekeeper_forests import amounts
from grovekeeper_forests.algorithms.literature import medians
from grovekeeper_forests.array_types import BoolArray, Int32Array
from grovekeeper_forests.contract.algorithm import Parameters
from grovekeeper_forests.contract.plan import Forest, Plan, encoding_of
from grovekeeper_forests.data.coded_rows import CodedPart, TrainingRows, parts_of
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.noise.randomness import Randomness
from grovekeeper_forests.privacy.events import Event, UnknownPrivacyEvent
from grovekeeper_forests.trees import (
    leaf_read_out,
    tree_growth,
    tree_parameters,
    tree_price,
)
from grovekeeper_forests.trees.leaf_read_out import LeafSums
from grovekeeper_forests.trees.tree_growth import ReleasedTree, Tree, forest_of
from grovekeeper_forests.trees.tree_histograms import (
    Assignment,
    LocalHistograms,
    PartedTree,
    TreeHistograms,
    TwoParts,
)
from grovekeeper_forests.trees.tree_price import Levels, TreePrice


def grow_multinomial_tree(
    event: Event,
    parameters: Parameters,
    /,
    *,
    encoding: Encoding,
    rows: TreeHistograms,
    randomness: Randomness,
) -> ReleasedTree:
    """Selects splits of ``mrf`` level by level on the PRIVATE rows, then releases the
    leaves; see ``GrowTree``.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. Each node
        chooses among public candidates, in one selection or in two (lemma L2, or L1 on
        accounts in ρ and μ²), by a utility whose range sensitivity is 2^(q+1) for the
        count Gini, 2^(q+1) for normalised utilities and 1 for the miscount; the nodes
        of a level hold disjoint rows, so a path pays Σ_l ε_l (lemma L4). Leaf counts
        have L1 sensitivity 1 (lemma L3); a label is a selection by the counts or by the
        class shares, of range sensitivity 1 or 2^q (lemma M2). A tree costs Σ_l ε_l +
        ε_leaf, or the larger of the two where a keyed hash separates the rows for
        structure from the rows for leaves (lemma L5); the losses of sequential trees
        add, sharded trees cost the largest loss of a tree. Random splits cost nothing
        (lemma L0). Trees stop at the public depth only. *Not covered:* running time.

    Source:
        Bai et al., "Multinomial random forest", Pattern Recognition (2022), Theorem 2, which does not hold as stated;
        repaired in Theorem 1 of docs/proofs/mrf.md. Permute-and-flip: McKenna and Sheldon 2020.
    """
    rule = tree_growth.SplitRule(
        str(parameters["utility"]), amounts.parse(parameters["exploration"])
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


def grow_maximal_vote_tree(
    event: Event,
    _parameters: Parameters,
    /,
    *,
    encoding: Encoding,
    rows: TreeHistograms,
    randomness: Randomness,
) -> ReleasedTree:
    """Selects splits of ``maxtree`` level by level on the PRIVATE rows, then releases
    noisy leaf counts.

    See ``GrowTree``; each row is in the tree once.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. The utility
        −(miscount left + miscount right) is monotone with range sensitivity 1; a
        selection by it among public splits is ε_l-DP (lemma L2, or L1 on accounts in ρ
        and μ²), and a path pays Σ_l ε_l (lemma L4). Leaf counts have L1 sensitivity 1
        (lemma L3). No tree holds a row more than once: in a bootstrap, a row that is
        drawn m times would change a count by m. The losses of sequential trees add;
        sharded trees cost the largest loss of a tree (lemma L5). *Not covered:* running
        time.

    Source:
        Liu, Li, Li and Chen, "Differentially private classification with decision tree
        ensemble", Applied Soft Computing (2018), as its abstract outlines it;
        Theorem 1 of docs/proofs/maxtree.md.
    """
    rule = tree_growth.SplitRule(tree_price.MISCOUNT)
    return tree_growth.grow_greedy_tree(
        event, rule, encoding=encoding, rows=rows, randomness=randomness
    )


def grow_random_tree(
    event: Event,
    parameters: Parameters,
    /,
    *,
    encoding: Encoding,
    rows: TreeHistograms,
    randomness: Randomness,
) -> ReleasedTree:
    """Draws a structure of ``rdt``, drops the PRIVATE rows through it and releases
    noisy counts; see ``GrowTree``.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. One row adds
        one to one count of one tree's (leaf, class) histogram, so that histogram has L1
        sensitivity 1. Sequential trees all see every row: the losses ε/T of T trees add
        up. Sharded trees see disjoint rows by a keyed hash of the row id: the largest
        tree's loss is the forest's. Empty leaves are released like any other. *Not
        covered:* running time.

    Source:
        Bojarski, Choromanska, Choromanski, LeCun 2014, Algorithm 2 in its three
        versions; Jagannathan, Pillaipakkamnatt and Wright, Transactions on Data Privacy
        5 (2012), 273-295. Theorem 1 of docs/proofs/rdt.md.
    """
    return _random_tree(
        tree_price.tree_event(event), parameters, encoding, rows, randomness
    )


def grow_labelled_random_tree(
    event: Event,
    parameters: Parameters,
    /,
    *,
    encoding: Encoding,
    rows: TreeHistograms,
    randomness: Randomness,
) -> ReleasedTree:
    """Draws a structure of ``srt``, drops the PRIVATE rows through it and releases a
    label per leaf; see ``GrowTree``.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. The
        structure is drawn without a row. A leaf's label is selected by its class
        counts, which one row changes by one in one class of one leaf: range sensitivity
        1 (lemma L2, or L1 on accounts in ρ and μ²); leaves hold disjoint rows. Sharded
        trees, the default, see disjoint rows by a keyed hash, so the largest tree's
        loss is the forest's (lemma L5); sequential losses add. Empty leaves release a
        label like any other. *Not covered:* running time.

    Source:
        Fletcher and Islam, Expert Systems with Applications 78 (2017), whose smooth
        sensitivity does not give a private exponential mechanism; repaired in Theorem 1
        of docs/proofs/srt.md.
    """
    return _random_tree(
        TreePrice.of(event).leaves, parameters, encoding, rows, randomness
    )


def _random_tree(
    event_of_leaves: Event,
    parameters: Parameters,
    encoding: Encoding,
    rows: TreeHistograms,
    randomness: Randomness,
) -> ReleasedTree:
    splits = tree_growth.random_structure(
        encoding.candidates, int(parameters["max_depth"]), randomness
    )
    tree_growth.drop_rows(rows, splits)
    return tree_growth.release_leaves(splits, event_of_leaves, rows, randomness)


def grow_median_tree(
    event: Event,
    _parameters: Parameters,
    /,
    *,
    encoding: Encoding,
    rows: TreeHistograms,
    randomness: Randomness,
) -> ReleasedTree:
    """Selects private medians of ``spe`` level by level on the PRIVATE rows, then
    releases noisy leaf counts.

    See ``GrowTree``.

    Privacy:
        ε-DP under add/remove, 2ε under replace-one, ε being the request's. The feature
        of a node is drawn from the features that the node's public box can still split.
        The candidates are that feature's public splits, never values between the
        smallest and largest present. The utility −|2·#{rows on one side} − #{rows}|
        changes by ±1 with a row: range sensitivity 2, not monotone (lemma L2, or L1 on
        accounts in ρ and μ²). A path pays Σ_l ε_l (lemma L4), leaf counts have L1
        sensitivity 1 (lemma L3), depth is the only stopping rule. Sharded trees, the
        default, see disjoint rows by a keyed hash and cost the largest loss of a tree
        (lemma L5); the losses of sequential trees add. *Not covered:* running time.

    Source:
        Huang, Lei and Kabán, Algorithms 1 and 2, whose guarantee does not hold as
        stated; repaired in Theorem 1 of docs/proofs/spe.md.
    """
    price = TreePrice.of(event)
    return _median_tree(price.levels, price.leaves, encoding, rows, randomness)


def grow_from_both(
    plan: Plan,
    schema: Schema,
    rows: TrainingRows,
    unlabelled: TrainingRows,
    randomness: Randomness,
    *,
    on_tree_done: Callable[[], None],
) -> Forest:
    """Selects medians of unlabelled rows, then counts labelled rows in the leaves. One
    call: one release per dataset.

    Growth of ``sspe-1``; see ``GrowFromBoth``.

    Args:
        plan: the priced plan for both datasets.
        schema: public schema of the labelled dataset; the unlabelled dataset has the
            same features.
        rows: PRIVATE, labelled.
        unlabelled: PRIVATE; its ``y`` is not read.
        randomness: source of the features of nodes, of the key of the shards, of
            selections and noise.

    Privacy:
        For the unlabelled dataset, ε-DP under add/remove and 2ε under replace-one at
        its own ε: a path of selections, each of range sensitivity 2 (lemma L2, or L1 on
        accounts in ρ and μ²; lemma L4). Its labels are never read. For the labelled
        dataset, ε-DP under add/remove and 2ε under replace-one at its own ε: leaf
        counts of L1 sensitivity 1 (lemma L3) over splits that were released before, of
        other rows (Theorem L). Sharded trees, the default, cost the largest loss of a
        tree in either dataset (lemma L5); the losses of sequential trees add. *A person
        in both datasets* is protected at the sum of the two: the owners state that the
        datasets share no person, and the service does not check this statement. *Not
        covered:* running time.

    Source:
        Huang, Lei and Kabán, Algorithm 3, setting (I), whose guarantee does not hold as
        stated; repaired in Theorem 1 of docs/proofs/sspe-1.md.
    """
    if plan.unlabelled is None:
        raise UnknownPrivacyEvent("the event of the second dataset is missing")
    encoding = encoding_of(schema, plan.parameters["n_bins"], plan.profile)
    levels, leaf_event = (
        tree_price.levels_of(plan.unlabelled.event),
        TreePrice.of(plan.event).leaves,
    )
    n_shards = 0
    if tree_parameters.is_sharded(plan.parameters):
        n_shards = plan.n_trees
    assigned = Assignment.drawn(randomness, n_shards=n_shards)
    without, labelled = (
        parts_of(dataset, encoding, LocalHistograms, assigned, has_labels)
        for dataset, has_labels in ((unlabelled, False), (rows, True))
    )
    of_trees = (
        TwoParts(PartedTree(without, index), PartedTree(labelled, index))
        for index in range(plan.n_trees)
    )
    trees = (
        _median_tree(levels, leaf_event, encoding, tree_rows, randomness)
        for tree_rows in of_trees
    )
    return forest_of(plan, trees, on_tree_done=on_tree_done)


def _median_tree(
    levels: Levels,
    leaf_event: Event,
    encoding: Encoding,
    rows: TreeHistograms,
    randomness: Randomness,
) -> ReleasedTree:
    def choose(level: int, level_boxes: list[BoolArray]) -> list[int | None]:
        (selection,) = levels[level]
        return medians.choose_medians(
            selection, encoding, rows, level_boxes=level_boxes, randomness=randomness
        )

    splits = tree_growth.grow_levels(encoding.candidates, len(levels), rows, choose)
    return tree_growth.release_leaves(splits, leaf_event, rows, randomness)


def grow_label_trees(
    plan: Plan,
    schema: Schema,
    rows: SanitisedRows,
    randomness: Randomness,
    *,
    on_tree_done: Callable[[], None],
) -> Forest:
    """Builds every tree from public features, then releases its leaves over PRIVATE
    labels. One call, one release.

    Growth of ``sspe-2``.

    Args:
        schema: public.
        rows: all rows of the scope; features and ids are public, labels PRIVATE, −1
            where unknown.
        randomness: source of the features of nodes, of the key of the shards, and of
            the noise.

    Privacy:
        ε-DP for one label that changes, ε being the request's; *none under add/remove
        or replace-one*: the owner declared features and membership public. The
        structure is a function of the features, which are the same in both neighbours
        (lemma L0). A label that changes moves two counts of one leaf by one: L1
        sensitivity 2 (lemma L3), range sensitivity 2 (lemma L2, or L1 on accounts in ρ
        and μ²). A label that becomes unknown moves one count. Sharded trees, the
        default, count disjoint labels by a keyed hash and cost the largest loss of a
        tree (lemma L5); the losses of sequential trees add. *Not covered:* running
        time.

    Source:
        Huang, Lei and Kabán, Algorithm 3, setting (II), whose Lap(1/ε) gives 2ε here;
        repaired in Theorem 1 of docs/proofs/sspe-2.md.
    """
    trees = medians.label_trees(plan, schema, rows, randomness, n_trees=plan.n_trees)
    return forest_of(plan, trees, on_tree_done=on_tree_done)


def grow_transductive_ensemble(
    plan: Plan,
    schema: Schema,
    rows: SanitisedRows,
    randomness: Randomness,
    *,
    on_tree_done: Callable[[], None],
) -> Forest:
    """Releases a first ensemble over PRIVATE labels, then a second without them. One
    call is one release.

    Growth of ``pte``; arguments as of :func:`grow_label_trees`.

    Privacy:
        ε-DP for one label that changes, ε being the request's; *none under add/remove
        or replace-one*: the owner declared features and membership public. The first
        ensemble is the ensemble of ``sspe-2``: L1 sensitivity 2 (lemma L3), paid once
        on shards and added up over sequential trees. The labels that the first ensemble
        predicts for public rows, and every tree of the second ensemble, are functions
        of the released first ensemble and of public features: post-processing (lemma
        L7), without cost or noise. *Not covered:* running time.

    Source:
        Huang, Lei and Kabán, Algorithm 4, whose Lap(1/ε) gives 2ε here; repaired in Theorem
        1 of docs/proofs/pte.md.
    """
    n_teachers = int(plan.parameters["n_teachers"])
    teachers: list[Tree] = []

    def released() -> Iterator[Tree]:
        for tree in medians.label_trees(
            plan, schema, rows, randomness, n_trees=n_teachers
        ):
            assert isinstance(tree, Tree)
            teachers.append(tree)
            yield tree

    pupils = _pupils(plan, schema, teachers, rows.features, randomness)
    return forest_of(plan, chain(released(), pupils), on_tree_done=on_tree_done)


def _pupils(
    plan: Plan,
    schema: Schema,
    teachers: list[Tree],
    features: SanitisedColumns,
    randomness: Randomness,
) -> Iterator[Tree]:
    """Grows trees on public rows with the labels that released trees predict. Reads no
    PRIVATE label (lemma L7).

    Args:
        plan: public.
        schema: public.
        teachers: released trees; the list is complete before the first pupil is grown.
        features: public features of all rows.
        randomness: source of the features of nodes.
    """
    encoding = Encoding.of(schema, int(plan.parameters["n_bins"]))
    part = CodedPart(
        encoding,
        encoding.encode(features),
        labels_of(plan, teachers, encoding, features),
        None,
    )
    without, labelled = (
        LocalHistograms(part, Assignment(), has_labels) for has_labels in (False, True)
    )
    for index in range(len(teachers), plan.n_trees):
        tree_rows = TwoParts(without.of_tree(index), labelled.of_tree(index))
        splits = medians.grow_at_exact_medians(
            encoding, plan.parameters, tree_rows, randomness
        )
        yield Tree(*splits, tree_rows.leaf_histogram())


def labels_of(
    plan: Plan, trees: list[Tree], encoding: Encoding, features: SanitisedColumns
) -> Int32Array:
    """The labels that released trees predict for public rows: the most probable class
    by the ``log`` read-out.

    Returns:
        int32 ``(n_rows,)``, released.
    """
    arrays = {
        name: np.stack([getattr(tree, name) for tree in trees])
        for name in ("feature", "threshold", "equals")
    }
    counts = np.stack([tree.counts for tree in trees])
    noise_scale = leaf_read_out.noise_scale(leaf_read_out.leaves_of(plan.event))
    values = leaf_read_out.leaf_values(
        counts, leaf_read_out.LOGARITHMIC, noise_scale=noise_scale
    )
    sums = LeafSums(encoding, arrays, values).packed.sums(features)
    labels: Int32Array = sums.argmax(axis=1).astype(np.int32)
    return labels
