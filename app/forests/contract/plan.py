"""Defines the plan of a training job, settled and priced by ``app.forests.planning`` before any row is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from app.forests.bins.reused_profile import ReusedProfile
from app.forests.contract.parameters import Value
from app.privacy.accountants import pure
from app.privacy.events import Adjacency, Event


@dataclass(frozen=True)
class UnlabelledPlan:
    """The part of a plan that the account of an unlabelled dataset pays for; attributes as in :class:`Plan`."""

    event: Event
    epsilon: Fraction
    accountant: str
    delta: Fraction | None
    adjacency: Adjacency
    max_rows: int

    def to_json(self) -> dict[str, object]:
        """Exact, every field."""
        return {
            "event": self.event.to_json(),
            "epsilon": str(self.epsilon),
            "accountant": self.accountant,
            "delta": None if self.delta is None else str(self.delta),
            "adjacency": self.adjacency.value,
            "max_rows": self.max_rows,
        }


@dataclass(frozen=True)
class Plan:
    """The public plan of a job. Growth and prediction take every number from the plan.

    Attributes:
        algorithm: slug; where the request says ``auto``, the chosen algorithm.
        parameters: every parameter with its value; integers, choices, and exact numbers as decimal text.
        epsilon: the requested price, for a whole privacy unit. On a ``pure`` account,
            ``max_rows`` times the event's loss is at most ``epsilon``.
        n_trees: trees to grow; the unit of progress.
        event: the releases and their noise; scales are multiples of 2^-32, rounded down.
        warnings: sentences for the analyst.
        accountant: the accountant that prices the event.
        delta: of the request; the event costs at most the price of (ε, δ) in the accountant's unit.
        adjacency: of the account.
        max_rows: largest number of rows of one privacy unit; the event is stated for one row.
        profile: an earlier release that replaces draws of this plan; ``None``: nothing is reused.
        unlabelled: for algorithms that learn from two datasets, the part that the unlabelled dataset pays for.
    """

    algorithm: str
    parameters: Mapping[str, Value]
    epsilon: Fraction
    n_trees: int
    event: Event
    warnings: tuple[str, ...]
    accountant: str = pure.NAME
    delta: Fraction | None = None
    adjacency: Adjacency = Adjacency.ADD_REMOVE_ONE
    max_rows: int = 1
    profile: ReusedProfile | None = None
    unlabelled: UnlabelledPlan | None = None

    def to_json(self) -> dict[str, object]:
        """Exact: budgets as fraction text in lowest terms. The accountant and δ are present only with a δ, the
        adjacency if it is not add/remove, ``max_rows`` if it is above 1, the profile if one is reused."""
        account: dict[str, object] = {"epsilon": str(self.epsilon)}
        if self.delta is not None:
            account |= {"accountant": self.accountant, "delta": str(self.delta)}
        if self.adjacency is not Adjacency.ADD_REMOVE_ONE:
            account |= {"adjacency": self.adjacency.value}
        if self.max_rows != 1:
            account |= {"max_rows": self.max_rows}
        if self.profile is not None:
            account |= {"profile": self.profile.to_json()}
        if self.unlabelled is not None:
            account |= {"unlabelled": self.unlabelled.to_json()}
        return {
            "algorithm": self.algorithm,
            "parameters": dict(self.parameters),
            "n_trees": self.n_trees,
            "event": self.event.to_json(),
            "warnings": list(self.warnings),
            **account,
        }
