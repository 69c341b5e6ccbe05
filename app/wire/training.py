"""Defines the types of ``/plans`` and ``/train``: requests, and what a forest may be
expected to reach.
"""

from typing import Annotated

from pydantic import Field

from app.wire.base import Answer, DecimalText, JsonObjectIn, Reference
from app.wire.datasets import ColumnName
from app.wire.jobs import NamedJobIn
from app.wire.spending import AccountPlanOut, SpendIn
from grovekeeper_common.json_types import JsonObject


class UnlabelledIn(SpendIn):
    """The second part of a job: a dataset with the same features, or other cells of the
    same dataset, whose labels the job does not read. Its account pays for this part.
    """

    dataset: Reference


class PlanIn(SpendIn):
    """A request for a quote. Without a δ, an account that has one uses its δ."""

    dataset: Reference
    label: ColumnName | None = None
    algorithm: Reference = "auto"
    parameters: Annotated[JsonObjectIn, Field(default_factory=dict)]
    profile: Reference | None = None
    unlabelled: UnlabelledIn | None = None


class TrainIn(PlanIn, NamedJobIn):
    """A training request. The ledger keeps ``purpose`` for good, in the entries of the
    job.
    """


class ReusedProfileOut(Answer):
    """A profile that a plan reuses at no privacy cost.

    ``size`` is the number of rows that the rules use; ``is_used`` is false where the
    plan needs no bins.
    """

    id: str
    dataset: str
    dataset_name: str
    scope: JsonObject
    epochs: list[str]
    is_used: bool
    size: int | None


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
    """Median and quartiles of the AUROC on similar public tables of two classes, of
    which there are ``tables``.

    ``without_privacy`` is the median of a forest without privacy there.
    """

    low: float
    middle: float
    high: float
    without_privacy: float
    tables: int


class ExpectedAccuracyOut(Answer):
    """What the algorithm reached, with the parameters of its public rules, on similar
    public tables.

    Tables are similar in rows × ε, number of classes and share of numeric columns.

    A recovered share is (accuracy - majority) / (forest - majority), where ``majority``
    is the accuracy of the largest class and ``forest`` that of a forest without
    privacy. It follows from the committed benchmarks, from no row of the dataset.
    ``band`` and ``tables`` are at the ε of the request; ``curve`` has the bands at
    other ε. With a δ, ε are compared at equal price. ``without_gain`` names the similar
    tables on which a forest without privacy was hardly better than the largest class,
    so that there was nothing to recover. ``sentence`` says the whole for a first
    reading, and ``spread`` the numbers of ``band`` as people read them. Without a
    ``band``, ``note`` names what was not measured, and the nearest measurement.
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
    """A quote for a training job. ``fits`` is for the dataset's account; ``unlabelled``
    has one for the second part.

    ``why`` gives the reason of the algorithm if ``auto`` chose it.

    Where both datasets are in one population, the two parts are added up there. The job
    is admitted if both parts fit.
    """

    algorithm: str
    why: str | None
    parameters: JsonObject
    profile: ReusedProfileOut | None
    warnings: list[str]
    expected_accuracy: ExpectedAccuracyOut
    unlabelled: AccountPlanOut | None
