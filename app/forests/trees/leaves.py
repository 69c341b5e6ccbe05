"""What the leaves of a tree release: noisy counts of every class, or one label."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from app.forests.bins import noisy_counts
from app.forests.bins.noisy_counts import SENSITIVITIES
from app.forests.contract.algorithm import LabelTree, PublicFacts, ReleasedTree, Tree, draw_scale
from app.forests.trees import selections
from app.forests.trees.histograms import TreeHistograms
from app.forests.trees.structure import Splits
from app.privacy.adjacency import Adjacency
from app.privacy.events import (
    DiscreteLaplace,
    Event,
    ExponentialMechanism,
    Parallel,
    Part,
    PermuteAndFlip,
    RoundedGaussian,
    UnknownPrivacyEvent,
)

if TYPE_CHECKING:
    from app.forests.noise.randomness import Randomness

COUNTS, LABEL = "counts", "label"

_LEAF_NODES = "leaf nodes"
"""What is disjoint where every leaf makes a selection of its own."""


def priced(kind: str, loss: Fraction, depth: int, facts: PublicFacts) -> Event:
    """The event of all leaves of one tree, at ``loss`` in ε for the leaf that a row reaches.

    Args:
        kind: :data:`COUNTS` or :data:`LABEL`.
        loss: public; above zero.
        depth: public; of the tree.
        facts: public.
    """
    n_classes, sensitivity = facts.schema.n_classes, SENSITIVITIES[facts.budget.adjacency]
    if kind == LABEL:
        own = selections.priced(loss, facts, range_sensitivity=sensitivity, max_candidates=n_classes)
        return Parallel(_LEAF_NODES, (Part(2**depth, own),))
    laplace = DiscreteLaplace(
        facts.budget.adjacency,
        l1_sensitivity=Fraction(sensitivity),
        inverse_scale=draw_scale(loss, sensitivity),
        coordinates=n_classes << depth,
    )
    return noisy_counts.at_price_of(laplace, facts.budget)


def release(splits: Splits, event: Event, rows: TreeHistograms, randomness: Randomness) -> ReleasedTree:
    """Releases the leaves of a tree whose splits were released, on PRIVATE rows that lie in its leaves.

    Every leaf is released, whether a row reaches it or not: an empty leaf's label is uniform, its counts are noise.

    Args:
        splits: released; feature, threshold and equality of every node.
        event: of the leaves, as priced.
        rows: PRIVATE.
        randomness: source of the draws.
    """
    exact = rows.leaf_histogram()
    label = _label_selection(event)
    if label is not None:
        drawn = [selections.draw(label, own, randomness) for own in exact]
        return LabelTree(*splits, np.array(drawn, dtype=np.int32))
    return Tree(*splits, noisy_counts.in_whole_rows(noisy_counts.release(exact, event, randomness), event))


def noise_scale(event: Event) -> float:
    """Scale, in rows, of the noise on leaf counts: of Laplace noise with the same deviation where it is normal; public.

    Raises:
        UnknownPrivacyEvent: not the event of leaf counts.
    """
    if isinstance(event, DiscreteLaplace) and event.inverse_scale > 0:
        return float(1 / event.inverse_scale)
    noisy_counts.per_row(event)
    return noisy_counts.noise_sd(event) / math.sqrt(2.0)


def require(kind: str, event: Event, *, adjacency: Adjacency = Adjacency.ADD_REMOVE_ONE) -> None:
    """Checks that an event from outside is one that :func:`priced` makes for this kind of leaf.

    Raises:
        UnknownPrivacyEvent: it is not.
    """
    label = _label_selection(event)
    if kind == LABEL and label is not None:
        stated, sensitivity, scale = label.adjacency, label.range_sensitivity, label.inverse_scale
        known = sensitivity == SENSITIVITIES[adjacency] and scale > 0
    elif kind == COUNTS and isinstance(event, DiscreteLaplace | RoundedGaussian):
        stated, known = event.adjacency, noisy_counts.per_row(event) > 0
    else:
        raise UnknownPrivacyEvent("not the event of such leaves")
    if stated is not adjacency or not known:
        raise UnknownPrivacyEvent("not the event of such leaves")


def _label_selection(event: Event) -> selections.Selection | None:
    match event:
        case Parallel(over, (Part(event=PermuteAndFlip() | ExponentialMechanism() as own),)) if over == _LEAF_NODES:
            return own
    return None
