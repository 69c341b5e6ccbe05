"""Defines the types of profiles: private bins, class counts (or mean and quantiles of a
label that is a number) and a number of rows, which later jobs reuse.
"""

from typing import Annotated

from pydantic import Field

from app.wire.base import Answer, JsonObjectIn, LabelOfJob
from app.wire.datasets import ColumnName
from app.wire.jobs import NamedJobIn
from app.wire.spending import AccountPlanOut, PriceOut, SpendIn
from app.wire.statistics import StatisticsTableOut, TableQuoteOut
from grovekeeper_common.json_types import JsonObject


class ProfileIn(SpendIn, NamedJobIn):
    """A request to release a profile, or to quote it."""

    parameters: Annotated[JsonObjectIn, Field(default_factory=dict)]
    label: ColumnName | None = None


class ProfileQuoteOut(AccountPlanOut):
    """The releases and the price of a profile."""

    parameters: JsonObject
    private_features: list[str]
    tables: list[TableQuoteOut]
    warnings: list[str]


class FeatureBinsOut(Answer):
    """Released edges of one numeric column; a value on an edge belongs to the bin below
    the edge.
    """

    name: str
    edges: list[float | str]


class NoisyCountOut(Answer):
    """A released count of rows, which may be negative, and the standard deviation of
    its noise.
    """

    count: float
    noise_sd: float


class ClassCountOut(NoisyCountOut):
    """A noisy count of the rows of one class."""

    label: str


class ProfileSummary(Answer):
    id: str
    name: str | None
    dataset: str
    dataset_name: str
    scope: JsonObject
    epochs: list[str]
    price: PriceOut | None
    created_at: str


class ProfileOut(ProfileSummary):
    """A released profile. All of it is public."""

    job_id: str
    label: LabelOfJob
    parameters: JsonObject
    features: list[FeatureBinsOut]
    class_counts: list[ClassCountOut]
    tables: list[StatisticsTableOut]
    size: NoisyCountOut
    guarantee: JsonObject
    receipt: str
    event: JsonObject
    ledger: JsonObject | None


class ProfileList(Answer):
    profiles: list[ProfileSummary]
    next: str | None
