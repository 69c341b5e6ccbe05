"""An algorithm's public side: its description, its parameters, its price, and the check of a stored price."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TypeAlias

from app.forests.contract.about import About
from app.forests.contract.facts import PublicFacts
from app.forests.contract.parameters import Parameter, Value
from app.privacy import accountants
from app.privacy.adjacency import Adjacency
from app.privacy.events import Event

Parameters: TypeAlias = Mapping[str, Value]
"""Every parameter with its settled value."""


class Described:
    """What ``GET /algorithms`` says of an algorithm.

    Attributes:
        slug: what requests and artifacts call the algorithm; its meaning never changes.
        title: a name for people.
        source: the paper that describes the algorithm, or that the algorithm repairs.
        about: what is claimed, what was wrong with that, what runs here, and how accurate it is.
        read_outs: offered by its models, the default first.
        parameters: all that a request may set.
        accountants: names of the accounts that can pay. With ``pure`` among them, events are written in ε.
        adjacency: under which the guarantee and the event are stated. An algorithm stated under ``label`` runs on
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

    Everything here is a function of public facts. Growth (``app.forests.grow``) takes every noise scale out of the
    event that was priced here; reading (``app.forests.contract.family``) is post-processing of what growth released.

    Attributes:
        reuses_profiles: whether a plan may use the bins (and ``nbrt`` the class counts) of a released profile.
    """

    reuses_profiles: bool = True

    @abstractmethod
    def settle(self, asked: dict[str, Value], facts: PublicFacts) -> tuple[dict[str, Value], tuple[str, ...]]:
        """Every parameter with its value, chosen by public rules where it was not asked for; and warnings."""

    @abstractmethod
    def event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """What growing will do, as an event within ``facts.epsilon``, or within ``facts.budget`` where δ is needed."""

    @abstractmethod
    def check(self, event: Event, parameters: Parameters) -> None:
        """Checks that growth and prediction can read an event that came with a stored plan.

        Raises:
            UnknownPrivacyEvent: not an event that :meth:`event` makes for these parameters.
        """


class TwoDatasetAlgorithm(Algorithm):
    """Learns from two datasets about different people, each with an account that pays for its own part.

    ``event`` is what the labelled dataset pays for; the facts that ``settle`` sees hold those of the other dataset.
    """

    @abstractmethod
    def structure_event(self, parameters: Parameters, facts: PublicFacts) -> Event:
        """What the unlabelled dataset pays for, within its own facts."""

    @abstractmethod
    def check_structure(self, event: Event, parameters: Parameters) -> None:
        """The same as ``check``, for the event of the unlabelled dataset."""
