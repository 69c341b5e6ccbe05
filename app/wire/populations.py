"""Defines the types of ``/populations``, and of a dataset that joins one."""

from typing import Annotated

from pydantic import Field

from app.core import limits
from app.wire.base import Answer, DecimalText, OfDataset, Request
from app.wire.datasets import BudgetIn, NewName, PublicName
from app.wire.uploads import ErasureIn, ErasureOut
from grovekeeper_common.json_types import JsonObject


class PopulationIn(Request):
    """A population to open."""

    name: NewName
    budget: BudgetIn


class JoinIn(Request):
    """The population that a dataset joins, by id or name; an unknown name opens a
    population.
    """

    population: PublicName


class PersonErasureIn(ErasureIn):
    """The unit to erase from members of a population, as in :class:`ErasureIn`.

    ``datasets`` are members by id or name; without it all members of the caller.
    """

    datasets: (
        Annotated[
            list[PublicName],
            Field(min_length=1, max_length=limits.MAX_ERASED_MEMBERS, fail_fast=True),
        ]
        | None
    ) = None


class PersonErasureOut(Answer):
    """The receipt of an erasure: an act for each chosen member, whether or not the
    person was there.
    """

    population: str
    population_name: str
    reference: str | None
    members: list[ErasureOut]


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
