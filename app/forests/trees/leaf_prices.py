"""Prices the releases of leaves: noisy counts of every class, or one label."""

import math
from fractions import Fraction

from app.forests.bins import noisy_counts
from app.forests.bins.noisy_counts import SENSITIVITIES, draw_scale
from app.forests.contract.facts import PublicFacts
from app.forests.contract.parameters import Parameter
from app.forests.trees import tree_price
from app.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    Event,
    ExponentialMechanism,
    Parallel,
    Part,
    PermuteAndFlip,
    RoundedGaussian,
    UnknownPrivacyEvent,
)

COUNTS, LABEL = "counts", "label"

LEAF = Parameter(
    "leaf",
    "choice",
    "What a leaf releases: noisy counts of every class, or one label.",
    default=COUNTS,
    choices=(COUNTS, LABEL),
)

_LEAF_NODES = "leaf nodes"
"""The disjoint parts of the rows in an event with one selection per leaf."""


def priced(kind: str, loss: Fraction, depth: int, facts: PublicFacts) -> Event:
    """The event of all leaves of one tree, at ``loss`` in ε for the leaf that a row reaches.

    Args:
        kind: :data:`COUNTS` or :data:`LABEL`.
        loss: public; above zero.
        depth: public; depth of the tree.
        facts: public.
    """
    n_classes, sensitivity = facts.schema.n_classes, SENSITIVITIES[facts.budget.adjacency]
    if kind == LABEL:
        selection = tree_price.selection_event(loss, facts, range_sensitivity=sensitivity, max_candidates=n_classes)
        return Parallel(_LEAF_NODES, (Part(2**depth, selection),))
    laplace = DiscreteLaplace(
        facts.budget.adjacency,
        l1_sensitivity=Fraction(sensitivity),
        inverse_scale=draw_scale(loss, sensitivity),
        coordinates=n_classes << depth,
    )
    return noisy_counts.at_price_of(laplace, facts.budget)


def noise_scale(event: Event) -> float:
    """Scale, in rows, of the noise on leaf counts; public. For normal noise: the Laplace scale of equal deviation.

    Raises:
        UnknownPrivacyEvent: the event is not one of leaf counts.
    """
    if isinstance(event, DiscreteLaplace) and event.inverse_scale > 0:
        return float(1 / event.inverse_scale)
    noisy_counts.per_row(event)
    return noisy_counts.noise_sd(event) / math.sqrt(2.0)


def require(kind: str, event: Event, *, adjacency: Adjacency = Adjacency.ADD_REMOVE_ONE) -> None:
    """Checks that a stored event is one that :func:`priced` makes for this kind of leaf.

    Raises:
        UnknownPrivacyEvent: the event is a different one.
    """
    label = label_selection(event)
    if kind == LABEL and label is not None:
        stated, sensitivity, scale = label.adjacency, label.range_sensitivity, label.inverse_scale
        known = sensitivity == SENSITIVITIES[adjacency] and scale > 0
    elif kind == COUNTS and isinstance(event, DiscreteLaplace | RoundedGaussian):
        stated, known = event.adjacency, noisy_counts.per_row(event) > 0
    else:
        raise UnknownPrivacyEvent("not the event of such leaves")
    if stated is not adjacency or not known:
        raise UnknownPrivacyEvent("not the event of such leaves")


def label_selection(event: Event) -> tree_price.Selection | None:
    """The priced selection of a leaf's label; ``None`` where leaves release counts."""
    match event:
        case Parallel(over, (Part(event=PermuteAndFlip() | ExponentialMechanism() as own),)) if over == _LEAF_NODES:
            return own
    return None
