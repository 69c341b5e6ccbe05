"""Defines the types of requests that spend budget, and of what they release: training, profiles, evaluations.

Profiles are private bins, class counts and a number of rows, which later jobs reuse. Evaluations are the private
accuracy of models, and the choice of the best model.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from app.core import limits
from app.wire.base import (
    NO_CONTROLS,
    Answer,
    DecimalText,
    JsonObject,
    JsonObjectIn,
    OfDataset,
    PositiveAmount,
    PublicSentence,
    Reference,
    Request,
    no_secret,
)
from app.wire.limit_words import LimitedBy


class SpendIn(Request):
    """Fields of every request that spends: the amount and the scope.

    The dataset's account gives the accountant, and its δ where the request has none.
    """

    epsilon: PositiveAmount
    delta: PositiveAmount | None = None
    scope: Annotated[JsonObjectIn, Field(default_factory=dict)]


class UnlabelledIn(SpendIn):
    """The second part of a job: a dataset with the same features, or other cells of the same dataset, whose labels the
    job does not read. Its account pays for this part."""

    dataset: Reference


class PlanIn(SpendIn):
    """A request for a quote. Without a δ, an account that has one uses its δ."""

    dataset: Reference
    algorithm: Reference = "auto"
    parameters: Annotated[JsonObjectIn, Field(default_factory=dict)]
    profile: Reference | None = None
    unlabelled: UnlabelledIn | None = None


JobName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=limits.MAX_JOB_NAME_CHARS, pattern=NO_CONTROLS), AfterValidator(no_secret)
]
"""The client's name for the output of a job."""


class TrainIn(PlanIn):
    """A training request. The ledger keeps ``purpose`` for good, in the entries of the job."""

    name: JobName | None = None
    purpose: PublicSentence | None = None


class PriceOut(Answer):
    """A price: ``amount`` in the account's unit; ``epsilon`` and ``delta`` as requested."""

    accountant: str
    unit: str
    amount: DecimalText
    epsilon: DecimalText
    delta: DecimalText | None


class ReusedProfileOut(Answer):
    """A profile that a plan reuses at no privacy cost.

    ``size`` is the number of rows that the rules use; ``is_used`` is false where the plan needs no bins.
    """

    id: str
    dataset: str
    dataset_name: str
    scope: JsonObject
    epochs: list[str]
    is_used: bool
    size: int | None


class AccountPlanOut(OfDataset):
    """A job's scope, price and event on one account, and whether it fits.

    ``remaining`` is what the cap leaves in the job's scope, in the account's unit. ``largest_that_fits`` is an ε: the
    minimum over cap, population and rules, of which ``limited_by`` names the smallest; ``left_afterwards`` is the ε
    that would fit after this job. ``population`` is the name of the dataset's population if the population's cap leaves
    less than the dataset's cap. With ``needs_approval`` an accepted job waits for the approval of an owner. ``odds``
    are those of a right guess about one change, given everything that was released before.
    """

    scope: JsonObject
    price: PriceOut
    odds: dict[str, DecimalText]
    event: JsonObject
    receipt: str
    cap: DecimalText
    remaining: DecimalText
    fits: bool
    largest_that_fits: DecimalText
    left_afterwards: DecimalText
    limited_by: LimitedBy
    needs_approval: bool
    population: str | None


class RecoveredOut(Answer):
    """The share that the algorithm recovered on one public table of ``docs/results``."""

    table: str
    share: float


class RecoveredBandOut(Answer):
    """Median and quartiles of the recovered shares on similar public tables at one ε."""

    epsilon: DecimalText
    low: float
    middle: float
    high: float


class ExpectedAurocOut(Answer):
    """Median and quartiles of the AUROC on similar public tables of two classes, of which there are ``tables``.

    ``without_privacy`` is the median of a forest without privacy there.
    """

    low: float
    middle: float
    high: float
    without_privacy: float
    tables: int


class ExpectedAccuracyOut(Answer):
    """What the algorithm reached, with the parameters of its public rules, on similar public tables.

    Tables are similar in rows × ε, number of classes and share of numeric columns.

    A recovered share is (accuracy - majority) / (forest - majority), where ``majority`` is the accuracy of the largest
    class and ``forest`` that of a forest without privacy. It follows from the committed benchmarks, from no row of the
    dataset. ``band`` and ``tables`` are at the ε of the request; ``curve`` has the bands at other ε. With a δ, ε are
    compared at equal price. ``without_gain`` names the similar tables on which a forest without privacy was hardly
    better than the largest class, so that there was nothing to recover. ``sentence`` says the whole for a first
    reading, and ``spread`` the numbers of ``band`` as people read them. Without a ``band``, ``note`` names what was not
    measured, and the nearest measurement.
    """

    sentence: str | None
    spread: str | None
    band: RecoveredBandOut | None
    tables: list[RecoveredOut]
    without_gain: list[str]
    auroc: ExpectedAurocOut | None
    curve: list[RecoveredBandOut]
    note: str | None


class PlanOut(AccountPlanOut):
    """A quote for a training job. ``fits`` is for the dataset's account; ``unlabelled`` has one for the second part.

    ``why`` gives the reason of the algorithm if ``auto`` chose it.

    Where both datasets are in one population, the two parts are added up there. The job is admitted if both parts fit.
    """

    algorithm: str
    why: str | None
    parameters: JsonObject
    profile: ReusedProfileOut | None
    warnings: list[str]
    expected_accuracy: ExpectedAccuracyOut
    unlabelled: AccountPlanOut | None


class UnlabelledOut(OfDataset):
    """Reservation and price of a job's second part."""

    reservation_id: str
    price: PriceOut


JobState: TypeAlias = Literal["waiting", "queued", "running", "succeeded", "failed", "cancelled"]
"""The state of a job; ``waiting``: for the approval of an owner."""

EndReason: TypeAlias = Literal[
    "cancelled",
    "dataset-erased",
    "rejected",
    "expired",
    "not-started",
    "not-approved",
    "lost",
    "revoked",
    "key-expired",
    "model-deleted",
    "failed",
    "damaged",
]
"""Why a job ended without an output; ``expired``, which jobs of earlier versions have, is one of the next two."""


class TrainOut(Answer):
    """An accepted job."""

    job_id: str
    state: Literal["waiting", "queued"]
    reservation_id: str
    price: PriceOut
    unlabelled: UnlabelledOut | None


JobKind: TypeAlias = Literal["train", "profile", "evaluation"]


class JobOut(Answer):
    """A job as shown to analysts and auditors: states and public numbers only.

    ``charged``: the price is spent, for good. ``submitted_by``: the key that submitted the job; ``purpose``: the reason
    that it stated.

    ``held_by`` says why a queued job is not started: a dataset that it reads is ``frozen``, or the date has come at
    which the rows of the dataset are erased (``erasure-due``), which cancels the job.

    ``preparing``: the job runs on a machine that still loads and compiles the program, and has read no row.

    ``kind`` and ``reason`` of a job that a newer version accepted or ended may be others than those listed.
    """

    id: str
    dataset: str
    dataset_name: str
    kind: JobKind | str
    algorithm: str | None
    name: str | None
    purpose: str | None
    submitted_by: str
    state: JobState
    reason: EndReason | str | None
    held_by: Literal["frozen", "erasure-due"] | None
    charged: bool
    preparing: bool
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
    proof: str | None
    results: str
    accuracy: list[MeasuredOut]


class AlgorithmOut(Answer):
    """An algorithm, with its claims, its parameters and the accountants that can price it."""

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


class ProfileIn(SpendIn):
    """A request to release a profile, or to quote it."""

    parameters: Annotated[JsonObjectIn, Field(default_factory=dict)]
    name: JobName | None = None
    purpose: PublicSentence | None = None


class ProfileQuoteOut(AccountPlanOut):
    """The releases and the price of a profile."""

    parameters: JsonObject
    private_features: list[str]
    warnings: list[str]


class FeatureBinsOut(Answer):
    """Released edges of one numeric column; a value on an edge belongs to the bin below the edge."""

    name: str
    edges: list[float]


class NoisyCountOut(Answer):
    """A released count of rows, which may be negative, and the standard deviation of its noise."""

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
    parameters: JsonObject
    features: list[FeatureBinsOut]
    class_counts: list[ClassCountOut]
    size: NoisyCountOut
    guarantee: JsonObject
    receipt: str
    event: JsonObject
    ledger: JsonObject | None


class ProfileList(Answer):
    profiles: list[ProfileSummary]
    next: str | None


class EvaluationIn(SpendIn):
    """A request to evaluate one model, or to quote the evaluation."""

    dataset: Reference | None = None
    metrics: Annotated[
        list[Literal["accuracy", "confusion", "auroc"]],
        Field(min_length=1, max_length=3, fail_fast=True, default=["accuracy"]),
    ]
    score_bins: Annotated[int, Field(ge=2, le=limits.MAX_SCORE_BINS)] = 32
    name: JobName | None = None
    purpose: PublicSentence | None = None


class SelectionIn(SpendIn):
    """A request to choose the best of several models for one charge, or to quote the choice."""

    models: Annotated[list[Reference], Field(min_length=2, max_length=limits.MAX_COMPARED_MODELS, fail_fast=True)]
    dataset: Reference | None = None
    winner_accuracy: bool = False
    name: JobName | None = None
    purpose: PublicSentence | None = None


class EvaluationQuoteOut(AccountPlanOut):
    """The releases and the price of an evaluation."""

    models: list[str]
    releases: list[str]
    warnings: list[str]


class IntervalOut(Answer):
    low: float
    high: float


class AccuracyOut(Answer):
    """A noisy accuracy. ``interval`` covers the accuracy on the evaluated rows with probability 0.95.

    ``population_interval`` covers that on other rows of the same kind with probability 0.90: noise and sampling error
    are covered with probability 0.95 each.
    """

    estimate: float | None
    interval: IntervalOut
    population_interval: IntervalOut


class ConfusionOut(Answer):
    """Noisy numbers of rows by true class (outer) and answered class (inner); they may be negative."""

    classes: list[str]
    counts: list[list[float]]
    noise_sd: float


class AurocOut(Answer):
    """An AUROC from a noisy histogram of scores by class; ``histogram`` has the first class, then the second."""

    estimate: float | None
    noise_sd: float | None
    histogram: list[list[float]]
    histogram_noise_sd: float


class MajorityOut(Answer):
    """The accuracy of always answering the largest class, from noisy counts: ``source`` is ``confusion`` or the id of
    the profile that released the counts."""

    label: str
    share: float
    source: str


class EvaluationOut(Answer):
    """A released evaluation. Everything in it is public; exact scores of private rows never leave the service.

    ``majority`` is null where no released number tells it: neither this evaluation's confusion matrix nor a profile of
    the same rows.
    """

    id: str
    name: str | None
    models: list[str]
    best: str | None
    dataset: str
    dataset_name: str
    job_id: str
    scope: JsonObject
    epochs: list[str]
    releases: list[str]
    accuracy: AccuracyOut | None
    majority: MajorityOut | None
    confusion: ConfusionOut | None
    auroc: AurocOut | None
    guarantee: JsonObject
    receipt: str
    event: JsonObject
    ledger: JsonObject
    price: PriceOut
    warnings: list[str]
    created_at: str


class EvaluationList(Answer):
    evaluations: list[EvaluationOut]
    next: str | None
