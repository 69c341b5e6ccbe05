"""Median trees where only labels are secret: structure from the public features, noise on the labels alone.

Huang, Lei and Kabán, "Noise-efficient learning of differentially private partitioning machine ensembles", Algorithm 3
in its second setting. Why their noise is half of what is needed, and the proof of this version: docs/proofs/sspe-2.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from app.forests.contract.about import About, at_epsilon_one
from app.forests.contract.algorithm import Parameters, PublicFacts, ReleasedTree
from app.forests.contract.family import Family
from app.forests.contract.forest import Forest
from app.forests.contract.parameters import Parameter, Value
from app.forests.contract.plan import Plan
from app.forests.data.encoding import Encoding
from app.forests.data.rows import SanitisedRows
from app.forests.data.schema import Schema
from app.forests.trees import common, exact_medians, leaves
from app.forests.trees.collect import forest_of
from app.forests.trees.in_memory_histograms import LabelsApart, LocalHistograms
from app.forests.trees.label_read_out import ChosenLeafFamily
from app.forests.trees.tree_price import TreePrice
from app.privacy import accountants
from app.privacy.adjacency import Adjacency
from app.privacy.events import Event

if TYPE_CHECKING:
    from app.forests.noise.randomness import Randomness

DEFAULT_TREES = 10

N_BINS = replace(common.N_BINS, default=255)
"""Nothing is selected privately among the bins, so many cost nothing."""

LEAF = Parameter(
    "leaf",
    "choice",
    "What a leaf releases: noisy counts of every class, or one label.",
    default=leaves.COUNTS,
    choices=(leaves.COUNTS, leaves.LABEL),
)


_ABOUT = About(
    claimed=(
        "ε-differential privacy of labels, features being public: exact medians, Laplace noise of scale 1/ε on leaf "
        "counts."
    ),
    wrong="A label that changes moves two counts, so the loss is 2ε.",
    here=(
        "The same with noise for two counts, only on accounts whose owner published features and membership. It "
        "protects labels and nothing else."
    ),
    proof="docs/proofs/sspe-2.md",
    results="docs/results/semi-supervised.md",
    accuracy=at_epsilon_one("81.6 88.8 97.7 87.5 86.9"),
)


@dataclass(frozen=True)
class LabelMedianTrees:
    """Each node takes a random feature and its exact median; leaves release noisy label counts, or a label each.

    Rows without a known label take part in the structure: they are the paper's unlabelled set.

    Privacy:
        ε-DP for one label that changes, ε being the request's; *none under add/remove or replace-one*: features and
        membership are what the owner declared public. The structure is a function of the features, the same for both
        neighbours (lemma L0). A label that changes moves two counts of one leaf by one: L1 sensitivity 2 (lemma L3),
        range sensitivity 2 (lemma L2, or L1 on accounts in ρ and μ²). Becoming unknown moves one of them. Sharded
        trees, the default, count disjoint labels by a keyed hash and cost what the largest costs (lemma L5); sequential
        trees add. *Not covered:* running time.

    Source:
        Huang, Lei and Kabán, Algorithm 3, setting (II), whose Lap(1/ε) gives 2ε; repaired in Theorem 1 of
        docs/proofs/sspe-2.md.
    """

    slug: str = "sspe-2"
    title: str = "Median trees for labels alone"
    source: str = "Huang, Lei and Kabán, semi-supervised private ensemble, label privacy; repaired"
    about: About = _ABOUT
    accountants: tuple[str, ...] = accountants.NAMES
    adjacency: Adjacency = Adjacency.LABEL
    read_outs: tuple[str, ...] = ("log", "sum", "ta", "mv")
    family: Family = ChosenLeafFamily()  # noqa: RUF009 - it has no state
    parameters: tuple[Parameter, ...] = (
        common.N_ESTIMATORS,
        common.MAX_DEPTH,
        N_BINS,
        common.SHARDED_ASSIGNMENT,
        LEAF,
        exact_medians.MIN_ROWS,
        exact_medians.LABELLED_SHARE,
    )

    def settle(self, asked: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in ten trees, where their nodes stop and, from the public size and ε, their depth."""
        settled = dict(asked)
        settled.setdefault("n_estimators", DEFAULT_TREES)
        warnings = exact_medians.settle(settled, facts, n_noisy_trees=int(settled["n_estimators"]))
        return settled, warnings

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """T trees on disjoint labels, or one after another; a tree is what its leaves release."""
        return label_event(parameters, facts, kind=str(parameters["leaf"]), n_trees=int(parameters["n_estimators"]))

    def check(self, event: Event, parameters: Parameters) -> None:
        """See ``Mechanism.check``."""
        require_label_event(event, kind=str(parameters["leaf"]))

    def grow_forest(
        self,
        plan: Plan,
        schema: Schema,
        rows: SanitisedRows,
        randomness: Randomness,
        *,
        on_tree_done: Callable[[], None],
    ) -> Forest:
        """Builds every tree from public features, then releases its leaves over PRIVATE labels. One call, one release.

        Args:
            plan: what was priced.
            schema: public.
            rows: all rows of the scope; features and ids are public, labels PRIVATE, −1 where unknown.
            randomness: source of the features of nodes, of the key of the shards, and of the noise.
            on_tree_done: told after each tree.
        """
        trees = label_trees(plan, schema, rows, randomness, n_trees=plan.n_trees)
        return forest_of(plan, schema, self.family, trees, on_tree_done=on_tree_done)


def label_event(parameters: Parameters, facts: PublicFacts, *, kind: str, n_trees: int) -> Event:
    """The event of trees whose leaves alone are private."""
    sharded = common.is_sharded(parameters)
    per_tree = facts.epsilon if sharded else facts.epsilon / n_trees
    price = TreePrice((), leaves.priced(kind, per_tree, int(parameters["max_depth"]), facts))
    return price.forest_event(n_trees, sharded=sharded)


def require_label_event(event: Event, *, kind: str) -> None:
    """Checks an event from outside; see ``Mechanism.check``."""
    price = TreePrice.of(event)
    price.require(depth=0, selections=[], apart=False)
    leaves.require(kind, price.leaves, adjacency=Adjacency.LABEL)


def label_trees(
    plan: Plan, schema: Schema, rows: SanitisedRows, randomness: Randomness, *, n_trees: int
) -> Iterator[ReleasedTree]:
    """Releases trees one by one: structure over the features of all rows, leaves over the labels of a tree's own."""
    encoding = Encoding.of(schema, int(plan.parameters["n_bins"]))
    codes = encoding.encode(rows.features)
    priced = TreePrice.of(plan.event).leaves
    labelled = np.flatnonzero(rows.y >= 0)
    shard = None
    if common.is_sharded(plan.parameters):
        from app.forests.trees import assignment  # here: it brings the samplers, which a price does not need

        key = assignment.fresh_key(randomness)
        shard = assignment.shards(key, rows.row_ids[labelled], n_shards=n_trees)
    of_labels = LocalHistograms(
        np.ascontiguousarray(codes[:, labelled]),
        rows.y[labelled],
        n_codes=encoding.n_codes,
        n_classes=schema.n_classes,
        shard=shard,
    )
    apart = LabelsApart(codes, of_labels, n_codes=encoding.n_codes)
    for index in range(n_trees):
        own = apart.of_tree(index)
        splits = exact_medians.grow(encoding, plan.parameters, own, randomness)
        yield leaves.release(splits, priced, own, randomness)
