"""``/populations``: budgets over all datasets about the same people."""

from app.wire.base import Answer, DecimalText, JsonObject, Request
from app.wire.datasets import BudgetIn, PublicName


class PopulationIn(Request):
    """A population that no dataset belongs to yet."""

    name: PublicName
    budget: BudgetIn


class JoinIn(Request):
    """The population that a dataset is to belong to, by id or name; one of a new name is opened."""

    population: PublicName


class MemberOut(Answer):
    """A dataset of a population, at its tightest joint cell; ``deleted_at`` tells a tombstone, which still counts."""

    dataset: str
    dataset_name: str
    charged: DecimalText
    reserved: DecimalText
    deleted_at: str | None


class PopulationOut(Answer):
    """A population: ``charged`` and ``reserved`` are sums over its members.

    ``cap = charged + reserved + remaining``, unless a member joined that had spent, or the cap was lowered below what
    is spent: then nothing remains until the sum is below the cap again. ``adjacency`` and ``unit_column`` are those of
    the first member.
    """

    id: str
    name: str
    accountant: str
    unit: str
    delta: DecimalText | None
    cap: DecimalText
    charged: DecimalText
    reserved: DecimalText
    remaining: DecimalText
    adjacency: str | None
    unit_column: str | None
    guarantee: JsonObject
    members: list[MemberOut]
    created_at: str


class PopulationList(Answer):
    populations: list[PopulationOut]
    next: str | None
