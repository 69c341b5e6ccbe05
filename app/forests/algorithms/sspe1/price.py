"""Median trees from two datasets: splits from unlabelled people, leaf counts from labelled ones.

Huang, Lei and Kabán, "Noise-efficient learning of differentially private partitioning machine ensembles", Algorithm 3
in its first setting. What was wrong, and the proof of this version: docs/proofs/sspe-1.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from app.forests.algorithms.spe import price
from app.forests.bins import tree_bins
from app.forests.contract.about import About, at_epsilon_one
from app.forests.contract.algorithm import Parameters, PublicFacts, ReleasedTree
from app.forests.contract.family import Family
from app.forests.contract.forest import Forest
from app.forests.contract.parameters import Parameter, Value
from app.forests.contract.plan import Plan
from app.forests.data.encoding import Encoding
from app.forests.data.rows import SanitisedRows
from app.forests.data.schema import Schema
from app.forests.trees import common, leaves, selections, shapes, structure, tree_price
from app.forests.trees.collect import forest_of
from app.forests.trees.count_read_out import CountFamily
from app.forests.trees.histograms import TreeHistograms
from app.forests.trees.in_memory_histograms import LabelsApart, LocalHistograms
from app.forests.trees.tree_price import Levels, TreePrice
from app.privacy import accountants
from app.privacy.adjacency import Adjacency
from app.privacy.events import Event, UnknownPrivacyEvent

if TYPE_CHECKING:
    from app.forests.noise.randomness import Randomness


_ABOUT = About(
    claimed=(
        "ε-differential privacy where trees are built on unlabelled rows at ε and leaves counted on labelled rows at ε."
    ),
    wrong=(
        "It needs that nobody is in both datasets: a person in both loses the sum. Ranges and the stop on an exact "
        "count are those of spe: an infinite loss."
    ),
    here="Two datasets and two accounts, each of which pays for its own part, both or neither; medians as in spe.",
    proof="docs/proofs/sspe-1.md",
    results="docs/results/semi-supervised.md",
    accuracy=at_epsilon_one("79.1 77.7 92.8 83.6 75.8"),
)


@dataclass(frozen=True)
class SemiSupervisedTrees:
    """Trees of ``spe`` whose private medians are those of an unlabelled dataset, and whose leaves count a labelled one.

    Each dataset's account pays for what is released about it: medians all of the one ε, leaf counts all of the other.

    Privacy:
        For the unlabelled dataset, ε-DP under add/remove and 2ε under replace-one at its own ε: a path of selections,
        each of range sensitivity 2 (lemma L2, or L1 on accounts in ρ and μ²; lemma L4). Its labels are never read. For
        the labelled dataset, the same at its own ε: leaf counts of L1 sensitivity 1 (lemma L3) over splits that were
        released before, of other rows (Theorem L). Sharded trees, the default, count at their largest in either
        (lemma L5); sequential trees add. *A person in both datasets* is protected at the sum of the two: that nobody is
        in both is what the owners say, and nothing here checks it. *Not covered:* running time.

    Source:
        Huang, Lei and Kabán, Algorithm 3, setting (I), whose guarantee does not hold as stated; repaired in Theorem 1
        of docs/proofs/sspe-1.md.
    """

    slug: str = "sspe-1"
    title: str = "Median trees from an unlabelled and a labelled dataset"
    source: str = "Huang, Lei and Kabán, semi-supervised private ensemble; repaired"
    about: About = _ABOUT
    accountants: tuple[str, ...] = accountants.NAMES
    adjacency: Adjacency = Adjacency.ADD_REMOVE_ONE
    read_outs: tuple[str, ...] = ("log", "sum", "ta", "mv")
    family: Family = CountFamily()  # noqa: RUF009 - it has no state
    parameters: tuple[Parameter, ...] = (
        common.N_ESTIMATORS,
        common.MAX_DEPTH,
        common.N_BINS,
        common.SHARDED_ASSIGNMENT,
    )

    def settle(self, asked: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in ten trees, and the depth that both public sizes and both ε can bear."""
        settled = dict(asked)
        settled.setdefault("n_estimators", price.DEFAULT_TREES)
        n_trees = int(settled["n_estimators"])
        rule = min(price.default_depth(own, n_trees) for own in (facts, facts.of_unlabelled))
        encoding = tree_bins.encoding_of(facts.schema, settled["n_bins"], facts.profile)
        return settled, shapes.settle_depth(settled, rule, encoding, tables=True)

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """What the labelled dataset pays for: counts of every leaf of T trees."""
        depth, n_trees = int(parameters["max_depth"]), int(parameters["n_estimators"])
        per_tree = common.loss_per_tree(parameters, facts.epsilon)
        price = TreePrice((), leaves.priced(leaves.COUNTS, per_tree, depth, facts))
        return price.forest_event(n_trees, sharded=common.is_sharded(parameters))

    def structure_event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """What the unlabelled dataset pays for: one private median per level of T trees."""
        depth, n_trees = int(parameters["max_depth"]), int(parameters["n_estimators"])
        per_tree = common.loss_per_tree(parameters, facts.epsilon)
        widest = price.most_splits(tree_bins.encoding_of(facts.schema, parameters["n_bins"], facts.profile))
        levels = tuple(
            (selections.priced(loss, facts, range_sensitivity=price.RANGE_SENSITIVITY, max_candidates=widest),)
            for loss in common.geometric_losses(per_tree, depth, price.LEVEL_RATIO)
        )
        return tree_price.structure_event(levels, n_trees, sharded=common.is_sharded(parameters))

    def check(self, event: Event, parameters: Parameters) -> None:
        """See ``Mechanism.check``."""
        price = TreePrice.of(event)
        price.require(depth=0, selections=[], apart=False)
        leaves.require(leaves.COUNTS, price.leaves)

    def check_structure(self, event: Event, parameters: Parameters) -> None:
        """See ``TwoDatasetMechanism.check_structure``."""
        levels = tree_price.levels_of(event)
        tree_price.require_levels(levels, int(parameters["max_depth"]), [Fraction(price.RANGE_SENSITIVITY)])

    def grow_from_both(
        self,
        plan: Plan,
        schema: Schema,
        rows: SanitisedRows,
        unlabelled: SanitisedRows,
        randomness: Randomness,
        *,
        on_tree_done: Callable[[], None],
    ) -> Forest:
        """Selects medians of the one dataset, then counts the other in the leaves. One call is one release of each.

        Args:
            plan: what was priced, for both.
            schema: public; of the labelled dataset, whose features the other one has too.
            rows: PRIVATE, labelled.
            unlabelled: PRIVATE; what stands where labels would is not looked at.
            randomness: source of the features of nodes, of the key of the shards, of selections and noise.
            on_tree_done: told after each tree.
        """
        trees = self._trees(plan, schema, rows, unlabelled, randomness)
        return forest_of(plan, schema, self.family, trees, on_tree_done=on_tree_done)

    def _trees(
        self, plan: Plan, schema: Schema, rows: SanitisedRows, unlabelled: SanitisedRows, randomness: Randomness
    ) -> Iterator[ReleasedTree]:
        if plan.unlabelled is None:
            raise UnknownPrivacyEvent("the event of the second dataset is missing")
        encoding = tree_bins.encoding_of(schema, plan.parameters["n_bins"], plan.profile)
        levels, priced = tree_price.levels_of(plan.unlabelled.event), TreePrice.of(plan.event).leaves
        of_both = _parted(plan, encoding, rows, unlabelled, randomness)
        for index in range(plan.n_trees):
            own = of_both.of_tree(index)
            choose = partial(_medians, levels, encoding, own, randomness)
            splits = structure.grow_levels(encoding.candidates, len(levels), own, choose)
            yield leaves.release(splits, priced, own, randomness)


def _medians(
    levels: Levels,
    encoding: Encoding,
    rows: TreeHistograms,
    randomness: Randomness,
    level: int,
    level_boxes: list[NDArray[np.bool_]],
) -> list[int | None]:
    (own,) = levels[level]
    return price.choose_medians(own, encoding, rows, level_boxes=level_boxes, randomness=randomness)


def _parted(
    plan: Plan, encoding: Encoding, rows: SanitisedRows, unlabelled: SanitisedRows, randomness: Randomness
) -> LabelsApart:
    """The rows of both datasets, to each tree its own; the splits are chosen by one and the leaves count the other."""
    shard = shard_of_unlabelled = None
    if common.is_sharded(plan.parameters):
        from app.forests.trees import assignment  # here: it brings the samplers, which a price does not need

        key = assignment.fresh_key(randomness)
        shard = assignment.shards(key, rows.row_ids, n_shards=plan.n_trees)
        shard_of_unlabelled = assignment.shards(key, unlabelled.row_ids, n_shards=plan.n_trees)
    labelled = LocalHistograms(
        encoding.encode(rows.features),
        rows.y,
        n_codes=encoding.n_codes,
        n_classes=encoding.schema.n_classes,
        shard=shard,
    )
    return LabelsApart(
        encoding.encode(unlabelled.features), labelled, n_codes=encoding.n_codes, shard=shard_of_unlabelled
    )
