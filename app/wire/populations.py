"""Defines the types of ``/populations``, and of a dataset that joins one."""

from app.wire.base import Answer, DecimalText, JsonObject, OfDataset, Request
from app.wire.datasets import BudgetIn, NewName, PublicName


class PopulationIn(Request):
    """A population to open."""

    name: NewName
    budget: BudgetIn


class JoinIn(Request):
    """The population that a dataset joins, by id or name; an unknown name opens a
    population.
    """

    population: PublicName


class MemberOut(OfDataset):
    """A member at its tightest joint cell. A member with ``deleted_at`` is erased; its
    spend still counts.
    """

    charged: DecimalText
    reserved: DecimalText
    deleted_at: str | None


class PopulationOut(Answer):
    """A population: ``charged`` and ``reserved`` are sums over its members.

    ``cap = charged + reserved + remaining``, unless a member joined that had spent, or
    the cap was lowered below what is spent: then nothing remains until the sum is below
    the cap again. ``adjacency`` and ``unit_column`` are those of the first member.
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
    warnings: list[str]
    members: list[MemberOut]
    created_at: str


class PopulationList(Answer):
    populations: list[PopulationOut]
    next: str | None
