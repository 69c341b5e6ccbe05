"""Serves ``/evaluations``: lists and shows released evaluations of models, as post-processing of released counts."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import SEE_MODEL, TRAIN, Principal
from app.core import stamps
from app.forests import metrics
from app.forests.bins import noisy_counts
from app.forests.data.schema import Schema
from app.forests.evaluation.price import AUROC, CONFUSION
from app.forests.evaluation.read import Evaluation
from app.forests.profile.read import Profile
from app.registry import releases
from app.registry.tables import EvaluationRow, ProfileRow
from app.services import guarantees
from app.services.installation import Installation
from app.services.pages import PageRequest, page_of
from app.services.predict import addressed_model
from app.wire.spending import (
    AccuracyOut,
    AurocOut,
    ConfusionOut,
    EvaluationList,
    EvaluationOut,
    IntervalOut,
    MajorityOut,
    PriceOut,
)


def show_evaluation(installation: Installation, principal: Principal, evaluation_id: str) -> EvaluationOut:
    """Shows one evaluation.

    Raises:
        NotFound: no such evaluation, or it is not visible to this key.
        RoleMissing: the key's role on the dataset whose rows were read does not allow this.
    """
    with installation.database.read() as session:
        row = releases.find_evaluation(session, evaluation_id)
        grants.require(session, principal, row.dataset_id, TRAIN, kind="evaluation")
        return _all_out(session, [row])[0]


def list_evaluations(
    installation: Installation, principal: Principal, address: str, page: PageRequest
) -> EvaluationList:
    """Lists the evaluations of one model on datasets where the key may train, newest first.

    Raises:
        NotFound: no such model, or it is not visible to this key.
        RoleMissing: the key's role on the model's dataset does not allow this.
    """
    with installation.database.read() as session:
        model = addressed_model(session, principal, address, SEE_MODEL)
        visible = grants.datasets_with(session, principal, TRAIN)
        shown, following = page_of(
            page,
            lambda limit: releases.page_of_evaluations(
                session, model_id=model.id, dataset_ids=visible, before=page.cursor, limit=limit
            ),
            lambda row: row.id,
        )
        return EvaluationList(evaluations=_all_out(session, shown), next=following)


def _all_out(session: Session, rows: Sequence[EvaluationRow]) -> list[EvaluationOut]:
    outputs = [(row.dataset_id, row.body) for row in rows]
    texts = guarantees.today_of_each(session, outputs)
    released = releases.last_of_each(session, {row.dataset_id for row in rows})
    return [
        _evaluation_out(row, guarantee, majority=_majority(row, released.get(row.dataset_id, ())))
        for row, guarantee in zip(rows, texts, strict=True)
    ]


def _majority(row: EvaluationRow, released: Sequence[ProfileRow]) -> MajorityOut | None:
    """The share of the largest class, as far as released numbers tell it.

    Args:
        row: of the evaluation.
        released: the last profiles of the evaluation's dataset, newest first.
    """
    evaluation, facts = Evaluation.from_json(row.body["evaluation"]), row.body
    source, counts = "confusion", []
    if CONFUSION in evaluation.tables:
        counts = evaluation.in_rows(CONFUSION).reshape(len(facts["classes"]), -1).sum(axis=1).tolist()
    else:
        of_rows = (profile for profile in released if _rows_of(profile.body) == _rows_of(facts))
        if (profile := next(of_rows, None)) is not None:
            read = Profile.from_json(profile.body["profile"], Schema.from_json(profile.body["schema"]))
            source, counts = profile.id, list(read.counts_in_rows)
    largest = metrics.majority(counts) if counts else None
    if largest is None:
        return None
    return MajorityOut(label=facts["classes"][largest[0]], share=largest[1], source=source)


def _rows_of(facts: Mapping[str, Any]) -> tuple[Any, Any]:
    """The cells and uploads that a release read."""
    return facts["scope"], facts["epochs"]


def _evaluation_out(row: EvaluationRow, guarantee: dict[str, Any], *, majority: MajorityOut | None) -> EvaluationOut:
    evaluation, facts = Evaluation.from_json(row.body["evaluation"]), row.body
    return EvaluationOut(
        id=row.id,
        name=row.name,
        models=facts["models"],
        best=None if evaluation.best is None else facts["models"][evaluation.best],
        dataset=row.dataset_id,
        dataset_name=row.dataset_name,
        job_id=row.job_id,
        scope=facts["scope"],
        epochs=facts["epochs"],
        releases=list(evaluation.plan.releases),
        accuracy=_accuracy(evaluation),
        majority=majority,
        confusion=_confusion(evaluation, facts["classes"]),
        auroc=_auroc(evaluation),
        guarantee=guarantee,
        receipt=facts["receipt"],
        event=evaluation.plan.event.to_json(),
        ledger=facts["ledger"],
        price=PriceOut.model_validate(facts["price"]),
        warnings=facts["warnings"],
        created_at=stamps.to_text(row.created_at),
    )


def _accuracy(evaluation: Evaluation) -> AccuracyOut | None:
    accuracy = metrics.accuracy(evaluation)
    if accuracy is None:
        return None
    return AccuracyOut(
        estimate=accuracy.estimate,
        interval=IntervalOut(low=accuracy.low, high=accuracy.high),
        population_interval=IntervalOut(low=accuracy.population_low, high=accuracy.population_high),
    )


def _confusion(evaluation: Evaluation, classes: list[str]) -> ConfusionOut | None:
    if CONFUSION not in evaluation.tables:
        return None
    counts = evaluation.in_rows(CONFUSION).reshape(len(classes), len(classes)).tolist()
    return ConfusionOut(
        classes=classes, counts=counts, noise_sd=noisy_counts.noise_sd(evaluation.plan.event_of(CONFUSION))
    )


def _auroc(evaluation: Evaluation) -> AurocOut | None:
    auroc = metrics.auroc(evaluation)
    if auroc is None:
        return None
    return AurocOut(
        estimate=auroc.estimate,
        noise_sd=auroc.noise_sd,
        histogram=evaluation.in_rows(AUROC).reshape(2, -1).tolist(),
        histogram_noise_sd=noisy_counts.noise_sd(evaluation.plan.event_of(AUROC)),
    )
