"""Defines the public interface of an algorithm: description, parameters, price, and the check of a stored price."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TypeAlias

from app.forests.contract.about import About
from app.forests.contract.facts import PublicFacts
from app.forests.contract.parameters import Parameter, Value
from app.privacy import accountants
from app.privacy.events import Adjacency, Event

Parameters: TypeAlias = Mapping[str, Value]
"""Every parameter with its settled value."""


class Described:
    """The description of an algorithm in ``GET /algorithms``.

    Attributes:
        slug: name of the algorithm in requests and artifacts; its meaning never changes.
        title: a name for people.
        source: the paper that describes the algorithm, or that the algorithm repairs.
        about: claims, known errors, implementation and measured accuracy.
        read_outs: read-outs of its models, the default first.
        parameters: every parameter that a request may set.
        accountants: accountants of the accounts that can pay. If ``pure`` is among them, events are priced in ε.
        adjacency: the adjacency of the guarantee and of the event. An algorithm stated under ``label`` runs on
            accounts that protect labels alone.
    """

    slug: str
    title: str
    source: str
    about: About
    read_outs: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    accountants: tuple[str, ...] = accountants.NAMES
    adjacency: Adjacency = Adjacency.ADD_REMOVE_ONE


class Algorithm(Described, ABC):
    """A randomised learner with a proven price.

    Every method is a function of public facts. Growth (``app.forests.grow``) takes every noise scale from the event
    that :meth:`event` prices; reading (``app.forests.contract.family``) is post-processing of the releases of growth.

    Attributes:
        reuses_profiles: whether a plan may use the bins (and ``nbrt`` the class counts) of a released profile.
        reads_values: whether growth computes with the values of rows. Then one process reads all rows; other growth
            counts codes, also on several machines.
    """

    reuses_profiles: bool = True
    reads_values: bool = False

    @abstractmethod
    def settle(self, requested: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Every parameter with its value, and warnings; public rules choose the values that the request omits."""

    @abstractmethod
    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """The event of growth, which costs at most ``facts.epsilon``, or ``facts.budget`` where a δ is needed."""

    @abstractmethod
    def check(self, event: Event, parameters: Parameters) -> None:
        """Checks that growth and prediction can read the event of a stored plan.

        Raises:
            UnknownPrivacyEvent: the event is not one that :meth:`event` makes for these parameters.
        """


class TwoDatasetAlgorithm(Algorithm):
    """Learns from two datasets about different people; the account of each dataset pays for the part on its rows.

    The labelled dataset pays for ``event``. The facts that ``settle`` gets include the facts of the unlabelled dataset.
    """

    @abstractmethod
    def structure_event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """The event that the unlabelled dataset pays for, priced by the facts of that dataset."""

    @abstractmethod
    def check_structure(self, event: Event, parameters: Parameters) -> None:
        """Like :meth:`check`, for the event of the unlabelled dataset."""
