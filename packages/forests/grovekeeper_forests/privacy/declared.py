"""Defines declared losses of external mechanisms, whose draws the service does not
know.

A declared loss is one of four statements about one neighbouring relation: ε-DP, ρ-zCDP,
μ-GDP, or (ε, δ)-DP. JSON form, amounts as exact decimal text::

    {"adjacency": "add_remove", "epsilon": "0.5"}
    {"adjacency": "add_remove", "rho": "0.01"}
    {"adjacency": "add_remove", "mu": "0.1"}
    {"adjacency": "add_remove", "epsilon": "0.5", "delta": "0.0000001"}
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from grovekeeper_forests import amounts
from grovekeeper_forests.json_types import JsonObject
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants import gdp, pure, zcdp
from grovekeeper_forests.privacy.accountants.accountant import (
    EPSILON_PLACES,
    largest_holding,
    steps_up,
)
from grovekeeper_forests.privacy.events import (
    Adjacency,
    NoBoundInUnit,
    UnknownPrivacyEvent,
)


@dataclass(frozen=True)
class DeclaredLoss:
    """The stated guarantee of a mechanism under ``adjacency``: exactly one of ε, ρ and
    μ; δ only with ε.
    """

    adjacency: Adjacency
    epsilon: Fraction | None = None
    rho: Fraction | None = None
    mu: Fraction | None = None
    delta: Fraction | None = None

    def __post_init__(self) -> None:
        losses = [
            value for value in (self.epsilon, self.rho, self.mu) if value is not None
        ]
        if len(losses) != 1 or losses[0] <= 0:
            raise ValueError("one of epsilon, rho and mu, above zero")
        if self.delta is not None and (self.epsilon is None or not 0 < self.delta < 1):
            raise ValueError("delta needs an epsilon and is between 0 and 1")

    def to_json(self) -> JsonObject:
        fields = {
            name: getattr(self, name) for name in ("epsilon", "rho", "mu", "delta")
        }
        texts = {
            name: amounts.to_text(value)
            for name, value in fields.items()
            if value is not None
        }
        return {"adjacency": self.adjacency.value, **texts}


def from_json(value: Mapping[str, str]) -> DeclaredLoss:
    """Inverse of :meth:`DeclaredLoss.to_json`."""
    fields = {
        name: Fraction(text) for name, text in value.items() if name != "adjacency"
    }
    return DeclaredLoss(Adjacency(value["adjacency"]), **fields)


def loss(declared: DeclaredLoss, *, accountant: str, adjacency: Adjacency) -> Fraction:
    """The loss of one call in the unit of an account, exact or rounded up
    (docs/proofs/external.md).

    For (ε, δ) the result is the ρ; the δ is charged separately and is not part of the
    amount.

    Args:
        declared: the declared loss of the mechanism.

    Raises:
        NoBoundInUnit: no bound in this unit; another accountant may have one.
        UnknownPrivacyEvent: no bound under this adjacency.
    """
    single = _loss(declared, accountant)
    if declared.adjacency is adjacency:
        return single
    if (declared.adjacency, adjacency) == (
        Adjacency.ADD_REMOVE_ONE,
        Adjacency.LABEL,
    ) and declared.delta is None:
        return accountants.by_name(accountant).replace_one(1) * single
    raise UnknownPrivacyEvent("the loss is declared under another adjacency")


def largest_epsilon(
    declared: DeclaredLoss,
    room: int,
    *,
    accountant: str,
    adjacency: Adjacency,
    rows: int,
) -> Fraction:
    """The largest ε, a multiple of 10⁻⁹, with which the declared loss would cost at
    most ``room``.

    Args:
        declared: a statement that names an ε and has a bound in this unit under this
            adjacency.
        room: whole steps of the account's unit.
        adjacency: of the account.
        rows: number of rows of a unit whose losses are paid together.
    """
    unit = accountants.by_name(accountant)

    def fits(steps: int) -> bool:
        stated = replace(declared, epsilon=Fraction(steps, 10**EPSILON_PLACES))
        single = loss(stated, accountant=accountant, adjacency=adjacency)
        return steps_up(unit.group(rows) * single, unit.PLACES) <= room

    return Fraction(
        largest_holding(lambda steps: steps == 0 or fits(steps)), 10**EPSILON_PLACES
    )


def accepting(declared: DeclaredLoss, *, adjacency: Adjacency) -> tuple[str, ...]:
    """Names of the accountants in whose unit a declared loss has a bound on an account
    of ``adjacency``.
    """
    return tuple(
        name for name in accountants.NAMES if _has_bound(declared, name, adjacency)
    )


def _has_bound(declared: DeclaredLoss, accountant: str, adjacency: Adjacency) -> bool:
    try:
        loss(declared, accountant=accountant, adjacency=adjacency)
    except UnknownPrivacyEvent:
        return False
    return True


def _loss(declared: DeclaredLoss, accountant: str) -> Fraction:
    match declared, accountant:
        case DeclaredLoss(epsilon=Fraction() as epsilon, delta=None), pure.NAME:
            return epsilon
        case DeclaredLoss(epsilon=Fraction() as epsilon), zcdp.NAME:
            return zcdp.of_pure(epsilon)
        case DeclaredLoss(epsilon=Fraction() as epsilon, delta=None), gdp.NAME:
            return gdp.of_pure(epsilon)
        case DeclaredLoss(rho=Fraction() as rho), zcdp.NAME:
            return rho
        case DeclaredLoss(mu=Fraction() as mu), zcdp.NAME:
            return mu**2 / 2
        case DeclaredLoss(mu=Fraction() as mu), gdp.NAME:
            return mu**2
    raise NoBoundInUnit(accountant)


_CHANGES = {
    Adjacency.ADD_REMOVE_ONE: "one {one} is added or removed",
    Adjacency.REPLACE_ONE: "one {one} is replaced by another",
    Adjacency.LABEL: "the label of one {one} changes",
}


def in_words(declared: DeclaredLoss, *, one: str) -> str:
    """A declared loss as a sentence.

    Args:
        declared: of the mechanism.
        one: ``row`` or ``unit``, for which the loss is stated.
    """
    said = {
        "ε": declared.epsilon,
        "δ": declared.delta,
        "ρ": declared.rho,
        "μ": declared.mu,
    }
    numbers = " and ".join(
        f"{name} = {amounts.to_text(value)}"
        for name, value in said.items()
        if value is not None
    )
    return f"Declared: at most {numbers} where {_CHANGES[declared.adjacency].format(one=one)}."
