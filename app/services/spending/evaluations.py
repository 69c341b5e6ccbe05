"""Quotes and accepts evaluations of models and choices of the best model, registers the released ones, and shows them.

What is shown is post-processing of released counts.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import SEE_MODEL, TRAIN, Principal
from app.access.idempotency import Answer, IdempotentRequest
from app.core import json_text, stamps
from app.core.errors import GrovekeeperError, InvalidRequest, NotFound, Unavailable
from app.forests.bins import noisy_counts
from app.forests.contract.algorithm import PublicFacts
from app.forests.data.schema import Schema
from app.jobs import queue
from app.jobs.tables import JobPart, JobRow
from app.privacy.calibration import Terms
from app.privacy.events import Adjacency
from app.privacy.scope import Scope
from app.registry import models, releases
from app.registry.releases import EVALUATION
from app.registry.tables import ReleaseRow
from app.releases.choice.price import plan_best
from app.releases.contract import public_facts
from app.releases.evaluation import metrics
from app.releases.evaluation.price import (
    ACCURACY,
    AUROC,
    BEST,
    CONFUSION,
    EvaluationInvalid,
    EvaluationPlan,
    plan_tables,
)
from app.releases.evaluation.read import Evaluation
from app.releases.profile.read import Profile
from app.services import guarantees
from app.services.installation import Installation
from app.services.jobs import kinds
from app.services.jobs.kinds import OutputInvalid
from app.services.jobs.task import JobTask
from app.services.pagination import PageRequest, page_of
from app.services.predict import addressed_model
from app.services.spending.asked import AskedDataset, AskedPart, PricedPart, ask_part, read_asked
from app.services.spending.quotes import quote_parts
from app.services.spending.spend import Job, spending
from app.wire.spending import (
    AccuracyOut,
    AurocOut,
    ConfusionOut,
    EvaluationIn,
    EvaluationList,
    EvaluationOut,
    EvaluationQuoteOut,
    IntervalOut,
    MajorityOut,
    PriceOut,
    SelectionIn,
)

_TRAINED_ON = (
    "The scope covers rows that a model was trained on: it does better there than on rows that it has not seen. "
    "Restrict the scope to cells that were held out of training."
)


@dataclass(frozen=True)
class PlannedEvaluation:
    """An evaluation request with its plan and its priced part, from public facts alone.

    Attributes:
        models: their ids, in the order of the request.
        plan: the releases.
        part: the rows that are read, with their price.
        warnings: sentences about rows that a model was trained on, and about models that answer one class.
    """

    models: list[str]
    plan: EvaluationPlan
    part: PricedPart
    warnings: list[str]


def show_evaluation_quote(
    installation: Installation, principal: Principal, addresses: Sequence[str], body: EvaluationIn | SelectionIn
) -> EvaluationQuoteOut:
    """Quotes an evaluation. Reads no rows and costs nothing."""
    with installation.database.read() as session:
        principal, models, asked = _read_asked(installation, session, principal, addresses, body)
        asked.dataset.living()
        planned = _plan_evaluation(installation, models, asked, body)
        [quote] = quote_parts(session, principal, [planned.part])
    return EvaluationQuoteOut(
        **quote.fields,
        models=[model.row.id for model in models],
        releases=list(planned.plan.releases),
        warnings=[*quote.warnings, *planned.warnings],
    )


def submit_evaluation(
    installation: Installation,
    caller: Principal,
    addresses: Sequence[str],
    body: EvaluationIn | SelectionIn,
    *,
    request: IdempotentRequest,
) -> Answer:
    """Accepts or refuses a job that evaluates a model or chooses the best of several models."""
    planned = _planned_before(installation, caller, addresses, body)
    with spending(installation, caller, request) as opened:
        principal = opened.confirm()
        try:
            rows = _models(opened.session, principal, addresses)
        except NotFound:
            earlier = opened.stored()
            if earlier is None or earlier.location is None:
                raise
            job = queue.job(opened.session, earlier.location.removeprefix("/jobs/"))
            grants.require(opened.session, principal, job.dataset_id, TRAIN, kind="model")
            return earlier  # it stays valid although a model was deleted
        locked = opened.authorize([_dataset(rows, body)]).lock()
        if isinstance(locked, Answer):
            return locked
        if isinstance(planned, GrovekeeperError):
            raise planned
        if [row.id for row in rows] != planned.models:
            raise Unavailable("an alias moved while the job was planned; nothing was charged")
        parts = locked.confirmed([planned.part])
        dataset = planned.part.asked.dataset
        work = {
            "plan": planned.plan.to_json(),
            "models": [{"id": row.id, "digest": row.file} for row in rows],
            "classes": list(dataset.schema.label.classes),
            "warnings": [*planned.part.asked.warnings, *planned.warnings],
        }
        return locked.accept(Job("evaluation", dataset, parts, work, name=body.name, purpose=body.purpose))


def _planned_before(
    installation: Installation, caller: Principal, addresses: Sequence[str], body: EvaluationIn | SelectionIn
) -> PlannedEvaluation | GrovekeeperError:
    """Plans before the transaction, which must not wait for the files of models either; or finds why there is no plan.

    See :meth:`Locked.confirmed`.
    """
    try:
        with installation.database.read() as session:
            _, models, asked = _read_asked(installation, session, caller, addresses, body)
        return _plan_evaluation(installation, models, asked, body)
    except GrovekeeperError as error:
        return error


@dataclass(frozen=True)
class _EvaluatedModel:
    """A model that a request names, and the rows that it was trained on."""

    row: ReleaseRow
    trained_on: Sequence[JobPart]


def _read_asked(
    installation: Installation,
    session: Session,
    caller: Principal,
    addresses: Sequence[str],
    body: EvaluationIn | SelectionIn,
) -> tuple[Principal, list[_EvaluatedModel], AskedDataset]:
    rows = _models(session, caller, addresses)
    principal, [asked] = read_asked(installation, session, caller, [_dataset(rows, body)], TRAIN)
    return principal, [_EvaluatedModel(row, queue.job(session, row.job_id).parts) for row in rows], asked


def _models(session: Session, principal: Principal, addresses: Sequence[str]) -> list[ReleaseRow]:
    rows = [addressed_model(session, principal, address, SEE_MODEL) for address in addresses]
    if len({row.id for row in rows}) < len(rows):
        raise InvalidRequest.at("/models", "not-distinct")
    return rows


def _dataset(models: Sequence[ReleaseRow], body: EvaluationIn | SelectionIn) -> str:
    """The dataset whose rows are read: by default that of the first model."""
    return body.dataset or models[0].dataset_id


def _plan_evaluation(
    installation: Installation,
    models: Sequence[_EvaluatedModel],
    source: AskedDataset,
    body: EvaluationIn | SelectionIn,
) -> PlannedEvaluation:
    """Plans the releases and prices them, from public facts alone; reads the artifacts, which do not change."""
    warnings = []
    for model in models:  # one after another: an artifact stays in memory only if the cache keeps it
        artifact = installation.cache.get(model.row.file)
        if not artifact.schema.reads_like(source.dataset.schema):
            raise InvalidRequest.at("/dataset", "other-declaration")
        match artifact.metadata.get("only_answer"):
            case {"text": text}:
                warnings.append(f"Model {model.row.id}: {text}")
    asked = ask_part(source, body)
    plan = _plan(body, _facts(asked.terms, source.dataset.schema))
    if any(_was_trained_on(model, asked) for model in models):
        warnings.insert(0, _TRAINED_ON)
    return PlannedEvaluation([model.row.id for model in models], plan, PricedPart(asked, plan.event), warnings)


def _facts(terms: Terms, schema: Schema) -> PublicFacts:
    return public_facts(terms, None, schema, Adjacency.ADD_REMOVE_ONE)


def _plan(body: EvaluationIn | SelectionIn, facts: PublicFacts) -> EvaluationPlan:
    if isinstance(body, SelectionIn):
        return plan_best(len(body.models), facts, winner_accuracy=body.winner_accuracy)
    return plan_tables(body.metrics, facts, score_bins=body.score_bins)


def _was_trained_on(model: _EvaluatedModel, part: AskedPart) -> bool:
    """Whether the scope shares a cell and an upload with rows that a model read; both scopes are public."""
    epochs = set(part.dataset.uploads_in(part.scope, part.source.uploads))
    return any(
        trained.dataset == part.dataset.id
        and not epochs.isdisjoint(trained.epochs)
        and part.scope.overlaps(Scope(trained.scope))
        for trained in model.trained_on
    )


@dataclass(frozen=True)
class ReleasedEvaluation:
    """An evaluation before its registration. An evaluation has no file, so a lost job leaves nothing to remove."""

    body: dict[str, Any]

    def register(self, session: Session, row: JobRow) -> None:
        """See :class:`app.services.jobs.kinds.JobOutput`."""
        released = ReleaseRow(**kinds.identity_of_output(row, prefix=stamps.EVALUATION), body=self.body)
        releases.add(session, released, evaluated=self.body["models"])
        row.release_id = released.id

    def discard(self, installation: Installation) -> None:
        """See :class:`app.services.jobs.kinds.JobOutput`: an evaluation has no file to remove."""


class EvaluationKind:
    """Jobs that count a model's answers or choose the best of several models."""

    def is_planned(self, session: Session, row: JobRow, schema: Schema, terms: Sequence[Terms]) -> bool:
        """See :class:`app.services.jobs.kinds.JobKind`."""
        [paid], work = terms, row.task["work"]
        stored, named = EvaluationPlan.from_json(work["plan"]), work["models"]
        facts, has_accuracy = _facts(paid, schema), ACCURACY in stored.releases
        if BEST in stored.releases:
            planned = plan_best(len(named), facts, winner_accuracy=has_accuracy)
        else:
            planned = plan_tables(stored.releases, facts, score_bins=stored.score_bins)
        are_named = all(models.find(session, model["id"]).digest == model["digest"] for model in named)
        is_whole = are_named and planned.n_models == len(named) and tuple(work["classes"]) == schema.label.classes
        return is_whole and planned == stored

    def inputs(self, row: JobRow) -> Sequence[str]:
        """See :class:`app.services.jobs.kinds.JobKind`: the models' artifacts."""
        return [model["digest"] for model in row.task["work"]["models"]]

    def public_facts(self, session: Session, row: JobRow) -> dict[str, Any]:
        """The facts that are shown with the released numbers."""
        work, [part] = row.task["work"], row.parts
        return {
            **kinds.facts_of_job(session, row, output="evaluation"),
            "models": [model["id"] for model in work["models"]],
            "classes": work["classes"],
            "warnings": work["warnings"],
            "scope": part.scope,
            "epochs": part.epochs,
        }

    def keep(self, installation: Installation, task: JobTask, data: bytes) -> ReleasedEvaluation:
        """See :class:`app.services.jobs.kinds.JobKind`."""
        try:
            released = Evaluation.from_json(json.loads(data))
        except (EvaluationInvalid, ValueError):
            raise OutputInvalid from None
        return ReleasedEvaluation({**task.metadata, "evaluation": released.to_json()})

    def output(self, fields: dict[str, Any]) -> ReleasedEvaluation:
        """See :class:`app.services.jobs.kinds.JobKind`."""
        return ReleasedEvaluation(**fields)


def show_evaluation(installation: Installation, principal: Principal, evaluation_id: str) -> EvaluationOut:
    """Shows one evaluation."""
    with installation.database.read() as session:
        row = releases.find(session, EVALUATION, evaluation_id)
        grants.require(session, principal, row.dataset_id, TRAIN, kind="evaluation")
        return _all_out(session, [row])[0]


def list_evaluations(
    installation: Installation, principal: Principal, address: str, page: PageRequest
) -> EvaluationList:
    """Lists the evaluations of one model on datasets where the key may train, newest first."""
    with installation.database.read() as session:
        model = addressed_model(session, principal, address, SEE_MODEL)
        visible = grants.datasets_with(session, principal, TRAIN)
        shown, following = page_of(
            page,
            lambda limit: releases.page_of_evaluations(
                session, model_id=model.id, dataset_ids=visible, before=page.cursor, limit=limit
            ),
            lambda row: row.id,
            lambda row: json_text.n_bytes(row.facts),
        )
        return EvaluationList(evaluations=_all_out(session, shown), next=following)


def _all_out(session: Session, rows: Sequence[ReleaseRow]) -> list[EvaluationOut]:
    outputs = [(row.dataset_id, row.facts) for row in rows]
    texts = guarantees.today_of_each(session, outputs)
    released = releases.last_profiles(session, {row.dataset_id for row in rows})
    return [
        _evaluation_out(row, guarantee, majority=_majority(row, released.get(row.dataset_id, ())))
        for row, guarantee in zip(rows, texts, strict=True)
    ]


def _majority(row: ReleaseRow, released: Sequence[ReleaseRow]) -> MajorityOut | None:
    """The share of the largest class, as far as released numbers tell it.

    Args:
        row: of the evaluation.
        released: the last profiles of the evaluation's dataset, newest first.
    """
    evaluation, facts = Evaluation.from_json(row.facts["evaluation"]), row.facts
    source, counts = "confusion", []
    if CONFUSION in evaluation.tables:
        counts = evaluation.in_rows(CONFUSION).reshape(len(facts["classes"]), -1).sum(axis=1).tolist()
    else:
        of_rows = (profile for profile in released if _rows_of(profile.facts) == _rows_of(facts))
        if (profile := next(of_rows, None)) is not None:
            read = Profile.from_json(profile.facts["profile"], Schema.from_json(profile.facts["schema"]))
            source, counts = profile.id, list(read.counts_in_rows)
    largest = metrics.majority(counts) if counts else None
    if largest is None:
        return None
    return MajorityOut(label=facts["classes"][largest[0]], share=largest[1], source=source)


def _rows_of(facts: Mapping[str, Any]) -> tuple[Any, Any]:
    """The cells and uploads that a release read."""
    return facts["scope"], facts["epochs"]


def _evaluation_out(row: ReleaseRow, guarantee: dict[str, Any], *, majority: MajorityOut | None) -> EvaluationOut:
    evaluation, facts = Evaluation.from_json(row.facts["evaluation"]), row.facts
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
        accuracy=_accuracy_out(evaluation),
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


def _accuracy_out(evaluation: Evaluation) -> AccuracyOut | None:
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
