"""Defines the errors of accounts: what a budget, a rule or the unit of an account does not admit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from app.core.errors.root import GrovekeeperError

_SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu_squared": "μ²", "delta": "δ"}


@dataclass(eq=False)
class BudgetExceeded(GrovekeeperError):
    """The account cannot pay: in some cell ``charged + reserved + requested`` exceeds the cap.

    Amounts are exact decimal strings in the account's unit.

    Attributes:
        what_fits: computes :attr:`largest_that_fits`, an ε. The computation is slow, and the error is raised under
            locks, so it runs when the answer is written.
        population: name of the dataset's population if its cap refuses; the amounts are then its members' together.
        exact: ``False`` if the maximum over all joint cells took too much work; the amounts are then upper bounds.
    """

    dataset: str
    dataset_name: str
    accountant: str
    unit: str
    cap: str
    charged: str
    reserved: str
    remaining: str
    requested: str
    tightest_cell: Mapping[str, object]
    what_fits: Callable[[], str]
    population: str | None = None
    exact: bool = True

    @cached_property
    def largest_that_fits(self) -> str:
        """The largest ε with which the same request would be admitted; computed at the first access."""
        return self.what_fits()

    def __str__(self) -> str:
        where = f"dataset {self.dataset_name}"
        if self.population is not None:
            where = f"population {self.population} of {where}"
        if self.tightest_cell:
            cell = ", ".join(f"{name}={value}" for name, value in self.tightest_cell.items())
            where = f"cell {cell} of {where}"
        symbol = _SYMBOLS[self.unit]
        return f"{self.requested} {symbol} requested, {self.remaining} {symbol} left for {where}"


@dataclass(eq=False)
class QuotaExceeded(GrovekeeperError):
    """The request is above a limit of one job, or of what its key and other keys may spend together.

    The error states what would fit, and neither the rules nor the other keys.

    Attributes:
        what_fits: computes :attr:`largest_that_fits`, as in :class:`BudgetExceeded`.
    """

    dataset: str
    dataset_name: str
    accountant: str
    unit: str
    requested: str
    what_fits: Callable[[], str]

    @cached_property
    def largest_that_fits(self) -> str:
        """The largest ε with which the same request would be admitted at once; computed at the first access."""
        return self.what_fits()

    def __str__(self) -> str:
        return f"{self.requested} {_SYMBOLS[self.unit]} requested, the rules of dataset {self.dataset_name} admit less"


class NeedsApproval(QuotaExceeded):
    """The charge is above what needs an approval, and a charge at once cannot wait."""

    def __str__(self) -> str:
        symbol = _SYMBOLS[self.unit]
        return (
            f"{self.requested} {symbol} on dataset {self.dataset_name} needs an approval, and a charge for an external "
            "mechanism cannot wait; an owner can raise approval_above"
        )


@dataclass(eq=False)
class AccountantMismatch(GrovekeeperError):
    """The account's unit cannot express the charge; ``accepted_by`` lists the accountants that can."""

    accountant: str
    accepted_by: Sequence[str]

    def __str__(self) -> str:
        can = ", ".join(self.accepted_by) or "none"
        return f"a {self.accountant} account cannot pay for this; accounts that can: {can}"


@dataclass(eq=False)
class AdjacencyMismatch(GrovekeeperError):
    """The algorithm's adjacency is not the account's; ``accepted_by`` lists the adjacencies that accept it."""

    adjacency: str
    accepted_by: Sequence[str]

    def __str__(self) -> str:
        can = ", ".join(self.accepted_by)
        return f"an account with adjacency {self.adjacency} cannot pay for this; adjacencies that can: {can}"


@dataclass(eq=False)
class PopulationMismatch(GrovekeeperError):
    """The dataset cannot become a member of the population; ``differs`` lists the fields in which they differ."""

    differs: Sequence[str]

    def __str__(self) -> str:
        if "population" in self.differs:
            return "the dataset belongs to another population, and no dataset leaves a population"
        return f"the dataset and the population differ in: {', '.join(self.differs).replace('_', ' ')}"


@dataclass(eq=False)
class AccountDiffers(GrovekeeperError):
    """A declaration takes up the name of an erased dataset that has spent, and cannot continue its account.

    Attributes:
        dataset: id of the erased dataset.
        dataset_name: its name.
        differs: the facts in which the accounts differ; ``cap`` where the declared cap is above the erased account's.
    """

    dataset: str
    dataset_name: str
    differs: Sequence[str]

    def __str__(self) -> str:
        facts = ", ".join(self.differs).replace("_", " ")
        return (
            f"the erased dataset {self.dataset_name} ({self.dataset}) has spent budget, so a declaration of this name "
            f"continues its account, and must not differ from it in: {facts}. Declare what the erased dataset declared "
            "(the cap may be lower), or take another name if the rows are about other people; to keep the name for "
            "other people, an admin or a second owner declares the dataset with other_people"
        )


@dataclass(eq=False)
class ReservationSettled(GrovekeeperError):
    """The reservation was charged, void or expired already."""

    state: str = field(default="settled")

    def __str__(self) -> str:
        return f"the reservation is {self.state} already"
