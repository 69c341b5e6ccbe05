"""What a mechanism is to the rest of the package, and the public facts that its rules may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from app.core.errors import InvalidRequest
from app.forests.bins.reused_profile import ReusedProfile
from app.forests.contract.about import About
from app.forests.contract.family import Family
from app.forests.contract.forest import Forest
from app.forests.contract.parameters import Parameter, Value
from app.forests.contract.plan import Plan
from app.forests.data.encoding import Encoding
from app.forests.data.rows import SanitisedRows
from app.forests.data.schema import Schema
from app.forests.trees.histograms import TreeHistograms
from app.privacy.accountants import pure
from app.privacy.adjacency import Adjacency
from app.privacy.calibration import Budget
from app.privacy.events import Event, EventCostsMore, quantised

if TYPE_CHECKING:
    from app.forests.noise.randomness import Randomness  # its samplers are compiled; a price needs none

Parameters: TypeAlias = Mapping[str, Value]
"""Every parameter with its settled value."""

LARGEST_INVERSE_SCALE = Fraction(64)
"""Noise that differs from zero once in e^64 draws: more would be paid for nothing, and kernels stay in 64 bits."""


@dataclass(frozen=True)
class PublicFacts:
    """All that a default may depend on.

    Attributes:
        schema: the declaration.
        epsilon: what one tree ensemble may cost under the mechanism's own adjacency; on accounts with a δ, the ε of the
            request, or a strength that is looked for (see ``app.privacy.calibration.fitted``).
        size: the public order of magnitude of the rows in scope.
        budget: what the job may cost in the unit of its account, under the mechanism's own adjacency.
        profile: released before; its numbers are used in place of draws that would be paid for.
        unlabelled: the same of a second, unlabelled dataset, where the algorithm learns from two.
    """

    schema: Schema
    epsilon: Fraction
    size: int
    budget: Budget
    profile: ReusedProfile | None = None
    unlabelled: PublicFacts | None = None

    def require_covered(self, event: Event) -> None:
        """Checks that an event costs no more than what was asked for.

        Where ε is counted that is :attr:`epsilon` itself: a k-th part of a price is no whole number of steps, and the
        budget is rounded down.

        Raises:
            EventCostsMore: it does, which is a bug of whatever priced it.
        """
        is_pure = self.budget.accountant == pure.NAME
        if not (self.budget.loss(event) <= self.epsilon if is_pure else self.budget.covers(event)):
            raise EventCostsMore("the event costs more than the amount that pays for it")

    @property
    def of_unlabelled(self) -> PublicFacts:
        """The facts of the second dataset, in a mechanism that has one."""
        if self.unlabelled is None:
            raise ValueError("no second dataset pays")
        return self.unlabelled


@dataclass(frozen=True)
class Tree:
    """One released tree in heap layout; shapes as in ``Forest`` without the leading axis."""

    feature: NDArray[np.int32]
    threshold: NDArray[np.uint8]
    equals: NDArray[np.bool_]
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class LabelTree:
    """One released tree in heap layout whose leaves released a label each; ``labels`` is int32 ``(2^depth,)``."""

    feature: NDArray[np.int32]
    threshold: NDArray[np.uint8]
    equals: NDArray[np.bool_]
    labels: NDArray[np.int32]


ReleasedTree: TypeAlias = Tree | LabelTree


class Mechanism(Protocol):
    """A randomised learner with a proven price: public rules, and how to read what it releases.

    ``settle``, ``event`` and ``check`` see public facts only. Growth (:class:`TreeMechanism`, :class:`ForestMechanism`)
    takes every noise scale out of the event that was priced, and draws through ``randomness``.
    """

    @property
    def slug(self) -> str:
        """What requests and artifacts call it; its meaning never changes."""

    @property
    def title(self) -> str:
        """A name for people."""

    @property
    def source(self) -> str:
        """The paper that it is, or that it repairs."""

    @property
    def about(self) -> About:
        """What it claims, what was wrong with that, what runs here, and how good it is."""

    @property
    def read_outs(self) -> tuple[str, ...]:
        """Offered by its models, the default first."""

    @property
    def accountants(self) -> tuple[str, ...]:
        """Names of the accounts that can pay for it. With ``pure`` among them, :meth:`event` is written in ε."""

    @property
    def adjacency(self) -> Adjacency:
        """Under which its guarantee and its event are stated. ``label`` ones run on accounts of labels alone."""

    @property
    def family(self) -> Family:
        """How its released arrays are stored and read."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All that a request may set."""

    def settle(self, asked: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Every parameter with its value, chosen by public rules where it was not asked for; and warnings."""

    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """What growing will do, as an event within ``facts.epsilon``, or within ``facts.budget`` where δ is needed."""

    def check(self, event: Event, parameters: Parameters) -> None:
        """Whether growth and prediction can read an event that came with a stored plan.

        Raises:
            UnknownPrivacyEvent: not an event that :meth:`event` makes for these parameters.
        """


@runtime_checkable
class TreeMechanism(Mechanism, Protocol):
    """Grows trees one by one, none of which knows of the others, on the PRIVATE integer histograms of its rows."""

    def grow_tree(
        self,
        event: Event,
        parameters: Parameters,
        *,
        encoding: Encoding,
        rows: TreeHistograms,
        randomness: Randomness,
    ) -> ReleasedTree:
        """Grows and releases one tree; one call is one release."""


@runtime_checkable
class ForestMechanism(Mechanism, Protocol):
    """Grows a whole forest, each part knowing what was released before, on PRIVATE rows."""

    def grow_forest(
        self,
        plan: Plan,
        schema: Schema,
        rows: SanitisedRows,
        randomness: Randomness,
        *,
        on_tree_done: Callable[[], None],
    ) -> Forest:
        """Grows and releases the forest; one call is one release. ``on_tree_done`` is called once per planned tree."""


@runtime_checkable
class TwoDatasetMechanism(Mechanism, Protocol):
    """Learns from two datasets about different people, each with an account that pays for its own part.

    ``event`` is what the labelled dataset pays for; the facts that ``settle`` sees hold those of the other one.
    """

    def structure_event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """What the unlabelled dataset pays for, within its own facts."""

    def check_structure(self, event: Event, parameters: Parameters) -> None:
        """The same as ``check``, for the event of the unlabelled dataset."""

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
        """Grows and releases the forest; one call is one release of each dataset."""


def draw_scale(loss: Fraction, sensitivity: int) -> Fraction:
    """The inverse scale of a draw that may cost ``loss``: a multiple of 2^-32, rounded down.

    Raises:
        InvalidRequest: the share of the budget is too small to be drawn with at all.
    """
    scale = min(quantised(loss / sensitivity), LARGEST_INVERSE_SCALE)
    if scale == 0:
        raise InvalidRequest.at("/epsilon", "too-small")
    return scale
