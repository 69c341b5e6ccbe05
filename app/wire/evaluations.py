"""Defines the types of evaluations: the private accuracy of models, and the choice of
the best model.
"""

from typing import Annotated, Literal

from pydantic import Field

from app.core import limits
from app.wire.base import (
    Answer,
    FiniteNumber,
    LabelOfJob,
    OfDataset,
    Reference,
)
from app.wire.datasets import ColumnName
from app.wire.jobs import NamedJobIn
from app.wire.spending import AccountPlanOut, PriceOut, SpendIn
from grovekeeper_common.json_types import JsonObject


class _RowsToReadIn(SpendIn, NamedJobIn):
    """Fields of every request that compares the answers of models with rows."""

    dataset: Reference | None = None
    label: ColumnName | None = None
    largest_error: FiniteNumber | None = None


class EvaluationIn(_RowsToReadIn):
    """A request to evaluate one model, or to quote the evaluation."""

    metrics: (
        Annotated[
            list[Literal["accuracy", "confusion", "auroc", "mae", "rmse", "r2"]],
            Field(min_length=1, max_length=3, fail_fast=True),
        ]
        | None
    ) = None
    score_bins: Annotated[int, Field(ge=2, le=limits.MAX_SCORE_BINS)] = 32


class SelectionIn(_RowsToReadIn):
    """A request to choose the best of several models for one charge, or to quote the
    choice.
    """

    models: Annotated[
        list[Reference],
        Field(min_length=2, max_length=limits.MAX_COMPARED_MODELS, fail_fast=True),
    ]
    winner_accuracy: bool = False


class EvaluationQuoteOut(AccountPlanOut):
    """The releases and the price of an evaluation.

    ``mae_half_width`` is the most by which noise moves a released mean absolute error,
    with probability 0.95: if every error is the largest. Null where none is released or
    the dataset declares no size.
    """

    models: list[str]
    releases: list[str]
    mae_half_width: float | None
    warnings: list[str]


class IntervalOut(Answer):
    low: float
    high: float


class AccuracyOut(Answer):
    """A noisy accuracy. ``interval`` covers the accuracy on the evaluated rows with
    probability 0.95.

    ``population_interval`` covers that on other rows of the same kind with probability
    0.90: noise and sampling error are covered with probability 0.95 each.
    It does not where ``on_training_rows``: then rows were evaluated that the model, or
    another model of a choice, was trained on.
    """

    estimate: float | None
    on_training_rows: bool
    interval: IntervalOut
    population_interval: IntervalOut


class ReleasedAccuracyOut(AccuracyOut, OfDataset):
    """The accuracy of one model, and the evaluation that released it: ``dataset`` is
    the one that was evaluated on.
    """

    evaluation: str


class ErrorOut(Answer):
    """A noisy error of predicted numbers, in the unit of the label. ``interval`` covers
    the error on the evaluated rows, clamped at ``largest_error``, with probability
    0.95.
    """

    estimate: float | None
    on_training_rows: bool
    interval: IntervalOut


class ReleasedErrorOut(ErrorOut, OfDataset):
    """The mean absolute error of one model, and the evaluation that released it:
    ``dataset`` is the one that was evaluated on.
    """

    evaluation: str


class OpenIntervalOut(Answer):
    low: float | None
    high: float


class R2Out(Answer):
    """A noisy share of the spread of the label that predictions explain. ``interval``
    covers that of the evaluated rows with probability 0.95.
    """

    estimate: float | None
    on_training_rows: bool
    interval: OpenIntervalOut


class ConfusionOut(Answer):
    """Noisy numbers of rows by true class (outer) and answered class (inner); they may
    be negative.
    """

    classes: list[str]
    counts: list[list[float]]
    noise_sd: float


class AurocOut(Answer):
    """An AUROC from a noisy histogram of scores by class; ``histogram`` has the first
    class, then the second.
    """

    estimate: float | None
    noise_sd: float | None
    histogram: list[list[float]]
    histogram_noise_sd: float


class MajorityOut(Answer):
    """The accuracy of always answering the largest class, from noisy counts: ``source``
    is ``confusion`` or the id of the profile that released the counts.
    """

    label: str
    share: float
    source: str


class EvaluationOut(Answer):
    """A released evaluation. Everything in it is public; exact scores of private rows
    never leave the service.

    ``label`` is absent where the dataset declares no other. ``majority`` is null where
    no released number tells it: neither this evaluation's
    confusion matrix nor a profile of the same rows. Where the label is a number,
    ``mae``, ``rmse`` and ``r2`` stand in the place of the numbers of classes.
    """

    id: str
    name: str | None
    models: list[str]
    label: LabelOfJob
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
    mae: ErrorOut | None
    rmse: ErrorOut | None
    r2: R2Out | None
    largest_error: float | None
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
