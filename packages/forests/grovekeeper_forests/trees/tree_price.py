"""Prices the selections and the leaves of a tree, and reads the parts of a tree back
out of the priced event.

On accounts that count ε, a selection is permute-and-flip, which is at least as good as
the exponential mechanism at the same ε. On accounts that count ρ or μ², a selection is
the exponential mechanism, whose bounded range makes it cheaper in these units
(docs/proofs/accounting.md). The priced event names the mechanism that growth draws
from. Leaves release noisy counts of every class, or one label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from grovekeeper_forests import amounts
from grovekeeper_forests.bins import noisy_counts
from grovekeeper_forests.bins.noisy_counts import SENSITIVITIES, draw_scale
from grovekeeper_forests.bins.quantile_bins import Selection
from grovekeeper_forests.contract.algorithm import (
    Parameter,
    Parameters,
    PublicFacts,
    share,
)
from grovekeeper_forests.contract.plan import encoding_of
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.events import (
    DiscreteLaplace,
    Event,
    ExponentialMechanism,
    Parallel,
    Part,
    PermuteAndFlip,
    Sequential,
    UnknownPrivacyEvent,
)
from grovekeeper_forests.trees import tree_parameters
from grovekeeper_forests.trees.tree_parameters import is_sharded

GINI, MISCOUNT, NORMALISED = "gini", "miscount", "normalised"

BITS = 8
"""Fractional bits q of the fixed-point count Gini, of normalised utilities and of class
shares.
"""

GINI_RANGE_SENSITIVITY = 2 ** (BITS + 1)
"""One added row lowers the utility of every split by an integer in [0, 2^(q+1)]: lemma
L1 and docs/proofs/mrf.md.
"""

NORMALISED_RANGE_SENSITIVITY = 2 ** (BITS + 1)
"""A normalised utility may rise by 2^q where another falls by 2^q, however many rows
there are.
"""

SHARE_RANGE_SENSITIVITY = 2**BITS
"""One added row moves the shares of two classes by at most 2^q against each other:
lemma M2 of docs/proofs/mrf.md.
"""

RANGE_SENSITIVITIES: Mapping[str, int] = MappingProxyType(
    {
        GINI: GINI_RANGE_SENSITIVITY,
        MISCOUNT: 1,
        NORMALISED: NORMALISED_RANGE_SENSITIVITY,
    }
)
"""Range sensitivity of every split utility under add/remove, in the utility's integer
units.
"""


def selection_event(
    loss: Fraction, facts: PublicFacts, *, range_sensitivity: int, max_candidates: int
) -> Selection:
    """The event of one selection that costs at most ``loss`` in ε.

    Args:
        loss: public; above zero.
        facts: public; the unit of the account decides the mechanism.
        range_sensitivity: of the utility, in the utility's integer units, under the
            adjacency of ``facts.budget``.
        max_candidates: public; largest number of candidates, at least 1.
    """
    kind = (
        PermuteAndFlip if facts.budget.accountant == pure.NAME else ExponentialMechanism
    )
    return kind(
        facts.budget.adjacency,
        range_sensitivity=Fraction(range_sensitivity),
        inverse_scale=draw_scale(loss, range_sensitivity),
        max_candidates=max_candidates,
    )


def loss_per_tree(parameters: Parameters, epsilon: Fraction) -> Fraction:
    """The ε of one tree: all of ε where trees have disjoint rows, an equal share where
    all trees share the rows.
    """
    if is_sharded(parameters):
        return epsilon
    return epsilon / int(parameters["n_estimators"])


def level_losses(total: Fraction, depth: int) -> tuple[Fraction, ...]:
    """Divides a path's structure budget over the levels: deeper nodes hold fewer rows
    and get a little more.
    """
    weights = [10 + level for level in range(depth)]
    return tuple(total * weight / sum(weights) for weight in weights)


def geometric_losses(
    total: Fraction, depth: int, ratio: Fraction
) -> tuple[Fraction, ...]:
    """Divides a path's structure budget over the levels: each level gets ``ratio``
    times the level above.
    """
    weights = [ratio**level for level in range(depth)]
    return tuple(total * weight / sum(weights) for weight in weights)


def tree_event(event: Event) -> Event:
    """The event of one tree of a forest, or of one part of a level.

    Raises:
        UnknownPrivacyEvent: the event is not one of a forest or a level.
    """
    if isinstance(event, Sequential | Parallel) and len(event.parts) == 1:
        return event.parts[0].event
    raise UnknownPrivacyEvent("not an event of like parts")


Levels: TypeAlias = tuple[tuple[Selection, ...], ...]
"""For each level, root first, the selections of one node in order."""

_APART = "parts"


@dataclass(frozen=True)
class TreePrice:
    """The priced selections and leaf releases of one tree; growth takes every noise
    scale from this object.

    Attributes:
        levels: for each level, root first, the selections of one node in order.
        leaves: the event of all leaves together.
        apart: a keyed hash separates the rows of selections from the rows of leaves, so
            that the tree costs the larger of the two losses instead of their sum.
    """

    levels: Levels
    leaves: Event
    apart: bool = False

    def forest_event(self, n_trees: int, *, sharded: bool) -> Event:
        """The event of ``n_trees`` trees: sequential on the same rows, or parallel on
        disjoint rows.
        """
        selections = _selections_of_a_tree(self.levels)
        leaves = Part(1, self.leaves)
        tree: Event = Sequential((*selections.parts, leaves))
        if self.apart:
            tree = Parallel(_APART, (Part(1, selections), leaves))
        return _forest(tree, n_trees, sharded=sharded)

    @classmethod
    def of(cls, forest: Event) -> TreePrice:
        """Reads the price of one tree from a forest's event: the inverse of
        :meth:`forest_event`.

        Raises:
            UnknownPrivacyEvent: the event is not one of such a forest.
        """
        match tree_event(forest):
            case Parallel(
                over,
                (Part(times=1, event=Sequential(levels)), Part(times=1, event=leaves)),
            ) if over == _APART:
                return cls(tuple(map(_selections, levels)), leaves, apart=True)
            case Sequential((*levels, Part(times=1, event=leaves))):
                return cls(tuple(map(_selections, levels)), leaves)
        raise UnknownPrivacyEvent("not the event of a forest of trees")


def structure_event(levels: Levels, n_trees: int, *, sharded: bool) -> Event:
    """The event of ``n_trees`` trees without leaves: sequential on the same rows, or
    parallel on disjoint rows.
    """
    return _forest(_selections_of_a_tree(levels), n_trees, sharded=sharded)


def levels_of(forest: Event) -> Levels:
    """Reads the levels of one tree from the event of a structure: the inverse of
    :func:`structure_event`.

    Raises:
        UnknownPrivacyEvent: the event is not one of trees without leaves.
    """
    tree = tree_event(forest)
    if isinstance(tree, Sequential):
        return tuple(map(_selections, tree.parts))
    raise UnknownPrivacyEvent("not the event of the structure of trees")


def _forest(tree: Event, n_trees: int, *, sharded: bool) -> Event:
    parts = (Part(n_trees, tree),)
    return Parallel("trees", parts) if sharded else Sequential(parts)


def _selections_of_a_tree(levels: Levels) -> Sequential:
    parts = []
    for level, selections in enumerate(levels):
        of_a_node = tuple(Part(1, selection) for selection in selections)
        node = selections[0] if len(selections) == 1 else Sequential(of_a_node)
        parts.append(Part(1, Parallel("nodes", (Part(2**level, node),))))
    return Sequential(tuple(parts))


def _selections(level: Part) -> tuple[Selection, ...]:
    node = tree_event(level.event)
    if isinstance(node, Sequential):
        parts = [part.event for part in node.parts]
    else:
        parts = [node]
    selections = tuple(event for event in parts if isinstance(event, Selection))
    if not selections or len(selections) != len(parts):
        raise UnknownPrivacyEvent("not the event of a level of selections")
    return selections


COUNTS, LABEL, SHARES = "counts", "label", "shares"

LEAF = Parameter(
    "leaf",
    "choice",
    "What a leaf releases: noisy counts of every class, or one label.",
    default=COUNTS,
    choices=(COUNTS, LABEL),
)

# the disjoint parts of the rows in an event with one selection per leaf
_LEAF_NODES = "leaf nodes"


def price_leaves(kind: str, loss: Fraction, depth: int, facts: PublicFacts) -> Event:
    """The event of all leaves of one tree, at ``loss`` in ε for the leaf that a row
    reaches.

    Args:
        kind: :data:`COUNTS`, or a label selected by counts (:data:`LABEL`) or by class
            shares (:data:`SHARES`).
        loss: public; above zero.
        depth: public; depth of the tree.
        facts: public.
    """
    n_classes = facts.schema.n_classes
    sensitivity = SENSITIVITIES[facts.budget.adjacency]
    if kind != COUNTS:
        sensitivity *= SHARE_RANGE_SENSITIVITY if kind == SHARES else 1
        selection = selection_event(
            loss, facts, range_sensitivity=sensitivity, max_candidates=n_classes
        )
        return Parallel(_LEAF_NODES, (Part(2**depth, selection),))
    laplace = DiscreteLaplace(
        facts.budget.adjacency,
        l1_sensitivity=Fraction(sensitivity),
        inverse_scale=draw_scale(loss, sensitivity),
        coordinates=n_classes << depth,
    )
    return noisy_counts.at_price_of(laplace, facts.budget)


def label_selection(event: Event) -> Selection | None:
    """The priced selection of a leaf's label; ``None`` where leaves release counts."""
    match event:
        case Parallel(
            over, (Part(event=PermuteAndFlip() | ExponentialMechanism() as own),)
        ) if over == _LEAF_NODES:
            return own
    return None


JOINT, TWO_STAGE = "joint", "two_stage"


USUAL_STRUCTURE_SHARE = "0.6"


MULTINOMIAL_PARAMETERS = (
    tree_parameters.N_ESTIMATORS,
    tree_parameters.MAX_DEPTH,
    tree_parameters.N_BINS,
    tree_parameters.ASSIGNMENT,
    share(
        "structure_share",
        "Share of each tree's ε that its selections of splits get; the rest goes to its leaves. Without effect where "
        "se is hash: each part of the rows is then worth all of the tree's ε. By default 0.6, and 0.85 on accounts "
        "with a δ where leaves release counts.",
        only_with=(tree_parameters.SEPARATION.name, tree_parameters.NONE),
    ),
    Parameter(
        "selection",
        "choice",
        "Choose feature and threshold in one draw, or the feature first, each stage at its own budget.",
        default=JOINT,
        choices=(JOINT, TWO_STAGE),
    ),
    share(
        "feature_share",
        "Share of a selection's ε that choosing the feature gets, where the feature is chosen first.",
        default="0.5",
        only_with=("selection", TWO_STAGE),
    ),
    Parameter(
        "utility",
        "choice",
        "The cost that a good split lowers: the count Gini, or the number of rows outside the most common class of "
        "their side; or the papers' Gini normalised to [0, 1] in each node, nearly a random choice at small ε.",
        default=GINI,
        choices=tuple(RANGE_SENSITIVITIES),
    ),
    replace(
        LEAF,
        description="What a leaf releases: noisy counts of every class, or one label, selected by the counts or, as in "
        "the papers, by the class shares, nearly a random label at small ε.",
        choices=(COUNTS, LABEL, SHARES),
    ),
    tree_parameters.SEPARATION,
    share(
        "structure_rows",
        "Where se is hash, the expected share of rows in the structure part.",
        default="0.5",
        only_with=(tree_parameters.SEPARATION.name, tree_parameters.HASH),
    ),
)


def _node(
    loss: Fraction, parameters: Parameters, encoding: Encoding, facts: PublicFacts
) -> tuple[Selection, ...]:
    sensitivity = RANGE_SENSITIVITIES[str(parameters["utility"])]
    if parameters["selection"] == JOINT:
        n_candidates = len(encoding.candidates)
        return (
            selection_event(
                loss, facts, range_sensitivity=sensitivity, max_candidates=n_candidates
            ),
        )
    share = amounts.parse(parameters["feature_share"])
    per_feature = np.unique(encoding.candidates.feature, return_counts=True)[1]
    return (
        selection_event(
            share * loss,
            facts,
            range_sensitivity=sensitivity,
            max_candidates=len(per_feature),
        ),
        selection_event(
            (1 - share) * loss,
            facts,
            range_sensitivity=sensitivity,
            max_candidates=int(per_feature.max()),
        ),
    )


def multinomial_event(parameters: Parameters, facts: PublicFacts) -> Event:
    """The event of T trees, sequential or on disjoint rows; a tree is the selections of
    a path, then its leaves.
    """
    n_trees = int(parameters["n_estimators"])
    depth = int(parameters["max_depth"])
    apart = parameters["se"] == tree_parameters.HASH
    per_tree = loss_per_tree(parameters, facts.epsilon)
    share = tree_parameters.structure_share(parameters)
    for_levels, for_leaves = (
        (per_tree, per_tree) if apart else (share * per_tree, (1 - share) * per_tree)
    )
    encoding = encoding_of(facts.schema, parameters["n_bins"], facts.profile)
    price = TreePrice(
        tuple(
            _node(loss, parameters, encoding, facts)
            for loss in level_losses(for_levels, depth)
        ),
        price_leaves(str(parameters["leaf"]), for_leaves, depth, facts),
        apart=apart,
    )
    return price.forest_event(n_trees, sharded=tree_parameters.is_sharded(parameters))
