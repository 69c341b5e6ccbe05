"""``/profiles``: private bins, class counts and a size, released once and reused by later jobs."""

from typing import Annotated

from pydantic import Field

from app.wire.base import Answer, DecimalText, JsonObject
from app.wire.training import JobName, PriceOut, SpendIn


class ProfileIn(SpendIn):
    """A request for a profile; as a question about its price it never touches rows."""

    parameters: Annotated[JsonObject, Field(default_factory=dict)]
    name: JobName | None = None


class ProfileQuoteOut(Answer):
    """What a profile would release and cost."""

    dataset: str
    dataset_name: str
    parameters: JsonObject
    scope: JsonObject
    private_features: list[str]
    price: PriceOut
    event: JsonObject
    receipt: str
    fits: bool
    largest_that_fits: DecimalText
    warnings: list[str]


class FeatureBinsOut(Answer):
    """Released edges of one number; a value on an edge belongs to the bin below it."""

    name: str
    edges: list[float]


class NoisyCountOut(Answer):
    """A released count of rows, which may be negative, and the standard deviation of its noise."""

    count: float
    noise_sd: float


class ClassCountOut(NoisyCountOut):
    """The same for the rows of one class."""

    label: str


class ProfileSummary(Answer):
    id: str
    name: str | None
    dataset: str
    dataset_name: str
    scope: JsonObject
    epochs: list[str]
    price: PriceOut
    created_at: str


class ProfileOut(ProfileSummary):
    """A released profile. Everything in it is public."""

    job_id: str
    parameters: JsonObject
    features: list[FeatureBinsOut]
    class_counts: list[ClassCountOut]
    size: NoisyCountOut
    guarantee: JsonObject
    receipt: str
    event: JsonObject
    ledger: JsonObject


class ProfileList(Answer):
    profiles: list[ProfileSummary]
    next: str | None
