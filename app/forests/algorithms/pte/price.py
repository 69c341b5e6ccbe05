"""A small ensemble that pays for labels teaches a larger one, which costs nothing.

Huang, Lei and Kabán, "Noise-efficient learning of differentially private partitioning machine ensembles", Algorithm 4.
What it claims, why its second noise is not needed, and the proof of this version: docs/proofs/pte.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from app.core import limits
from app.core.errors import InvalidRequest
from app.forests.algorithms.sspe2 import price
from app.forests.contract.about import About, at_epsilon_one
from app.forests.contract.algorithm import Parameters, PublicFacts, Tree
from app.forests.contract.family import Family
from app.forests.contract.forest import Forest
from app.forests.contract.parameters import Parameter, Value
from app.forests.contract.plan import Plan
from app.forests.data.encoding import Encoding
from app.forests.data.rows import SanitisedColumns, SanitisedRows
from app.forests.data.schema import Schema
from app.forests.trees import common, exact_medians, leaves, pooling
from app.forests.trees.collect import forest_of
from app.forests.trees.count_read_out import CountFamily
from app.forests.trees.in_memory_histograms import LabelsApart, LocalHistograms
from app.forests.trees.leaf_sums import LeafSums
from app.privacy import accountants
from app.privacy.adjacency import Adjacency
from app.privacy.events import Event

if TYPE_CHECKING:
    from app.forests.noise.randomness import Randomness

DEFAULT_TEACHERS, DEFAULT_PUPILS = 10, 50

_TEACHERS = Parameter(
    "n_teachers",
    "integer",
    "Trees of the first ensemble, among which labels (or ε) are divided; the other trees learn from what it says.",
    minimum=Fraction(1),
    maximum=Fraction(limits.MAX_TREES),
)


_ABOUT = About(
    claimed=(
        "ε-differential privacy of a first ensemble that labels further rows, and of a second one that learns from "
        "those labels."
    ),
    wrong=(
        "The noise is that of sspe-2's paper, half of what is needed. With private features, which the text allows, "
        "both ensembles read the rows again and the price is a multiple. The second ensemble's noise is not needed "
        "where features are public."
    ),
    here=(
        "Only on accounts that protect labels: the first ensemble pays, the second reads its answers and public "
        "features at no cost."
    ),
    proof="docs/proofs/pte.md",
    results="docs/results/semi-supervised.md",
    accuracy=at_epsilon_one("80.2 87.0 97.0 88.5 88.2"),
)


@dataclass(frozen=True)
class TransductiveEnsemble:
    """Median trees with noisy label counts, and more of them with exact counts of the labels that the first ones give.

    Privacy:
        ε-DP for one label that changes, ε being the request's; *none under add/remove or replace-one*: features and
        membership are what the owner declared public. The first ensemble is that of :class:`LabelMedianTrees`: L1
        sensitivity 2 (lemma L3), once on shards, added up otherwise. What it says of the public rows, and every tree
        built from that, is a function of the released ensemble and of public features: post-processing (lemma L7), at
        no cost and without noise. *Not covered:* running time.

    Source:
        Huang, Lei and Kabán, Algorithm 4, whose Lap(1/ε) gives 2ε; repaired in Theorem 1 of docs/proofs/pte.md.
    """

    slug: str = "pte"
    title: str = "Transductive ensemble of median trees for labels alone"
    source: str = "Huang, Lei and Kabán, private transductive ensemble; repaired"
    about: About = _ABOUT
    accountants: tuple[str, ...] = accountants.NAMES
    adjacency: Adjacency = Adjacency.LABEL
    read_outs: tuple[str, ...] = ("ta", "mv")
    family: Family = CountFamily()  # noqa: RUF009 - it has no state
    parameters: tuple[Parameter, ...] = (
        replace(common.N_ESTIMATORS, description="Trees of both ensembles together."),
        _TEACHERS,
        common.MAX_DEPTH,
        price.N_BINS,
        common.SHARDED_ASSIGNMENT,
        exact_medians.MIN_ROWS,
        exact_medians.LABELLED_SHARE,
    )

    def settle(self, asked: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Fills in ten and fifty trees, where their nodes stop and, from the public size and ε, their depth.

        Raises:
            InvalidRequest: more teachers than trees.
        """
        settled = dict(asked)
        if "n_estimators" in settled:
            settled.setdefault("n_teachers", min(DEFAULT_TEACHERS, int(settled["n_estimators"])))
        settled.setdefault("n_teachers", DEFAULT_TEACHERS)
        settled.setdefault("n_estimators", min(int(settled["n_teachers"]) + DEFAULT_PUPILS, limits.MAX_TREES))
        n_teachers = int(settled["n_teachers"])
        if n_teachers > int(settled["n_estimators"]):
            raise InvalidRequest.at("/parameters/n_teachers", "too-large")
        warnings = exact_medians.settle(settled, facts, n_noisy_trees=n_teachers)
        return settled, warnings

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """The first ensemble alone: its trees on disjoint labels, or one after another."""
        return price.label_event(parameters, facts, kind=leaves.COUNTS, n_trees=int(parameters["n_teachers"]))

    def check(self, event: Event, parameters: Parameters) -> None:
        """See ``Mechanism.check``."""
        price.require_label_event(event, kind=leaves.COUNTS)

    def grow_forest(
        self,
        plan: Plan,
        schema: Schema,
        rows: SanitisedRows,
        randomness: Randomness,
        *,
        on_tree_done: Callable[[], None],
    ) -> Forest:
        """Releases the first ensemble over PRIVATE labels, then forgets them. One call, one release.

        Args:
            plan: what was priced.
            schema: public.
            rows: all rows of the scope; features and ids are public, labels PRIVATE, −1 where unknown.
            randomness: source of the features of nodes, of the key of the shards, and of the noise.
            on_tree_done: told after each tree.
        """
        n_teachers = int(plan.parameters["n_teachers"])
        teachers: list[Tree] = []

        def released() -> Iterator[Tree]:
            for tree in price.label_trees(plan, schema, rows, randomness, n_trees=n_teachers):
                assert isinstance(tree, Tree)
                teachers.append(tree)
                yield tree

        pupils = _pupils(plan, schema, teachers, rows.features, randomness)
        return forest_of(plan, schema, self.family, chain(released(), pupils), on_tree_done=on_tree_done)


def _pupils(
    plan: Plan, schema: Schema, teachers: list[Tree], features: SanitisedColumns, randomness: Randomness
) -> Iterator[Tree]:
    """Trees over public rows with the labels that released trees give them. Reads no label (lemma L7).

    Args:
        plan: public.
        schema: public.
        teachers: released, all of them by the time that the first pupil is asked for.
        features: public, of all rows.
        randomness: source of the features of nodes.
    """
    encoding = Encoding.of(schema, int(plan.parameters["n_bins"]))
    codes, taught = encoding.encode(features), labels_of(plan, teachers, encoding, features)
    labelled = LocalHistograms(codes, taught, n_codes=encoding.n_codes, n_classes=schema.n_classes, shard=None)
    apart = LabelsApart(codes, labelled, n_codes=encoding.n_codes)
    for index in range(len(teachers), plan.n_trees):
        own = apart.of_tree(index)
        splits = exact_medians.grow(encoding, plan.parameters, own, randomness)
        yield Tree(*splits, own.leaf_histogram())


def labels_of(plan: Plan, trees: list[Tree], encoding: Encoding, features: SanitisedColumns) -> NDArray[np.int32]:
    """The labels that released trees give to public rows: the most probable class by the ``log`` read-out.

    Returns:
        int32 ``(n_rows,)``, released.
    """
    arrays = {name: np.stack([getattr(tree, name) for tree in trees]) for name in ("feature", "threshold", "equals")}
    counts = np.stack([tree.counts for tree in trees])
    noise_scale = leaves.noise_scale(common.leaves_of(plan.event))
    values = pooling.leaf_values(counts, pooling.LOGARITHMIC, noise_scale=noise_scale)
    found: NDArray[np.int32] = LeafSums(encoding, arrays, values).of(features).argmax(axis=1).astype(np.int32)
    return found
