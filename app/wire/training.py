"""``/algorithms``, ``/plans``, ``/train`` and ``/jobs``."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from app.wire.base import NO_CONTROLS, Answer, DecimalText, JsonObject, PositiveAmount, Request


class SpendIn(Request):
    """What every request that spends says: how much, and of which cells."""

    epsilon: PositiveAmount
    delta: PositiveAmount | None = None
    scope: Annotated[JsonObject, Field(default_factory=dict)]


class UnlabelledIn(SpendIn):
    """A dataset of other people with the same features, or other cells of the same one; its account pays for what is
    learned without labels."""

    dataset: str


class PlanIn(SpendIn):
    """A question about a price; it never touches rows."""

    dataset: str
    algorithm: str
    parameters: Annotated[JsonObject, Field(default_factory=dict)]
    profile: str | None = None
    unlabelled: UnlabelledIn | None = None


JobName: TypeAlias = Annotated[str, Field(min_length=1, max_length=128, pattern=NO_CONTROLS)]
"""What a client calls what its job makes."""


class TrainIn(PlanIn):
    """The same question, meant."""

    name: JobName | None = None


class PriceOut(Answer):
    """``amount`` in the account's unit; ``epsilon`` and ``delta`` are what was asked."""

    accountant: str
    unit: str
    amount: DecimalText
    epsilon: DecimalText
    delta: DecimalText | None


class ReusedProfileOut(Answer):
    """A profile that a plan names. Using it costs nothing: it was paid for when it was released.

    ``size`` is the number of rows that the rules reckon with; ``is_used`` is false where the plan has no use for bins.
    """

    id: str
    dataset: str
    dataset_name: str
    scope: JsonObject
    epochs: list[str]
    is_used: bool
    size: int | None


class AccountPlanOut(Answer):
    """What a job would do on one account."""

    dataset: str
    dataset_name: str
    scope: JsonObject
    price: PriceOut
    event: JsonObject
    receipt: str
    fits: bool
    largest_that_fits: DecimalText


class PlanOut(AccountPlanOut):
    """``fits`` is that of the dataset's own account; where there is a second one, ``unlabelled`` has its own. What both
    ask for is counted together where both are in one population: the job is admitted if both fit."""

    algorithm: str
    parameters: JsonObject
    profile: ReusedProfileOut | None
    warnings: list[str]
    unlabelled: AccountPlanOut | None


class UnlabelledOut(Answer):
    """What a job holds, or was charged, for the part that is learned without labels."""

    dataset: str
    dataset_name: str
    reservation_id: str
    price: PriceOut


class TrainOut(Answer):
    job_id: str
    reservation_id: str
    price: PriceOut
    unlabelled: UnlabelledOut | None


class JobOut(Answer):
    """A job as an analyst may see it: states and public numbers only."""

    id: str
    dataset: str
    dataset_name: str
    kind: Literal["train", "profile", "evaluation"]
    algorithm: str | None
    name: str | None
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    reason: Literal["cancelled", "expired", "lost", "failed"] | None
    progress: float
    trees_done: int
    n_trees: int
    model_id: str | None
    profile_id: str | None
    evaluation_id: str | None
    reservation_id: str
    price: PriceOut
    unlabelled: UnlabelledOut | None
    submitted_at: str


class JobList(Answer):
    jobs: list[JobOut]
    next: str | None


class MeasuredOut(Answer):
    dataset: str
    accountant: str
    epsilon: str
    percent: str


class AboutOut(Answer):
    claimed: str | None
    wrong: str | None
    here: str
    proof: str
    results: str
    accuracy: list[MeasuredOut]


class AlgorithmOut(Answer):
    slug: str
    title: str
    source: str
    about: AboutOut
    accountants: list[str]
    adjacency: str
    unlabelled: bool
    read_outs: list[str]
    parameters: list[JsonObject]


class AlgorithmList(Answer):
    algorithms: list[AlgorithmOut]
